// GBNF → rules. llama.cpp's grammars/README.md describes the notation.
#pragma once

#include "grammar/notation.h"
#include "grammar/rules.h"

#include "llama.h"

#include <functional>
#include <optional>
#include <string>

// What a literal text stands for, if not for itself.
using literal_hook =
    std::function<std::optional<grammar_element>(grammar_rules & rules, const std::string & literal)>;

// Throws command_error.
grammar_rules read_gbnf(notation_text in, const llama_vocab * vocab, const literal_hook & hook = nullptr);
