// What the next step computes: which tokens of which sequences and prompts, in which cells. What does not fit waits. A
// sequence that is preempted loses its cells, keeps its text, its sampler and its tokens, and is resumed later.
#pragma once

#include "schedule/drafting.h"
#include "schedule/step_plan.h"
#include "util/client_turns.h"

// Of clients, at what their requests wait for.
struct planner_turns {
    client_turns starts;     // of sequences
    client_turns prompts;    // steps in which prompts are computed
    client_turns background; // steps in which texts are scored
};

struct planner_params {
    int32_t n_parallel  = 32;  // sequences in one step
    int32_t n_batch     = 512; // tokens of one step
    int32_t n_vocab     = 1;
    bool    stops_short = false; // prompts stop one token early: their cells cannot be truncated

    draft_maker * drafts = nullptr; // of guesses where texts say nothing; nullptr: there is none
};

class planner {
  public:
    planner(const planner_params & params, const vocabulary & vocab) : params(params), vocab(vocab) {}

    // The plan's tokens have cells from now on, as if it had been decoded; `undo` takes them away.
    step_plan plan(request_lists & requests, prefix_cache & cache, row_list & rows);

    // The plan was decoded in so many microseconds: the prefill budget follows.
    void decoded(const step_plan & plan, int64_t t_us);
    // The whole step took so many microseconds, samples and all.
    void measured(const step_plan & plan, int64_t t_us);
    // The sequences have taken their samples: so many guesses were right.
    void count_guesses(const step_plan & plan);
    // All guesses so far.
    const draft_counts_by_source & counts_of_guesses() const { return guessed; }
    // Of computing one token of a prompt, by the last step that told it; 0: none has.
    double token_us() const { return t_token_us; }
    // The plan was not decoded.
    void undo(const step_plan & plan, request_lists & requests, prefix_tree & tree) const;
    // A prompt is complete: as many of its sequences start as there is room for, each to be sampled from its last row.
    std::vector<planned_rows> start_sequences(const planned_prompt & prompt, const request_lists & requests,
                                              prefix_tree & tree);

  private:
    const planner_params params;
    const vocabulary &   vocab;
    int32_t              n_prefill_budget = 64; // tokens of prompts that take 100 ms, by the last such step
    double               t_token_us       = 0;
    uint64_t             last_adapters    = 0; // key of the last step's set
    planner_turns        turns;
    step_curve           curve;
    guess_rates          rates; // of all requests

    draft_counts_by_source guessed = {};
};

// Whether another sequence of the request may run (may_start), for which others that wait at a prune point give up their
// slots.
bool make_slot(request_lists & requests, prefix_tree & tree, const request & r, int32_t n_parallel);
// Preempts the youngest sequence or prompt, of the requests of a later priority if one is given. False: none of those, or
// only the oldest request's last one, has cells.
bool preempt_youngest(request_lists & requests, prefix_tree & tree, std::optional<int32_t> later_than = {});
