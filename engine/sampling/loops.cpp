#include "sampling/loops.h"

#include <algorithm>
#include <limits>

static const int32_t never = std::numeric_limits<int32_t>::max();

loop_finder::loop_finder(const loop_limit & limit) {
    if (!limit.wanted()) {
        return;
    }
    const int32_t longest = std::max(limit.longest, limit.window / 2);
    needed.assign((size_t) longest + 1, never);
    equal.assign(needed.size(), 0);
    for (int32_t n = 1; n <= longest; n++) {
        if (n >= limit.shortest && n <= limit.longest) {
            needed[(size_t) n] = n * (limit.count - 1);
        }
        if (n <= limit.window / 2) {
            needed[(size_t) n] = std::min(needed[(size_t) n], limit.window - n);
        }
    }
}

size_t loop_finder::find(const std::vector<llama_token> & tokens, size_t n, size_t begin) {
    if (!wanted() || n <= begin) {
        return 0;
    }
    if (n == n_seen + 1 && begin == begin_seen) {
        const llama_token * last = &tokens[n - 1];
        const size_t own = n - begin; // a passage of as many tokens or more has stood there once at most
        for (size_t k = 1; k < std::min(equal.size(), own); k++) {
            equal[k] = *last == *(last - k) ? equal[k] + 1 : 0;
        }
    } else {
        count_anew(tokens, n, begin);
    }
    n_seen     = n;
    begin_seen = begin;
    for (size_t k = 1; k < equal.size(); k++) {
        if (equal[k] >= needed[k]) {
            return (size_t) equal[k];
        }
    }
    return 0;
}

// From the end backwards, since most lengths differ at once.
void loop_finder::count_anew(const std::vector<llama_token> & tokens, size_t n, size_t begin) {
    for (size_t k = 1; k < equal.size(); k++) {
        equal[k] = 0;
        for (size_t i = n; i > begin + k && equal[k] < needed[k] && tokens[i - 1] == tokens[i - 1 - k]; i--) {
            equal[k]++;
        }
    }
}

size_t loop_finder::n_begun() const {
    int32_t most = 0;
    for (size_t n = 1; n < equal.size(); n++) {
        most = std::max(most, needed[n] == never ? 0 : equal[n]);
    }
    return (size_t) most;
}
