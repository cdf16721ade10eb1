// The loop: commands become requests, and each step is one decode.
//
//     take commands, admit, plan, decode, sample, update, write
//
// Sequences of all requests share every step. A prompt is computed once, in chunks, and its n sequences share its cells.
// Only the loop sees all of the state; each part gets what it needs as arguments.
#pragma once

#include "cache/prefix_cache.h"
#include "model/embedding.h"
#include "protocol/reader.h"
#include "schedule/admission.h"
#include "schedule/decoder.h"
#include "schedule/planner.h"
#include "schedule/update.h"

struct scheduler_params {
    int32_t      n_parallel  = 32;  // sequences in one batch
    int32_t      n_batch     = 512; // tokens in one decode
    int32_t      n_threads   = 1;   // that decode, and sample
    int32_t      cache_cells = 0;   // cells that idle prefixes may hold
    store_params store;             // for snapshots of evicted prefixes
    int          fd_out = 1;

    outside_processor * processor = nullptr; // of logits; nullptr: there is none
    draft_maker *       drafts    = nullptr; // the same
};

class scheduler {
  public:
    scheduler(const model_facts & facts, llama_context * ctx, const scheduler_params & params,
              embedder & vectors);

    // Serves commands until the input has ended and all requests have ended.
    void run(command_reader & reader);

  private:
    // The model that it serves.
    struct served_model {
        const model_facts      facts;
        const model_vocabulary vocab;
        llama_context * const  ctx;
    };
    void    take(command && c);
    bool    is_taken(const command & c);
    void    submit(command && c);
    void    supersede_prefix_of(const std::string & client);
    void    extend(const command & c);
    void    report_status(const std::string & id);
    void    report_waiting();
    void    step();
    bool    decode(const step_plan & plan);
    void    sample_and_update(const step_plan & plan);
    void    take_from_outside();
    void    step_vectors(const step_plan & plan);
    void    fail_all(const std::string & message);
    void    sweep();
    void    write_out(bool yield);
    bool    idle() const; // there is no request
    bool    waits_for_disk() const;
    bool    waits_for_outside() const;
    bool    is_quiet() const;
    int64_t patience_us() const;

    const served_model     model;
    const scheduler_params params;
    embedder &             vectors;
    // What remains of texts that were computed.
    llama_cells          cells;
    prefix_cache         prefixes;
    row_list             rows;    // of prompts
    record_list          history; // of requests that have ended
    request_lists        requests;
    admission            admits;
    planner              plans;
    decoder              decodes;
    std::string          out; // this step's events
    const update_context updates;
    // Since the start; us.
    int64_t n_commands = 0, n_steps = 0, n_step_tokens = 0, t_steps = 0;
    // Of the last step.
    int64_t t_last_step = 0; // us; 0: it decoded nothing
    size_t  n_last_rows = 0;
    bool    rested      = false; // it had nothing to do
    // When something happened last, us.
    int64_t t_last_written  = 0;
    int64_t t_last_worked   = 0; // there was a request
    int64_t t_last_busy     = 0; // the same, or a command came
    int64_t t_last_returned = 0; // freed memory was returned
    bool    input_ended     = false;
};
