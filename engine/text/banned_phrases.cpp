#include "text/banned_phrases.h"

#include <algorithm>
#include <utility>

static char lower_of(char c) {
    return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}

std::string ascii_lower(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), lower_of);
    return lower;
}

size_t phrase_guard::feed(std::string_view piece) {
    starts.push_back(held.size());
    states.push_back(state);
    begins.push_back(first_begun());
    size_t first = std::string::npos; // in the text
    for (const char c : piece) {
        const size_t at = n_before + held.size();
        held += c;
        if (phrases) {
            state                      = phrases->next(state, lower_of(c));
            const std::string * phrase = phrases->word(state);
            first                      = phrase ? std::min(first, at + 1 - phrase->size()) : first;
        }
        if (patterns) {
            first = std::min(first, patterns->next(begun, c, at));
        }
    }
    if (first == std::string::npos) {
        return 0;
    }
    const size_t i_token =
        (size_t) (std::upper_bound(starts.begin(), starts.end(), first - n_before) - starts.begin()) - 1;
    return remove(starts.size() - i_token);
}

// No match has begun before the text that is held back.
size_t phrase_guard::remove(size_t n) {
    const size_t n_back  = std::min(n, starts.size());
    const size_t i_token = starts.size() - n_back;
    if (n_back > 0) {
        state = states[i_token];
        held.resize(starts[i_token]);
        starts.resize(i_token);
        states.resize(i_token);
        begins.resize(i_token);
        begun.clear();
        for (size_t i = 0; patterns && i < held.size(); i++) {
            patterns->next(begun, held[i], n_before + i);
        }
    }
    return n_back;
}

// Where a phrase or a match begins, as seen before token i, that may go on with it; the end of the text before it: none does.
size_t phrase_guard::undecided_before(size_t i) const {
    const bool   is_last = i == starts.size();
    const size_t end     = is_last ? held.size() : starts[i];
    const size_t n_begun = phrases ? phrases->n_begun(is_last ? state : states[i]) : 0;
    const size_t begin   = is_last ? first_begun() : begins[i];
    return std::min(end - n_begun, begin == pattern_finder::none ? end : begin - n_before);
}

// A rewind may remove any held token. The text before that token may end in the beginning of a phrase; that beginning
// must still be held back then.
size_t phrase_guard::n_clear(size_t n_others) const {
    size_t n = starts.size() - std::min(n_others, starts.size());
    for (size_t i = phrases || patterns ? starts.size() : 0; i > 0 && i >= n; i--) {
        const size_t undecided = undecided_before(i);
        if (undecided < (i == starts.size() ? held.size() : starts[i])) {
            const auto behind = std::upper_bound(starts.begin(), starts.end(), undecided);
            n                 = std::min(n, (size_t) (behind - starts.begin()) - 1);
        }
    }
    return n;
}

std::string phrase_guard::take_clear(size_t n_others) {
    const size_t n       = n_clear(n_others);
    const size_t n_bytes = n == starts.size() ? held.size() : starts[n];
    std::string  clear   = held.substr(0, n_bytes);
    held.erase(0, n_bytes);
    n_before += n_bytes;
    starts.erase(starts.begin(), starts.begin() + (std::ptrdiff_t) n);
    states.erase(states.begin(), states.begin() + (std::ptrdiff_t) n);
    begins.erase(begins.begin(), begins.begin() + (std::ptrdiff_t) n);
    for (size_t & start : starts) {
        start -= n_bytes;
    }
    return clear;
}

std::string phrase_guard::finish() {
    starts.clear();
    states.clear();
    begins.clear();
    begun.clear();
    state = 0;
    n_before += held.size();
    return std::exchange(held, {});
}
