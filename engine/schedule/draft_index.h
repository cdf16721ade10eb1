// What a request's texts have said before: behind the last tokens of one of them, the tokens that stood there the last
// times. It knows the prompt, earlier answers and all sequences, so that these draft from all of them and from themselves.
#pragma once

#include "llama.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

// Where tokens stand that may come next: behind `end` tokens of a text.
struct draft_place {
    uint32_t text    = 0;
    uint32_t end     = 0;
    int32_t  n_equal = 0; // tokens before it that are equal to the last ones; 0: there is no such place
};

// Groups of n_gram tokens, by hash: their last places in the texts, newest first. A text may lose its end and get another
// one; what is said of it before is checked when it is found.
class draft_index {
  public:
    static const size_t n_gram = 3;

    // Adds the tokens that a text has got since the last time.
    void add(uint32_t text, const std::vector<llama_token> & tokens);
    // The place behind the most tokens that are equal to the last ones of `text`, another one than its end; of several the
    // newest. texts: all that were added.
    draft_place find(uint32_t text, const std::vector<const std::vector<llama_token> *> & texts) const;

  private:
    static const size_t  n_places   = 4;       // of a group
    static const size_t  n_max      = 1 << 16; // groups, some 5 MB; what would be more makes all forgotten
    static const int32_t n_compared = 32;      // tokens, at most

    struct place {
        uint32_t text = 0, end = 0; // end 0: none
    };

    std::unordered_map<uint64_t, std::array<place, n_places>> groups;
    std::vector<size_t>                                       n_known; // tokens of each text
};
