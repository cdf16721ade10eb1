// The tokens of a whole vocabulary that samplers have left, without a list of them: the row of logits, the bounds of what
// is left, and a temperature. row_cuts.h has what samplers do with it.
#pragma once

#include "rows/row_sums.h"

#include <vector>

struct whole_row {
    // Looks at another row, of which all tokens are left. The row must live as long as it is looked at.
    void begin(const float * row, int32_t n);

    // Changes one logit, of a copy of the row; minus infinity bans the token.
    void change(llama_token token, float logit);

    // Finds the largest logit. False: the model computed something that is not a number.
    bool summarize();
    bool is_empty() const { return max == -INFINITY; }

    // A token's weight is its probability, but for a factor that is the same for all.
    weighting by() const { return {max, 1.0f / temperature}; }
    double    weight(float logit) const;
    double    sum_of_weights();

    // Lists the tokens that are left in the buffer of this thread, with logits divided by the temperature. False: there
    // are more than `most`, and the row stays as it is.
    bool list(size_t most);
    // Lists the n likeliest tokens that are left, best first.
    void list_likeliest(size_t n);
    // What the buffer has becomes the list; its logits are divided by the temperature.
    void become_list(bool is_sorted);

    // A draw from many tokens takes a block by its sum, and then a token in it. Each list is in the order of ids, and its
    // logits are logarithms of weights.
    void  list_blocks();
    void  list_block(llama_token block) const;
    float log_sum(); // of the exponentials of the logits that `list` would give, after a draw

    const float *      logits  = nullptr;
    int32_t            n_vocab = 0;
    std::vector<float> changed; // the row, if a logit was changed
    logit_range        range;   // of what is left
    float              max         = -INFINITY;
    float              temperature = 1.0f;
    bool               cut    = false; // by a sampler, so no logit may be changed any more by another one
    bool               listed = true;  // the rest is done with the list
    bool               sorted = false; // llama.cpp would have sorted, so a list is best first
    std::vector<float> peaks;          // of groups of tokens; what is left is never above them
    std::vector<float> sums;           // of blocks
    distance_bins      bins;
};

// The row from which this thread draws. `listed` says that its last draw was from a list.
whole_row & row_of_thread();
