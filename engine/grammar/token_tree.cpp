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

// The node below another one, or on top with at = -1, that has this byte; -1: there is none.
int32_t token_tree::child(int32_t at, char byte) const {
    const int32_t end = at < 0 ? (int32_t) tree.size() : tree[at].next;
    for (int32_t i = at + 1; i < end; i = tree[i].next) {
        if (tree[i].byte == (uint8_t) byte) {
            return i;
        }
    }
    return -1;
}

bool token_tree::any_goes_on(std::string_view bytes) {
    nodes();
    int32_t at = -1;
    for (const char byte : bytes) {
        at = child(at, byte);
        if (at < 0) {
            return false;
        }
    }
    return at < 0 || at + 1 < tree[at].next;
}

std::vector<llama_token> token_tree::along(std::string_view bytes) {
    nodes();
    std::vector<llama_token> tokens;
    int32_t                  at  = -1;
    const auto               add = [&](int32_t first, int32_t end) {
        tokens.insert(tokens.end(), by_text.begin() + first, by_text.begin() + end);
    };
    for (size_t i = 0; i < bytes.size(); i++) {
        at = child(at, bytes[i]);
        if (at < 0) {
            break;
        }
        const node &  last  = tree[at];
        const bool    whole = i + 1 == bytes.size();
        const int32_t end   = !whole                              ? last.first_token + last.n_tokens
                              : last.next < (int32_t) tree.size() ? tree[last.next].first_token
                                                                  : (int32_t) by_text.size();
        add(last.first_token, end);
    }
    std::sort(tokens.begin(), tokens.end());
    return tokens;
}
