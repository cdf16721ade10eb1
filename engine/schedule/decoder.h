// One decode step of llama.cpp: a plan becomes a batch.
#pragma once

#include "schedule/step_plan.h"

#include "llama.h"

class decoder {
  public:
    // n_batch: tokens of a step; n_parallel: sequences that may share a token.
    decoder(llama_context * ctx, int32_t n_batch, int32_t n_parallel);
    ~decoder();
    decoder(const decoder &)             = delete;
    decoder & operator=(const decoder &) = delete;

    // llama_decode's code. 0: the rows of logits are there; 1: there were no cells, and nothing has changed; others: the
    // content of all cells is unknown.
    int32_t decode(const step_plan & plan);

    int64_t t_last_us() const { return t_last; } // of the last decode
    int64_t t_all_us() const { return t_all; }   // of those that succeeded

  private:
    // A decode that fails, for tests.
    struct step_fault {
        int64_t step = 0; // 0: none does
        int32_t code = -3;
    };

    static step_fault fault_for_tests();
    void              fill(const step_plan & plan);
    int32_t           fail_step();

    llama_context * const ctx;
    const step_fault      fault;
    llama_batch           batch;
    int64_t               n_decodes = 0, t_last = 0, t_all = 0; // us
};
