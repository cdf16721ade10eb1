// Log probabilities of tokens: of the model, and of what the samplers have left.
#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

struct token_logprob {
    llama_token token;
    float       logprob; // natural logarithm; -9999 stands for anything less and for NaN
};

// The log probability of `token` in a row of logits, before any sampler. `top` becomes the n_top likeliest tokens,
// best first.
token_logprob logprobs_of(const float * logits, int32_t n_vocab, llama_token token, int32_t n_top,
                          std::vector<token_logprob> & top);

// The same for the token that this thread has just drawn, among the candidates that the samplers have left.
token_logprob logprobs_of_draw(llama_token token, int32_t n_top, std::vector<token_logprob> & top);
