#include "sampling/special_tokens.h"

#include "text/banned_phrases.h"

#include <common.h> // llama.cpp's common/common.h

const std::vector<llama_token> & end_tokens(const llama_vocab * vocab) {
    static const std::vector<llama_token> found = [vocab] {
        std::vector<llama_token> tokens;
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
            if (llama_vocab_is_eog(vocab, token)) {
                tokens.push_back(token);
            }
        }
        return tokens;
    }();
    return found;
}

std::vector<llama_token> tokens_with(const word_finder & phrases, const llama_vocab * vocab) {
    std::vector<llama_token> tokens;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        int32_t state = 0;
        bool    holds = false;
        for (const char c : ascii_lower(common_token_to_piece(vocab, token, false))) {
            state = phrases.next(state, c);
            holds = holds || phrases.word(state);
        }
        if (holds) {
            tokens.push_back(token);
        }
    }
    return tokens;
}
