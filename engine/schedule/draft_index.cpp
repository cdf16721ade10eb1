#include "schedule/draft_index.h"

#include <algorithm>

// Of the n_gram tokens before `end`.
static uint64_t hash_of(const std::vector<llama_token> & tokens, size_t end) {
    uint64_t hash = 0;
    for (size_t i = end - draft_index::n_gram; i < end; i++) {
        hash = (hash ^ (uint64_t) (uint32_t) tokens[i]) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

void draft_index::add(uint32_t text, const std::vector<llama_token> & tokens) {
    if (n_known.size() <= text) {
        n_known.resize(text + 1);
    }
    size_t & known = n_known[text];
    if (tokens.size() < known) { // it has lost its end
        known = tokens.size();
    }
    // the last group of a text is not added before something follows it
    for (size_t end = std::max(known, n_gram); end < tokens.size(); end++) {
        if (groups.size() > n_max) {
            groups.clear();
        }
        std::array<place, n_places> & places = groups[hash_of(tokens, end)];
        std::rotate(places.begin(), places.end() - 1, places.end());
        places[0] = {text, (uint32_t) end};
    }
    known = tokens.size();
}

static int32_t n_equal(const std::vector<llama_token> & a, size_t end_a, const std::vector<llama_token> & b,
                       size_t end_b, int32_t n_max) {
    const size_t n_most = std::min({end_a, end_b, (size_t) n_max});
    size_t       n      = 0;
    while (n < n_most && a[end_a - 1 - n] == b[end_b - 1 - n]) {
        n++;
    }
    return (int32_t) n;
}

draft_place draft_index::find(uint32_t                                              text,
                              const std::vector<const std::vector<llama_token> *> & texts) const {
    const std::vector<llama_token> & own = *texts[text];
    draft_place                      best;
    if (own.size() < n_gram) {
        return best;
    }
    const auto found = groups.find(hash_of(own, own.size()));
    if (found == groups.end()) {
        return best;
    }
    for (const place & p : found->second) {
        if (p.end == 0 || p.text >= texts.size() || p.end >= texts[p.text]->size()) {
            continue;
        }
        const int32_t n = n_equal(own, own.size(), *texts[p.text], p.end, n_compared);
        if (n >= (int32_t) n_gram && n > best.n_equal) {
            best = {p.text, p.end, n};
        }
    }
    return best;
}
