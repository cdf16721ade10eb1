// How certain a model is: how far its distribution of the next token is from one in which all tokens are equally likely.
// (Kang et al. 2025, "Scalable Best-of-N Selection for Large Language Models via Self-Certainty", arXiv 2502.18581)
#pragma once

#include "llama.h"

// KL(uniform || row) of the model's row of logits, in nats: 0 or more. Tokens that a vocabulary has only to be of a round
// size are left out, and those whose logits are minus infinity. 0 for a row without tokens.
double certainty_of(const float * logits, const llama_vocab * vocab);
