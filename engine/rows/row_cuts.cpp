#include "rows/row_cuts.h"

#include <cmath>
#include <numeric>
#include <vector>

static const size_t n_first  = 2048;  // likeliest tokens that are looked at before all
static const float  n_a_unit = 32.0f; // bins for a factor of e

static void cut_below(whole_row & row, float low) {
    row.range.low = std::max(row.range.low, low);
    row.cut       = true;
}

// The list becomes the single likeliest token; of several the first one, as in llama.cpp.
void keep_likeliest(whole_row & row) {
    row.range = {row.max, row.max};
    row.list(SIZE_MAX);
    buffer_of_thread().chosen.resize(1);
    row.sorted = true;
}

void keep_from(whole_row & row, float share) {
    cut_below(row, row.max + row.temperature * std::log(share));
}

void keep_sigmas(whole_row & row, float n) {
    const moments m         = moments_of(row.logits, row.n_vocab, row.range, row.max);
    const double  mean      = m.sum / m.n;
    const double  deviation = std::sqrt(std::max(m.of_2 / m.n - mean * mean, 0.0));
    if (m.n > 1.0) {
        cut_below(row, (float) (row.max - n * deviation));
    }
}

//
// the nearest tokens of a center, until they have a mass: top-p from the largest logit, typical-p from another one
//

namespace {

struct nearest {
    float  center;
    double mass;   // of the sum of all weights
    bool   beyond; // it must be exceeded, not just reached

    bool  reached(double sum, double all) const { return beyond ? sum > mass * all : sum >= mass * all; }
    float distance(float logit) const { return std::fabs(logit - center); }

    void sort(candidate_buffer & buffer, float max) const {
        if (center >= max) {
            sort_by_logit(buffer);
        } else {
            sort_by_distance(buffer, center);
        }
    }

    // How many of these tokens it takes beside others with a sum of weights; all, if they are not enough.
    size_t n_needed(const whole_row & row, const std::vector<llama_token_data> & tokens, double sum,
                    double all) const {
        for (size_t i = 0; i < tokens.size(); i++) {
            sum += row.weight(tokens[i].logit);
            if (reached(sum, all)) {
                return i + 1;
            }
        }
        return tokens.size();
    }
};

} // namespace

static double weight_of(const whole_row & row, const std::vector<llama_token_data> & tokens) {
    double sum = 0.0;
    for (const llama_token_data & t : tokens) {
        sum += row.weight(t.logit);
    }
    return sum;
}

// The weight of the groups' likeliest tokens from a bound on. The sum of all weights is at least that of all of these.
static double weight_of_peaks(const whole_row & row, float bound) {
    static thread_local std::vector<float> sums;

    const logit_range range = {std::max(row.range.low, bound), std::min(row.range.high, row.max)};
    sum_blocks(sums, row.peaks.data(), (int32_t) row.peaks.size(), range, row.by());
    double sum = 0.0;
    for (const float block : sums) {
        sum += block;
    }
    return sum;
}

// Where the likeliest tokens have the mass, and no other one can be nearer, the sum of all weights is enough. `sum`: 0,
// where it is not known yet.
static bool list_nearest(whole_row & row, const nearest & to, double sum) {
    candidate_buffer & buffer = buffer_of_thread();
    auto &             chosen = buffer.chosen;
    const float        bound  = reached_by(row.peaks, std::min(n_first, row.peaks.size() / 2));
    const double       least  = weight_of_peaks(row, -FLT_MAX);
    if (weight_of_peaks(row, bound) < to.mass * least) {
        return false; // a guess
    }
    choose_range(buffer, row.logits, row.n_vocab, row.peaks, {std::max(row.range.low, bound), row.range.high},
                 SIZE_MAX);
    const double inside = weight_of(row, chosen);
    if (chosen.empty() || !to.reached(inside, std::max(sum, least))) {
        return false;
    }
    sum = sum > 0.0 ? sum : row.sum_of_weights();
    if (!to.reached(inside, sum)) {
        return false;
    }
    to.sort(buffer, row.max);
    const size_t n = to.n_needed(row, chosen, 0.0, sum);
    if (!(to.distance(chosen[n - 1].logit) < to.center - bound)) {
        return false;
    }
    chosen.resize(n);
    row.become_list(to.center >= row.max);
    return true;
}

