// The chain of samplers for one sequence, llama.cpp's and those that it lacks: its steps on a whole row of logits, while many
// tokens are left, and on a list of tokens.
#pragma once

#include "rows/row_cuts.h"
#include "sampling/added.h"
#include "sampling/diversity.h"
#include "sampling/settings.h"

#include <sampling.h> // llama.cpp's common/sampling.h

#include <cstdint>
#include <vector>

// The properties of a chain of samplers on which a draw depends.
struct chain_traits {
    explicit chain_traits(const sampling_settings & sampling);

    size_t n_top;             // only so many of the likeliest tokens matter to the chain; 0: all
    size_t n_recent;          // llama.cpp's penalties change so many of the last tokens
    size_t n_history;         // only so many of them matter to any penalty
    bool   has_penalties;     // that may change a logit
    bool   remembers_draws;   // even of tokens that the grammar refuses afterwards
    float  temperature;       // 0: the likeliest token is drawn
    bool   temperature_moves; // with the entropy, down to any value
};

// What the draws of a sequence have in common with those of the request's other sequences.
struct coupled_draws {
    coupling        with;
    arithmetic_code code;          // it draws until it is spent
    bool            is_first;      // the next draw is the first one, without replacement
    uint64_t        text_hash = 0; // of the tokens generated so far
};

class sampler_chain {
  public:
    // breakers: of DRY, if it is on. Accepts what matters of the prompt. Throws what common_sampler_init throws.
    sampler_chain(const llama_model * model, const sampling_settings & sampling,
                  const llama_sampler * breakers, uint32_t seed, const coupling & with,
                  const std::vector<llama_token> & prompt);

    void accept(llama_token token, bool is_generated);

    // Appends the tokens that penalties can change.
    void list_changed(std::vector<llama_token> & tokens) const;

    // Applies the steps that need no list, and returns the first one that does; the row is listed then. If it is not, only
    // the draw is left.
    size_t reduce(whole_row & row, const coupled_draws & coupled);

    // Applies the steps from `first` on. Until the arithmetic code is spent it draws in place of the last sampler.
    void apply(llama_token_data_array & candidates, size_t first, coupled_draws & coupled);

    // Apply only the samplers that change single tokens.
    void change(whole_row & row);
    void apply_changes(llama_token_data_array & candidates);

    // Draws from a row that was not listed: the token of the list of this thread that it returns.
    llama_token_data draw(whole_row & row, coupled_draws & coupled);

    const chain_traits traits;

  private:
    enum class kind {
        nothing,
        change,
        n_sigma,
        top_k,
        typical,
        top_p,
        min_p,
        xtc,
        temperature,
        infill,
        dist,
        added,
        other
    };
    struct step {
        llama_sampler *           sampler; // nullptr: it is an added one
        kind                      what;
        const sampling_settings & with; // the chain's, or its own
        const added_sampler *     added  = nullptr;
        int32_t                   n_like = 0; // steps of its kind before it
    };

    static kind kind_of(const llama_sampler * sampler);
    void        list_recent(std::vector<llama_token> & tokens) const;
    void        apply_change(const step & s, whole_row & row);
    bool        reduce_by(const step & s, whole_row & row, const coupled_draws & coupled);
    void        add_step(llama_sampler * sampler, const sampling_settings & with);
    bool        xtc_acts(const step & s, const coupled_draws & coupled) const;
    static bool xtc_acts_for_all(const step & s, const coupled_draws & coupled);
    float       share_of_next(const step & s) const;
    void apply_step(const step & s, llama_token_data_array & candidates, const coupled_draws & coupled) const;
    void apply_temperature(llama_sampler * step, llama_token_data_array & candidates) const;
    bool skews() const { return settings.skew != 0.0f && steps.back().what == kind::dist; }
    void draw(llama_token_data_array & candidates, bool by_code, coupled_draws & coupled) const;
    void draw_skewed(llama_token_data_array & candidates, coupled_draws & coupled) const;

    const sampling_settings settings;
    common_sampler_ptr      chain;
    std::vector<step>       steps;
    sampler_past            past;
};
