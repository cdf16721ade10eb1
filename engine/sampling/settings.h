// The settings of a request's sequences, and the fields from which they are read.
#pragma once

#include "grammar/grammar.h"
#include "grammar/trigger.h"
#include "sampling/diversity.h"
#include "sampling/dry.h"
#include "sampling/loops.h"
#include "sampling/phrase_biases.h"
#include "sampling/token_biases.h"
#include "text/banned_patterns.h"
#include "text/passages.h"
#include "util/fields.h"
#include "util/word_finder.h"

#include <common.h> // llama.cpp's common/common.h

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct second_answer;

// What ends a text, beside the model's own end tokens.
struct text_ends {
    std::vector<std::string> strings;
    word_finder_ptr          finder; // of the strings; nullptr: there are none
    std::vector<llama_token> tokens;
    passage_limit            passages;
    bool                     shown = false; // what ends the text is part of it

    bool at(llama_token token) const {
        return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
    }
};

// What must not appear: phrases, in any case, and what expressions match.
struct banned_texts {
    std::vector<std::string>  strings;
    std::vector<banned_regex> regexes;
    word_finder_ptr           finder;   // of the strings; nullptr: there are none
    pattern_finder_ptr        patterns; // of the expressions; nullptr: there are none
};

struct sampling_settings;

// A sampler in the chain.
struct chain_step {
    std::string    name;
    nlohmann::json values = nullptr; // fields that it has of its own, until they are settled; null: none

    std::shared_ptr<const sampling_settings> own = nullptr; // with these; nullptr: it has those of the chain

    const sampling_settings & of(const sampling_settings & chain) const { return own ? *own : chain; }
};

// llama.cpp's settings of samplers, and those of the samplers that it lacks (sampling/added.h).
struct sampling_settings : common_params_sampling {
    float   smoothing_factor           = 0.0f; // 0: off
    float   smoothing_curve            = 1.0f;
    float   top_a                      = 0.0f; // 0: off
    float   tfs                        = 1.0f; // 1: off
    float   epsilon_cutoff             = 0.0f; // of 10,000; 0: off
    float   eta_cutoff                 = 0.0f; // of 10,000; 0: off
    float   skew                       = 0.0f; // 0: off
    float   encoder_repetition_penalty = 1.0f; // 1: off
    float   rep_pen_slope              = 1.0f; // 0, 1 and more: off
    int32_t repetition_decay           = 0;    // tokens; 0: off
    int32_t no_repeat_ngram_size       = 0;    // 0: off
    bool    do_sample                  = true; // false: the likeliest token after the penalties
    float   guidance_scale             = 1.0f; // 1: off (guidance.h)

    std::optional<bool>                    temperature_last; // none: as the steps say
    std::optional<std::vector<chain_step>> steps;            // in their order; none: the usual ones
};

// Sequences with equal settings share them.
struct sequence_settings {
    sampling_settings        sampling;
    int32_t                  n_predict  = 128; // -1: until the end of the text or of the context
    int32_t                  n_min      = 0;   // tokens before a stop token or a stop string may end the text
    int32_t                  n_thinking = -1;  // tokens that a chat's thoughts may have; -1: no limit
    text_ends                ends;
    banned_texts             banned;
    loop_limit               loops;
    std::shared_ptr<grammar> structure; // that the text follows; nullptr: none

    std::shared_ptr<const grammar_start> structure_start; // where the grammar begins; nullptr: with the text
    std::shared_ptr<const token_biases>  biases; // logit_bias, and tokens that contain a banned phrase
    std::vector<phrase_bias>             phrase_list;
    std::shared_ptr<const phrase_biases> phrases; // of that list; nullptr: it is empty

    dry_breakers                          breakers; // of DRY; nullptr: it is off
    std::shared_ptr<const allowed_tokens> allowed;  // no other token is drawn; nullptr: any may be
    bool                     shows_special = false; // the names of control tokens are part of the text
    std::vector<llama_token> replay; // recorded tokens, for benchmarks: those of a text that was drawn

    std::shared_ptr<const std::string> processor; // its arguments, JSON; nullptr: the text's rows go to none

    std::shared_ptr<const second_answer> second; // behind this answer; nullptr: none
};

// What a sequence does behind its free answer: it reads a text, and answers again with other settings.
struct second_answer {
    std::shared_ptr<const sequence_settings> settings;
    std::vector<llama_token>                 text;
    bool                                     return_free = false; // else the client gets only this answer
};

// One sequence of a request: its settings, and what it does not share.
struct sequence_plan {
    std::shared_ptr<const sequence_settings> settings;
    int32_t                                  n_predict = 128; // as in the settings, or later by an extend
    uint32_t                                 seed      = 0;   // never LLAMA_DEFAULT_SEED
    coupling                                 coupled;         // with the other sequences

    bool is_guided() const { return settings->sampling.guidance_scale != 1.0f; }
};

// The fields of `sampling`: llama.cpp's controls, seed, logit_bias, samplers.
const field_table & sampling_fields();

// The tokens that a chat's thoughts may have: of a command and of an entry of `sequences`.
field_row thinking_field();
field_row processor_field();

// max_tokens, min_tokens, stop, banned_strings, those of loops: of a command, and of an entry of `sequences`.
const std::vector<field_row> & length_fields();

// The fields of an entry of `sequences`: both of these.
const field_table & sequence_fields();

// These read an object that check_fields has checked. They throw command_error for a token that the vocabulary lacks
// and for an unknown sampler. n_ctx stands for -1, "the whole context", in repeat_last_n and dry_penalty_last_n.
void read_sampling(sampling_settings & sampling, const nlohmann::json & fields, const llama_vocab * vocab,
                   int32_t n_ctx);
// Works out the steps, once all fields are read: of do_sample and temperature_last nothing is left to do. Of several
// temperatures the settings then have the product.
void settle_steps(sampling_settings & sampling, const llama_vocab * vocab, int32_t n_ctx);
// The largest of what a function says of the chain's settings and of those that steps have of their own.
size_t largest_of(const sampling_settings & sampling, size_t (*of)(const sampling_settings &));
void   read_lengths(sequence_settings & settings, const nlohmann::json & fields);

// The seed of sequence `index`: distinct for distinct indices, and never LLAMA_DEFAULT_SEED, which means
// "random".
uint32_t sequence_seed(uint32_t seed, int64_t index);
