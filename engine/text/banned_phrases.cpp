#include "text/banned_phrases.h"

#include <algorithm>
#include <utility>

std::string ascii_lower(std::string_view text) {
    std::string lower(text);
    for (char & c : lower) {
        c = c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
    }
    return lower;
}

size_t phrase_guard::feed(std::string_view piece) {
    starts.push_back(held.size());
    states.push_back(state);
    size_t first = std::string::npos;
    if (!phrases) {
        held += piece;
        return 0;
    }
    for (const char c : ascii_lower(piece)) {
        state = phrases->next(state, c);
        held += piece[held.size() - starts.back()];
        if (const std::string * phrase = phrases->word(state)) {
            first = std::min(first, held.size() - phrase->size());
        }
    }
    if (first == std::string::npos) {
        return 0;
    }
    const size_t i_token =
        (size_t) (std::upper_bound(starts.begin(), starts.end(), first) - starts.begin()) - 1;
    return remove(starts.size() - i_token);
}

size_t phrase_guard::remove(size_t n) {
    const size_t n_back  = std::min(n, starts.size());
    const size_t i_token = starts.size() - n_back;
    if (n_back > 0) {
        state = states[i_token];
        held.resize(starts[i_token]);
        starts.resize(i_token);
        states.resize(i_token);
    }
    return n_back;
}

// A rewind may remove any held token. The text before that token may end in the beginning of a phrase; that beginning
// must still be held back then.
size_t phrase_guard::n_clear(size_t n_others) const {
    size_t n = starts.size() - std::min(n_others, starts.size());
    for (size_t i = phrases ? starts.size() : 0; i > 0 && i >= n; i--) {
        const bool   is_last = i == starts.size();
        const size_t n_begun = phrases->n_begun(is_last ? state : states[i]);
        if (n_begun > 0) {
            const size_t undecided = (is_last ? held.size() : starts[i]) - n_begun;
            const auto   behind    = std::upper_bound(starts.begin(), starts.end(), undecided);
            n                      = std::min(n, (size_t) (behind - starts.begin()) - 1);
        }
    }
    return n;
}

std::string phrase_guard::take_clear(size_t n_others) {
    const size_t n       = n_clear(n_others);
    const size_t n_bytes = n == starts.size() ? held.size() : starts[n];
    std::string  clear   = held.substr(0, n_bytes);
    held.erase(0, n_bytes);
    starts.erase(starts.begin(), starts.begin() + (std::ptrdiff_t) n);
    states.erase(states.begin(), states.begin() + (std::ptrdiff_t) n);
    for (size_t & start : starts) {
        start -= n_bytes;
    }
    return clear;
}

std::string phrase_guard::finish() {
    starts.clear();
    states.clear();
    state = 0;
    return std::exchange(held, {});
}
