#include "text.h"

#include <algorithm>
#include <cstdint>
#include <utility>

static const char * const replacement_character = "\xEF\xBF\xBD";

//
// UTF-8
//

// Length of the character that starts at s[i]; 0 when it is broken (then `n_bad` bytes are to be replaced),
// -1 when the bytes so far are the beginning of one.
static int utf8_length(std::string_view s, size_t i, size_t & n_bad) {
    const auto byte = [&](size_t k) { return (uint8_t) s[k]; };

    const uint8_t lead = byte(i);
    n_bad              = 1;
    if (lead < 0x80) {
        return 1;
    }
    const int length = lead >= 0xC2 && lead <= 0xDF   ? 2
                       : lead >= 0xE0 && lead <= 0xEF ? 3
                       : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                      : 0;
    if (length == 0) {
        return 0;
    }
    // the second byte's range excludes overlong forms, surrogates and values above U+10FFFF
    const uint8_t low  = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (int k = 1; k < length; k++) {
        if (i + k >= s.size()) {
            return -1;
        }
        const uint8_t next = byte(i + k);
        if (next < (k == 1 ? low : 0x80) || next > (k == 1 ? high : 0xBF)) {
            n_bad = k;
            return 0;
        }
    }
    return length;
}

std::string take_utf8(std::string & bytes) {
    std::string text;
    text.reserve(bytes.size());
    size_t i = 0;
    while (i < bytes.size()) {
        size_t    n_bad  = 0;
        const int length = utf8_length(bytes, i, n_bad);
        if (length < 0) {
            break;
        }
        if (length > 0) {
            text.append(bytes, i, length);
            i += length;
        } else {
            text += replacement_character;
            i += n_bad;
        }
    }
    bytes.erase(0, i);
    return text;
}

//
// stop strings
//

// Looks for the stop string that is complete first in `pending`, whose first n_before bytes were searched
// before.
bool text_stream::find_stop(size_t n_before, size_t & begin) {
    size_t first_end = std::string::npos;
    for (size_t i = 0; i < stops.size(); i++) {
        const std::string & stop = stops[i];
        const size_t        from = n_before >= stop.size() ? n_before - stop.size() + 1 : 0;
        const size_t        at   = pending.find(stop, from);
        if (at == std::string::npos) {
            continue;
        }
        const size_t end = at + stop.size();
        if (end < first_end || (end == first_end && at < begin)) {
            first_end = end;
            begin     = at;
            i_stop    = (int) i;
        }
    }
    return first_end != std::string::npos;
}

size_t unfinished_suffix(const std::string & text, const std::vector<std::string> & words) {
    size_t longest = 0;
    for (const std::string & word : words) {
        for (size_t n = std::min(word.size() - 1, text.size()); n > longest; n--) {
            if (text.compare(text.size() - n, n, word, 0, n) == 0) {
                longest = n;
            }
        }
    }
    return longest;
}

std::string text_stream::feed(std::string_view piece, bool may_stop) {
    const size_t n_before = pending.size();
    size_t       begin    = 0;
    pending += piece;
    if (may_stop && find_stop(n_before, begin)) {
        partial += pending.substr(0, begin);
        n_released += begin;
        pending.clear();
        return finish();
    }
    const size_t n_decided = pending.size() - (may_stop ? unfinished_suffix(pending, stops) : 0);
    partial.append(pending, 0, n_decided);
    n_released += n_decided;
    pending.erase(0, n_decided);
    return take_utf8(partial);
}

std::string text_stream::finish() {
    partial += pending;
    n_released += pending.size();
    pending.clear();
    std::string text = take_utf8(partial);
    if (!partial.empty()) {
        partial.clear();
        text += replacement_character;
    }
    return text;
}

//
// banned phrases
//

std::string ascii_lower(std::string_view text) {
    std::string lower(text);
    for (char & c : lower) {
        c = c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
    }
    return lower;
}

phrase_guard::phrase_guard(std::vector<std::string> words) : phrases(std::move(words)) {
    for (std::string & phrase : phrases) {
        phrase = ascii_lower(phrase);
    }
}

size_t phrase_guard::feed(std::string_view piece) {
    starts.push_back(held.size());
    held += piece;
    lower += ascii_lower(piece);
    size_t first = std::string::npos;
    for (const std::string & phrase : phrases) {
        first = std::min(first, lower.find(phrase));
    }
    if (first == std::string::npos) {
        return 0;
    }
    const size_t i_token =
        (size_t) (std::upper_bound(starts.begin(), starts.end(), first) - starts.begin()) - 1;
    const size_t n_back = starts.size() - i_token;
    held.resize(starts[i_token]);
    lower.resize(starts[i_token]);
    starts.resize(i_token);
    return n_back;
}

// Every held token may be taken back: what stands before it must then not end in a phrase's beginning that
// has been cleared.
size_t phrase_guard::n_clear() const {
    size_t n = starts.size();
    for (size_t i = n; i > 0 && i >= n; i--) {
        const std::string before    = lower.substr(0, i < starts.size() ? starts[i] : lower.size());
        const size_t      undecided = before.size() - unfinished_suffix(before, phrases);
        if (undecided < before.size()) {
            const auto behind = std::upper_bound(starts.begin(), starts.end(), undecided);
            n                 = std::min(n, (size_t) (behind - starts.begin()) - 1);
        }
    }
    return n;
}

std::string phrase_guard::take_clear() {
    const size_t n       = n_clear();
    const size_t n_bytes = n == starts.size() ? held.size() : starts[n];
    std::string  clear   = held.substr(0, n_bytes);
    held.erase(0, n_bytes);
    lower.erase(0, n_bytes);
    starts.erase(starts.begin(), starts.begin() + (std::ptrdiff_t) n);
    for (size_t & start : starts) {
        start -= n_bytes;
    }
    return clear;
}

std::string phrase_guard::finish() {
    starts.clear();
    lower.clear();
    return std::exchange(held, {});
}
