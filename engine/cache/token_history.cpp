#include "cache/token_history.h"

#include <algorithm>
#include <utility>

static const size_t n_bytes_max = 16 << 20;

void record::add(const std::vector<llama_token> & list) {
    tokens.insert(tokens.end(), list.begin(), list.end());
    ends.push_back((uint32_t) tokens.size());
}

std::vector<llama_token> record::list(size_t i) const {
    return {tokens.begin() + (i > 0 ? ends[i - 1] : 0), tokens.begin() + ends[i]};
}

size_t record::n_bytes() const {
    return sizeof *this + id.capacity() + tokens.capacity() * sizeof tokens[0] +
           ends.capacity() * sizeof ends[0];
}

void record_list::add(record && r) {
    r.tokens.shrink_to_fit();
    r.ends.shrink_to_fit();
    n_bytes += r.n_bytes();
    records.push_front(std::move(r));
    while (n_bytes > n_bytes_max && records.size() > 1) {
        n_bytes -= records.back().n_bytes();
        records.pop_back();
    }
}

const record * record_list::find(const std::string & id) const {
    const auto known =
        std::find_if(records.begin(), records.end(), [&](const record & r) { return r.id == id; });
    return known == records.end() ? nullptr : &*known;
}
