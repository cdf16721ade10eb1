// Lark grammars, as llguidance reads them, → rules. There is no lexer here: a terminal is any text that it matches.
// docs/structure.md has the notation.
#pragma once

#include "grammar/embedded.h"
#include "grammar/notation.h"
#include "grammar/rules.h"

#include "llama.h"

#include <string>

// Whether a text is a Lark grammar rather than GBNF: it begins with a directive or a rule, whose name a colon follows.
bool is_lark(const std::string & utf8);

// Throws command_error.
grammar_rules read_lark(notation_text in, const llama_vocab * vocab, embedded_schemas & schemas);
