#include "rows/whole_row.h"

#include <numeric>

whole_row & row_of_thread() {
    static thread_local whole_row row;
    return row;
}

void whole_row::begin(const float * row, int32_t n) {
    logits      = row;
    n_vocab     = n;
    range       = logit_range();
    max         = -INFINITY;
    temperature = 1.0f;
    cut = listed = sorted = false;
}

void whole_row::change(llama_token token, float logit) {
    if (logits != changed.data()) {
        changed.assign(logits, logits + n_vocab);
        logits = changed.data();
    }
    changed[(size_t) token] = logit;
}

bool whole_row::summarize() {
    const bool numbers = find_peaks(peaks, logits, n_vocab);
    max                = *std::max_element(peaks.begin(), peaks.end());
    return numbers;
}

double whole_row::weight(float logit) const {
    return (double) exp_negative((logit - max) * by().inverse_temperature);
}

double whole_row::sum_of_weights() {
    sum_blocks(sums, logits, n_vocab, range, by());
    double sum = 0.0;
    for (const float block : sums) {
        sum += block;
    }
    return sum;
}

void whole_row::become_list(bool is_sorted) {
    if (temperature != 1.0f) {
        for (llama_token_data & c : buffer_of_thread().chosen) {
            c.logit /= temperature;
        }
    }
    listed = true;
    sorted = is_sorted;
}

bool whole_row::list(size_t most) {
    if (!choose_range(buffer_of_thread(), logits, n_vocab, peaks, range, most)) {
        return false;
    }
    if (sorted) {
        sort_by_logit(buffer_of_thread());
    }
    become_list(sorted);
    return true;
}

void whole_row::list_likeliest(size_t n) {
    candidate_buffer & buffer = buffer_of_thread();
    const auto         is_out = [this](const llama_token_data & c) { return !range.has(c.logit); };
    choose_likeliest(buffer, logits, n_vocab, n);
    buffer.chosen.erase(std::remove_if(buffer.chosen.begin(), buffer.chosen.end(), is_out),
                        buffer.chosen.end());
    if (buffer.chosen.size() < n) { // likelier tokens are out, or there are no more
        choose_range(buffer, logits, n_vocab, peaks, range, SIZE_MAX);
    }
    n = std::min(n, buffer.chosen.size());
    sort_chosen(buffer, n);
    buffer.chosen.resize(n);
    become_list(true);
}

void whole_row::list_blocks() {
    sum_of_weights();
    auto & chosen = buffer_of_thread().chosen;
    chosen.clear();
    for (size_t b = 0; b < sums.size(); b++) {
        if (sums[b] > 0.0f) {
            chosen.push_back({(llama_token) b, std::log(sums[b]), 0.0f});
        }
    }
}

void whole_row::list_block(llama_token block) const {
    auto & chosen = buffer_of_thread().chosen;
    chosen.clear();
    for (int32_t i = block * n_summed; i < std::min(n_vocab, (block + 1) * n_summed); i++) {
        if (range.has(logits[i])) {
            chosen.push_back({i, (logits[i] - max) / temperature, 0.0f});
        }
    }
}

float whole_row::log_sum() {
    const double sum = sums.empty() ? sum_of_weights() : std::accumulate(sums.begin(), sums.end(), 0.0);
    return max / temperature + (float) std::log(sum);
}