// The weights by distance give the bin where the mass is reached; only its tokens are sorted.
static void keep_nearest(whole_row & row, const nearest & to) {
    auto & chosen   = buffer_of_thread().chosen;
    row.bins.center = to.center;
    row.bins.scale  = n_a_unit / row.temperature;
    sum_bins(row.bins, row.logits, row.n_vocab, row.range, row.by());
    double all = 0.0, sum = 0.0;
    for (const double weight : row.bins.weights) {
        all += weight;
    }
    int32_t bin = 0;
    while (bin < distance_bins::n && !to.reached(sum + row.bins.weights[(size_t) bin], all)) {
        sum += row.bins.weights[(size_t) bin++];
    }
    if (bin == distance_bins::n) {
        return; // rounding: all are needed
    }
    choose_bin(buffer_of_thread(), row.logits, row.n_vocab, row.range, row.bins, bin);
    if (chosen.empty()) {
        return; // a mass of 0 is reached without any
    }
    to.sort(buffer_of_thread(), row.max);
    const size_t n    = to.n_needed(row, chosen, sum, all);
    const float  last = to.distance(chosen[n - 1].logit);
    float        low = to.center - last, high = to.center + last;
    for (size_t i = 0; i < n; i++) { // the bounds are rounded
        low  = std::min(low, chosen[i].logit);
        high = std::max(high, chosen[i].logit);
    }
    for (size_t i = n; i < chosen.size() && to.distance(chosen[i].logit) == last; i++) {
        row.change(chosen[i].id, -INFINITY);
    }
    cut_below(row, low);
    row.range.high = std::min(row.range.high, high);
    row.sorted     = to.center >= row.max;
    if (row.range.high < row.max) {
        row.max = max_in_range(row.logits, row.n_vocab, row.range);
    }
}

// If min-p is next, only tokens that it keeps matter, and there are few of them.
static bool list_mass_above(whole_row & row, const nearest & to, float low) {
    candidate_buffer & buffer = buffer_of_thread();
    const logit_range  both   = {std::max(row.range.low, low), row.range.high};
    if (!choose_range(buffer, row.logits, row.n_vocab, row.peaks, both, 4 * n_first)) {
        return false;
    }
    to.sort(buffer, row.max);
    buffer.chosen.resize(to.n_needed(row, buffer.chosen, 0.0, row.sum_of_weights()));
    row.become_list(true);
    return true;
}

void keep_mass(whole_row & row, float mass, float next_share) {
    const nearest to        = {row.max, mass, false};
    const bool    is_listed = next_share > 0.0f
                                  ? list_mass_above(row, to, row.max + row.temperature * std::log(next_share))
                                  : list_nearest(row, to, 0.0);
    if (!is_listed) {
        keep_nearest(row, to);
    }
}

// The information of the tokens nearest to the entropy is that of logits nearest to their mean.
void keep_typical(whole_row & row, float mass) {
    const entropy_sums sums = sum_for_entropy(row.logits, row.n_vocab, row.range, row.by());
    const float        mean = row.max + row.temperature * (float) (sums.surplus / sums.weights);
    const nearest      to   = {mean, mass, true};
    if (!list_nearest(row, to, sums.weights)) {
        keep_nearest(row, to);
    }
}

//
// the others
//

