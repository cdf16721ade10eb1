// Scans over a row of logits: its likeliest tokens, its largest logits, the logarithm of its sum.
#pragma once

#include "llama.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

// A portable build has each scan for several CPUs; the loader takes the best one.
#if defined(CPU_VARIANTS)
#define SCAN __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SCAN
#endif

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

// A value that n of the maxima of blocks reach, so at least n tokens do, and not many more; minus infinity where bisection
// does not find one.
float reached_by(const std::vector<float> & maxima, size_t n);

// Chooses the n likeliest tokens and any others that reach the returned bound. Finds the maxima, too.
float choose_likeliest(candidate_buffer & buffer, const float * logits, int32_t n_vocab, size_t n);

// Moves the n likeliest of the chosen tokens to the front, best first.
void sort_chosen(candidate_buffer & buffer, size_t n);

// The order of tokens, best first: of equal ones the lower id.
inline bool is_likelier(const llama_token_data & a, const llama_token_data & b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Sort all chosen tokens: best first, or those first whose logit is nearest to the center. Equal ones stay in order.
void sort_by_logit(candidate_buffer & buffer);
void sort_by_distance(candidate_buffer & buffer, float center);

// Whether the logits of all chosen tokens are finite numbers.
bool all_finite(const candidate_buffer & buffer);

// log(sum(exp(logits))), once the maxima are found.
float log_sum_exp(const candidate_buffer & buffer, const float * logits, int32_t n_vocab);

// e^x for x <= 0, with a relative error of about 2e-7. It has no branch, so the compiler vectorizes loops that call
// it. x = n ln 2 + r, and a polynomial gives e^r: the one of degree 5 with the smallest error, among those that give
// e^0 = 1. CMakeLists.txt lets no compiler fuse the operations, so each CPU gets the same bits.
inline float exp_negative(float x) {
    x                  = std::max(x, -87.0f);
    const float magic  = 12582912.0f; // 1.5 * 2^23: of a sum with it the last bit is 1
    const float placed = x * 1.44269504f + magic;
    const float n      = placed - magic;
    const float r      = (x - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts
    const float er =
        1.0f + r * (0.999999706f +
                    r * (0.499991478f + r * (0.166676381f + r * (0.0418981596f + r * 0.0082902721f))));
    uint32_t bits;
    memcpy(&bits, &placed, sizeof(bits));
    bits = (bits << 23) + 0x3F800000u; // of 2^n
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return er * scale;
}
