// Requests and their sequences, as data: what a client has asked for, and how far it has come.
#pragma once

#include "cache/logits_rows.h"
#include "cache/prefix_cache.h"
#include "protocol/commands.h"
#include "protocol/events.h"
#include "sampling/loops.h"
#include "sampling/prune_points.h"
#include "sampling/token_sampler.h"
#include "schedule/drafting.h"
#include "schedule/outside_processor.h"
#include "text/banned_phrases.h"
#include "text/stop_strings.h"

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

const int32_t n_chunk = 64; // tokens that a step plans for at once: of a prompt, of a sequence that resumes

struct request;
struct sample;
struct sequence;
struct update_context;

// Where the tokens of a sequence come from. The kind decides what a sequence wants from a step, what its rows of logits
// are for, and how it ends. There are two: sampled (generation.h) and scored (scoring.h).
class sequence_kind {
  public:
    virtual ~sequence_kind() = default;

    // Planning: the token at place i after the prompt.
    virtual llama_token token_at(const sequence & s, size_t i) const = 0;
    // The number of tokens after the prompt that need cells.
    virtual size_t n_wanted(const sequence & s) const = 0;
    // Whether the sequence may have no further token. n_left: tokens that the context has room for after the prompt.
    virtual bool is_full(const sequence & s, int32_t n_left) const = 0;
    // True: computed after the prompts of a step, in chunks. False: computed before them, in every step.
    virtual bool is_background() const = 0;
    // If there are no cells for this many tokens of it, running sequences are preempted.
    virtual int32_t n_urgent() const = 0;

    // Sampling: the token whose logprob is wanted in the k-th row of this step; none: a token is sampled.
    virtual std::optional<llama_token> given_token(const sequence & s, size_t k) const = 0;

    // Update: the sequence takes one sample; it ends, for one of the protocol's reasons.
    virtual void take(sample & d, const update_context & to) const                                    = 0;
    virtual void end(request & r, sequence & s, const char * reason, const update_context & to) const = 0;
};

// What the model's row of logits says of a token that was drawn from it.
struct token_score {
    float logprob   = 0.0f;
    float certainty = 0.0f; // of the row
};

// How a sequence samples.
struct sequence_sampling {
    std::unique_ptr<token_sampler> sampler;        // made with the first sample
    int32_t                        n_restarts = 0; // of the sampler; each has a seed of its own
    int32_t                        n_unlooped = 0; // of these: to leave a loop
    std::vector<token_score>       scores;         // of the generated tokens, where their sums are wanted
    std::vector<float>             entropies;      // of the generated tokens, where they are wanted

    size_t n_forced = 0; // the last tokens of the request's thought_end that come next, in place of draws

    // (place, token): a banned phrase, or a loop's second time, began with this token at this place of `generated`.
    std::vector<std::pair<size_t, llama_token>> banned, unlooped;
};

// JSON of the newest tokens of which the client has it: a fork may begin among them, and tell of them again.
struct told_logprobs {
    std::deque<std::string> tokens;
    size_t                  n_before = 0; // tokens of the sequence before them
    size_t                  n_bytes  = 0; // of all of them

    size_t n() const { return n_before + tokens.size(); }
    void   add(std::string && token);
};

// The text of a sequence on its way to the client.
struct sequence_output {
    stop_matcher text;
    phrase_guard guard;
    loop_finder  loops;
    size_t       forced_end = 0; // of the generated tokens: those up to the last one that was forced
    std::unique_ptr<chat_message> message;        // of a chat
    std::vector<std::string>      logprobs;       // JSON, of tokens whose text is held back
    told_logprobs                 told;           // of the tokens before them
    size_t                        n_sent     = 0; // of the generated tokens: those before the held back ones
    int32_t                       n_thinking = 0; // tokens so far amid the thoughts; -1: they were ended
    size_t n_reasoning = 0; // of the generated tokens: those up to the end of the thoughts
};

// How a sequence stands among the others of its request, where `prune` compares them.
struct pruning_state {
    size_t           n_points = 0;     // at which it has arrived
    bool             waits    = false; // at the last of them, until the others are there
    arrival_at_point arrival;          // at the last of them
};

// Whether a sequence is a duplicate of another one.
struct duplicate_state {
    std::string text;          // that the client has, where duplicates are marked
    size_t      n_forked  = 0; // tokens that the sequence had when it was forked: a retry begins with them
    int32_t     n_retries = 0;
};

// Where a sequence is that has a second answer.
struct answer_state {
    size_t n_before =
        0; // tokens before the second answer: the free one and the text; 0: there is no second one yet
    int64_t n_free = 0; // tokens that were drawn for the free one
};

