#include "sampling/grammar_progress.h"

grammar_progress::grammar_progress(std::shared_ptr<grammar>             structure,
                                   std::shared_ptr<const grammar_start> start)
    : structure(std::move(structure)), start(std::move(start)) {
    if (this->structure && this->start && this->start->lazy) {
        watch.emplace(*this->start);
    } else if (this->structure && this->start) {
        at = this->structure->behind(this->start->begun);
    }
}

// A grammar that waits for a trigger begins with the text of the trigger. If the rest of that token does not fit the
// grammar, the text goes on without one.
void grammar_progress::accept(llama_token token) {
    if (!structure) {
        return;
    }
    if (!watch) {
        structure->accept(at, token);
    } else {
        feed(structure->text(token));
    }
}

void grammar_progress::accept_first(std::string_view text) {
    if (structure && watch) {
        feed(text);
    } else if (structure) {
        at = structure->behind((start ? start->begun : "") + std::string(text));
    }
}

bool grammar_progress::may_begin_with(std::string_view text) const {
    if (!is_active()) {
        return true;
    }
    grammar::position there = structure->behind((start ? start->begun : "") + std::string(text));
    return structure->fits(there);
}

// The grammar waits for a trigger.
void grammar_progress::feed(std::string_view text) {
    if (const auto begun = watch->feed(std::string(text))) {
        watch.reset();
        at = structure->behind(*begun);
        if (!structure->fits(at)) {
            structure.reset();
        }
    }
}
