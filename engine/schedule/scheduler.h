// Requests -> sequences -> one batch a decode step.
//
// The loop is three verbs: plan (which tokens go into the batch), decode, draw (one token for each row of
// logits, and the events it brings). Sequences of all requests share every step; a prompt is computed once,
// in chunks between steps, and its cells are shared by the n sequences. What does not fit waits: a request
// in the queue, a sequence for a place or for cells. A sequence that must give its cells back keeps its
// text, its sampler and its tokens, and goes on later from there.
#pragma once

#include "cache/logits_rows.h"
#include "cache/prefix_tree.h"
#include "cache/token_history.h"
#include "model/embedding.h"
#include "protocol/reader.h"
#include "util/text.h"

#include <deque>
#include <list>
#include <map>

struct scheduler_params {
    int32_t      n_parallel  = 32;  // sequences in one batch
    int32_t      n_ctx_seq   = 0;   // tokens of one sequence, prompt and all
    int32_t      n_batch     = 512; // tokens in one decode
    int32_t      n_threads   = 1;   // that decode, and draw
    int32_t      cache_cells = 0;   // cells that idle prefixes may hold
    store_params store;             // where they go from there
    int          fd_out = 1;
};

struct sequence : sequence_plan {
    explicit sequence(const sequence_plan & plan) : sequence_plan(plan) {}

    int32_t                        index = 0;
    std::unique_ptr<token_sampler> sampler; // made with the first draw
    text_stream                    text;
    phrase_guard                   guard;
    std::unique_ptr<chat_message>  message; // of a chat
    std::vector<llama_token>       generated;
    std::vector<std::string>       logprobs; // JSON, of tokens whose text is held back
    int32_t                        n_rewinds = 0;
    branch *                       cells     = nullptr; // nullptr: waits
    int32_t                        i_row    = -1; // row of this step's logits to draw from; -1: the request's
    int32_t                        n_rows   = 0;  // from there on; more than one where it is scored
    const scored_text *            scored   = nullptr; // it is given, not drawn; nullptr: it is drawn
    double                         sum      = 0.0;     // of its logprobs, where it is scored
    int32_t                        n_scored = 0;
    bool                           greedy   = true; // each scored token was the likeliest
    bool                           over     = false;

    std::vector<std::pair<size_t, llama_token>> forbidden; // (place, token) that began a banned phrase there

    std::vector<float> drawn_logprobs; // of `generated`, where their sum is wanted
    std::string        said;           // its text, where twins are looked for
    size_t             n_begun = 0;    // tokens that it began with, as a fork
    int32_t            n_again = 0;    // how often another one had said the same
};

struct request {
    std::string                       id;
    int64_t                           number = 0; // of its line
    std::unique_ptr<generate_command> command;
    std::deque<sequence>              sequences;        // none: only the prompt is computed
    branch *                          prompt = nullptr; // nullptr: not begun, given back, or no longer needed
    int32_t                           n_cached  = -1;   // -1: not begun yet
    int32_t                           n_live    = 0;
    int32_t                           n_over    = 0;
    int32_t                           n_echoed  = 0;     // tokens of the prompt whose logprobs were told
    int64_t                           n_tokens  = 0;     // generated (or scored), by all sequences
    bool                              ready     = false; // the prompt's cells are complete
    bool                              computed  = false; // they were so once
    bool                              cancelled = false; // a prefix that nobody waits for any more
    bool                              announced = false; // its place in the queue was told
    bool                              failed    = false; // an error has ended it
    int64_t                           t_arrived = 0, t_admitted = 0, t_prefilled = 0, t_progress = 0; // us

    prefix_tree::search recall; // what the prompt waits for, before it is begun

    logits_row
        first_row; // that all first tokens come from, if the prompt was known or they are to be distinct

    int32_t n_prompt() const { return (int32_t) command->prompt.size(); }
    int32_t n_waiting() const { return (int32_t) sequences.size() - n_over - n_live; }
    bool    prefix_only() const { return sequences.empty(); }
};

// One draw of a step, and what it brought; or a row that is only looked at, for a token that is known.
struct drawing {
    request *     r      = nullptr;
    sequence *    s      = nullptr; // nullptr: a row of the prompt, for echo
    const float * logits = nullptr;
    llama_token   token  = -1;
    bool          known  = false;
    bool          greedy = false;
    std::string   logprobs; // JSON, if wanted
    std::string   error; // llama.cpp refuses to make the sampler, or to use it; a grammar cannot be followed
    std::string   error_code;

    float logprob = 0.0f; // of the token, if it is known or their sum is wanted
};

// For tests: a decode that fails.
struct step_fault {
    int64_t step = 0; // 0: none does
    int32_t code = -3;
};

class scheduler {
  public:
    scheduler(const model_facts & facts, llama_context * ctx, const scheduler_params & params,
              embedder & vectors);
    ~scheduler();

    // Serves commands until the input has ended and everything that runs is done.
    void run(command_reader & reader);

