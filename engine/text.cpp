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
// words
//

word_finder::word_finder(const std::vector<std::string> & list) : words(list), nodes(1) {
    for (size_t i = 0; i < words.size(); i++) {
        int32_t at = 0;
        for (const char c : words[i]) {
            const auto [entry, is_new] =
                children.try_emplace((uint64_t) at << 8 | (uint8_t) c, (int32_t) nodes.size());
            if (is_new) {
                nodes.push_back({0, -1, nodes[(size_t) at].depth + 1});
            }
            at = entry->second;
        }
        nodes[(size_t) at].word = (int32_t) i;
    }
    // the shorter ends first: what a node needs is there
    std::vector<std::pair<uint64_t, int32_t>> edges(children.begin(), children.end());
    std::sort(edges.begin(), edges.end(), [this](const auto & a, const auto & b) {
        return nodes[(size_t) a.second].depth < nodes[(size_t) b.second].depth;
    });
    for (const auto & [edge, to] : edges) {
        const int32_t from = (int32_t) (edge >> 8);
        node &        n    = nodes[(size_t) to];
        n.shorter          = from == 0 ? 0 : next(nodes[(size_t) from].shorter, (char) (edge & 0xFF));
        n.word             = n.word < 0 ? nodes[(size_t) n.shorter].word : n.word;
    }
}

const int32_t * word_finder::child(int32_t state, uint8_t byte) const {
    const auto entry = children.find((uint64_t) state << 8 | byte);
    return entry == children.end() ? nullptr : &entry->second;
}

int32_t word_finder::next(int32_t state, char byte) const {
    const int32_t * to = child(state, (uint8_t) byte);
    while (!to && state != 0) {
        state = nodes[(size_t) state].shorter;
        to    = child(state, (uint8_t) byte);
    }
    return to ? *to : 0;
}

//
// stop strings
//

std::string text_stream::feed(std::string_view piece, bool may_stop) {
    size_t end = pending.size();
    pending += piece;
    for (state = may_stop ? state : 0; stops && may_stop && end < pending.size(); end++) {
        state = stops->next(state, pending[end]);
        stop  = stops->word(state);
        if (stop) {
            pending.resize(end + 1 - stop->size());
            return finish();
        }
    }
    const size_t n_decided = pending.size() - (stops ? stops->n_begun(state) : 0);
    partial.append(pending, 0, n_decided);
    n_released += n_decided;
    pending.erase(0, n_decided);
    return take_utf8(partial);
}

std::string text_stream::finish() {
    partial += pending;
    n_released += pending.size();
    pending.clear();
    state            = 0;
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

size_t phrase_guard::feed(std::string_view piece) {
    starts.push_back(held.size());
    states.push_back(state);
    size_t first = std::string::npos;
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
    const size_t n_back = starts.size() - i_token;
    state               = states[i_token];
    held.resize(starts[i_token]);
    starts.resize(i_token);
    states.resize(i_token);
    return n_back;
}

// Every held token may be taken back: what stands before it must then not end in a phrase's beginning that
// has been cleared.
size_t phrase_guard::n_clear() const {
    size_t n = starts.size();
    for (size_t i = n; i > 0 && i >= n; i--) {
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

std::string phrase_guard::take_clear() {
    const size_t n       = n_clear();
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
