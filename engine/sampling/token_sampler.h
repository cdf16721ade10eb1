// How one sequence draws its tokens: llama.cpp's chain of samplers, applied to the tokens that it may choose.
#pragma once

#include "sampling/chain.h"
#include "sampling/grammar_progress.h"
#include "sampling/healing.h"
#include "sampling/settings.h"

#include <cstdint>
#include <memory>
#include <vector>

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

    // Accepts a token in place of a draw. Throws command_error when the grammar explodes.
    void force(llama_token token);

    // Whether the grammar allows no further token.
    bool complete() { return !healing.is_active() && text.is_active() && text.is_complete(); }

    // What comes next for certain, as far as the grammar says; nothing where it explodes.
    grammar::certain_text certain();

  private:
    void accept(llama_token token);

    // These leave the tokens of a draw in the row of this thread, or in its list.
    void choose_by_likelihood(const float * logits, size_t n_forbidden);
    void choose_by_grammar(const float * logits);
    void choose_by_healing(const float * logits);
    void choose_allowed(const float * logits);
    bool may_draw(llama_token token) const { return !allowed || allowed->has[(size_t) token]; }

    void remove_banned(const float * logits, const std::vector<llama_token> & forbidden);
    void add_biases() const;
    void change_row(whole_row & row, const std::vector<llama_token> & forbidden) const;

    llama_token_data_array candidates_of_chain() const;
    llama_token_data       draw_chosen(const float * logits, const std::vector<llama_token> & forbidden);
    llama_token_data       draw_from_list(llama_token_data_array candidates, size_t first_step);
    llama_token_data       draw_from_row(whole_row & row);
    llama_token_data       draw_first();

    const int32_t            n_vocab;
    sampler_chain            chain;
    std::vector<llama_token> never; // the model's suppressed tokens, and stop tokens with ignore_eos
    std::shared_ptr<const token_biases>   biases; // nullptr: none
    phrase_progress                       phrases;
    std::shared_ptr<const allowed_tokens> allowed; // nullptr: all
    grammar_progress                      text;
    const std::vector<llama_token>        replay;         // that are taken in place of what is drawn
    size_t                                n_accepted = 0; // tokens
    healing_progress                      healing;        // before the text
    coupled_draws                         coupled;
};