  private:
    // commands
    bool      idle() const; // nothing runs or waits
    bool      waits_for_disk() const;
    bool      is_quiet() const;
    int64_t   patience_us() const;
    void      write_out(bool yield);
    void      take(command && c);
    bool      is_taken(const command & c);
    void      embed(command && c);
    void      submit(command && c);
    void      cancel(const std::string & id, int32_t index);
    void      extend(const command & c);
    void      add_sequence(request & r, const sequence_plan & plan);
    void      begin_text(const request & r, sequence & s) const;
    void      add_scored(request & r, const scored_text & text);
    void      resolve_continue(generate_command & command) const;
    void      supersede_prefix_of(const std::string & client);
    request * find_request(const std::string & id) const;
    void      report_status(const std::string & id);
    void      admit();
    size_t    next_in_queue() const;
    void      announce_queue();
    void      tell_who_waits();
    bool      fits(const request & r) const;

    // plan
    void     plan();
    void     plan_step();
    void     plan_sequences();
    void     plan_prompts();
    void     plan_late_starts();
    void     add(branch * cells, llama_token token, bool want_logits);
    bool     share_row(const request & r, sequence & s);
    void     plan_scores();
    int32_t  n_wanted(const request & r, const sequence & s) const;
    void     add_todo(request & r, sequence & s, int32_t n_max);
    bool     may_start() const;
    bool     put_back_youngest();
    branch * reopen(const request & r, const sequence & s);
    void     begin_prompt(request & r);
    bool     waits_for_another(const request & r) const;
    void     report_start(const request & r);
    void     drop_prompt(request & r);

    // decode
    bool    decode();
    int32_t fail_step();
    void    undo_batch();
    void    fail(request & r, const std::string & message, const std::string & code = "engine_error");
    void    fail_all(const std::string & message);

    // draw
    void             draw();
    void             report_progress(request & r);
    void             start_on_row(request & r, int32_t i_row);
    void             collect_echo();
    void             collect_rows();
    void             draw_side_by_side();
    void             draw_one(drawing & d) const;
    void             take_drawn(request & r, sequence & s, drawing & d);
    void             take_scored(request & r, sequence & s, drawing & d);
    void             report_score(const request & r, const sequence & s);
    void             step_back(request & r, sequence & s, size_t n);
    void             report_prompt(const request & r);
    void             report_prompt_logprobs();
    void             emit_stream(const request & r, sequence & s, const std::string & text, size_t n_logprobs,
                                 bool last = false);
    std::string      piece_of(const request & r, llama_token token) const;
    void             look_at(drawing & d) const;
    void             list_forbidden(const sequence & s, std::vector<llama_token> & tokens) const;
    void             end_sequence(request & r, sequence & s, const char * reason);
    bool             report_stop(request & r, sequence & s, const char * reason);
    void             free_sequence(request & r, sequence & s, bool keep);
    void             start_again(request & r, sequence & s);
    bool             may_start_again(const request & r, const sequence & s) const;
    const sequence * twin_of(const request & r, const sequence & s) const;
    const float *    row_of(request & r, const sequence & s, int32_t k);
    std::vector<llama_token> seen_tokens(const request & r, const sequence & s) const;
    void                     keep_record(const request & r);
    bool                     is_full(const request & r, const sequence & s) const;
    void                     report_done(const request & r);
    void                     sweep();

    static bool in_turn(const request & r, uint64_t adapters) { return r.command->adapters.key == adapters; }
    int32_t     n_live() const;
    llama_token token_at(const request & r, const sequence & s, int32_t i) const;

    const model_facts      facts;
    llama_context *        ctx;
    const scheduler_params params;
    const step_fault       fault;
    prefix_tree            tree;
    embedder &             vectors;
    llama_batch            batch;
    std::vector<branch *>  owners; // whose cells the batch's tokens go to
    std::vector<sequence *>
        with_rows; // of the request that is being planned, those that have a row in the batch

    std::deque<std::unique_ptr<request>> queue;  // not admitted, in order of arrival
    std::list<std::unique_ptr<request>>  active; // admitted, oldest first
    std::vector<std::pair<request *, int32_t>>
        prompt_rows; // prompts whose last token is in this batch; -1: first_row has its logits
    std::vector<std::pair<request *, std::pair<int32_t, int32_t>>>
                         echo_rows;       // (row, token of the prompt it predicts)
    record_list          records;         // of requests that are over
    row_list             rows;            // of prompts
    std::string          out;             // this step's events
    int32_t              n_prefill = 0;   // tokens of prompts in this step
    int32_t              n_beside  = 64;  // tokens of prompts that take 100 ms, by the last such step
    std::vector<drawing> drawn;           // this step's
    const bool           stops_short;     // prompts stop one token early: their cells cannot be cut back
    uint64_t             turn        = 0; // whose step it is: the key of a set of adapters
    bool                 input_ended = false;

    std::map<std::string, int64_t> turns; // when each client's last request was admitted, while others wait

    int64_t n_turns = 0, n_commands = 0;
    int64_t n_steps = 0, n_step_tokens = 0; // since the start
    int64_t n_decodes = 0;
    int64_t t_steps = 0, t_model = 0; // us; in steps, and of these in llama_decode
    int32_t n_last_tokens = 0;        // of the step before
    int64_t t_written     = 0;        // us
    int64_t t_worked      = 0;        // us, when there was something to do last
    int64_t t_busy        = 0;        // us, the same, or when a command came
    int64_t t_returned    = 0;        // us, when freed memory was returned last
};
