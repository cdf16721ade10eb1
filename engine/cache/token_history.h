// The tokens of requests that have ended, so that any of their sequences can be continued, with or without cells.
#pragma once

#include "llama.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

struct record {
    std::string              id;
    int32_t                  n_bos = 0; // tokens at the beginning that the client did not send
    std::vector<llama_token> tokens;    // of the prompt, then of each sequence
    std::vector<uint32_t>    ends;      // of each of these lists in `tokens`
    std::string              healed;    // the end of the prompt that is in the sequences' tokens

    void add(const std::vector<llama_token> & list);
    // 0: the prompt, 1 + index: a sequence.
    std::vector<llama_token> list(size_t i) const;
    size_t                   n_bytes() const;
};

class record_list {
  public:
    // The oldest records are dropped: all records together take at most 16 MiB, or there is only one.
    void add(record && r);
    // The newest record of that id; nullptr: there is none (any more).
    const record * find(const std::string & id) const;

  private:
    std::deque<record> records;     // newest first
    size_t             n_bytes = 0; // of all
};
