// The texts of a vocabulary's tokens as a tree of bytes, so that one walk finds all tokens that a grammar allows.
#pragma once

#include "llama.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

class token_tree {
  public:
    struct node {
        uint8_t byte;
        int32_t depth;       // bytes before it
        int32_t next;        // the first node that is not below this one
        int32_t first_token; // in by_text
        int32_t n_tokens;    // whose text ends here
    };

    // shown: control tokens whose text a client sees.
    explicit token_tree(const llama_vocab * vocab, std::set<llama_token> shown = {})
        : vocab(vocab), shown(std::move(shown)) {}

    // The first call makes the tree. Depth first: a node is followed by the nodes below it.
    const std::vector<node> & nodes();
    std::string text(llama_token token) const; // as a client sees it: empty for other control tokens
    // Whether a token has these bytes first and others behind them.
    bool any_goes_on(std::string_view bytes);
    // The tokens that have these bytes first, or that these bytes have first, by id.
    std::vector<llama_token> along(std::string_view bytes);

    const llama_vocab * const   vocab;
    const std::set<llama_token> shown;
    std::vector<llama_token>    by_text, end_tokens; // made with the tree

  private:
    void    make();
    int32_t child(int32_t at, char byte) const;

    std::once_flag    made;
    std::vector<node> tree;
};
