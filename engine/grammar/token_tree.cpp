#include "grammar/token_tree.h"

#include "common.h"

#include <algorithm>

std::string token_tree::text(llama_token token) const {
    return llama_vocab_is_eog(vocab, token) ? ""
                                            : common_token_to_piece(vocab, token, shown.count(token) > 0);
}

const std::vector<token_tree::node> & token_tree::nodes() {
    std::call_once(made, [this] { make(); });
    return tree;
}

void token_tree::make() {
    std::vector<std::pair<std::string, llama_token>> texts;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        if (llama_vocab_is_eog(vocab, token)) {
            end_tokens.push_back(token);
        } else if (std::string bytes = text(token); !bytes.empty()) {
            texts.emplace_back(std::move(bytes), token);
        }
    }
    std::sort(texts.begin(), texts.end());
    std::vector<int32_t> open; // the nodes of the previous text
    const auto           close = [&](size_t depth) {
        for (; open.size() > depth; open.pop_back()) {
            tree[open.back()].next = (int32_t) tree.size();
        }
    };
    for (const auto & [bytes, token] : texts) {
        size_t n = 0;
        while (n < open.size() && n < bytes.size() && tree[open[n]].byte == (uint8_t) bytes[n]) {
            n++;
        }
        close(n);
        for (; n < bytes.size(); n++) {
            open.push_back((int32_t) tree.size());
            tree.push_back({(uint8_t) bytes[n], (int32_t) n, 0, (int32_t) by_text.size(), 0});
        }
        tree[open.back()].n_tokens++;
        by_text.push_back(token);
    }
    close(0);
}
