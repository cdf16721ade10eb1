#include "model/vocabulary.h"

#include "model/prompt_parts.h"

#include "common.h"

#include <algorithm>

std::string model_vocabulary::piece(llama_token token, bool special) const {
    return common_token_to_piece(vocab, token, special);
}

bool model_vocabulary::is_end(llama_token token) const {
    return llama_vocab_is_eog(vocab, token);
}

bool model_vocabulary::is_control(llama_token token) const {
    return llama_vocab_get_attr(vocab, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN);
}

std::vector<llama_token> model_vocabulary::tokenize(const std::string & text) const {
    return tokenize_behind({{text, false}}, vocab);
}

size_t n_not_spelled(size_t n_bytes, const std::vector<llama_token> & tokens, size_t n,
                     const vocabulary & vocab) {
    for (size_t i = 0; i < n && n_bytes > 0; i++) {
        n_bytes -= std::min(n_bytes, vocab.piece(tokens[i], false).size());
    }
    return n_bytes;
}

void spell_prompt(const std::string & bytes, std::vector<llama_token> & tokens, const vocabulary & vocab) {
    if (const size_t n = n_not_spelled(bytes.size(), tokens, tokens.size(), vocab)) {
        vocab.append(tokens, bytes.substr(bytes.size() - n));
    }
}

int32_t common_length(const std::vector<llama_token> & a, const std::vector<llama_token> & b, int32_t n_max) {
    const int32_t n = std::max(std::min({(int32_t) a.size(), (int32_t) b.size(), n_max}), 0);
    return (int32_t) (std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

// From the first tokens that differ, the bytes of both lists are compared: the list that is behind gives its next token.
token_match match_tokens(const std::vector<llama_token> & held, int32_t n_held,
                         const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                         const vocabulary & vocab) {
    token_match m;
    m.length = m.n_matched = common_length(held, tokens, std::min(n_held, n_max));
    std::string ours, theirs; // the bytes by which one list is ahead of the other
    int32_t     i = m.length, k = m.n_matched;
    while (by == by_text) {
        const bool is_border = ours.empty() && theirs.empty();
        if (is_border) {
            m = {i, k};
        }
        const bool ours_next = ours.size() <= theirs.size();
        if (ours_next ? i >= n_held : k >= n_max) {
            break;
        }
        const llama_token next = ours_next ? held[(size_t) i++] : tokens[(size_t) k++];
        if (vocab.is_control(next)) { // a text with its name is not the same
            if (!is_border || k >= n_max || tokens[(size_t) k++] != next) {
                break;
            }
            continue;
        }
        (ours_next ? ours : theirs) += vocab.piece(next, true);
        const size_t n = std::min(ours.size(), theirs.size());
        if (ours.compare(0, n, theirs, 0, n) != 0) {
            break;
        }
        ours.erase(0, n);
        theirs.erase(0, n);
    }
    return m;
}
