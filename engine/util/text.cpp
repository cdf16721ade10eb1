#include "util/text.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

static const char * const replacement_character = "\xEF\xBF\xBD";

//
// UTF-8
//

// The length of the character that starts at s[i]; 0 if it is invalid (then `n_bad` bytes are replaced), -1 if it is
// unfinished.
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

// Nodes are numbered by depth, and edges in the order of nodes. A sorted list of words gives this order: at each depth,
// words with the same beginning are neighbours.
word_finder::word_finder(const std::vector<std::string> & list) : words(list), nodes(1) {
    std::vector<size_t> order(words.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return words[a] < words[b]; });
    std::vector<int32_t> at(words.size(), 0); // the node of each word's beginning
    for (size_t depth = 0; !order.empty(); depth++) {
        std::vector<size_t> longer;
        int32_t             from = -1;
        for (const size_t i : order) {
            if (words[i].size() == depth) {
                nodes[(size_t) at[i]].word = (int32_t) i;
                continue;
            }
            longer.push_back(i);
        }
        for (const size_t i : longer) {
            const uint8_t byte = (uint8_t) words[i][depth];
            if (at[i] != from || edges.back().byte != byte) {
                from = at[i];
                if (edges.empty() || nodes[(size_t) from].n_edges == 0) {
                    nodes[(size_t) from].first = (uint32_t) edges.size();
                }
                nodes[(size_t) from].n_edges++;
                edges.push_back({byte, (int32_t) nodes.size()});
                nodes.emplace_back();
                nodes.back().depth = (uint32_t) depth + 1;
            }
            at[i] = edges.back().to;
        }
        order = std::move(longer);
    }
    link();
}

// A node needs only nodes of smaller depth, which come before it.
void word_finder::link() {
    for (size_t from = 0; from < nodes.size(); from++) {
        for (uint32_t k = 0; k < nodes[from].n_edges; k++) {
            const edge e = edges[nodes[from].first + k];
            node &     n = nodes[(size_t) e.to];
            n.shorter    = from == 0 ? 0 : next(nodes[from].shorter, (char) e.byte);
            n.word       = n.word < 0 ? nodes[(size_t) n.shorter].word : n.word;
        }
    }
}

int32_t word_finder::child(int32_t state, uint8_t byte) const {
    const node & n     = nodes[(size_t) state];
    const auto   begin = edges.begin() + n.first, end = begin + n.n_edges;
    const auto   found =
        std::lower_bound(begin, end, byte, [](const edge & e, uint8_t wanted) { return e.byte < wanted; });
    return found == end || found->byte != byte ? -1 : found->to;
}

int32_t word_finder::next(int32_t state, char byte) const {
    int32_t to = child(state, (uint8_t) byte);
    while (to < 0 && state != 0) {
        state = nodes[(size_t) state].shorter;
        to    = child(state, (uint8_t) byte);
    }
    return std::max(to, 0);
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

// A rewind may remove any held token. The text before that token may end in the beginning of a phrase; that beginning
// must still be held back then.
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
