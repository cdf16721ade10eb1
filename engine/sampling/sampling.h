// How a sequence chooses its tokens: its settings, read from JSON through one table, and its sampler.
#pragma once

#include "grammar/grammar.h"
#include "grammar/trigger.h"
#include "sampling/diversity.h"
#include "util/text.h"

#include <sampling.h> // llama.cpp's common/sampling.h

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string>
#include <vector>

// What is added to logits, each token once, and which tokens are banned. Shared by all sequences that have it.
class token_biases {
  public:
    // Several biases of a token add up; minus infinity bans it.
    token_biases(std::vector<llama_logit_bias> list, int32_t n_vocab);

    bool   is_banned(llama_token token) const { return banned[(size_t) token]; }
    float  of(llama_token token) const; // 0: it has none
    size_t n_banned = 0;

    std::vector<llama_token> changed; // in ascending order, without the banned ones

  private:
    std::vector<float> biases; // of those
    std::vector<bool>  banned; // by token
};

// What a request says of its sequences, as it was read. Sequences that say the same share it.
struct sequence_settings {
    common_params_sampling   sampling;
    int32_t                  n_predict = 128; // -1: until the end of the text or of the context
    int32_t                  n_min     = 0;   // no end of text and no stop string before
    std::vector<std::string> stop;
    std::vector<std::string> banned;    // phrases that must not appear, whatever their case
    std::shared_ptr<grammar> structure; // what the text may be; nullptr: anything

    std::shared_ptr<const grammar_start> structure_start; // where it begins to hold; nullptr: at once
    std::shared_ptr<const token_biases>  biases;          // logit_bias, and tokens that hold a banned phrase

    word_finder_ptr stop_finder, banned_finder; // of the two lists; nullptr where they are empty
};

// One sequence of a request: the settings that it may share, and what is its own.
struct sequence_plan {
    std::shared_ptr<const sequence_settings> settings;
    int32_t                                  n_predict = 128; // as in the settings, or later by an extend
    uint32_t                                 seed      = 0;   // resolved
    coupling                                 coupled;         // with the other sequences
};

// Reads max_tokens, min_tokens, stop, banned_strings. False when the name is none of these.
bool read_sequence_field(sequence_settings & settings, const std::string & name,
                         const nlohmann::json & value);

// Reads a sampling field: llama.cpp's controls (see the table in sampling.cpp), seed, logit_bias, samplers.
// Throws command_error for an unknown name, a wrong type, a value out of range. n_ctx stands for -1 ("the
// whole context") in repeat_last_n and dry_penalty_last_n.
void read_sampling_field(common_params_sampling & sampling, const std::string & name,
                         const nlohmann::json & value, const llama_vocab * vocab, int32_t n_ctx);

// The seed of sequence `index`: distinct for distinct indices, and never LLAMA_DEFAULT_SEED, which means
// "random".
uint32_t sequence_seed(uint32_t seed, int64_t index);

// The tokens that end a text. They are looked for once: a process has one model.
const std::vector<llama_token> & end_tokens(const llama_vocab * vocab);

// The tokens whose text alone holds one of the phrases, which are in lower case, whatever the text's case.
std::vector<llama_token> tokens_with(const word_finder & phrases, const llama_vocab * vocab);

struct token_logprob {
    llama_token token;
    float       logprob; // natural logarithm, finite: -9999 stands for less, and for what is no number
};

// The logprob of `token` in a row of logits (before any sampler), and the n_top likeliest, best first.
token_logprob logprobs_of(const float * logits, int32_t n_vocab, llama_token token, int32_t n_top,
                          std::vector<token_logprob> & top);

// How one sequence draws: llama.cpp's chain of samplers over the tokens that it can choose from.
class token_sampler {
  public:
    // It knows the end of the prompt (for the penalties) and what has been generated since. Throws what
    // common_sampler_init throws.
    token_sampler(const llama_model * model, const sequence_settings & settings, uint32_t seed,
                  const coupling & coupled, const std::vector<llama_token> & prompt,
                  const std::vector<llama_token> & generated);

    // One draw from a row of logits, accepted; banned and `forbidden` tokens are never drawn, nor what the
    // grammar does not allow: command_error when that cannot be found, nothing is left, or the row has
    // no numbers. Different samplers may draw at the same time, also from the same row.
    llama_token draw(const float * logits, const std::vector<llama_token> & forbidden);

    // The logprob of the token that this thread has just drawn, among those that the samplers left for the
    // draw, and the n_top likeliest of these, best first.
    static token_logprob logprobs_of_draw(llama_token token, int32_t n_top, std::vector<token_logprob> & top);

    // Whether the grammar says that nothing may follow.
    bool complete() { return is_bound() && structure->complete(at); }

  private:
    bool                   is_bound() const { return structure && !watch; } // the grammar holds
    void                   accept(llama_token token, bool is_generated);
    void                   accept_by_grammar(llama_token token);
    void                   choose_likeliest(const float * logits, size_t n_forbidden);
    void                   choose_allowed(const float * logits);
    void                   settle_chosen(const float * logits, const std::vector<llama_token> & forbidden);
    llama_token            draw_allowed();
    llama_token_data_array candidates_of_chain();
    llama_token_data       draw_chosen();
    llama_token_data       draw_first();
    void                   apply_steps(llama_token_data_array & candidates);
    void                   apply_temperature(llama_sampler * step, llama_token_data_array & candidates) const;

    common_sampler_ptr       sampler;
    int32_t                  n_vocab;
    size_t                   n_top; // the chain looks at no others than so many likeliest tokens; 0: at all
    size_t                   n_history; // the penalties look at so many of the last tokens
    std::vector<llama_token> never;     // the model's own banned tokens; those that end a text if it may not
    std::shared_ptr<const token_biases>  biases; // nullptr: none
    std::shared_ptr<grammar>             structure;
    grammar::position                    at; // of the text in it
    std::shared_ptr<const grammar_start> start;
    std::optional<trigger_watch>         watch; // as long as the grammar waits for a trigger
    bool                     grammar_first;     // a draw that is refused would be remembered by the chain
    std::vector<llama_token> history;           // the last n_history tokens, where n_top > 0
    coupling                 coupled;
    arithmetic_code          code;          // draws until it is spent
    bool                     first;         // the next draw is the first one, without replacement
    uint64_t                 text_hash = 0; // of the tokens generated so far
    float                    temperature;
    bool                     temperature_moves; // with the entropy, down to any value
    float                    xtc_probability;
};
