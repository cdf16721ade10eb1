#include "cache/token_history.h"

#include <algorithm>
#include <utility>

static const size_t n_bytes_max = 16 << 20;

void record::add(const std::vector<llama_token> & list) {
    tokens.insert(tokens.end(), list.begin(), list.end());
    ends.push_back((uint32_t) tokens.size());
}

void record::add_answer(const std::vector<llama_token> & drawn, const std::vector<llama_token> & seen) {
    if (seen != drawn) {
        const size_t n = std::min(drawn.size(), seen.size());
        const auto   same =
            std::mismatch(drawn.begin(), drawn.begin() + (std::ptrdiff_t) n, seen.begin()).second;
        other_ends.push_back({ends.size() - 1, (size_t) (same - seen.begin()), {same, seen.end()}});
    }
    add(drawn);
}

std::vector<llama_token> record::seen(size_t index) const {
    std::vector<llama_token> tokens = list(1 + index);
    for (const other_end & end : other_ends) {
        if (end.index == index) {
            tokens.resize(end.n_kept);
            tokens.insert(tokens.end(), end.tail.begin(), end.tail.end());
        }
    }
    return tokens;
}

std::vector<llama_token> record::list(size_t i) const {
    return {tokens.begin() + (i > 0 ? ends[i - 1] : 0), tokens.begin() + ends[i]};
}

size_t record::n_bytes() const {
    size_t n = sizeof *this + id.capacity() + client.capacity() + tokens.capacity() * sizeof tokens[0] +
               ends.capacity() * sizeof ends[0] + other_ends.capacity() * sizeof other_ends[0];
    for (const other_end & end : other_ends) {
        n += end.tail.capacity() * sizeof end.tail[0];
    }
    return n;
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

std::vector<std::vector<llama_token>> record_list::alike(const std::string & client, uint64_t key,
                                                         const std::vector<llama_token> & prompt,
                                                         size_t n_answers, size_t n_tokens) const {
    std::vector<std::vector<llama_token>> found;
    for (const record & r : records) {
        const size_t n_shorter = r.ends.empty() ? 0 : std::min(prompt.size(), (size_t) r.ends[0]);
        if (r.client != client || r.key != key || n_shorter == 0) {
            continue;
        }
        const auto   end = prompt.begin() + (std::ptrdiff_t) n_shorter;
        const size_t n_same =
            (size_t) (std::mismatch(prompt.begin(), end, r.tokens.begin()).first - prompt.begin());
        for (size_t i = 1; i < r.ends.size() && 2 * n_same >= n_shorter; i++) {
            const size_t n = r.ends[i] - r.ends[i - 1];
            if (found.size() == n_answers || n > n_tokens) {
                return found;
            }
            n_tokens -= n;
            found.push_back(r.list(i));
        }
    }
    return found;
}
