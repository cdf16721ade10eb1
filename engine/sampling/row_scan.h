// Scans over a row of logits: its likeliest tokens, its largest logits, the logarithm of its sum.
#pragma once

#include "llama.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

// The memory of these scans. There is one for each thread, so that no draw allocates anything.
struct candidate_buffer {
    std::vector<llama_token_data> chosen; // the candidates of a draw
    std::vector<float>            maxima; // the largest logit of each block
    std::vector<llama_token_data> ranked; // chosen in another order
};

candidate_buffer & buffer_of_thread();

const size_t n_few = 128; // so many candidates are sorted by counting

// Finds the largest logits of blocks of the row.
void find_maxima(candidate_buffer & buffer, const float * logits, int32_t n_vocab);

// Chooses all tokens.
void choose_all(candidate_buffer & buffer, const float * logits, int32_t n_vocab);

// Chooses the n likeliest tokens and any others that reach the returned bound. Finds the maxima, too.
float choose_likeliest(candidate_buffer & buffer, const float * logits, int32_t n_vocab, size_t n);

// Moves the n likeliest of the chosen tokens to the front, best first.
void sort_chosen(candidate_buffer & buffer, size_t n);

// Whether the logits of all chosen tokens are finite numbers.
bool all_finite(const candidate_buffer & buffer);

// log(sum(exp(logits))), once the maxima are found.
float log_sum_exp(const candidate_buffer & buffer, const float * logits, int32_t n_vocab);

// e^x for x <= 0, with a relative error of about 1e-7. It has no branch, so the compiler vectorizes loops that call
// it. x = n ln 2 + r, and a Taylor polynomial gives e^r.
inline float exp_negative(float x) {
    x             = std::max(x, -87.0f);
    const float n = std::floor(x * 1.44269504f + 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts
    const float er =
        1.0f +
        r * (1.0f + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
    const int32_t bits = ((int32_t) n + 127) * (1 << 23);
    float         scale;
    memcpy(&scale, &bits, sizeof(scale));
    return er * scale;
}
