// Classifier-free guidance (Sanchez et al. 2023, Stay on topic with Classifier-Free Guidance): a text is led away from what
// a negative prompt would make of it.
#pragma once

#include <cstdint>

// Rows of logits of the same text, once behind its prompt and once behind the negative prompt.
struct guided_rows {
    const float * prompt;
    const float * negative; // nullptr: the sequence is not guided
    int32_t       n_vocab;
    float         scale;
};

// The row from which the sequence draws: its prompt's own, or one of this thread until the next call, with log
// probabilities n + scale * (p - n), as in transformers. A token that the prompt's row bans is banned. One that only the
// negative row bans has its own probability where the scale is above 1, and none below.
const float * guided_row(const guided_rows & rows);
