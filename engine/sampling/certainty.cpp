#include "sampling/certainty.h"

#include "rows/row_sums.h"

#include <cmath>

namespace {

// Tokens that stand side by side in the vocabulary.
struct token_span {
    llama_token first;
    int32_t     n;
};

} // namespace

static bool is_padding(const llama_vocab * vocab, llama_token token) {
    return (llama_vocab_get_attr(vocab, token) & LLAMA_TOKEN_ATTR_UNUSED) != 0;
}

// They are looked for once: a process has one model.
static const std::vector<token_span> & real_tokens(const llama_vocab * vocab) {
    static const std::vector<token_span> found = [vocab] {
        std::vector<token_span> spans;
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
            if (is_padding(vocab, token)) {
                continue;
            }
            if (spans.empty() || spans.back().first + spans.back().n != token) {
                spans.push_back({token, 0});
            }
            spans.back().n++;
        }
        return spans;
    }();
    return found;
}

// With L the logarithm of the sum of the exponentials, KL(uniform || row) is the mean of L - logit less log(n).
double certainty_of(const float * logits, const llama_vocab * vocab) {
    flatness_sums all;
    for (const token_span & span : real_tokens(vocab)) {
        add_for_flatness(all, logits + span.first, span.n);
    }
    if (all.n == 0.0) {
        return 0.0;
    }
    const double kl = all.max + std::log(all.weights) - all.sum / all.n - std::log(all.n);
    return std::isfinite(kl) ? std::max(kl, 0.0) : 0.0;
}