struct score_state {
    const scored_text * text      = nullptr; // nullptr: the sequence is sampled
    double              sum       = 0.0;     // of its logprobs
    double              certainty = 0.0;     // the sum of its rows'
    int32_t             n_scored  = 0;       // tokens
    bool                greedy    = true;    // each scored token was the likeliest
};

// Guesses at the next tokens, which have cells behind those of the sequence's own ones while its samples are taken.
struct draft_state {
    std::deque<llama_token> left; // that were not drawn yet
    int32_t                 n_guessed = 0;
    int32_t                 n_drawn   = 0;
    draft_evidence          why;
};

struct sequence {
    sequence(const sequence_kind & kind, const sequence_plan & plan) : kind(&kind), plan(plan) {}

    const sequence_kind *    kind;
    sequence_plan            plan;
    int32_t                  index    = 0;
    branch *                 cells    = nullptr; // nullptr: it waits
    branch *                 negative = nullptr; // of a guided one: of the negative prompt and its own tokens
    bool                     over     = false;
    std::vector<llama_token> generated; // or scored so far
    sequence_sampling        sampling;
    sequence_output          output;
    answer_state             answer;
    pruning_state            pruning;
    duplicate_state          duplicate;
    score_state              score;
    draft_state              draft;

    // The row from which its next token is drawn, which the logits processor has or has given back.
    std::shared_ptr<outside_row> outside;
    bool                         is_parked = false; // it waits, and has given up its cells and its slot

    // Whether it is in no step: at a prune point, or until the logits processor has given its row back.
    bool waits() const { return pruning.waits || (outside && !outside->is_back); }
    // Whether each row that it draws from is mixed with one of the same tokens behind the negative prompt.
    bool is_guided() const { return plan.is_guided(); }
};

struct prompt_state {
    branch * cells    = nullptr; // nullptr: not begun, preempted, or no longer needed
    branch * negative = nullptr; // of the negative prompt, as long as there are cells
    int32_t  n_cached = -1;      // tokens; -1: not begun yet
    int32_t  n_ctx    = 0;       // tokens that the request may have, prompt and all
    int32_t  n_echoed = 0;       // tokens whose logprobs were sent
    bool     ready    = false;   // all cells are computed
    bool     computed = false;   // they were once

    prefix_cache::search search;    // for its prefix, before it is begun
    logits_row           first_row; // of all first tokens, if the prompt was known or they are to be distinct
    logits_row           first_negative; // the same behind the negative prompt
};

// us; 0: not yet.
struct request_times {
    int64_t arrived = 0, admitted = 0, prefilled = 0;
    int64_t progress = 0; // was reported last
    int64_t outside  = 0; // that the logits processor took for it
};

// What `finish` and `prune` have seen of a request's sequences.
struct pruning_counts {
    int32_t      n_ended     = 0; // sequences that have ended by themselves
    int32_t      n_at_points = 0; // that wait at a point
    int64_t      n_saved     = 0; // tokens that sequences could still have had, at most, when they were ended
    prune_points points;
};

// Of a request's sequences.
struct draft_counts {
    std::vector<std::vector<llama_token>> earlier; // answers of the same client to prompts that begin alike

    draft_index                index;                      // of the prompt, these, and the sequences
    std::optional<guess_rates> rates;                      // none: before the first guess
    int64_t                    n_guessed = 0, n_right = 0; // tokens
};

struct request {
    std::string                       id;
    int64_t                           number = 0; // of its command's line
    std::unique_ptr<generate_command> command;
    std::deque<sequence>              sequences; // none: only the prompt is computed
    prompt_state                      prompt;
    int32_t                           n_live    = 0; // sequences that run
    int32_t                           n_over    = 0; // sequences that have ended
    int32_t                           n_outside = 0; // whose rows the logits processor has
    int32_t                           n_parked  = 0; // that wait at a prune point or for a row, without cells
    int64_t                           n_tokens  = 0; // generated or scored, by all sequences
    pruning_counts                    pruning;
    bool                              cancelled = false; // a prefix that no client waits for any more
    bool                              announced = false; // the client knows that it waits
    bool                              failed    = false; // an error has ended it
    draft_counts                      drafts;
    request_times                     times;

