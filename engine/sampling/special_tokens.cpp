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

std::vector<llama_token> tokens_with(const word_finder_ptr & phrases, const pattern_finder_ptr & patterns,
                                     const llama_vocab * vocab) {
    std::vector<llama_token> tokens;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        const std::string piece = common_token_to_piece(vocab, token, false);
        if (phrase_guard(phrases, patterns).feed(piece) > 0) {
            tokens.push_back(token);
        }
    }
    return tokens;
}
