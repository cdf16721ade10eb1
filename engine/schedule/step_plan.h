// What one decode step computes: the planner makes it, and it is const from then on.
#pragma once

#include "schedule/request.h"

#include <string>
#include <vector>

// One token of the batch.
struct planned_token {
    branch *    cells     = nullptr;
    llama_token token     = -1;
    int32_t     position  = 0;
    bool        wants_row = false; // of logits
};

// A sequence whose text is still equal to that of another one: it has the same token in the same cell, and the same row.
struct sharing_sequence {
    int32_t  i_token = 0; // of the batch
    branch * cells   = nullptr;
};

// The rows of logits that a sequence is sampled or scored from; i_row -1: the row that the request has.
struct planned_rows {
    request *  r          = nullptr;
    sequence * s          = nullptr;
    int32_t    i_row      = -1;
    int32_t    n_rows     = 1;
    int32_t    i_negative = -1; // behind the negative prompt; -1: the sequence is not guided
    int32_t    i_drafts   = -1; // of the first guess at what comes next; -1: there is none
};

// A prompt whose last token is in this batch; i_row -1: the request has its row.
struct planned_prompt {
    request * r     = nullptr;
    int32_t   i_row = -1;
};

// A row that predicts a token of a prompt, for echo.
struct planned_echo {
    request * r       = nullptr;
    int32_t   i_row   = 0;
    int32_t   i_token = 0; // of the prompt
};

// The requests that a step is for: a context has one set of adapters at a time.
struct turn {
    int32_t             priority = 0;
    const adapter_set * adapters = nullptr; // nullptr: there is no request

    bool serves(const request & r) const { return r.priority() == priority && r.has_adapters(adapters->key); }
};

struct step_plan {
    turn                          whose;
    std::vector<planned_token>    tokens;
    std::vector<sharing_sequence> sharing;
    std::vector<planned_rows>     rows;
    std::vector<planned_prompt>   prompts;
    std::vector<planned_echo>     echoes;
    std::vector<request *>        begun;          // requests whose prompt has begun: the client is told
    int32_t                       n_prefill  = 0; // tokens of prompts
    int64_t                       t_guessing = 0; // us that a draft model took for its guesses

    int32_t n_tokens() const { return (int32_t) tokens.size(); }
    bool    empty() const { return tokens.empty() && prompts.empty(); }
    // Appends the next token of a branch; the branch has it from now on, as if it were decoded.
    void add(branch * cells, llama_token token, bool wants_row);
    // One line for each entry, for a debugger and for tests; consecutive tokens of a branch are one line.
    std::string to_string() const;
};
