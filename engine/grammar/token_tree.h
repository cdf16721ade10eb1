// The texts of a vocabulary's tokens as trees of bytes, so that one walk finds all tokens that a grammar allows.
#pragma once

#include "grammar/token_set.h"

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
    // A part of the tokens is known where any so many plain characters (grammar/characters.h) may follow: those of at
    // most so many. The others are a tree. Depth first: a node is followed by the nodes below it.
    struct part {
        int32_t                  n_plain;
        token_set                known;
        size_t                   n_bytes; // of the longest text in the tree
        std::vector<node>        nodes;
        std::vector<llama_token> by_text;
    };

    // shown: control tokens whose text a client sees.
    explicit token_tree(const llama_vocab * vocab, std::set<llama_token> shown = {})
        : vocab(vocab), shown(std::move(shown)) {}

    // The part that knows most where so many plain characters may follow. The first call makes the trees.
    const part & part_with(int32_t n_plain);
    std::string  text(llama_token token) const; // as a client sees it: empty for other control tokens
    // Whether a token has these bytes first and others behind them.
    bool any_goes_on(std::string_view bytes);
    // The tokens that have these bytes first, or that these bytes have first, by id.
    std::vector<llama_token> along(std::string_view bytes);

    const llama_vocab * const   vocab;
    const std::set<llama_token> shown;
    std::vector<llama_token>    end_tokens; // made with the trees

  private:
    using texts = std::vector<std::pair<std::string, llama_token>>;

    void           make();
    const part &   whole() { return part_with(0); }
    static int32_t child(const std::vector<node> & tree, int32_t at, char byte);

    std::once_flag    made;
    std::vector<part> parts; // the one that knows most is first
};
