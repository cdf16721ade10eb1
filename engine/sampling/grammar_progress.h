// How far one text has come in its grammar.
#pragma once

#include "grammar/grammar.h"
#include "grammar/trigger.h"

#include <memory>
#include <optional>
#include <string_view>

class grammar_progress {
  public:
    // structure: nullptr allows any text. start: where in the text the grammar begins; nullptr: with the text.
    grammar_progress(std::shared_ptr<grammar> structure, std::shared_ptr<const grammar_start> start);

    // Whether the grammar restricts the next token.
    bool is_active() const { return structure && !watch; }

    void accept(llama_token token);
    // Text before the first token: the rest of a token that has healed a prompt.
    void accept_first(std::string_view text);
    // Whether a text may begin so.
    bool may_begin_with(std::string_view text) const;

    // These may be called while it is active.
    grammar::certain_text            certain(size_t n_max) { return structure->certain(at, n_max); }
    bool                             is_complete() { return structure->complete(at); } // nothing may follow
    bool                             few_may_follow() { return structure->few_may_follow(at); }
    bool                             allows(llama_token token) { return structure->allows(at, token); }
    std::shared_ptr<const token_set> allowed() { return structure->allowed(at); }

  private:
    void feed(std::string_view text);

    std::shared_ptr<grammar>             structure;
    std::shared_ptr<const grammar_start> start;
    grammar::position                    at;    // of the text in the grammar
    std::optional<trigger_watch>         watch; // while the grammar waits for a trigger
};
