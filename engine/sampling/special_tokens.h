// Tokens of the model's vocabulary that sampling treats in a special way.
#pragma once

#include "util/text.h"

#include "llama.h"

#include <vector>

// The tokens that end a text. They are looked for once: a process has one model.
const std::vector<llama_token> & end_tokens(const llama_vocab * vocab);

// The tokens whose own text contains one of the phrases, in any case. The phrases are in lower case.
std::vector<llama_token> tokens_with(const word_finder & phrases, const llama_vocab * vocab);
