#include "rows/row_sums.h"

static const int32_t n_lanes = 32; // sums side by side, of any instruction set
static const int32_t n_group = 64; // tokens that are tested together

// 2^x for -126 <= x <= 0, with a relative error of about 2e-7 and without a branch; of other numbers it makes anything.
// The polynomial is the one of degree 5 with the smallest error among those that give 2^0 = 1.
static inline float power_of_2(float x) {
    const float magic  = 12582912.0f; // 1.5 * 2^23: the last bit of a sum with it is 1
    const float placed = x + magic;
    const float f      = x - (placed - magic);
    const float p =
        1.0f + f * (0.693146977f +
                    f * (0.240222419f + f * (0.0555073387f + f * (0.00967152327f + f * 0.00132647136f))));
    uint32_t bits;
    memcpy(&bits, &placed, sizeof(bits));
    bits = (bits << 23) + 0x3F800000u; // of the power of 2 that x is next to
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

namespace {

// A weight is a power of 2, and 0 outside of the range and where it is below e^-87.
struct weight_function {
    logit_range range;
    float       max;
    float       scale;

    weight_function(logit_range range, weighting by)
        : range{std::max(range.low, by.max - 87.0f / by.inverse_temperature), range.high}, max(by.max),
          scale(by.inverse_temperature * 1.44269504f) {}

    float operator()(float logit) const {
        const float weight = power_of_2((logit - max) * scale);
        return range.has(logit) ? weight : 0.0f;
    }
};

} // namespace

// Adds up lanes in an order that is always the same.
static inline float sum_of(float (&lanes)[n_lanes]) {
    for (int32_t width = n_lanes / 2; width > 0; width /= 2) {
        for (int32_t k = 0; k < width; k++) {
            lanes[k] += lanes[k + width];
        }
    }
    return lanes[0];
}

SCAN void sum_blocks(std::vector<float> & sums, const float * logits, int32_t n_vocab, logit_range range,
                     weighting by) {
    const weight_function weight(range, by);
    sums.resize((size_t) ((n_vocab + n_summed - 1) / n_summed));
    float * out = sums.data();
    for (int32_t i = 0; i < n_vocab; out++) {
        float         lanes[n_lanes] = {0};
        const int32_t end            = std::min(n_vocab, i + n_summed);
        for (; i + n_lanes <= end; i += n_lanes) {
            for (int32_t k = 0; k < n_lanes; k++) {
                lanes[k] += weight(logits[i + k]);
            }
        }
        for (int32_t k = 0; i < end; i++, k++) {
            lanes[k] += weight(logits[i]);
        }
        *out = sum_of(lanes);
    }
}

SCAN void apply_curve(float * out, const float * logits, int32_t n_vocab, logit_range range, weighting by,
                      quadratic_curve curve) {
    for (int32_t i = 0; i < n_vocab; i++) {
        const float x = logits[i];
        const float y = by.max * by.inverse_temperature + curve((x - by.max) * by.inverse_temperature);
        out[i]        = range.has(x) ? y : -INFINITY;
    }
}

SCAN void mix_rows(float * out, summed_row a, summed_row b, int32_t n_vocab, float scale) {
    for (int32_t i = 0; i < n_vocab; i++) {
        const float x = a.logits[i] - a.log_sum, y = b.logits[i] - b.log_sum;
        const float alone = scale > 1.0f ? x : -INFINITY;
        const float both  = y + scale * (x - y);
        const float mixed = y == -INFINITY ? alone : both;
        out[i]            = x == -INFINITY ? -INFINITY : mixed;
    }
}

SCAN moments moments_of(const float * logits, int32_t n_vocab, logit_range range, float origin) {
    moments all;
    for (int32_t i = 0; i < n_vocab;) {
        float         n[n_lanes] = {0}, sum[n_lanes] = {0}, of_2[n_lanes] = {0};
        const int32_t end = std::min(n_vocab, i + n_summed);
        for (; i + n_lanes <= end; i += n_lanes) {
            for (int32_t k = 0; k < n_lanes; k++) {
                const float x = logits[i + k];
                const float d = range.has(x) ? x - origin : 0.0f;
                n[k] += range.has(x) ? 1.0f : 0.0f;
                sum[k] += d;
                of_2[k] += d * d;
            }
        }
        for (int32_t k = 0; i < end; i++, k++) {
            const float d = range.has(logits[i]) ? logits[i] - origin : 0.0f;
            n[k] += range.has(logits[i]) ? 1.0f : 0.0f;
            sum[k] += d;
            of_2[k] += d * d;
        }
        all.n += sum_of(n);
        all.sum += sum_of(sum);
        all.of_2 += sum_of(of_2);
    }
    return all;
}

SCAN entropy_sums sum_for_entropy(const float * logits, int32_t n_vocab, logit_range range, weighting by) {
    const weight_function weight(range, by);
    entropy_sums          all;
    for (int32_t i = 0; i < n_vocab;) {
        float         weights[n_lanes] = {0}, surplus[n_lanes] = {0};
        const int32_t end = std::min(n_vocab, i + n_summed);
        for (; i + n_lanes <= end; i += n_lanes) {
            for (int32_t k = 0; k < n_lanes; k++) {
                const float x = logits[i + k];
                const float w = weight(x);
                weights[k] += w;
                surplus[k] += w * std::max(x - by.max, -FLT_MAX);
            }
        }
        for (int32_t k = 0; i < end; i++, k++) {
            const float w = weight(logits[i]);
            weights[k] += w;
            surplus[k] += w * std::max(logits[i] - by.max, -FLT_MAX);
        }
        all.weights += sum_of(weights);
        all.surplus += sum_of(surplus);
    }
    all.surplus *= by.inverse_temperature;
    return all;
}

// A block is read twice, the second time from the fastest cache; its exponentials are of differences to its own maximum.
SCAN void add_for_flatness(flatness_sums & all, const float * logits, int32_t n_logits) {
    const logit_range any;
    for (int32_t first = 0; first < n_logits; first += n_summed) {
        const float * row = logits + first;
        const int32_t n   = std::min(n_summed, n_logits - first);
        const float   max = max_in_range(row, n, any);
        if (max == -INFINITY) {
            continue;
        }
        float   counts[n_lanes] = {0}, sums[n_lanes] = {0}, weights[n_lanes] = {0};
        int32_t i = 0;
        for (; i + n_lanes <= n; i += n_lanes) {
            for (int32_t k = 0; k < n_lanes; k++) {
                const float x = row[i + k];
                const float w = exp_negative(x - max);
                counts[k] += any.has(x) ? 1.0f : 0.0f;
                sums[k] += any.has(x) ? x : 0.0f;
                weights[k] += any.has(x) ? w : 0.0f;
            }
        }
        for (int32_t k = 0; i < n; i++, k++) {
            const float x = row[i];
            counts[k] += any.has(x) ? 1.0f : 0.0f;
            sums[k] += any.has(x) ? x : 0.0f;
            weights[k] += any.has(x) ? exp_negative(x - max) : 0.0f;
        }
        all.n += sum_of(counts);
        all.sum += sum_of(sums);
        const float highest = std::max(all.max, max);
        all.weights         = all.weights * std::exp((double) (all.max - highest)) +
                              sum_of(weights) * std::exp((double) (max - highest));
        all.max             = highest;
    }
}

static inline int32_t bin_of(float logit, float center, float scale) {
    return (int32_t) std::min((float) (distance_bins::n - 1), std::fabs(logit - center) * scale);
}

// The weights and bins of a group are computed side by side, then added one by one, to two tables in turn: neighbours of
// equal bins need not wait for each other.
SCAN void sum_bins(distance_bins & bins, const float * logits, int32_t n_vocab, logit_range range,
                   weighting by) {
    const weight_function weight(range, by);
    const float           center = bins.center, scale = bins.scale;
    double                tables[2][distance_bins::n] = {{0}};
    for (int32_t first = 0; first < n_vocab; first += n_group) {
        float         weights[n_group];
        int32_t       at[n_group];
        const float * row = logits + first;
        const int32_t n   = std::min(n_group, n_vocab - first);
        for (int32_t k = 0; k < n; k++) {
            const float x = row[k];
            weights[k]    = weight(x);
            at[k]         = bin_of(x, center, scale);
        }
        for (int32_t k = 0; k < n; k++) {
            tables[k & 1][at[k]] += weights[k];
        }
    }
    bins.weights.resize(distance_bins::n);
    for (int32_t b = 0; b < distance_bins::n; b++) {
        bins.weights[(size_t) b] = tables[0][b] + tables[1][b];
    }
}

// Adds the tokens of a group that pass a test. They are tested side by side, then looked at eight by eight: most eights
// have none, or few.
template <typename predicate>
[[gnu::always_inline]] static inline size_t choose_of_group(std::vector<llama_token_data> & chosen,
                                                            size_t n_chosen, const float * logits,
                                                            int32_t first, int32_t n, predicate is_one) {
    uint8_t       tests[n_group] = {0};
    const float * row            = logits + first;
    if (n == n_group) {
        for (int32_t k = 0; k < n_group; k++) {
            tests[k] = is_one(row[k]) ? 1 : 0;
        }
    } else {
        for (int32_t k = 0; k < n; k++) {
            tests[k] = is_one(row[k]) ? 1 : 0;
        }
    }
    if (n_chosen + n_group > chosen.size()) {
        chosen.resize(2 * (n_chosen + n_group));
    }
    llama_token_data * out = chosen.data();
    for (int32_t begin = 0; begin < n; begin += 8) {
        uint64_t eight;
        memcpy(&eight, tests + begin, sizeof(eight));
        if (eight == 0) {
            continue;
        }
        // without a branch: each is written, and the next one overwrites it unless it is one
        for (int32_t k = begin; k < std::min(begin + 8, n); k++) {
            out[n_chosen] = {first + k, row[k], 0.0f};
            n_chosen += tests[k];
        }
    }
    return n_chosen;
}

SCAN bool choose_range(candidate_buffer & buffer, const float * logits, int32_t n_vocab,
                       const std::vector<float> & peaks, logit_range range, size_t most) {
    const auto is_one   = [range](float x) { return range.has(x); };
    size_t     n_chosen = 0;
    for (size_t g = 0; g < peaks.size() && n_chosen <= most; g++) {
        if (peaks[g] >= range.low) {
            const int32_t first = (int32_t) g * n_group;
            n_chosen            = choose_of_group(buffer.chosen, n_chosen, logits, first,
                                                  std::min(n_group, n_vocab - first), is_one);
        }
    }
    buffer.chosen.resize(n_chosen);
    return n_chosen <= most;
}

SCAN void choose_bin(candidate_buffer & buffer, const float * logits, int32_t n_vocab, logit_range range,
                     const distance_bins & bins, int32_t bin) {
    const float center = bins.center, scale = bins.scale;
    const auto  is_one   = [=](float x) { return range.has(x) & (bin_of(x, center, scale) == bin); };
    size_t      n_chosen = 0;
    for (int32_t first = 0; first < n_vocab; first += n_group) {
        const int32_t n     = std::min(n_group, n_vocab - first);
        int32_t       count = 0;
        for (int32_t k = 0; k < n; k++) {
            count += is_one(logits[first + k]) ? 1 : 0;
        }
        if (count > 0) {
            n_chosen = choose_of_group(buffer.chosen, n_chosen, logits, first, n, is_one);
        }
    }
    buffer.chosen.resize(n_chosen);
}

SCAN bool find_peaks(std::vector<float> & peaks, const float * logits, int32_t n_vocab) {
    peaks.resize((size_t) ((n_vocab + n_group - 1) / n_group));
    int32_t strange = 0;
    for (int32_t first = 0; first < n_vocab; first += n_group) {
        const float * row = logits + first;
        const int32_t n   = std::min(n_group, n_vocab - first);
        float         max = -INFINITY;
        if (n == n_group) {
#pragma omp simd reduction(max : max) reduction(| : strange)
            for (int32_t k = 0; k < n_group; k++) {
                max = row[k] > max ? row[k] : max;
                strange |= row[k] < INFINITY ? 0 : 1;
            }
        } else {
            for (int32_t k = 0; k < n; k++) {
                max = row[k] > max ? row[k] : max;
                strange |= row[k] < INFINITY ? 0 : 1;
            }
        }
        peaks[(size_t) (first / n_group)] = max;
    }
    return strange == 0;
}

SCAN float max_in_range(const float * logits, int32_t n_vocab, logit_range range) {
    float max[n_lanes];
    std::fill(max, max + n_lanes, -INFINITY);
    int32_t i = 0;
    for (; i + n_lanes <= n_vocab; i += n_lanes) {
        for (int32_t k = 0; k < n_lanes; k++) {
            const float x = range.has(logits[i + k]) ? logits[i + k] : -INFINITY;
            max[k]        = x > max[k] ? x : max[k];
        }
    }
    for (int32_t k = 0; i < n_vocab; i++, k++) {
        max[k] = range.has(logits[i]) ? std::max(max[k], logits[i]) : max[k];
    }
    return *std::max_element(max, max + n_lanes);
}
