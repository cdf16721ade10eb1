// Structural tags, as xgrammar and vLLM have them, → rules: free text with constrained parts that begin and end again
// and again. docs/structure.md has the formats.
#pragma once

#include "grammar/embedded.h"
#include "grammar/rules.h"

#include "llama.h"

#include <string>

// Throws command_error, which names the path.
grammar_rules read_structural_tag(const std::string & text, const llama_vocab * vocab,
                                  embedded_schemas & schemas);
