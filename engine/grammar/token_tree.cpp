#include "grammar/token_tree.h"

#include "grammar/characters.h"
#include "util/utf8.h"

#include "common.h"

#include <algorithm>

// What the parts know. The second and third serve strings with a bound; the last one is the whole vocabulary as a tree.
static const int32_t n_plain_of_parts[] = {INT32_MAX, 16, 8, 0};

std::string token_tree::text(llama_token token) const {
    return llama_vocab_is_eog(vocab, token) ? ""
                                            : common_token_to_piece(vocab, token, shown.count(token) > 0);
}

const token_tree::part & token_tree::part_with(int32_t n_plain) {
    std::call_once(made, [this] { make(); });
    return *std::find_if(parts.begin(), parts.end(),
                         [n_plain](const part & p) { return p.n_plain <= n_plain; });
}

// The characters of a text of plain ones; -1: it has others.
static int32_t count_plain(const std::string & bytes) {
    std::string       rest  = bytes;
    const std::string valid = take_utf8(rest);
    if (!rest.empty() || valid != bytes) {
        return -1;
    }
    const std::u32string text = from_utf8(bytes);
    return std::all_of(text.begin(), text.end(), is_plain) ? (int32_t) text.size() : -1;
}

static void add_nodes(token_tree::part & to, const std::string & bytes, std::vector<int32_t> & open) {
    auto & tree = to.nodes;
    size_t n    = 0;
    while (n < open.size() && n < bytes.size() && tree[open[n]].byte == (uint8_t) bytes[n]) {
        n++;
    }
    for (; open.size() > n; open.pop_back()) {
        tree[open.back()].next = (int32_t) tree.size();
    }
    for (; n < bytes.size(); n++) {
        open.push_back((int32_t) tree.size());
        tree.push_back({(uint8_t) bytes[n], (int32_t) n, 0, (int32_t) to.by_text.size(), 0});
    }
}

void token_tree::make() {
    texts all;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        if (llama_vocab_is_eog(vocab, token)) {
            end_tokens.push_back(token);
        } else if (std::string bytes = text(token); !bytes.empty()) {
            all.emplace_back(std::move(bytes), token);
        }
    }
    std::sort(all.begin(), all.end());
    std::vector<int32_t> n_plain(all.size());
    std::transform(all.begin(), all.end(), n_plain.begin(),
                   [](const auto & text) { return count_plain(text.first); });
    for (const int32_t n : n_plain_of_parts) {
        parts.push_back({n, token_set((size_t) llama_vocab_n_tokens(vocab)), 0, {}, {}});
        part &               own = parts.back();
        std::vector<int32_t> open; // the nodes of the previous text
        for (size_t i = 0; i < all.size(); i++) {
            if (n_plain[i] >= 0 && n_plain[i] <= n) {
                own.known.add(all[i].second);
                continue;
            }
            add_nodes(own, all[i].first, open);
            own.nodes[open.back()].n_tokens++;
            own.by_text.push_back(all[i].second);
            own.n_bytes = std::max(own.n_bytes, all[i].first.size());
        }
        add_nodes(own, "", open);
    }
}

// The node below another one, or on top with at = -1, that has this byte; -1: there is none.
int32_t token_tree::child(const std::vector<node> & tree, int32_t at, char byte) {
    const int32_t end = at < 0 ? (int32_t) tree.size() : tree[at].next;
    for (int32_t i = at + 1; i < end; i = tree[i].next) {
        if (tree[i].byte == (uint8_t) byte) {
            return i;
        }
    }
    return -1;
}

bool token_tree::any_goes_on(std::string_view bytes) {
    const auto & tree = whole().nodes;
    int32_t      at   = -1;
    for (const char byte : bytes) {
        at = child(tree, at, byte);
        if (at < 0) {
            return false;
        }
    }
    return at < 0 || at + 1 < tree[at].next;
}

std::vector<llama_token> token_tree::along(std::string_view bytes) {
    const auto &             tree    = whole().nodes;
    const auto &             by_text = whole().by_text;
    std::vector<llama_token> tokens;
    int32_t                  at  = -1;
    const auto               add = [&](int32_t first, int32_t end) {
        tokens.insert(tokens.end(), by_text.begin() + first, by_text.begin() + end);
    };
    for (size_t i = 0; i < bytes.size(); i++) {
        at = child(tree, at, bytes[i]);
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
