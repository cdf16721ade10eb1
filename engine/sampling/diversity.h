// What couples the draws of a request's sequences, so that they say more different things than independent
// draws would. Each sequence by itself stays an exact sample, and is a function of (seed, group, index): it
// knows neither the others nor n, so waves, cancels and later sequences change nothing. docs/diversity.md.
#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>

struct coupling {
    bool     arithmetic     = false; // arithmetic sampling (Vilnis et al. 2023)
    bool     distinct_first = false; // first tokens without replacement (Gumbel top-k, Kool et al. 2019)
    uint32_t seed           = 0;     // of the request
    int32_t  group          = 0;     // who begin together: 0, or the first of those that began as a fork
    int32_t  index          = 0;     // in the group
};

// A number in [0, 1) in which a sequence's tokens are written as arithmetic coding would: each token takes
// the part of the interval that its probability is. The codes of a group are evenly spread (for every power
// of two exactly) and shifted together by a random number.
class arithmetic_code {
  public:
    arithmetic_code() = default; // spent
    explicit arithmetic_code(const coupling & c);

    // True when no code of another sequence can lie where the tokens so far have led: then the sequence's
    // own generator draws on. The tokens' probability alone decides, never the codes: to be the only one
    // left there says something about the own code, and draws from then on would be biased.
    bool spent() const { return width <= min_width; }

    // The place of the token that the code names, when the candidates are drawn by the softmax of their
    // logits; sorts them by id. The code becomes its place within that token's part.
    size_t draw(llama_token_data * candidates, size_t n);

  private:
    static constexpr double min_width = 1.0 / (1 << 17); // two of 100,000 codes are at least so far apart

    double code  = 0.0;
    double width = 0.0; // the probability of the tokens so far
};

// A number in [0, 1) that sequences of a request have in common as long as their tokens are the same.
double common_chance(const coupling & c, uint64_t text_hash);

// The hash of a text that is longer by one token.
uint64_t hash_with(uint64_t text_hash, llama_token token);

// The place of the sequence's candidate when the n sequences draw their first tokens without replacement by
// the softmax of logits / temperature; at 0 they take the likeliest in turn. With fewer candidates than
// sequences it begins anew with the next round. SIZE_MAX: there is no candidate. Reorders them.
size_t draw_distinct(const coupling & c, float temperature, llama_token_data * candidates, size_t n);
