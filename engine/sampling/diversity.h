// Coupled draws: the sequences of a request differ more than with independent draws, and each sequence alone is still an
// exact sample. A draw is a function of (seed, group, index). It depends neither on the other sequences nor on n, so
// waves, cancels and later sequences change nothing. docs/diversity.md explains it.
#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>

struct coupling {
    bool     arithmetic     = false; // arithmetic sampling (Vilnis et al. 2023)
    bool     distinct_first = false; // first tokens without replacement (Gumbel top-k, Kool et al. 2019)
    uint32_t seed           = 0;     // of the request
    int32_t  group          = 0;     // 0, or, for sequences that were forked, the index of the first one
    int32_t  index          = 0;     // in the group
};

// A number in [0, 1) that encodes the tokens of a sequence as arithmetic coding does: each token has a part of the
// interval as long as its probability. The codes of a group are evenly spread (for every power of two exactly) and
// shifted together by a random number.
class arithmetic_code {
  public:
    arithmetic_code() = default; // spent
    explicit arithmetic_code(const coupling & c);

    // True when the interval of the tokens so far is too narrow for the code of another sequence. From then on the
    // sequence's own generator draws. Only the probability of the tokens decides, never the codes: a sequence that is
    // alone in its interval knows something about its code, so later draws would be biased.
    bool spent() const { return width <= min_width; }

    // The position of the candidate whose part of the interval contains the code; the parts are the softmax of the
    // logits, in the order of ids. Sorts the candidates by id. The code becomes its position within that part.
    size_t draw(llama_token_data * candidates, size_t n);

  private:
    static constexpr double min_width = 1.0 / (1 << 17); // two of 100,000 codes are at least so far apart

    double code  = 0.0;
    double width = 0.0; // the probability of the tokens so far
};

// A number in [0, 1), equal for sequences of a request whose tokens are equal so far.
double common_chance(const coupling & c, uint64_t text_hash);

// The hash of a text after one more token.
uint64_t hash_with(uint64_t text_hash, llama_token token);

// The position of the sequence's candidate when the n sequences draw their first tokens without replacement, by the
// softmax of logits / temperature; at temperature 0 sequence i takes the i-th likeliest. If there are fewer candidates
// than sequences, the next round starts with all candidates again. SIZE_MAX: no candidate is possible. Reorders them.
size_t draw_distinct(const coupling & c, float temperature, llama_token_data * candidates, size_t n);