void remove_top_choices(whole_row & row, float threshold) {
    candidate_buffer & buffer = buffer_of_thread();
    const float        least = row.max + row.temperature * (float) std::log(threshold * row.sum_of_weights());
    choose_range(buffer, row.logits, row.n_vocab, row.peaks, {std::max(row.range.low, least), row.range.high},
                 SIZE_MAX);
    row.sorted = true;
    if (buffer.chosen.size() > 1) {
        sort_by_logit(buffer);
        for (size_t i = 0; i + 1 < buffer.chosen.size(); i++) {
            row.change(buffer.chosen[i].id, -INFINITY);
        }
        row.max = buffer.chosen.back().logit;
        row.cut = true;
    }
}

void divide_by(whole_row & row, float temperature) {
    row.temperature *= temperature;
    row.cut = true;
    if (!(row.temperature > 1e-30f)) { // logits would overflow
        row.temperature = 1.0f;
        keep_likeliest(row);
    }
}

void divide_by_moving(whole_row & row, float base, float range, float exponent) {
    const double       n       = moments_of(row.logits, row.n_vocab, row.range, row.max).n;
    const entropy_sums sums    = sum_for_entropy(row.logits, row.n_vocab, row.range, row.by());
    const double       entropy = std::log(sums.weights) - sums.surplus / sums.weights;
    const float        least   = std::max(0.0f, base - range);
    row.sorted                 = true;
    if (n > 1.0) {
        divide_by(row, least + (base + range - least) * std::pow((float) (entropy / std::log(n)), exponent));
    }
}

//
// those that llama.cpp lacks
//

std::pair<double, double> certainty_of(const whole_row & row) {
    const entropy_sums sums = sum_for_entropy(row.logits, row.n_vocab, row.range, row.by());
    return {1.0 / sums.weights, std::log(sums.weights) - sums.surplus / sums.weights};
}

size_t n_before_tail(const llama_token_data * sorted, size_t n, float temperature, double z, bool are_all) {
    if (n < 3) {
        return are_all ? n : 0;
    }
    static thread_local std::vector<double> sums; // of second differences, but for a factor

    double before[2] = {}, all = 0.0;
    sums.clear();
    for (size_t i = 0; i < n; i++) {
        const double weight = std::exp(((double) sorted[i].logit - sorted[0].logit) / temperature);
        if (i > 1) {
            all += std::fabs(before[0] - 2.0 * before[1] + weight);
            sums.push_back(all);
        }
        before[0] = before[1];
        before[1] = weight;
    }
    const auto count = [&](double sum) {
        return (size_t) (std::upper_bound(sums.begin(), sums.end(), z * sum) - sums.begin());
    };
    const double others = are_all ? 0.0 : before[0] + before[1]; // at most: the weights only fall
    const size_t least  = count(all);
    if (!are_all && (least == sums.size() || least != count(all + others))) {
        return 0;
    }
    return all > 0.0 ? least + 1 : n;
}

// The tokens of so many nats below the likeliest one are enough, if what the others can add to the sum changes nothing.
void keep_before_tail(whole_row & row, float z) {
    candidate_buffer & buffer = buffer_of_thread();
    size_t             n_kept = 0;
    buffer.chosen.clear();
    for (const float nats : {4.0f, 6.0f, 8.0f, 10.0f, 12.0f, INFINITY}) {
        if (nats < INFINITY && buffer.chosen.size() > 4 * n_first) {
            continue; // of a flat row nearly all are needed
        }
        choose_range(buffer, row.logits, row.n_vocab, row.peaks,
                     {std::max(row.range.low, row.max - nats * row.temperature), row.range.high}, SIZE_MAX);
        sort_by_logit(buffer);
        n_kept =
            n_before_tail(buffer.chosen.data(), buffer.chosen.size(), row.temperature, z, nats == INFINITY);
        if (n_kept > 0) {
            break;
        }
    }
    buffer.chosen.resize(n_kept);
    row.become_list(true);
}

void smooth(whole_row & row, quadratic_curve curve) {
    row.changed.resize((size_t) row.n_vocab);
    apply_curve(row.changed.data(), row.logits, row.n_vocab, row.range, row.by(), curve);
    row.logits      = row.changed.data();
    row.range       = logit_range();
    row.temperature = 1.0f;
    row.cut         = true;
    row.summarize();
}

