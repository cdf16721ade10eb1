#include "sampling/token_biases.h"

#include <algorithm>
#include <cmath>

void make_unique(std::vector<llama_token> & tokens) {
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

allowed_tokens::allowed_tokens(const std::vector<llama_token> & tokens, int32_t n_vocab)
    : has((size_t) n_vocab) {
    for (const llama_token token : tokens) {
        has[(size_t) token] = true;
    }
    for (llama_token token = 0; token < n_vocab; token++) {
        if (has[(size_t) token]) {
            list.push_back(token);
        }
    }
}

token_biases::token_biases(std::vector<llama_logit_bias> list, int32_t n_vocab) : bans((size_t) n_vocab) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto & a, const auto & b) { return a.token < b.token; });
    for (const llama_logit_bias & entry : list) {
        if (entry.bias == -INFINITY && !is_banned(entry.token)) {
            banned.push_back(entry.token);
            bans[(size_t) entry.token] = true;
        }
    }
    for (const llama_logit_bias & entry : list) {
        if (is_banned(entry.token)) {
            continue;
        }
        if (changed.empty() || changed.back() != entry.token) {
            changed.push_back(entry.token);
            biases.push_back(0.0f);
        }
        biases.back() += entry.bias;
    }
}

float token_biases::of(llama_token token) const {
    const auto at = std::lower_bound(changed.begin(), changed.end(), token);
    return at == changed.end() || *at != token ? 0.0f : biases[(size_t) (at - changed.begin())];
}
