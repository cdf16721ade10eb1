// What a text may be, token by token. All sequences of a grammar share one automaton and one cache of the tokens that
// are allowed in each of its states. Any thread may call.
#pragma once

#include "grammar/automaton.h"
#include "grammar/rules.h"
#include "grammar/token_set.h"
#include "grammar/token_tree.h"

#include "llama.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

class grammar {
  public:
    // The position of one text. When the automaton has removed its states meanwhile, it is computed again from the
    // text and the tokens.
    struct position {
        int32_t                  state    = automaton::first;
        int64_t                  n_resets = 0;
        std::string              text; // before the tokens
        std::vector<llama_token> tokens;
    };

    // All functions below throw grammar_error where the grammar explodes; the constructor does so where its beginning
    // explodes.
    grammar(grammar_rules rules, std::shared_ptr<token_tree> vocabulary);

    bool allows(position & at, llama_token token);
    void accept(position & at, llama_token token); // after a token that is not allowed, no token is allowed
    // The position after a text; if the text is not allowed, no token is allowed.
    position behind(std::string_view text);
    // All allowed tokens; those that end a text are among them.
    std::shared_ptr<const token_set> allowed(position & at);

    // What comes next for certain: as long as one byte may follow and the text may not end.
    struct certain_text {
        std::string bytes;            // at most n_max
        bool        is_whole = false; // nothing may follow it
    };
    certain_text certain(position & at, size_t n_max);

    bool fits(position & at);           // the text may be the beginning of an allowed one
    bool complete(position & at);       // nothing may follow
    bool few_may_follow(position & at); // a random token is unlikely to be allowed

    std::string text(llama_token token) const { return vocabulary->text(token); }

    // Computes the allowed tokens of the beginning once, so that the first draw need not; for a thread of its own.
    void prepare();

  private:
    void                             begin(position & at);
    int32_t                          step_by_token(int32_t from, llama_token token);
    std::shared_ptr<const token_set> compute_allowed(int32_t state);

    const std::shared_ptr<token_tree>             vocabulary;
    std::atomic<bool>                             prepared{false};
    std::mutex                                    mutex; // of all below
    automaton                                     machine;
    std::vector<std::shared_ptr<const token_set>> allowed_tokens; // by state; nullptr: not computed
    int64_t                                       n_resets = 1;   // of the automaton, and its beginning
};