    int32_t n_prompt() const { return (int32_t) command->prompt.size(); }
    int32_t n_negative() const { return (int32_t) command->negative.size(); } // 0: none is guided
    bool    is_guided() const { return command->is_guided; }
    // Slots, sets of cells and rows that a sequence takes.
    int32_t n_sets() const { return is_guided() ? 2 : 1; }
    // The prompts' tokens that have no cells yet.
    int32_t n_prompt_missing() const {
        return n_prompt() + n_negative() - (prompt.cells ? prompt.cells->n_past() : 0) -
               (prompt.negative ? prompt.negative->n_past() : 0);
    }
    // Sequences that wait for a slot.
    int32_t     n_waiting() const { return (int32_t) sequences.size() - n_over - n_live - n_parked; }
    bool        prefix_only() const { return sequences.empty(); }
    bool        is_pin() const { return !command->pin.empty(); }
    int32_t     priority() const { return command->priority; } // the lower, the earlier
    bool        is_own() const { return id.empty(); }          // the engine's, of which no line tells
    bool        has_adapters(uint64_t key) const { return command->adapters.key == key; }
    uint64_t    cells_key() const { return command->adapters.cells_key; }
    llama_token token_at(const sequence & s, int32_t i) const;
    llama_token negative_at(const sequence & s, int32_t i) const; // the same behind the negative prompt
    // Cells that a sequence wants, with those of the prompt.
    int32_t n_wanted(const sequence & s) const { return n_prompt() + (int32_t) s.kind->n_wanted(s); }
    // Whether a sequence may have no further token.
    bool is_full(const sequence & s) const { return s.kind->is_full(s, prompt.n_ctx - n_prompt()); }
};

// A prompt whose cells stay, although no request needs them.
struct pin {
    std::string              name;
    std::vector<llama_token> tokens;
    adapter_set              adapters;
    branch *                 cells = nullptr;
};

struct request_lists {
    std::deque<std::unique_ptr<request>> queue; // not admitted, in order of arrival
    std::list<std::unique_ptr<request>>
                   active; // admitted: those of the first priority first, then the oldest
    std::list<pin> pins;

    bool      empty() const { return queue.empty() && active.empty(); }
    request * find(const std::string & id) const; // nullptr: no request that has not ended has this id
    // Sequences that run, or are paused while those of an earlier priority run.
    int32_t n_live() const;
    // Their slots, of priorities up to this one.
    int32_t n_slots(int32_t last_priority) const;
    void    admit(std::unique_ptr<request> r);
};

// Cells

// Whether another sequence may run: its slots are free, and cells beyond those that running sequences will want soon. If
// none runs, one may.
bool may_start(const prefix_tree & tree, int32_t n_taken, int32_t n_wanted, int32_t n_parallel);
// Cells that must be free for the sequences in so many slots, beyond those that they hold.
int32_t n_reserved(int32_t n_slots);
// Guesses that were not drawn lose their cells.
void drop_draft(prefix_tree & tree, sequence & s);
// Tokens that a sequence's answer may still have, at most.
int64_t n_left_of(const request & r, const sequence & s);
// The sequence runs no more. keep: its cells become an idle branch.
void free_sequence(prefix_tree & tree, request & r, sequence & s, bool keep);
// The sequence keeps the cells of its prompts and of so many tokens behind them. Where they cannot be truncated it is
// resumed from those that are still there; keep: as above.
void cut_cells(prefix_tree & tree, request & r, sequence & s, int32_t n_tokens, bool keep);
// The sequence has ended. keep: as above.
void close_sequence(prefix_tree & tree, request & r, sequence & s, bool keep);
// Tokens that a request may have, prompt and all: no more than the cells that pins leave to it, with those of a pin that
// its prompt begins with. Of guided sequences one must have room for both of its sets. n_ctx_seq: the limit of all requests.
int32_t n_ctx_beside_pins(const generate_command & c, const prefix_tree & tree, int32_t n_ctx_seq);
// Writes the prompt to disk, if it is complete and was worth computing.
void save_prompt(prefix_tree & tree, const request & r);
// The request does not need its prompt's cells any more.
void drop_prompt(prefix_tree & tree, request & r);

// Finish and prune

double sum_of(const std::vector<token_score> & scores, float token_score::* which);
double mean_of(const std::vector<token_score> & scores, float token_score::* which);
// The sequence has a token more: it may have arrived at the next prune point, where it waits. Second answers have none.
void reach_prune_point(request & r, sequence & s);
// Where the sequence waits no more, it may have a slot again.
void unpark(request & r, sequence & s);
// The sequence waits at a prune point no more.
void release_from_prune_point(request & r, sequence & s);
// "stop", "length" and "repetition"; else others have ended the sequence.
bool ends_by_itself(const char * reason);
// The sequence ends for this reason.
void count_end(request & r, const sequence & s, const char * reason);
