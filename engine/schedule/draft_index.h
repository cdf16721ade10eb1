// What a request's texts have said before: behind the last tokens of one of them, the tokens that stood there the last
// times. It knows the prompt, earlier answers and all sequences, so that these draft from all of them and from themselves.
#pragma once

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <vector>

// Where tokens stand that may come next: behind `end` tokens of a text.
struct draft_place {
    uint32_t text    = 0;
    uint32_t end     = 0;
    int32_t  n_equal = 0; // tokens before it that are equal to the last ones; 0: there is no such place
};

// Groups of n_gram tokens, by hash: chains of their places in the texts, newest first, of 16 bytes a token, and as long as
// the texts are. A text may lose its end and get another one; what is said of it before is checked when it is found.
class draft_index {
  public:
    static const size_t n_gram = 3;

    // Adds the tokens that a text has got since the last time, at most so many; returns how many they are.
    size_t add(uint32_t text, const std::vector<llama_token> & tokens, size_t n_most);
    // The place behind the most tokens that are equal to the last ones of `text`, another one than its end; of several the
    // newest. texts: all that were added.
    draft_place find(uint32_t text, const std::vector<const std::vector<llama_token> *> & texts) const;

  private:
    static const size_t  n_places   = 4;       // of a group that are looked at
    static const size_t  n_linked   = 32;      // places that are looked at, of other groups, too
    static const size_t  n_max      = 1 << 18; // places, some 5 MB; what would be more makes all forgotten
    static const int32_t n_compared = 32;      // tokens, at most

    struct place {
        uint32_t hash = 0, text = 0, end = 0;
        uint32_t older = 0; // 1 + the place before it in its chain; 0: there is none
    };

    size_t chain_of(uint32_t hash) const { return hash & (heads.size() - 1); }
    void   grow();

    std::vector<place>    places;
    std::vector<uint32_t> heads;   // of the chains, as `older`; a power of two
    std::vector<size_t>   n_known; // tokens of each text
};
