// What a request adds to the logits of single tokens.
#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

// In ascending order, each once.
void make_unique(std::vector<llama_token> & tokens);

// The only tokens that may be drawn.
struct allowed_tokens {
    allowed_tokens(const std::vector<llama_token> & tokens, int32_t n_vocab);

    std::vector<llama_token> list; // in ascending order, each once
    std::vector<bool>        has;  // by token
};

// Biases and banned tokens, each token once. Sequences with equal settings share them.
class token_biases {
  public:
    // Several biases of a token add up; minus infinity bans it.
    token_biases(std::vector<llama_logit_bias> list, int32_t n_vocab);

    bool  is_banned(llama_token token) const { return bans[(size_t) token]; }
    float of(llama_token token) const; // 0: it has none

    std::vector<llama_token> banned;  // in ascending order
    std::vector<llama_token> changed; // in ascending order, without the banned ones

  private:
    std::vector<float> biases; // of those
    std::vector<bool>  bans;   // by token
};
