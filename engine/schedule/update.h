// What a step's samples change: each goes to its sequence, whose kind decides what it means; and how requests begin,
// are cancelled, fail and end.
#pragma once

#include "cache/token_history.h"
#include "model/vocabulary.h"
#include "schedule/sample.h"

#include <string>

// What an update needs beside requests.
struct update_context {
    const vocabulary & vocab;
    prefix_tree &      tree;
    std::string &      out; // the events
};

// The prompt's own events: that it has begun, and its text where that is wanted.
void begin_request(const request & r, const update_context & to);
// The logprobs of the prompt's tokens.
void take_echo(const step_plan & plan, const std::vector<sample> & samples, const update_context & to);
void take_samples(std::vector<sample> & samples, const update_context & to);
void report_progress(request & r, const update_context & to);

// Ends sequences that wait, and need not start since they may have no further token.
void end_full(request & r, const update_context & to);
// Sequences that wait at a prune point go on, or end because others are better. They wait for all others, unless there are more
// of them than slots: then each is compared with those that are there.
void pass_prune_points(request & r, int32_t n_parallel, const update_context & to);
// index -1: all sequences. reason: "cancelled", "surplus".
void cancel_request(request & r, int32_t index, const char * reason, const update_context & to);
void fail_request(request & r, const command_error & e, const update_context & to);
// A sequence or a prompt that lacks cells, although nothing else has cells that it could get, ends. This is a precaution:
// limits of requests count the cells of pins.
void end_stuck(request_lists & requests, const update_context & to);
// A pin whose prompt is computed is kept in place of one of its name, and takes cells off the others: requests for which
// there are too few cells now fail.
void keep_pin(request & r, request_lists & requests, int32_t n_ctx_seq, const update_context & to);
// Whether all of the request has ended. Then its last line is written, and it may be removed.
bool finish_request(request & r, record_list & history, const update_context & to);
