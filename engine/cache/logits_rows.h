// The last rows of logits of prompts: a request with the same prompt needs no decode before its first tokens.
#pragma once

#include "llama.h"

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

using logits_row = std::shared_ptr<const std::vector<float>>;

class row_list {
  public:
    // Keeps a copy of the row that follows these tokens. The least recently used rows are dropped: all rows together
    // take at most 16 MiB, or there is only one.
    void add(const std::vector<llama_token> & tokens, uint64_t adapters, const float * logits,
             int32_t n_vocab);
    // nullptr: there is no row of exactly these tokens and cells_key (any more).
    logits_row find(const std::vector<llama_token> & tokens, uint64_t adapters);

  private:
    struct entry {
        std::vector<llama_token> tokens;
        uint64_t                 adapters;
        logits_row               logits;

        size_t n_bytes() const {
            return sizeof *this + tokens.size() * sizeof tokens[0] + logits->size() * sizeof(float);
        }
    };

    std::list<entry> entries;     // most recently used first
    size_t           n_bytes = 0; // of all
};
