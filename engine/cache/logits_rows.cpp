#include "cache/logits_rows.h"

#include <algorithm>

static const size_t n_bytes_max = 16 << 20;

void row_list::add(const std::vector<llama_token> & tokens, uint64_t adapters, const float * logits,
                   int32_t n_vocab) {
    if (find(tokens, adapters)) {
        n_bytes -= entries.front().n_bytes();
        entries.pop_front();
    }
    entries.push_front(
        {tokens, adapters, std::make_shared<const std::vector<float>>(logits, logits + n_vocab)});
    n_bytes += entries.front().n_bytes();
    while (n_bytes > n_bytes_max && entries.size() > 1) {
        n_bytes -= entries.back().n_bytes();
        entries.pop_back();
    }
}

logits_row row_list::find(const std::vector<llama_token> & tokens, uint64_t adapters) {
    const auto known = std::find_if(entries.begin(), entries.end(), [&](const entry & e) {
        return e.adapters == adapters && e.tokens == tokens;
    });
    if (known == entries.end()) {
        return nullptr;
    }
    entries.splice(entries.begin(), entries, known);
    return known->logits;
}
