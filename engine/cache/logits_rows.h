// The last rows of logits of prompts: who asks for the same prompt again needs no decode before the first tokens.
#pragma once

#include "llama.h"

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

using logits_row = std::shared_ptr<const std::vector<float>>;

class row_list {
  public:
    // Keeps a copy of what follows these tokens. Those that were used longest ago go: all together take a bounded
    // number of bytes, or one does.
    void add(const std::vector<llama_token> & tokens, uint64_t adapters, const float * logits,
             int32_t n_vocab);
    // nullptr: none is known (any more) of exactly these tokens and adapters.
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

    std::list<entry> entries;     // used last first
    size_t           n_bytes = 0; // of all
};
