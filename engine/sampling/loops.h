// Loops: whether the tokens of a sequence end in a passage that stands there again and again.
#pragma once

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// What counts as a loop: a passage that stands `count` times, one behind the other; or, whatever its length up to half of
// the window, nothing but one passage in the last `window` tokens.
struct loop_limit {
    int32_t shortest = 1; // tokens of the passage
    int32_t longest  = 0; // 0: none counts
    int32_t count    = 2;
    int32_t window   = 0;     // 0: none
    bool    rewinds  = false; // a sequence goes back to where the loop began; else it ends there

    bool wanted() const { return longest > 0 || window > 1; }
};

// For each length of a passage: how many of the last tokens are what stands that many tokens before them.
class loop_finder {
  public:
    explicit loop_finder(const loop_limit & limit = {});

    // Of the first n tokens, one more than at the last call, or others: how many at the end make a loop, without the
    // first time of their passage; 0: there is none. Those before `begin` count for nothing.
    size_t find(const std::vector<llama_token> & tokens, size_t n, size_t begin);

    // Tokens at the end that a loop may turn out to have, without the first time of their passage.
    size_t n_begun() const;
    bool   wanted() const { return needed.size() > 1; }

  private:
    void count_anew(const std::vector<llama_token> & tokens, size_t n, size_t begin);

    std::vector<int32_t> needed; // tokens that make a loop, by the length of the passage
    std::vector<int32_t> equal;  // that many are there
    size_t               n_seen = 0, begin_seen = 0;
};
