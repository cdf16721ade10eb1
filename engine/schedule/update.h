// What a step's samples mean: text, a stop, a rewind, a duplicate, a score; and how a sequence or a request ends.
#pragma once

#include "cache/token_history.h"
#include "schedule/sample.h"

#include <string>

class updater {
  public:
    explicit updater(const model_facts & facts) : facts(facts) {}

    // The prompt's own events: that it has begun, and its text where that is wanted.
    void begin_request(const request & r, std::string & out) const;
    // The logprobs of the prompt's tokens.
    void take_echo(const step_plan & plan, const std::vector<sample> & samples, std::string & out) const;
    void take_samples(std::vector<sample> & samples, prefix_tree & tree, std::string & out) const;
    void report_progress(request & r, std::string & out) const;

    // Sequences that wait, and need not start since they may have no token (more).
    void end_full(request & r, prefix_tree & tree, std::string & out) const;
    // One of them, or all: -1.
    void cancel(request & r, int32_t index, prefix_tree & tree, std::string & out) const;
    void fail(request & r, const command_error & e, prefix_tree & tree, std::string & out) const;
    // Whether all of it is over; then its last line is written, and it may go.
    bool finish(request & r, prefix_tree & tree, record_list & history, std::string & out) const;

  private:
    void take_sampled(sample & d, prefix_tree & tree, std::string & out) const;
    void take_scored(sample & d, prefix_tree & tree, std::string & out) const;
    void rewind(request & r, sequence & s, size_t n, prefix_tree & tree) const;
    void stream(const request & r, sequence & s, const std::string & text, size_t n_logprobs, bool last,
                std::string & out) const;
    void end_sequence(request & r, sequence & s, const char * reason, prefix_tree & tree,
                      std::string & out) const;
    bool end_sampled(request & r, sequence & s, const char * reason, prefix_tree & tree,
                     std::string & out) const;
    void retry(request & r, sequence & s, prefix_tree & tree, std::string & out) const;

    const model_facts facts;
};
