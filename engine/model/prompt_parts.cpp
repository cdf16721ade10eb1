#include "model/prompt_parts.h"

#include <common.h> // llama.cpp's common/common.h

#include <algorithm>

std::string joined_text(const prompt_parts & parts) {
    std::string text;
    for (const prompt_part & part : parts) {
        text += part.text;
    }
    return text;
}

const std::vector<std::string> & control_texts(const llama_vocab * vocab) {
    static const std::vector<std::string> found = [vocab] {
        std::vector<std::string> texts;
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
            const int         is_control = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
            const std::string text       = llama_vocab_get_text(vocab, token);
            if ((llama_vocab_get_attr(vocab, token) & is_control) && !text.empty()) {
                texts.push_back(text);
            }
        }
        return texts;
    }();
    return found;
}

// Whether the tokenizer adds a space before each text that it gets.
static bool adds_space(const llama_vocab * vocab) {
    static const bool adds = [vocab] {
        const auto tokens = common_tokenize(vocab, "a", false, false);
        return !tokens.empty() && common_token_to_piece(vocab, tokens[0], false).substr(0, 1) == " ";
    }();
    return adds;
}

// The tokens of a text that stands in the middle of a line, where no space may be added: they are those behind a text
// that keeps its own tokens.
static std::vector<llama_token> tokenize_inside(const prompt_part & part, const llama_vocab * vocab) {
    for (const std::string before : {"\n", "\x01"}) {
        const auto ahead = common_tokenize(vocab, before, false, false);
        auto       both  = common_tokenize(vocab, before + part.text, false, part.special);
        if (both.size() >= ahead.size() && std::equal(ahead.begin(), ahead.end(), both.begin())) {
            both.erase(both.begin(), both.begin() + (std::ptrdiff_t) ahead.size());
            return both;
        }
    }
    return common_tokenize(vocab, part.text, false, part.special);
}

// Neighbours of one kind become one part, and empty parts none.
static prompt_parts merged(const prompt_parts & parts) {
    prompt_parts list;
    for (const prompt_part & part : parts) {
        if (!list.empty() && list.back().special == part.special) {
            list.back().text += part.text;
        } else if (!part.text.empty()) {
            list.push_back(part);
        }
    }
    return list;
}

// behind_text: the first part, too, stands behind text.
static void append_parts(std::vector<llama_token> & tokens, const prompt_parts & list, bool behind_text,
                         const llama_vocab * vocab) {
    for (const prompt_part & part : list) {
        const bool is_inside = tokens.empty() ? behind_text : !llama_vocab_is_control(vocab, tokens.back());
        const auto own       = is_inside && adds_space(vocab)
                                   ? tokenize_inside(part, vocab)
                                   : common_tokenize(vocab, part.text, false, part.special);
        tokens.insert(tokens.end(), own.begin(), own.end());
    }
}

std::vector<llama_token> tokenize_behind(const prompt_parts & parts, const llama_vocab * vocab) {
    std::vector<llama_token> tokens;
    append_parts(tokens, merged(parts), true, vocab);
    return tokens;
}

std::vector<llama_token> tokenize_parts(const prompt_parts & parts, const llama_vocab * vocab, bool begins) {
    const prompt_parts list = merged(parts);
    if (list.empty() || (list.size() == 1 && list[0].special)) {
        return common_tokenize(vocab, joined_text(list), begins, true);
    }
    std::vector<llama_token> tokens;
    if (begins && llama_vocab_get_add_bos(vocab)) {
        tokens.push_back(llama_vocab_bos(vocab));
    }
    append_parts(tokens, list, false, vocab);
    if (begins && llama_vocab_get_add_eos(vocab)) {
        tokens.push_back(llama_vocab_eos(vocab));
    }
    return tokens;
}
