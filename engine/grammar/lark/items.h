// What stands for itself in a Lark grammar: texts, expressions, tokens, JSON. Knows nothing of names.
#pragma once

#include "grammar/notation.h"
#include "grammar/rules.h"
#include "grammar/tokens.h"

#include <string>
#include <utility>

// Spaces and comments; line ends, too, if `lines`.
void skip_space(notation_text & in, bool lines);
bool at_line_end(const notation_text & in);
bool is_letter(char32_t c);
// The characters as UTF-8.
std::string text_of(const std::u32string & characters);

class item_reader {
  public:
    item_reader(notation_text & in, grammar_rules & rules, const llama_vocab * vocab)
        : in(in), rules(rules), tokens(vocab) {}

    grammar_rules::sequence read_text();       // "text", "text"i or "a".."z"
    grammar_element         read_expression(); // /expression/flags
    grammar_element         read_tokens();     // <text>, <[1]>, <[1-3,7]>, <[^1]>, <[*]>
    std::string             read_json();       // the text of an object
    // {"substring_words": text}, {"substring_chars": text} or {"substring_chunks": [texts]}
    grammar_element read_runs();

  private:
    std::string                 read_literal(bool & any_case);
    std::pair<int32_t, int32_t> read_token_range();

    notation_text & in;
    grammar_rules & rules;
    token_names     tokens;
    int32_t         n_listed = 0; // tokens, in all lists
};
