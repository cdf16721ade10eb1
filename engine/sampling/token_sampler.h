// How one sequence draws its tokens: llama.cpp's chain of samplers, applied to the tokens that it may choose.
#pragma once

#include "sampling/diversity.h"
#include "sampling/grammar_progress.h"
#include "sampling/healing.h"
#include "sampling/row_scan.h"
#include "sampling/settings.h"

#include <sampling.h> // llama.cpp's common/sampling.h

#include <cstdint>
#include <memory>
#include <vector>

// The properties of a chain of samplers on which a draw depends.
struct chain_traits {
    explicit chain_traits(const common_params_sampling & sampling);

    size_t n_top;             // only so many of the likeliest tokens matter to the chain; 0: all
    size_t n_history;         // only so many of the last tokens matter to its penalties
    bool   remembers_draws;   // even of tokens that the grammar refuses afterwards
    float  temperature;       // 0: the likeliest token is drawn
    bool   temperature_moves; // with the entropy, down to any value
    float  xtc_probability;
};

class token_sampler {
  public:
    // The sampler accepts the end of the prompt, for the penalties, and the tokens generated so far. healed: the bytes
    // that the first tokens must spell; nullptr: none. Throws what common_sampler_init throws.
    token_sampler(const llama_model * model, const sequence_settings & settings, uint32_t seed,
                  const coupling & with, const std::vector<llama_token> & prompt,
                  const std::vector<llama_token> & generated, std::shared_ptr<const healed_end> healed);

    // Draws a token from a row of logits and accepts it. Banned and `forbidden` tokens are never drawn, nor tokens
    // that the grammar does not allow. Throws command_error when the grammar explodes, no token is left, or the row
    // has a NaN or +infinity. Different samplers may draw at the same time, also from the same row.
    llama_token draw(const float * logits, const std::vector<llama_token> & forbidden);

    // Whether the grammar allows no further token.
    bool complete() { return !healing.is_active() && text.is_active() && text.is_complete(); }

  private:
    // What the draws have in common with those of the request's other sequences.
    struct coupled_draws {
        coupling        with;
        arithmetic_code code;          // it draws until it is spent
        bool            is_first;      // the next draw is the first one, without replacement
        uint64_t        text_hash = 0; // of the tokens generated so far
    };

    void                   accept(llama_token token, bool is_generated);
    void                   choose_by_likelihood(const float * logits, size_t n_forbidden);
    void                   choose_by_grammar(const float * logits);
    void                   choose_by_healing(const float * logits);
    llama_token            draw_from_few(const float * logits, const std::vector<llama_token> & forbidden,
                                         const char * none_left);
    void                   remove_banned(const float * logits, const std::vector<llama_token> & forbidden);
    void                   add_biases() const;
    llama_token_data_array candidates_of_chain() const;
    llama_token_data       draw_chosen();
    llama_token_data       draw_first();
    void                   apply_chain(llama_token_data_array & candidates);
    void                   apply_temperature(llama_sampler * step, llama_token_data_array & candidates) const;

    const int32_t            n_vocab;
    const chain_traits       traits;
    common_sampler_ptr       sampler; // llama.cpp's chain
    std::vector<llama_token> never;   // the model's suppressed tokens, and stop tokens with ignore_eos
    std::shared_ptr<const token_biases> biases; // nullptr: none
    grammar_progress                    text;
    healing_progress                    healing; // before the text
    coupled_draws                       coupled;
    std::vector<llama_token>            history; // the last tokens, the newest last, if any matter
};