//
// skewed draws
//

// The logarithm of what the part gets that is `width` long and lies behind `before`.
static float log_skewed(double before, double width, double power) {
    const double end = before + width;
    return (float) (power * std::log(end) +
                    std::log(-std::expm1(power * std::log1p(-std::min(1.0, width / end)))));
}

// Their logits become what their parts get; they are sorted.
static void skew_parts(std::vector<llama_token_data> & tokens, const weighting & by, double before,
                       double sum, float skew) {
    const double power = std::exp((double) skew);
    for (llama_token_data & t : tokens) {
        const double width = std::exp(((double) t.logit - by.max) * by.inverse_temperature) / sum;
        t.logit            = log_skewed(before, width, power);
        before += width;
    }
}

void skew_list(std::vector<llama_token_data> & tokens, float skew) {
    std::sort(tokens.begin(), tokens.end(), is_likelier);
    double sum = 0.0;
    for (const llama_token_data & t : tokens) {
        sum += std::exp((double) t.logit - tokens[0].logit);
    }
    skew_parts(tokens, {tokens[0].logit, 1.0f}, 0.0, sum, skew);
}

skewed_draw::skewed_draw(whole_row & row, float skew) : row(row), skew(skew), range(row.range) {
    row.sums.clear(); // log_sum computes them, if it is asked
}

// Of all but flat rows a few tokens have nearly all of the probability, so bins are seldom needed.
bool skewed_draw::list_likeliest() {
    static const float                     nats   = 6.0f; // below the likeliest one
    static const size_t                    n_most = 512;
    static thread_local std::vector<float> sums;

    candidate_buffer & buffer = buffer_of_thread();
    const float        low    = std::max(row.range.low, row.max - nats * row.temperature);
    if (!choose_range(buffer, row.logits, row.n_vocab, row.peaks, {low, row.range.high}, n_most)) {
        return false;
    }
    sort_by_logit(buffer);
    double listed = 0.0;
    for (const llama_token_data & t : buffer.chosen) {
        listed += std::exp(((double) t.logit - row.max) * row.by().inverse_temperature);
    }
    range.high = std::nextafter(low, -INFINITY);
    sum_blocks(sums, row.logits, row.n_vocab, range, row.by());
    const double rest = std::accumulate(sums.begin(), sums.end(), 0.0); // 0: there are no others
    sum               = listed + rest;
    before            = listed / sum;
    skew_parts(buffer.chosen, row.by(), 0.0, sum, skew);
    if (rest > 0.0) {
        buffer.chosen.push_back({others, log_skewed(before, rest / sum, std::exp((double) skew)), 0.0f});
    }
    return true;
}

void skewed_draw::list_bins() {
    auto & chosen   = buffer_of_thread().chosen;
    row.bins.center = row.max;
    row.bins.scale  = n_a_unit / row.temperature;
    sum_bins(row.bins, row.logits, row.n_vocab, range, row.by());
    if (sum == 0.0) {
        sum = std::accumulate(row.bins.weights.begin(), row.bins.weights.end(), 0.0);
    }
    double end = before;
    chosen.clear();
    for (int32_t bin = 0; bin < distance_bins::n; bin++) {
        const double width = row.bins.weights[(size_t) bin] / sum;
        if (width > 0.0) {
            chosen.push_back({bin, log_skewed(end, width, std::exp((double) skew)), 0.0f});
        }
        end += width;
    }
}

void skewed_draw::list_bin(int32_t bin) const {
    candidate_buffer & buffer = buffer_of_thread();
    const auto         begin  = row.bins.weights.begin();
    choose_bin(buffer, row.logits, row.n_vocab, range, row.bins, bin);
    sort_by_logit(buffer);
    skew_parts(buffer.chosen, row.by(), before + std::accumulate(begin, begin + bin, 0.0) / sum, sum, skew);
}
