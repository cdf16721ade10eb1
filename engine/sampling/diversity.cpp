#include "sampling/diversity.h"

#include <algorithm>
#include <cmath>

// the last step of splitmix64: neighbouring numbers get unrelated results
static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double fraction(uint64_t bits) {
    return (double) (bits >> 11) * 0x1p-53;
}

namespace {
enum purpose : uint64_t { shift_of_codes = 1, chance, noise };
}

static uint64_t key(purpose what, const coupling & c, uint64_t detail) {
    return mix(mix(mix((uint64_t) what << 32 | c.seed) ^ (uint64_t) c.group) ^ detail);
}

//
// arithmetic sampling
//

// 0, 1/2, 1/4, 3/4, 1/8, ... (the van der Corput sequence), as a fraction of 2^64
static uint64_t spread_out(uint32_t index) {
    uint64_t bits = 0;
    for (int i = 0; i < 32; i++) {
        bits |= (uint64_t) (index >> i & 1) << (63 - i);
    }
    return bits;
}

arithmetic_code::arithmetic_code(const coupling & c)
    : code(fraction(spread_out((uint32_t) c.index) + key(shift_of_codes, c, 0))), width(1.0) {}

size_t arithmetic_code::draw(llama_token_data * candidates, size_t n) {
    const auto by_id = [](const llama_token_data & a, const llama_token_data & b) { return a.id < b.id; };
    if (!std::is_sorted(candidates, candidates + n, by_id)) {
        std::sort(candidates, candidates + n, by_id);
    }
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        max = std::max(max, candidates[i].logit);
    }
    double sum = 0.0; // in the order of the loop below, so that the borders are equal
    for (size_t i = 0; i < n; i++) {
        sum += std::exp((double) candidates[i].logit - max);
    }
    size_t drawn = 0;
    double low = 0.0, high = 0.0, end = 0.0;
    for (size_t i = 0; i < n && high <= code * sum; i++) {
        const double begin = end;
        end += std::exp((double) candidates[i].logit - max);
        if (end >
            begin) { // if rounding leaves no border above the code, the last possible candidate is drawn
            drawn = i;
            low   = begin;
            high  = end;
        }
    }
    if (high > low) {
        code  = std::clamp((code * sum - low) / (high - low), 0.0, 1.0 - 0x1p-53);
        width = width * ((high - low) / sum);
    }
    return drawn;
}

double common_chance(const coupling & c, uint64_t text_hash) {
    return fraction(key(chance, c, text_hash));
}

uint64_t hash_with(uint64_t text_hash, llama_token token) {
    return mix(text_hash ^ (uint64_t) (uint32_t) token);
}

//
// first tokens without replacement
//

// The n largest values of log p + Gumbel noise are n draws without replacement. The noise of a token is equal for all
// sequences, so each sequence finds its own draw without the others.
size_t draw_distinct(const coupling & c, float temperature, llama_token_data * candidates, size_t n) {
    const auto possible = [](const llama_token_data & t) { return t.logit > -INFINITY; };
    n                   = (size_t) (std::partition(candidates, candidates + n, possible) - candidates);
    if (n == 0) {
        return SIZE_MAX;
    }
    const uint64_t round = (uint64_t) c.index / n;
    const size_t   rank  = (size_t) c.index % n;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits   = key(noise, c, round << 32 | (uint64_t) candidates[i].id);
        const double   gumbel = -std::log(-std::log(fraction(bits) + 0x1p-54));
        candidates[i].p       = candidates[i].logit + temperature * (float) gumbel;
    }
    std::nth_element(candidates, candidates + rank, candidates + n,
                     [](const llama_token_data & a, const llama_token_data & b) {
                         return a.p != b.p ? a.p > b.p : a.id < b.id;
                     });
    return rank;
}
