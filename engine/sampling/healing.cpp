#include "sampling/healing.h"

#include <algorithm>
#include <utility>

static const size_t n_longest = 256; // bytes: longer tokens are runs of spaces and the like

void healed_end::drop(std::vector<llama_token> & prompt, size_t n_fixed) {
    const size_t n_kept    = std::max<size_t>(n_fixed, 1); // without a token there is no row to draw from
    size_t       n_dropped = 0;
    std::string  end;
    for (size_t n = 1; n + n_kept <= prompt.size() && end.size() < n_longest; n++) {
        const std::string text = vocabulary->text(prompt[prompt.size() - n]);
        if (text.empty()) {
            break;
        }
        end = text + end;
        if (vocabulary->any_goes_on(end)) {
            n_dropped = n;
            bytes     = end;
        }
    }
    prompt.resize(prompt.size() - n_dropped);
    first = n_dropped > 0 ? vocabulary->along(bytes) : std::vector<llama_token>();
}

// The bytes of a token behind the first n.
static std::string behind(const token_tree & vocabulary, llama_token token, size_t n) {
    std::string text = vocabulary.text(token);
    text.erase(0, std::min(text.size(), n));
    return text;
}

static void keep_fitting(std::vector<llama_token> & tokens, const token_tree & vocabulary, size_t n_left,
                         const grammar_progress & text) {
    if (text.is_active()) {
        const auto is_out = [&](llama_token token) {
            return !text.may_begin_with(behind(vocabulary, token, n_left));
        };
        tokens.erase(std::remove_if(tokens.begin(), tokens.end(), is_out), tokens.end());
    }
}

void healed_end::keep_what_fits(const grammar_progress & text) {
    keep_fitting(first, *vocabulary, bytes.size(), text);
}

healing_progress::healing_progress(std::shared_ptr<const healed_end> end) : end(std::move(end)) {
    if (this->end) {
        left = this->end->bytes;
    }
}

std::vector<llama_token> healing_progress::allowed(const grammar_progress & text) const {
    if (left.size() == end->bytes.size()) {
        return end->first;
    }
    auto tokens = end->vocabulary->along(left);
    keep_fitting(tokens, *end->vocabulary, left.size(), text);
    return tokens;
}

std::string healing_progress::accept(llama_token token) {
    const std::string own = behind(*end->vocabulary, token, left.size());
    left.remove_prefix(std::min(left.size(), end->vocabulary->text(token).size()));
    return own;
}
