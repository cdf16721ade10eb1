#include "model/prompt_parts.h"

#include <common.h> // llama.cpp's common/common.h

#include <algorithm>

static const char * const spaces = " \t\n\v\f\r"; // what a control token may take away beside it

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

prompt_parts split_at(const word_finder & names, const std::string & text) {
    std::vector<std::pair<size_t, size_t>> found; // where texts of control tokens begin and end
    int32_t                                state = 0;
    for (size_t i = 0; i < text.size(); i++) {
        state                    = names.next(state, text[i]);
        const std::string * word = names.word(state);
        size_t              from = word ? i + 1 - word->size() : 0;
        while (word && !found.empty() && found.back().second > from) {
            from = std::min(from, found.back().first);
            found.pop_back();
        }
        if (word) {
            found.emplace_back(from, i + 1);
        }
    }
    prompt_parts parts;
    size_t       n_done = 0;
    for (const auto & [begin, end] : found) {
        parts.push_back({text.substr(n_done, begin - n_done), false});
        parts.push_back({text.substr(begin, end - begin), true});
        n_done = end;
    }
    parts.push_back({text.substr(n_done), false});
    return parts;
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
static std::vector<llama_token> tokenize_inside(const std::string & text, const llama_vocab * vocab) {
    for (const std::string before : {"\n", "\x01"}) {
        const auto ahead = common_tokenize(vocab, before, false, false);
        auto       both  = common_tokenize(vocab, before + text, false, false);
        if (both.size() >= ahead.size() && std::equal(ahead.begin(), ahead.end(), both.begin())) {
            both.erase(both.begin(), both.begin() + (std::ptrdiff_t) ahead.size());
            return both;
        }
    }
    return common_tokenize(vocab, text, false, false);
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

// Appends the tokens of text without control tokens, of one part or more. behind_text: at the front, it stands behind text.
static void append_text(std::vector<llama_token> & tokens, std::string text, bool behind_text,
                        const llama_vocab * vocab) {
    if (!tokens.empty() && (llama_vocab_get_attr(vocab, tokens.back()) & LLAMA_TOKEN_ATTR_RSTRIP)) {
        text.erase(0, std::min(text.find_first_not_of(spaces), text.size()));
    }
    if (text.empty()) {
        return;
    }
    const auto own = tokens.empty() && behind_text && adds_space(vocab)
                         ? tokenize_inside(text, vocab)
                         : common_tokenize(vocab, text, false, false);
    tokens.insert(tokens.end(), own.begin(), own.end());
}

static void append_parts(std::vector<llama_token> & tokens, const prompt_parts & list, bool behind_text,
                         const llama_vocab * vocab) {
    static const word_finder names(control_texts(vocab));
    std::string              open; // the text behind the last control token
    for (const prompt_part & part : list) {
        for (const prompt_part & piece : part.special ? split_at(names, part.text) : prompt_parts{part}) {
            if (!piece.special) {
                open += piece.text;
                continue;
            }
            const auto own = common_tokenize(vocab, piece.text, false, true);
            if (!own.empty() && (llama_vocab_get_attr(vocab, own[0]) & LLAMA_TOKEN_ATTR_LSTRIP)) {
                open.erase(open.find_last_not_of(spaces) + 1);
            }
            append_text(tokens, std::move(open), behind_text, vocab);
            tokens.insert(tokens.end(), own.begin(), own.end());
            open.clear();
        }
    }
    append_text(tokens, std::move(open), behind_text, vocab);
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
