// The tokens of requests that have ended, so that any of their sequences can be continued, with or without cells.
#pragma once

#include "llama.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

struct record {
    std::string              id;
    std::string              client;
    uint64_t                 key         = 0;     // of its cells: adapters and salt
    int32_t                  n_bos       = 0;     // tokens at the beginning that the client did not send
    bool                     front_space = false; // that the client did not send, either
    int32_t                  n_first = 0; // of the prompt: those of the first one, if it continues another
    std::vector<llama_token> tokens;      // of the prompt, then of each sequence
    std::vector<uint32_t>    ends;        // of each of these lists in `tokens`
    std::string              healed;      // the end of the prompt that is in the sequences' tokens

    void add(const std::vector<llama_token> & list);
    // A sequence: its tokens as they were drawn, and those of the text that the client has.
    void add_answer(const std::vector<llama_token> & drawn, const std::vector<llama_token> & seen);
    // 0: the prompt, 1 + index: a sequence, as drawn.
    std::vector<llama_token> list(size_t i) const;
    // Those of the text that the client has.
    std::vector<llama_token> seen(size_t index) const;
    size_t                   n_bytes() const;

  private:
    // Where a text is not that of the drawn tokens: how many of them it has, and the tokens behind them.
    struct other_end {
        size_t                   index;
        size_t                   n_kept;
        std::vector<llama_token> tail;
    };
    std::vector<other_end> other_ends;
};

class record_list {
  public:
    // The oldest records are dropped: all records together take at most 16 MiB, or there is only one.
    void add(record && r);
    // The newest record of that id; nullptr: there is none (any more).
    const record * find(const std::string & id) const;
    // The newest answers of a client to prompts that begin as this one does, for at least half of the shorter one, with
    // cells of this key: so many answers at most, and tokens of all.
    std::vector<std::vector<llama_token>> alike(const std::string & client, uint64_t key,
                                                const std::vector<llama_token> & prompt, size_t n_answers,
                                                size_t n_tokens) const;

  private:
    std::deque<record> records;     // newest first
    size_t             n_bytes = 0; // of all
};
