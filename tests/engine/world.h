// The engine's parts that make and use a plan, without a model: cells are simulated, the vocabulary has letters, and a
// test gives the sampled tokens. The certainty of a row is the number of the letter that is drawn from it: 1 for a.
#pragma once

#include "schedule/admission.h"
#include "schedule/intake.h"
#include "schedule/planner.h"
#include "schedule/update.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

// $ ends a text; then a to z, and a space; then A to Z, each the text of two letters: A is "ab", B is "bc".
class letters final : public vocabulary {
  public:
    std::string              piece(llama_token token, bool special) const override;
    bool                     is_end(llama_token token) const override { return token == 0; }
    bool                     is_control(llama_token token) const override { return token == 0; }
    std::vector<llama_token> tokenize(const std::string & text) const override { return tokens(text); }

    static llama_token              token(char letter);
    static std::vector<llama_token> tokens(const std::string & text);
};

// Each cell is an object that the sequence ids share, so that a copy takes no cell and the last removal frees it.
class test_cells final : public cell_memory {
  public:
    using cell_memory::cell_memory;

    void   copy(llama_seq_id from, llama_seq_id to, llama_pos begin, llama_pos end) override;
    void   remove(llama_seq_id id, llama_pos begin) override;
    void   clear() override { by_id.clear(); }
    size_t n_bytes(llama_seq_id id) const override;
    bool   write(llama_seq_id id, const uint8_t * data, size_t n_all) override;

    std::unique_ptr<cell_reader> reader() override; // a cell a piece

    void    decode(const step_plan & plan);
    int32_t n_used() const;
    // The tokens of an id, from position 0 on; fails where there is a gap.
    std::vector<llama_token> tokens_of(llama_seq_id id) const;

  private:
    using cell = std::shared_ptr<llama_token>;
    std::map<llama_seq_id, std::map<llama_pos, cell>> by_id;
};

// A test's request.
struct asked {
    std::string id     = "";
    std::string prompt = "";
    int32_t     n      = 1; // sequences; 0: a prefix
    std::string client = "";

    std::vector<std::string> stop = {}, banned = {}, scored = {}; // scored: texts instead of sequences
    int32_t                  max_tokens = -1, min_tokens = 0;
    std::string              dedupe      = ""; // mark, again
    std::string              then        = ""; // the text before a second answer of up to two tokens
    std::vector<std::string> then_stop   = {};
    bool                     return_free = false;
    uint64_t                 adapters    = 0;
    uint64_t                 salt        = 0; // 0: none
    int32_t                  priority    = 0;
    int32_t                  first       = 0;  // finish
    std::vector<int32_t>     marks       = {}; // prune, by certainty
    int32_t                  keep        = 0;
    bool                     certainty   = false;
    loop_limit               loops       = {};
    std::vector<llama_token> stop_tokens = {};
    bool                     return_ids = false, returns_stop = false, entropies = false;
    bool                     cache = true, logprobs = false, sum_logprobs = false, echo = false;
    int32_t                  draft     = 0;
    bool                     guided    = false;
    std::string              negative  = ""; // empty: the prompt's last token
    sequence_name            continues = {};
};

struct world_params {
    int32_t  n_parallel = 4, n_ctx_seq = 64, n_batch = 16, n_cells = 256, n_ids = 32, n_vocab = 100;
    int32_t  n_idle    = 256; // cells of idle branches
    bool     recurrent = false;
    uint64_t ram_bytes = 0; // for snapshots
    bool     on_device = false;

    draft_maker * drafts = nullptr;
};

class world {
  public:
    explicit world(const world_params & p = {});

    // A command, in the queue; throws command_error.
    request & ask(const asked & a);
    // Adds sequences. fork: -1, or the index of the sequence that they fork, after its first `at` tokens.
    void extend(const std::string & id, int32_t n, int32_t fork = -1, int32_t at = -1);

    // Admits requests, plans a step, and writes the events of prompts that begin.
    step_plan plan();
    // Decodes the plan, which takes t_us microseconds, and updates. Each row that is sampled gets the next letter. With
    // * at the end the letter before it serves any number of rows. Fails where a row is not behind its sequence's tokens.
    void finish(const step_plan & plan, const std::string & sampled, int64_t t_us = 1000);
    // A whole step: plan and finish; returns the plan as text.
    std::string step(const std::string & sampled = "", int64_t t_us = 1000);
    // The events since the last call, a line each: id, event, and fields without timings.
    std::string take_events();
    // "a.0 a.1": the sequences that run.
    std::string running() const;
    // The ids of active requests, then of the queue: "a b | c".
    std::string lists() const;

  private:
    void check_rows(const std::vector<planned_rows> & rows) const;

  public:
    letters      vocab;
    test_cells   cells;
    prefix_cache prefixes;
    // If it is there, of a sequence that is sampled the next token, in place of the letters of a step.
    std::function<llama_token(const request &, const sequence &)> draws;
    row_list                                                      rows;
    record_list                                                   history;
    request_lists                                                 requests;
    admission                                                     admits;
    planner                                                       plans;
    std::string                                                   out;
    const update_context                                          updates;
    const model_facts                                             facts;
    const int32_t                                                 n_parallel;
};

// One request by itself: the letters that its steps sample, and its events.
struct sampled_row {
    const char *              name;
    asked                     request;
    std::vector<const char *> sampled;  // in each step
    const char *              expected; // events

    void run() const;
};
