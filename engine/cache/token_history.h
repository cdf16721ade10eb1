// The tokens of requests that are over, so that any of their sequences can be continued, cells or not.
#pragma once

#include "llama.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

struct record {
    std::string              id;
    int32_t                  n_bos = 0; // tokens at the beginning that the client did not write
    std::vector<llama_token> tokens;    // of the prompt, then of each sequence
    std::vector<uint32_t>    ends;      // of each of these lists in `tokens`

    void add(const std::vector<llama_token> & list);
    // 0: the prompt, 1 + index: a sequence.
    std::vector<llama_token> list(size_t i) const;
    size_t                   n_bytes() const;
};

class record_list {
  public:
    // Those that are too old go: all together take a bounded number of bytes, or one does.
    void add(record && r);
    // The newest of that id; nullptr: none is known (any more).
    const record * find(const std::string & id) const;

  private:
    std::deque<record> records;     // newest first
    size_t             n_bytes = 0; // of all
};
