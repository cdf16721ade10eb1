#include "grammar/tokens.h"

#include "grammar/characters.h"

#include "common.h"

#include <utility>

llama_token token_names::find(const std::string & text) const {
    if (vocab == nullptr) {
        return -1;
    }
    const auto ids = common_tokenize(vocab, text, false, true);
    return ids.size() == 1 ? ids[0] : -1;
}

bool token_names::has(int64_t id) const {
    return vocab != nullptr && id >= 0 && id < llama_vocab_n_tokens(vocab);
}

llama_token token_names::read(notation_text & in) const {
    const size_t at = in.place();
    if (!in.take('<')) {
        in.fail("expected a token: <text> or <[id]>");
    }
    int32_t id = -1;
    if (in.take('[')) {
        id = in.read_count();
        if (!in.take("]>")) {
            in.fail("expected ]>, found " + in.found());
        }
    } else {
        std::string text = "<";
        for (char32_t c = 0; c != '>';) {
            if (in.at_end()) {
                in.fail(at, "the token has no closing >");
            }
            c = in.next();
            text += to_utf8(c);
        }
        id = find(text);
    }
    if (!has(id)) {
        in.fail(at, "the model has no such token");
    }
    return id;
}

grammar_element token_names::any_but(grammar_rules & rules, std::vector<int32_t> tokens) {
    for (; vocab != nullptr && n_seen < llama_vocab_n_tokens(vocab); n_seen++) {
        if (llama_vocab_is_eog(vocab, n_seen)) {
            ends.push_back(n_seen);
        }
    }
    tokens.insert(tokens.end(), ends.begin(), ends.end());
    return rules.other_than(std::move(tokens));
}
