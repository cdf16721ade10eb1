#include "rows/row_scan.h"

static const int32_t n_lanes   = 16; // floats of a SIMD register of any kind
static const int32_t n_block   = 64; // tokens of a block
static const int32_t n_finer   = 16; // tokens of a block where a vocabulary has few blocks
static const int32_t n_wide    = 64; // floats of several registers
static const int32_t n_stretch = 64 * n_wide;

candidate_buffer & buffer_of_thread() {
    static thread_local candidate_buffer buffer;
    return buffer;
}

// Of n blocks the b-th has the tokens b, b + n, b + 2n, …: side by side, so that full registers are compared and no
// maximum is taken across one.
SCAN static void find_block_maxima(candidate_buffer & buffer, const float * logits, int32_t n_vocab,
                                   int32_t block) {
    const int32_t n = n_vocab < n_lanes * block ? n_vocab : n_vocab / block / n_lanes * n_lanes;
    buffer.maxima.assign(logits, logits + n);
    float * maxima = buffer.maxima.data();
    for (int32_t first = n; first < n_vocab; first += n) {
        const float * row = logits + first;
        const int32_t end = std::min(n, n_vocab - first);
        for (int32_t b = 0; b < end; b++) {
            maxima[b] = row[b] > maxima[b] ? row[b] : maxima[b];
        }
    }
}

void find_maxima(candidate_buffer & buffer, const float * logits, int32_t n_vocab) {
    find_block_maxima(buffer, logits, n_vocab, n_block);
}

SCAN bool all_finite(const candidate_buffer & buffer) {
    bool finite = true;
    for (const llama_token_data & c : buffer.chosen) {
        finite &= c.logit > -INFINITY && c.logit < INFINITY;
    }
    return finite;
}

SCAN float reached_by(const std::vector<float> & maxima, size_t n) {
    const auto n_reach = [&maxima](float value) {
        int32_t count = 0;
        for (const float max : maxima) {
            count += max >= value;
        }
        return (size_t) count;
    };
    float high = maxima[0];
    for (const float max : maxima) {
        high = max > high ? max : high;
    }
    float low = high - 64.0f; // e^-64
    if (n_reach(low) < n) {
        return -INFINITY;
    }
    for (int i = 0; i < 16; i++) {
        const float  middle      = 0.5f * (low + high);
        const size_t count       = n_reach(middle);
        (count < n ? high : low) = middle;
        if (count >= n && count <= n + n / 8) {
            break;
        }
    }
    return low;
}

// If the maxima of n blocks reach a bound, then at least n tokens do.
SCAN float choose_likeliest(candidate_buffer & buffer, const float * logits, int32_t n_vocab, size_t n) {
    const bool many = (size_t) (n_vocab / n_block) >= 4 * n;
    find_block_maxima(buffer, logits, n_vocab, many ? n_block : n_finer);
    const size_t n_blocks = buffer.maxima.size();
    const size_t n_each   = (size_t) n_vocab / n_blocks + 1; // tokens of a block, at most
    const float  bound    = n < n_blocks ? reached_by(buffer.maxima, n) : -INFINITY;
    size_t       n_chosen = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        if (buffer.maxima[b] < bound) {
            continue;
        }
        if (n_chosen + n_each > buffer.chosen.size()) {
            buffer.chosen.resize(2 * (n_chosen + n_each));
        }
        // without a branch: each is written, and the next one overwrites it unless it reaches the bound
        for (size_t i = b; i < (size_t) n_vocab; i += n_blocks) {
            buffer.chosen[n_chosen] = {(llama_token) i, logits[i], 0.0f};
            n_chosen += logits[i] >= bound;
        }
    }
    buffer.chosen.resize(n_chosen);
    return bound;
}

SCAN float log_sum_exp(const candidate_buffer & buffer, const float * logits, int32_t n_vocab) {
    const float max = *std::max_element(buffer.maxima.begin(), buffer.maxima.end());
    double      sum = 0.0;
    int32_t     i   = 0;
    while (i + n_wide <= n_vocab) {
        float         sums[n_wide] = {0}; // side by side; a stretch is short enough for float
        const int32_t end          = std::min(n_vocab, i + n_stretch);
        for (; i + n_wide <= end; i += n_wide) {
            for (int32_t k = 0; k < n_wide; k++) {
                sums[k] += exp_negative(logits[i + k] - max);
            }
        }
        for (const float x : sums) {
            sum += x;
        }
    }
    for (; i < n_vocab; i++) {
        sum += exp_negative(logits[i] - max);
    }
    return max + (float) std::log(sum);
}

// Sorts all by a key of 32 bits, the last digit first; each pass keeps the order of equal digits, and has no branch.
template <typename key_function> static void sort_by_digits(candidate_buffer & buffer, key_function key_of) {
    buffer.ranked.resize(buffer.chosen.size());
    for (int32_t shift = 0; shift < 32; shift += 8) {
        size_t ends[257] = {0};
        for (const llama_token_data & c : buffer.chosen) {
            ends[(key_of(c.logit) >> shift & 255) + 1]++;
        }
        for (int32_t digit = 0; digit < 256; digit++) {
            ends[digit + 1] += ends[digit];
        }
        for (const llama_token_data & c : buffer.chosen) {
            buffer.ranked[ends[key_of(c.logit) >> shift & 255]++] = c;
        }
        buffer.chosen.swap(buffer.ranked);
    }
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

void sort_by_logit(candidate_buffer & buffer) {
    sort_by_digits(buffer, [](float logit) {
        const uint32_t bits = bits_of(logit + 0.0f); // no -0
        return bits >> 31 ? bits : ~(bits | 0x80000000u);
    });
}

void sort_by_distance(candidate_buffer & buffer, float center) {
    sort_by_digits(buffer, [center](float logit) { return bits_of(std::fabs(logit - center)); });
}

// Few candidates are sorted by counting, for each, how many are better: more comparisons, but no branch that the
// processor could mispredict.
SCAN void sort_chosen(candidate_buffer & buffer, size_t n) {
    const size_t n_chosen = buffer.chosen.size();
    if (n_chosen > n_few) {
        std::partial_sort(buffer.chosen.begin(), buffer.chosen.begin() + (std::ptrdiff_t) n,
                          buffer.chosen.end(), [](const llama_token_data & a, const llama_token_data & b) {
                              return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
                          });
        return;
    }
    float       logits[n_few];
    llama_token ids[n_few];
    for (size_t i = 0; i < n_chosen; i++) {
        logits[i] = buffer.chosen[i].logit;
        ids[i]    = buffer.chosen[i].id;
    }
    buffer.ranked = buffer.chosen;
    for (const llama_token_data & c : buffer.chosen) {
        int32_t rank = 0;
        for (size_t i = 0; i < n_chosen; i++) {
            rank += (logits[i] > c.logit) | ((logits[i] == c.logit) & (ids[i] < c.id));
        }
        buffer.ranked[(size_t) rank] = c;
    }
    buffer.chosen.swap(buffer.ranked);
}
