// The samples of one step: a token for each row of logits, with its logprobs. Rows are sampled in parallel; of a request
// only its sequences' samplers change.
#pragma once

#include "model/facts.h"
#include "model/vocabulary.h"
#include "schedule/step_plan.h"
#include "util/json.h"

#include <optional>
#include <string>
#include <vector>

// One sampled token; or the logprob of a token that is known, for a score or for echo.
struct sample {
    request *     r        = nullptr;
    sequence *    s        = nullptr; // nullptr: a row of the prompt, for echo
    const float * logits   = nullptr;
    const float * negative = nullptr; // of a guided sequence: the row behind the negative prompt
    const float * processed =
        nullptr; // from which it is drawn in their place, where a logits processor has made it
    llama_token token    = -1;
    bool        known    = false; // the token, before the row is read
    bool        greedy   = false; // known, and the likeliest
    bool        complete = false; // the grammar says that nothing may follow
    std::string logprobs;         // JSON, if wanted
    // of making the sampler or using it; a grammar cannot be followed
    std::optional<command_error> error;

    token_score score;          // of the token, if it is known or sums are wanted
    float       entropy = 0.0f; // of the row, if it is wanted

    std::string prompt_logprobs; // JSON, if the token is the prompt's and they are wanted
};

// {"id","text","logprob":null,"top":[]}: a first token, which nothing predicts.
std::string unknown_logprob_json(llama_token token, const vocabulary & vocab);

// The tokens of prompts whose logprobs are wanted.
std::vector<sample> echo_samples(const step_plan & plan, llama_context * ctx);
// The plan's rows, then those of sequences that have just started.
std::vector<sample> samples_of(const step_plan & plan, const std::vector<planned_rows> & started,
                               llama_context * ctx, int32_t n_vocab);
// Whether the sequence has drawn its guesses up to the k-th one, from 1 on, so that the row behind that is the next one.
bool has_row_of_guess(const planned_rows & p, int32_t k);
// The rows of all such sequences.
std::vector<sample> samples_of_drafts(const step_plan & plan, int32_t k, llama_context * ctx);
// Takes those out that a logits processor is to change first, and gives them to it.
void send_outside(std::vector<sample> & samples, int32_t n_vocab, outside_processor & processor);
// Of the sequences whose rows have come back from it.
std::vector<sample> samples_from_outside(request_lists & requests, outside_processor & processor);

// Samples all rows by n_threads threads: the OpenMP team that has just decoded, which would sleep otherwise. With a team
// of another size libgomp would end and start threads.
void sample_all(std::vector<sample> & samples, const model_facts & facts, int32_t n_threads);
