#include "sampling/logprobs.h"

#include "rows/whole_row.h"

// JSON has no NaN and no infinity, and sums of log probabilities must stay finite.
static float finite_logprob(float logprob) {
    return logprob > -9999.0f && logprob < INFINITY ? logprob : -9999.0f;
}

token_logprob logprobs_of(const float * logits, int32_t n_vocab, llama_token token, int32_t n_top,
                          std::vector<token_logprob> & top) {
    candidate_buffer & buffer = buffer_of_thread();
    top.clear();
    n_top = std::min(n_top, n_vocab);
    if (n_top > 0) {
        choose_likeliest(buffer, logits, n_vocab, (size_t) n_top);
        n_top = std::min(n_top, (int32_t) buffer.chosen.size()); // a row may hold NaN
        sort_chosen(buffer, (size_t) n_top);
    } else {
        find_maxima(buffer, logits, n_vocab);
    }
    const float log_sum = log_sum_exp(buffer, logits, n_vocab);
    for (int32_t i = 0; i < n_top; i++) {
        top.push_back({buffer.chosen[i].id, finite_logprob(buffer.chosen[i].logit - log_sum)});
    }
    return {token, finite_logprob(logits[token] - log_sum)};
}

// After a draw from the row itself.
static token_logprob logprobs_of_row(whole_row & row, llama_token token, int32_t n_top,
                                     std::vector<token_logprob> & top) {
    const float log_sum = row.log_sum();
    row.list_likeliest((size_t) std::max(n_top, 1));
    for (const llama_token_data & c : buffer_of_thread().chosen) {
        top.push_back({c.id, finite_logprob(c.logit - log_sum)});
    }
    return {token, finite_logprob(row.logits[token] / row.temperature - log_sum)};
}

token_logprob logprobs_of_draw(llama_token token, int32_t n_top, std::vector<token_logprob> & top) {
    candidate_buffer & buffer = buffer_of_thread();
    top.clear();
    if (!row_of_thread().listed) {
        return logprobs_of_row(row_of_thread(), token, n_top, top);
    }
    const auto is_out = [](const llama_token_data & c) { return c.logit == -INFINITY; };
    buffer.chosen.erase(std::remove_if(buffer.chosen.begin(), buffer.chosen.end(), is_out),
                        buffer.chosen.end());
    if (buffer.chosen.empty()) {
        return {token, finite_logprob(-INFINITY)};
    }
    n_top = std::min(std::max(n_top, 1), (int32_t) buffer.chosen.size());
    sort_chosen(buffer, (size_t) n_top);
    const float max = buffer.chosen[0].logit;
    double      sum = 0.0;
    float       own = max;
    for (const llama_token_data & c : buffer.chosen) {
        sum += exp_negative(c.logit - max);
        own = c.id == token ? c.logit : own;
    }
    const float log_sum = max + (float) std::log(sum);
    for (int32_t i = 0; i < n_top; i++) {
        top.push_back({buffer.chosen[i].id, finite_logprob(buffer.chosen[i].logit - log_sum)});
    }
    return {token, finite_logprob(own - log_sum)};
}
