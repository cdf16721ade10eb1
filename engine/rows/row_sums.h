// Sums over the tokens of a row of logits that samplers have left. Each sum is made in an order that no instruction set
// changes, so a seed gives the same text in every build.
#pragma once

#include "rows/row_scan.h"

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <vector>

// The tokens that are left, as bounds of their logits; both are included. Banned tokens, whose logits are minus
// infinity, are never among them.
struct logit_range {
    float low  = -FLT_MAX;
    float high = FLT_MAX;

    bool has(float logit) const { return (logit >= low) & (logit <= high); }
};

// A token's weight is exp((logit - max) * inverse_temperature).
struct weighting {
    float max;
    float inverse_temperature;
};

const int32_t n_summed = 512; // tokens of a block of sum_blocks

// The sum of the weights of each block of consecutive tokens.
void sum_blocks(std::vector<float> & sums, const float * logits, int32_t n_vocab, logit_range range,
                weighting by);

// A logit that is d below the largest one becomes a polynomial of d below it.
struct quadratic_curve {
    float square, cube;

    float operator()(float d) const {
        const float bounded = std::max(d, -1e4f); // no power of it overflows
        return bounded * bounded * (cube * bounded - square);
    }
};

// Of the logits of the range, divided by the temperature; the others become minus infinity. It may write where it reads.
void apply_curve(float * out, const float * logits, int32_t n_vocab, logit_range range, weighting by,
                 quadratic_curve curve);

// A row, and the logarithm of the sum of its exponentials.
struct summed_row {
    const float * logits;
    float         log_sum;
};

// Log probabilities b + scale * (a - b). What a bans, with minus infinity, stays banned; of what only b bans a's are taken if
// the scale is above 1.
void mix_rows(float * out, summed_row a, summed_row b, int32_t n_vocab, float scale);

struct moments {
    double n    = 0.0;
    double sum  = 0.0;
    double of_2 = 0.0; // the sum of the squares
};

// Of the differences between the logits and an origin.
moments moments_of(const float * logits, int32_t n_vocab, logit_range range, float origin);

struct entropy_sums {
    double weights = 0.0;
    double surplus = 0.0; // of each weight times its logarithm
};

entropy_sums sum_for_entropy(const float * logits, int32_t n_vocab, logit_range range, weighting by);

// Of the logits that are numbers: how many, their sum, and that of exp(logit - max).
struct flatness_sums {
    double n       = 0.0;
    double sum     = 0.0;
    double weights = 0.0;
    float  max     = -FLT_MAX;
};

// Adds n more logits in one pass over them.
void add_for_flatness(flatness_sums & all, const float * logits, int32_t n);

// The weight of tokens by how far their logits are from a center, in bins of equal width; the last one has the rest.
struct distance_bins {
    static constexpr int32_t n = 1024;

    float               center = 0.0f;
    float               scale  = 0.0f; // bins for a difference of 1
    std::vector<double> weights;
};

void sum_bins(distance_bins & bins, const float * logits, int32_t n_vocab, logit_range range, weighting by);

// Finds the largest logit of each group of 64 consecutive tokens. False: a logit is NaN or infinity; minus infinity is a
// number here.
bool find_peaks(std::vector<float> & peaks, const float * logits, int32_t n_vocab);

// Choose the tokens of a range, or those of them that are in one bin, in the order of their ids. The peaks may be larger
// than the row's. False: there are more than `most`.
bool choose_range(candidate_buffer & buffer, const float * logits, int32_t n_vocab,
                  const std::vector<float> & peaks, logit_range range, size_t most);
void choose_bin(candidate_buffer & buffer, const float * logits, int32_t n_vocab, logit_range range,
                const distance_bins & bins, int32_t bin);

// The largest logit of a range; minus infinity: it has no token.
float max_in_range(const float * logits, int32_t n_vocab, logit_range range);
