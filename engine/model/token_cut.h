// Where the tokens of a prompt that is too long are cut.
#pragma once

#include "model/vocabulary.h"

#include <cstddef>
#include <vector>

// Removes tokens behind the first n_head ones, of which half of n_room may stay, until at most n_room are left, and
// returns how many. It removes a multiple of a quarter of n_room, so that later and longer prompts begin with the same
// tokens, and then as far as to the next paragraph, else sentence, else word, if there is one within a sixteenth.
size_t cut_tokens(std::vector<llama_token> & tokens, size_t n_head, size_t n_room, const vocabulary & vocab);
