// Token healing: the end of a prompt is drawn again, so that the text may go on with a token that begins within it.
#pragma once

#include "grammar/token_tree.h"
#include "sampling/grammar_progress.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The tokens that were dropped from the end of a prompt, as bytes.
struct healed_end {
    std::shared_ptr<token_tree> vocabulary;
    std::string                 bytes;      // that the first drawn tokens must spell
    std::vector<llama_token>    first = {}; // the tokens with which they may begin

    // Drops as many of the prompt's last tokens as could begin a longer token, but not its first n_fixed ones, nor
    // control tokens, nor the only token.
    void drop(std::vector<llama_token> & prompt, size_t n_fixed);
    // Keeps only first tokens behind whose bytes the text fits its grammar. Throws grammar_error.
    void keep_what_fits(const grammar_progress & text);
};

// How far one text has come in the bytes.
class healing_progress {
  public:
    explicit healing_progress(std::shared_ptr<const healed_end> end);

    // Whether the bytes restrict the next token.
    bool is_active() const { return !left.empty(); }

    // These may be called while it is active. allowed(): by id; text: before its first token.
    std::vector<llama_token> allowed(const grammar_progress & text) const;
    // Returns the bytes of an allowed token that are text behind the prompt.
    std::string accept(llama_token token);

  private:
    std::shared_ptr<const healed_end> end;
    std::string_view                  left; // of its bytes
};
