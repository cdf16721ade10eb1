// What llama.cpp's samplers do, and those that it lacks, computed on a whole row: each leaves the tokens that it would leave
// of a list, with the same probabilities. Where few tokens are left, the row may become a list. Each of these needs a
// summarized row.
#pragma once

#include "rows/whole_row.h"

#include <utility>

void keep_likeliest(whole_row & row);                          // temperature 0
void keep_from(whole_row & row, float share);                  // min-p: of the largest probability
void keep_sigmas(whole_row & row, float n);                    // top-n-sigma
void keep_mass(whole_row & row, float mass, float next_share); // top-p; if min-p is next, its share, else 0
void keep_typical(whole_row & row, float mass);                // typical-p
void remove_top_choices(whole_row & row, float threshold);     // XTC, where it acts

void divide_by(whole_row & row, float temperature);
// By a temperature between base - range and base + range, which grows with the entropy.
void divide_by_moving(whole_row & row, float base, float range, float exponent);

// The probability of the likeliest token, and the entropy in nats.
std::pair<double, double> certainty_of(const whole_row & row);

// Tail-free sampling: of the second differences of the sorted probabilities so much, of 1, comes before the tail.
void keep_before_tail(whole_row & row, float z);
// How many of the sorted tokens that is. They are all that there are, or the likeliest: then 0, where it depends on others.
size_t n_before_tail(const llama_token_data * sorted, size_t n, float temperature, double z, bool are_all);

void smooth(whole_row & row, quadratic_curve curve);

// A draw with a skew: tokens stand from the likeliest to the least likely one, each with a part of [0, 1) as long as its
// probability, and a border c between two of them becomes c to the power of e^skew. ExLlamaV2 raises the random number to the
// inverse power, which comes to the same. The logits become logarithms of what the parts then have.
void skew_list(std::vector<llama_token_data> & tokens, float skew);

// The same of a row, in the buffer of this thread, and of as much of it as the draw needs.
class skewed_draw {
  public:
    static constexpr llama_token others = -1;

    skewed_draw(whole_row & row, float skew);

    // The likeliest tokens, and `others` for all that are not listed. False: the row is too flat for that.
    bool list_likeliest();
    // Bins of the others, or of all tokens; then the tokens of one.
    void list_bins();
    void list_bin(int32_t bin) const;

  private:
    whole_row & row;
    const float skew;
    logit_range range;        // of the others
    double      before = 0.0; // the part of those that are listed
    double      sum    = 0.0; // of all weights
};
