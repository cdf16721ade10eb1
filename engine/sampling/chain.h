// llama.cpp's chain of samplers for one sequence: its steps on a whole row of logits, while many tokens are left, and on a
// list of tokens.
#pragma once

#include "rows/row_cuts.h"
#include "sampling/diversity.h"
#include "sampling/settings.h"

#include <sampling.h> // llama.cpp's common/sampling.h

#include <cstdint>
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

// What the draws of a sequence have in common with those of the request's other sequences.
struct coupled_draws {
    coupling        with;
    arithmetic_code code;          // it draws until it is spent
    bool            is_first;      // the next draw is the first one, without replacement
    uint64_t        text_hash = 0; // of the tokens generated so far
};

class sampler_chain {
  public:
    // breakers: of DRY, if it is on. Throws what common_sampler_init throws.
    sampler_chain(const llama_model * model, const common_params_sampling & sampling,
                  const llama_sampler * breakers, uint32_t seed, const coupling & with);

    void accept(llama_token token, bool is_generated) {
        common_sampler_accept(chain.get(), token, is_generated);
    }

    // Applies the steps that need no list, and returns the first one that does; the row is listed then. If it is not, only
    // the draw is left. Penalties change none but the `recent` tokens.
    size_t reduce(whole_row & row, const std::vector<llama_token> & recent, const coupled_draws & coupled);

    // Applies the steps from `first` on. Until the arithmetic code is spent it draws in place of the last sampler.
    void apply(llama_token_data_array & candidates, size_t first, coupled_draws & coupled);

    // Apply only the samplers that change single tokens.
    void change(whole_row & row, const std::vector<llama_token> & recent);
    void apply_changes(llama_token_data_array & candidates);

    // Applies the last step alone.
    void draw(llama_token_data_array & candidates) { llama_sampler_apply(steps.back().sampler, &candidates); }

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
        other
    };
    struct step {
        llama_sampler * sampler;
        kind            what;
    };

    static kind kind_of(const llama_sampler * sampler);
    bool        reduce_by(const step & s, whole_row & row, const std::vector<llama_token> & recent,
                          const coupled_draws & coupled);
    bool        xtc_acts(const step & s, const coupled_draws & coupled) const;
    float       share_of_next(const step & s) const;
    void apply_step(const step & s, llama_token_data_array & candidates, const coupled_draws & coupled) const;
    void apply_temperature(llama_sampler * step, llama_token_data_array & candidates) const;

    const common_params_sampling settings;
    common_sampler_ptr           chain;
    std::vector<step>            steps;
};
