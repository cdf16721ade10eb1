#include "util/stop_strings.h"

#include "util/utf8.h"

std::string text_stream::feed(std::string_view piece, bool may_stop) {
    size_t end = pending.size();
    pending += piece;
    for (state = may_stop ? state : 0; stops && may_stop && end < pending.size(); end++) {
        state = stops->next(state, pending[end]);
        stop  = stops->word(state);
        if (stop) {
            pending.resize(end + 1 - (returns_stop ? 0 : stop->size()));
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
