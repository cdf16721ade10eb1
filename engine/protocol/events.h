// The events of a request, each as one line. docs/engine-protocol.md describes them.
#pragma once

#include "chat/message.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

void append_queued(std::string & out, const std::string & id, int64_t position);
// line: the number of the command.
void append_accepted(std::string & out, const std::string & id, int64_t line);
void append_extended(std::string & out, const std::string & id, int64_t first, int64_t count);
void append_retry(std::string & out, const std::string & id, int32_t index);

struct start_report {
    int64_t  count    = 0; // sequences
    int32_t  n_prompt = 0, n_cached = 0;
    uint32_t seed  = 0;
    int32_t  n_cut = 0; // tokens that were cut from the prompt, or from what it continues
    const std::vector<llama_token> * prompt   = nullptr; // its ids, where they are wanted
    const std::vector<std::string> * warnings = nullptr; // about schemas
};
void append_start(std::string & out, const std::string & id, const start_report & report);

// tokens: their logprobs, each as JSON; empty: without logprobs.
void append_prompt(std::string & out, const std::string & id, const std::string & text,
                   const std::vector<std::string> & tokens);
void append_progress(std::string & out, const std::string & id, int32_t n_processed, int32_t n_all);

// The logprobs of tokens of the prompt, each as JSON.
void append_prompt_logprobs(std::string & out, const std::string & id,
                            const std::vector<std::string> & tokens);

// What came with a piece of text. Only the first n_tokens of `tokens` belong to it.
struct stream_report {
    const std::vector<std::string> & tokens;
    size_t                           n_tokens = 0;
    std::vector<llama_token>         ids;       // where they are wanted
    std::vector<float>               entropies; // where they are wanted
};
void append_stream(std::string & out, const std::string & id, int32_t index, const chat_delta & delta,
                   const stream_report & report);

// The free answer of a sequence has ended; its second answer follows.
struct then_report {
    int32_t             index     = 0;
    int64_t             length    = 0; // tokens
    const char *        reason    = nullptr;
    const std::string * stop_text = nullptr; // the stop string that ended it
    const char *        passage   = nullptr; // what `end` asked for, and is there: sentences, paragraphs
};
void append_then(std::string & out, const std::string & id, const then_report & report);

struct stop_report {
    int32_t                    index     = 0;
    int64_t                    length    = 0; // tokens
    const char *               reason    = nullptr;
    const std::string *        stop_text = nullptr; // the stop string that ended it
    const char *               passage = nullptr; // what `end` asked for, and is there: sentences, paragraphs
    std::optional<double>      logprob;           // the sum
    std::optional<int32_t>     duplicate_of;
    std::optional<int64_t>     n_free;     // tokens of the free answer, if it is the second one that ends
    std::optional<llama_token> stop_token; // of the client's, which ended it
    std::optional<double>      certainty;  // the mean of its rows'
};
void append_stop(std::string & out, const std::string & id, const stop_report & report);

struct score_report {
    int32_t index = 0, count = 0;
    double  sum    = 0.0;
    bool    greedy = false;

    std::optional<double> certainty; // the mean of its rows'
};
void append_score(std::string & out, const std::string & id, const score_report & report,
                  const std::vector<std::string> & tokens);

struct done_report {
    int64_t count    = 0;
    int32_t n_prompt = 0, n_cached = 0;
    int64_t n_tokens  = 0;
    double  queued_ms = 0.0, prompt_ms = 0.0, decode_ms = 0.0;

    std::optional<int64_t> n_saved;                    // tokens, with finish or prune
    int64_t                n_guessed = 0, n_right = 0; // tokens
    int32_t                n_negative   = 0;           // tokens of the negative prompt
    double                 processor_ms = 0.0;         // of the logits processor
    int64_t                n_reasoning  = 0;           // of n_tokens: those of a chat's thoughts
};
void append_done(std::string & out, const std::string & id, const done_report & report);

struct status_report {
    int64_t n_cells = 0, n_used = 0, n_idle = 0, n_pinned = 0, n_shared = 0;
    int64_t n_requests = 0, n_queued = 0, n_live = 0, n_waiting = 0;
    int64_t n_commands = 0, n_steps = 0, n_step_tokens = 0, t_steps = 0, t_model = 0; // us

    std::vector<std::pair<std::string, int64_t>> guesses; // names and counts of tokens
};
void append_status(std::string & out, const std::string & id, const status_report & report);
