#include "text/stop_strings.h"

#include "util/utf8.h"

#include <algorithm>

bool stop_matcher::ends_at(size_t place) {
    state = stops ? stops->next(state, pending[place]) : 0;
    stop  = stops ? stops->word(state) : nullptr;
    if (!stop && !passages.next(pending[place])) {
        return false;
    }
    const size_t n_behind = !stop ? passages.n_behind() : returns_stop ? 0 : stop->size();
    pending.resize(place + 1 - n_behind);
    return true;
}

std::string stop_matcher::feed(std::string_view piece, bool may_stop) {
    size_t place = pending.size();
    pending += piece;
    if (!may_stop) {
        state = 0;
        passages.restart();
        place = pending.size();
    }
    for (; place < pending.size(); place++) {
        if (ends_at(place)) {
            return finish();
        }
    }
    const size_t n_begun   = stops ? stops->n_begun(state) : 0;
    const size_t n_decided = pending.size() - std::max(n_begun, passages.n_behind());
    partial.append(pending, 0, n_decided);
    n_released += n_decided;
    pending.erase(0, n_decided);
    return take_utf8(partial);
}

std::string stop_matcher::finish() {
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
