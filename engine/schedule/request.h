// Requests and their sequences, as data: what was asked for, and how far it has come.
#pragma once

#include "cache/logits_rows.h"
#include "cache/prefix_tree.h"
#include "protocol/commands.h"
#include "sampling/token_sampler.h"
#include "util/text.h"

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

struct sequence : sequence_plan {
    explicit sequence(const sequence_plan & plan) : sequence_plan(plan) {}

    int32_t                        index = 0;
    std::unique_ptr<token_sampler> sampler; // made with the first sample
    text_stream                    text;
    phrase_guard                   guard;
    std::unique_ptr<chat_message>  message; // of a chat
    std::vector<llama_token>       generated;
    std::vector<std::string>       logprobs; // JSON, of tokens whose text is held back
    int32_t                        n_rewinds = 0;
    branch *                       cells     = nullptr; // nullptr: waits
    const scored_text *            scored    = nullptr; // it is given, not sampled; nullptr: it is sampled
    double                         sum       = 0.0;     // of its logprobs, where it is scored
    int32_t                        n_scored  = 0;
    bool                           greedy    = true; // each scored token was the likeliest
    bool                           over      = false;

    std::vector<std::pair<size_t, llama_token>> forbidden; // (place, token) that began a banned phrase there

    std::vector<float> sampled_logprobs; // of `generated`, where their sum is wanted
    std::string        text_so_far;      // where duplicates are looked for
    size_t             n_begun   = 0;    // tokens that it began with, as a fork
    int32_t            n_retries = 0;    // as a duplicate of another one
};

struct request {
    std::string                       id;
    int64_t                           number = 0; // of its line
    std::unique_ptr<generate_command> command;
    std::deque<sequence>              sequences;        // none: only the prompt is computed
    branch *                          prompt = nullptr; // nullptr: not begun, preempted, or no longer needed
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

    logits_row first_row; // of all first tokens, if the prompt was known or they are to be distinct

    int32_t n_prompt() const { return (int32_t) command->prompt.size(); }
    int32_t n_waiting() const { return (int32_t) sequences.size() - n_over - n_live; }
    bool    prefix_only() const { return sequences.empty(); }
    bool    has_adapters(uint64_t key) const { return command->adapters.key == key; }

    llama_token token_at(const sequence & s, int32_t i) const;
    // The cells that a sequence wants: of all its tokens, but for the last one of a text that is scored.
    int32_t n_wanted(const sequence & s) const;
    // Whether it may have no further token; n_ctx: tokens that a sequence may have with its prompt.
    bool is_full(const sequence & s, int32_t n_ctx) const;
};

// What waits and what runs.
struct request_lists {
    std::deque<std::unique_ptr<request>> queue;  // not admitted, in order of arrival
    std::list<std::unique_ptr<request>>  active; // admitted, oldest first

    bool      empty() const { return queue.empty() && active.empty(); }
    request * find(const std::string & id) const; // nullptr: there is none that is not done
    int32_t   n_live() const;                     // sequences that run
};

// Cells

// Whether another sequence may run: a slot and, beyond what running ones will want soon, cells. One always may.
bool may_start(const prefix_tree & tree, int32_t n_live, int32_t n_parallel);
// Cells that running sequences should find beyond what they hold.
int32_t n_reserved(int32_t n_live);
// It runs no more. keep: its text may be asked for again.
void free_sequence(prefix_tree & tree, request & r, sequence & s, bool keep);
// The prompt's cells are not needed by the request any more.
void drop_prompt(prefix_tree & tree, request & r);
