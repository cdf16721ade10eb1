// Samples of one step: a token for each row of logits, with its logprobs. Nothing here changes a request but the
// samplers of its sequences, and rows are sampled side by side.
#pragma once

#include "model/facts.h"
#include "schedule/step_plan.h"

#include <string>
#include <vector>

// One sample and what is known with it; or a row that is only looked at, for a token that is known.
struct sample {
    request *     r        = nullptr;
    sequence *    s        = nullptr; // nullptr: a row of the prompt, for echo
    const float * logits   = nullptr;
    llama_token   token    = -1;
    bool          known    = false;
    bool          greedy   = false; // known, and the likeliest
    bool          complete = false; // the grammar says that nothing may follow
    std::string   logprobs;         // JSON, if wanted
    std::string   error; // llama.cpp refuses to make the sampler, or to use it; a grammar cannot be followed
    std::string   error_code;

    float logprob = 0.0f; // of the token, if it is known or their sum is wanted
};

// {"id","text","logprob":null,"top":[]}: a first token, which nothing predicts.
std::string unknown_logprob_json(llama_token token, const llama_vocab * vocab);

// What is to be looked at for echo.
std::vector<sample> echo_samples(const step_plan & plan, llama_context * ctx);
// What is to be sampled or looked at: the plan's rows, then those of sequences that have just started.
std::vector<sample> samples_of(const step_plan & plan, const std::vector<planned_rows> & started,
                               llama_context * ctx, int32_t n_vocab);
// Samples all, by n_threads threads: those that have just decoded (an OpenMP team of the same size, or else libgomp ends
// and starts threads), which sleep otherwise.
void sample_all(std::vector<sample> & samples, const model_facts & facts, int32_t n_threads);
