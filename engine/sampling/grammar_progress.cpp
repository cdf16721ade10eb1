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
    } else if (const auto begun = watch->feed(structure->text(token))) {
        watch.reset();
        at = structure->behind(*begun);
        if (!structure->fits(at)) {
            structure.reset();
        }
    }
}
