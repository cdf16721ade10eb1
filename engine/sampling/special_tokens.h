// Tokens of the model's vocabulary that sampling treats in a special way.
#pragma once

#include "text/banned_patterns.h"
#include "util/word_finder.h"

#include "llama.h"

#include <vector>

// The tokens that end a text. They are looked for once: a process has one model.
const std::vector<llama_token> & end_tokens(const llama_vocab * vocab);

// The tokens whose own text contains one of the phrases, in any case, or a match of a pattern. The phrases are in lower case.
std::vector<llama_token> tokens_with(const word_finder_ptr & phrases, const pattern_finder_ptr & patterns,
                                     const llama_vocab * vocab);
