// Tokens that a grammar names.
#pragma once

#include "grammar/notation.h"
#include "grammar/rules.h"

#include "llama.h"

#include <string>
#include <vector>

class token_names {
  public:
    // nullptr: there are none.
    explicit token_names(const llama_vocab * vocab) : vocab(vocab) {}

    // The only token of a text, such as <|end|>; -1: there is none.
    llama_token find(const std::string & text) const;
    bool        has(int64_t id) const;
    // <text> or <[id]>
    llama_token read(notation_text & in) const;
    // Any token but these; one that ends a text is none of them.
    grammar_element any_but(grammar_rules & rules, std::vector<int32_t> tokens);

  private:
    const llama_vocab *  vocab;
    std::vector<int32_t> ends;       // tokens that end a text
    llama_token          n_seen = 0; // of all tokens, for `ends`
};
