#include "schedule/draft_index.h"

#include <algorithm>
#include <utility>

// Of the n_gram tokens before `end`.
static uint32_t hash_of(const std::vector<llama_token> & tokens, size_t end) {
    uint64_t hash = 0;
    for (size_t i = end - draft_index::n_gram; i < end; i++) {
        hash = (hash ^ (uint64_t) (uint32_t) tokens[i]) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return (uint32_t) hash;
}

void draft_index::grow() {
    heads.assign(std::max(heads.size() * 2, (size_t) 256), 0);
    for (size_t i = 0; i < places.size(); i++) {
        places[i].older = std::exchange(heads[chain_of(places[i].hash)], (uint32_t) i + 1);
    }
}

size_t draft_index::add(uint32_t text, const std::vector<llama_token> & tokens, size_t n_most) {
    if (n_known.size() <= text) {
        n_known.resize(text + 1);
    }
    size_t & known = n_known[text];
    if (tokens.size() < known) { // it has lost its end
        known = tokens.size();
    }
    // the last group of a text is not added before something follows it
    const size_t n_now = std::min(tokens.size(), known + n_most);
    for (size_t end = std::max(known, n_gram); end < n_now; end++) {
        if (places.size() == n_max) {
            places.clear();
            heads.assign(heads.size(), 0);
        }
        if (places.size() >= heads.size()) {
            grow();
        }
        const uint32_t hash = hash_of(tokens, end);
        uint32_t &     head = heads[chain_of(hash)];
        places.push_back({hash, text, (uint32_t) end, head});
        head = (uint32_t) places.size();
    }
    return n_now - std::exchange(known, n_now);
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
    if (own.size() < n_gram || heads.empty()) {
        return best;
    }
    const uint32_t hash  = hash_of(own, own.size());
    uint32_t       next  = heads[chain_of(hash)];
    size_t         n_own = 0;
    for (size_t n = 0; next != 0 && n < n_linked && n_own < n_places; n++) {
        const place & p = places[next - 1];
        next            = p.older;
        if (p.hash != hash) {
            continue;
        }
        n_own++;
        if (p.text < texts.size() && p.end < texts[p.text]->size()) {
            const int32_t n_same = n_equal(own, own.size(), *texts[p.text], p.end, n_compared);
            if (n_same >= (int32_t) n_gram && n_same > best.n_equal) {
                best = {p.text, p.end, n_same};
            }
        }
    }
    return best;
}
