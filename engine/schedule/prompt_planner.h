// The prompts of one step: which begin, on which known prefix, and which of their tokens the step computes.
#pragma once

#include "schedule/planner.h"

const int32_t n_prefill_min = 32; // tokens of prompts in a step, at least, beside running sequences

class prompt_planner {
  public:
    prompt_planner(const planner_params & params, request_lists & requests, prefix_cache & cache,
                   row_list & rows, client_turns & turns, step_plan & plan)
        : params(params), requests(requests), cache(cache), rows(rows), turns(turns), plan(plan) {}

    // n_prefill_budget: tokens of prompts, if the plan has tokens of sequences already.
    void plan_prompts(int32_t n_prefill_budget);

  private:
    std::vector<request *> in_turn() const;

    bool may_begin(const request & r) const;
    bool waits_for_another(const request & r) const;
    void begin(request & r);

    prefix_cache::match on_pin(const request & r, const prefix_cache::match & match) const;

    int32_t add_tokens(request & r, int32_t n_max);
    int32_t add_negative(request & r, int32_t n_max);
    bool    stops_short(const request & r) const { return params.stops_short || r.is_guided(); }
    bool    open_negative(request & r);
    int32_t n_for_oldest(const request & r) const;

    const planner_params & params;
    request_lists &        requests;
    prefix_cache &         cache;
    row_list &             rows;
    client_turns &         turns;
    step_plan &            plan;
    bool                   oldest_is_planned = false;
};
