#include "sampling/chain.h"

#include "sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

using params = sampling_settings;

static const size_t n_listed = 1024; // so few tokens are listed; of more a pass over the row takes less

//
// traits
//

// The penalties look at so many of the last tokens; the sampler need not accept the rest of a long prompt.
static size_t history_of_step(const params & sampling) {
    const bool penalties =
        sampling.penalty_repeat != 1.0f || sampling.penalty_freq != 0.0f || sampling.penalty_present != 0.0f;
    const bool    dry = sampling.dry_multiplier > 0.0f;
    const int32_t n =
        std::max(penalties ? sampling.penalty_last_n : 0, dry ? sampling.dry_penalty_last_n : 0);
    return (size_t) std::max(n, 0);
}

// An added sampler that is on.
static const added_sampler * added_of(const chain_step & step, const params & chain) {
    const added_sampler * added = added_sampler_called(step.name);
    return added && added->is_on(step.of(chain)) ? added : nullptr;
}

// A sampler that looks at several tokens at once needs all of them, unless top-k comes before it. Penalties and biases
// change single tokens, and a temperature keeps the order. Returns how many of the likeliest tokens the chain needs;
// 0: all.
static size_t n_likeliest_needed(const params & chain) {
    if (chain.mirostat != 0) {
        return 0;
    }
    for (const chain_step & step : *chain.steps) {
        const params & sampling = step.of(chain);
        const auto     type     = llama_type_of(step.name);
        if (const added_sampler * added = added_of(step, chain)) {
            if (!added->is_penalty()) {
                return 0;
            }
            continue;
        }
        if (!type) {
            continue; // an added one that is off
        }
        if (type == COMMON_SAMPLER_TYPE_TOP_K && sampling.top_k > 0) {
            return (size_t) sampling.top_k;
        }
        const bool harmless = type == COMMON_SAMPLER_TYPE_PENALTIES || type == COMMON_SAMPLER_TYPE_DRY ||
                              type == COMMON_SAMPLER_TYPE_TOP_K ||
                              (type == COMMON_SAMPLER_TYPE_TEMPERATURE && sampling.dynatemp_range <= 0.0f) ||
                              (type == COMMON_SAMPLER_TYPE_TOP_N_SIGMA && sampling.top_n_sigma <= 0.0f) ||
                              (type == COMMON_SAMPLER_TYPE_TYPICAL_P && sampling.typ_p >= 1.0f) ||
                              (type == COMMON_SAMPLER_TYPE_TOP_P && sampling.top_p >= 1.0f) ||
                              (type == COMMON_SAMPLER_TYPE_MIN_P && sampling.min_p <= 0.0f) ||
                              (type == COMMON_SAMPLER_TYPE_XTC && sampling.xtc_probability <= 0.0f);
        if (!harmless) {
            return 0;
        }
    }
    return 0;
}

static bool has_added_change(const params & sampling) {
    return std::any_of(sampling.steps->begin(), sampling.steps->end(), [&](const chain_step & step) {
        const added_sampler * added = added_of(step, sampling);
        return added && added->is_penalty();
    });
}

chain_traits::chain_traits(const params & sampling)
    : n_top(n_likeliest_needed(sampling)), n_recent(largest_of(sampling, history_of_step)),
      n_history(std::max(n_recent, n_history_of_added(sampling))),
      has_penalties(n_recent > 0 || has_added_change(sampling)),
      remembers_draws(sampling.mirostat != 0 || sampling.adaptive_target >= 0.0f), temperature(sampling.temp),
      temperature_moves(sampling.dynatemp_range > 0.0f) {}

//
// sampler_chain
//

// As llama.cpp's samplers get them.
static params settings_for_llama(params sampling, uint32_t seed, const coupling & with) {
    sampling.seed = seed;
    if (with.arithmetic && sampling.xtc_probability > 0.0f) {
        sampling.xtc_probability = 1.0f; // xtc_acts decides when it acts
    }
    sampling.dry_sequence_breakers.clear();
    if (sampling.adaptive_target >= 0.0f &&
        std::count(sampling.samplers.begin(), sampling.samplers.end(), COMMON_SAMPLER_TYPE_ADAPTIVE_P) == 0) {
        sampling.samplers.push_back(COMMON_SAMPLER_TYPE_ADAPTIVE_P);
    }
    sampling.no_perf = true;
    return sampling;
}

// The steps that have a sampler of llama.cpp's, in their order.
static std::vector<const chain_step *> steps_of_llama(const params & sampling) {
    std::vector<const chain_step *> steps;
    for (const chain_step & step : *sampling.steps) {
        const bool draws = step.name == "adaptive_p"; // which is always the last one
        if (sampling.mirostat == 0 && !draws && !added_of(step, sampling) && llama_type_of(step.name)) {
            steps.push_back(&step); // mirostat replaces all others
        }
    }
    return steps;
}

static llama_sampler_ptr make_own(const llama_model * model, const chain_step & step, uint32_t seed,
                                  const coupling & with) {
    params own   = settings_for_llama(*step.own, seed, with);
    own.samplers = {*llama_type_of(step.name)};
    const common_sampler_ptr made(common_sampler_init(model, own));
    return llama_sampler_ptr(llama_sampler_chain_remove(common_sampler_get(made.get()), 0));
}

// The chain without breakers of DRY, whose samplers are then exchanged for ones that share those that were found; and
// those with settings of their own for ones that have them.
static common_sampler_ptr make_chain(const llama_model * model, const params & sampling,
                                     const llama_sampler * breakers, uint32_t seed, const coupling & with) {
    params             plain = settings_for_llama(sampling, seed, with);
    common_sampler_ptr made(common_sampler_init(model, plain));
    llama_sampler *    all   = common_sampler_get(made.get());
    const auto         steps = steps_of_llama(sampling);
    size_t             n     = 0;
    for (int32_t i = llama_sampler_chain_n(all); i > 0; i--) {
        llama_sampler_ptr  sampler(llama_sampler_chain_remove(all, 0));
        const bool         is_bias = llama_sampler_name(sampler.get()) == std::string_view("logit-bias");
        const chain_step * step    = is_bias || n == steps.size() ? nullptr : steps[n++];
        if (step && step->own) {
            sampler = make_own(model, *step, sequence_seed(seed, (int64_t) n * 1000033), with);
        }
        if (step && llama_sampler_name(sampler.get()) == std::string_view("dry")) {
            sampler = make_dry(step->of(sampling), breakers);
        }
        llama_sampler_chain_add(all, sampler.release());
    }
    return made;
}

void sampler_chain::add_step(llama_sampler * sampler, const sampling_settings & with) {
    const kind what = kind_of(sampler);
    const auto n_like =
        std::count_if(steps.begin(), steps.end(), [&](const step & s) { return s.what == what; });
    steps.push_back({sampler, what, with, nullptr, (int32_t) n_like});
}

// llama.cpp's chain has its samplers in their order; added ones stand before the next of these.
sampler_chain::sampler_chain(const llama_model * model, const params & sampling,
                             const llama_sampler * breakers, uint32_t seed, const coupling & with,
                             const std::vector<llama_token> & prompt)
    : traits(sampling), settings(sampling), chain(make_chain(model, settings, breakers, seed, with)) {
    llama_sampler * all  = common_sampler_get(chain.get());
    const auto      own  = steps_of_llama(settings);
    int32_t         next = 0;
    const auto      take = [&](const params & step) { add_step(llama_sampler_chain_get(all, next++), step); };
    if (llama_sampler_name(llama_sampler_chain_get(all, 0)) == std::string_view("logit-bias")) {
        take(settings);
    }
    for (const chain_step & s : *settings.steps) {
        const added_sampler * added = settings.mirostat == 0 ? added_of(s, settings) : nullptr;
        if (added) {
            const kind what = added->is_penalty() ? kind::change : kind::added;
            steps.push_back({nullptr, what, s.of(settings), added});
        } else if (std::find(own.begin(), own.end(), &s) != own.end()) {
            take(s.of(settings));
        }
    }
    while (next < llama_sampler_chain_n(all)) {
        take(settings);
    }
    if (prompt_matters(settings)) {
        past.prompt = prompt;
        make_unique(past.prompt);
    }
    for (size_t i = prompt.size() - std::min(prompt.size(), traits.n_history); i < prompt.size(); i++) {
        accept(prompt[i], false);
    }
}

void sampler_chain::accept(llama_token token, bool is_generated) {
    common_sampler_accept(chain.get(), token, is_generated);
    if (traits.n_history > 0) {
        past.history.push_back(token);
    }
}

sampler_chain::kind sampler_chain::kind_of(const llama_sampler * sampler) {
    static const struct {
        std::string_view name;
        kind             what;
    } kinds[] = {
        {"logit-bias", kind::change},    {"penalties", kind::change}, {"dry", kind::change},
        {"top-n-sigma", kind::n_sigma},  {"top-k", kind::top_k},      {"typical", kind::typical},
        {"top-p", kind::top_p},          {"min-p", kind::min_p},      {"xtc", kind::xtc},
        {"temp-ext", kind::temperature}, {"infill", kind::infill},    {"dist", kind::dist},
    };
    const std::string_view name = llama_sampler_name(sampler);
    const auto             found =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const auto & k) { return k.name == name; });
    if (found != std::end(kinds)) {
        return found->what;
    }
    return name[0] == '?' ? kind::nothing : kind::other; // ?top-k is one that does nothing
}

//
// on a whole row
//

size_t sampler_chain::reduce(whole_row & row, const coupled_draws & coupled) {
    for (size_t i = 0; i < steps.size(); i++) {
        const step & s = steps[i];
        if (s.what == kind::dist) {
            return i;
        }
        if (!reduce_by(s, row, coupled)) {
            row.list(SIZE_MAX);
            return i;
        }
        const bool may_be_short = row.cut && s.what != kind::temperature && s.what != kind::nothing;
        if (row.listed || row.is_empty() || may_be_short) {
            if (row.listed || row.list(row.is_empty() ? SIZE_MAX : n_listed)) {
                return i + 1;
            }
        }
    }
    return steps.size();
}

// llama.cpp's penalties change no others.
void sampler_chain::list_recent(std::vector<llama_token> & tokens) const {
    const size_t n = std::min(traits.n_recent, past.history.size());
    tokens.insert(tokens.end(), past.history.end() - (std::ptrdiff_t) n, past.history.end());
}

void sampler_chain::list_changed(std::vector<llama_token> & tokens) const {
    list_recent(tokens);
    for (const step & s : steps) {
        if (s.what == kind::change && s.added) {
            ::list_changed(*s.added, s.with, past, tokens);
        }
    }
}

void sampler_chain::apply_change(const step & s, whole_row & row) {
    static thread_local std::vector<llama_token> tokens;

    if (s.added) {
        apply_added(*s.added, s.with, past, row);
        return;
    }
    tokens.clear();
    list_recent(tokens);
    make_unique(tokens);
    change_tokens(row, tokens,
                  [&](llama_token_data_array & candidates) { llama_sampler_apply(s.sampler, &candidates); });
}

void sampler_chain::change(whole_row & row) {
    for (const step & s : steps) {
        if (s.what == kind::change) {
            apply_change(s, row);
        }
    }
}

// False: this step needs a list.
bool sampler_chain::reduce_by(const step & s, whole_row & row, const coupled_draws & coupled) {
    const auto & with       = s.with;
    const bool   keeps_some = settings.min_keep > 1; // whatever their probabilities
    switch (s.what) {
        case kind::nothing: return true;
        case kind::change:
            if (row.cut) {
                return false;
            }
            apply_change(s, row);
            return true;
        case kind::n_sigma: // llama.cpp counts what this removes where a temperature moves
            if (traits.temperature_moves) {
                return false;
            }
            keep_sigmas(row, with.top_n_sigma);
            return true;
        case kind::top_k: row.list_likeliest((size_t) with.top_k); return true;
        case kind::temperature:
            if (with.dynatemp_range > 0.0f) {
                divide_by_moving(row, with.temp, with.dynatemp_range, with.dynatemp_exponent);
            } else if (with.temp > 0.0f) {
                divide_by(row, with.temp);
            } else {
                keep_likeliest(row);
            }
            return true;
        case kind::added: return apply_added(*s.added, s.with, past, row);
        default:          break;
    }
    if (keeps_some) {
        return false;
    }
    switch (s.what) {
        case kind::typical: keep_typical(row, with.typ_p); return true;
        case kind::top_p:   keep_mass(row, with.top_p, share_of_next(s)); return true;
        case kind::min_p:   keep_from(row, with.min_p); return true;
        case kind::xtc:
            if (with.xtc_threshold * (float) n_listed < 1.0f) {
                return false; // it may remove many
            }
            if (xtc_acts(s, coupled)) {
                remove_top_choices(row, with.xtc_threshold);
            }
            return true;
        default: return false;
    }
}

// Of min-p, if it is the next step; else 0.
float sampler_chain::share_of_next(const step & s) const {
    const auto is_one = [](const step & other) { return other.what != kind::nothing; };
    const auto next   = std::find_if(steps.begin() + (&s - steps.data()) + 1, steps.end(), is_one);
    return next != steps.end() && next->what == kind::min_p ? next->with.min_p : 0.0f;
}

// llama.cpp's sampler decides by its own generator: of two equal candidates it removes one if it acts. Where draws are
// coupled, it acts by a chance that sequences of equal text have in common.
bool sampler_chain::xtc_acts_for_all(const step & s, const coupled_draws & coupled) {
    const uint64_t hash = s.n_like == 0 ? coupled.text_hash : hash_with(coupled.text_hash, -s.n_like);
    return common_chance(coupled.with, hash) < s.with.xtc_probability;
}

bool sampler_chain::xtc_acts(const step & s, const coupled_draws & coupled) const {
    if (coupled.with.arithmetic) {
        return xtc_acts_for_all(s, coupled);
    }
    llama_token_data       equal[2]   = {{0, 0.0f, 0.0f}, {1, 0.0f, 0.0f}};
    llama_token_data_array candidates = {equal, 2, -1, true};
    llama_sampler_apply(s.sampler, &candidates);
    return candidates.size == 1;
}

//
// on a list
//

void sampler_chain::apply(llama_token_data_array & candidates, size_t first, coupled_draws & coupled) {
    for (size_t i = first; i + 1 < steps.size(); i++) {
        apply_step(steps[i], candidates, coupled);
    }
    if (skews()) {
        draw_skewed(candidates, coupled);
    } else {
        draw(candidates, !coupled.code.spent(), coupled);
    }
}

void sampler_chain::draw(llama_token_data_array & candidates, bool by_code, coupled_draws & coupled) const {
    if (by_code) {
        candidates.selected = (int64_t) coupled.code.draw(candidates.data, candidates.size);
    } else {
        llama_sampler_apply(steps.back().sampler, &candidates);
    }
}

// The candidates stay as they are, for their log probabilities.
void sampler_chain::draw_skewed(llama_token_data_array & candidates, coupled_draws & coupled) const {
    auto & parts = buffer_of_thread().ranked;
    parts.assign(candidates.data, candidates.data + candidates.size);
    skew_list(parts, settings.skew);
    llama_token_data_array skewed = {parts.data(), parts.size(), -1, false};
    draw(skewed, !coupled.code.spent(), coupled);
    const llama_token drawn = parts[(size_t) skewed.selected].id;
    candidates.selected     = std::find_if(candidates.data, candidates.data + candidates.size,
                                           [drawn](const llama_token_data & c) { return c.id == drawn; }) -
                              candidates.data;
}

// A block, or a bin, and a token in it are one draw, so the last sampler or the arithmetic code makes both.
llama_token_data sampler_chain::draw(whole_row & row, coupled_draws & coupled) {
    const bool by_code = !coupled.code.spent(); // it may be spent by the block
    const auto pick    = [&] {
        auto &                 chosen     = buffer_of_thread().chosen;
        llama_token_data_array candidates = {chosen.data(), chosen.size(), -1, false};
        draw(candidates, by_code, coupled);
        return chosen[(size_t) candidates.selected];
    };
    if (!skews()) {
        row.list_blocks();
        row.list_block(pick().id);
        return pick();
    }
    skewed_draw parts(row, settings.skew);
    if (parts.list_likeliest()) {
        const llama_token_data drawn = pick();
        if (drawn.id != skewed_draw::others) {
            return drawn;
        }
    }
    parts.list_bins();
    parts.list_bin(pick().id);
    return pick();
}

void sampler_chain::apply_changes(llama_token_data_array & candidates) {
    for (const step & s : steps) {
        if (s.what == kind::change) {
            apply_step(s, candidates, coupled_draws());
        }
    }
}

// XTC keeps the last candidate that is likely enough, so candidates that other steps have made impossible are removed
// before.
static void apply_xtc(llama_sampler * step, llama_token_data_array & candidates) {
    const auto is_out = [](const llama_token_data & c) { return c.logit == -INFINITY; };
    candidates.size   = (size_t) (std::remove_if(candidates.data, candidates.data + candidates.size, is_out) -
                                  candidates.data);
    llama_sampler_apply(step, &candidates);
}

// Infill compares each token with each other one, so it gets only a few. Where it finds no text it takes the model's
// end of text, even if that is banned or not allowed; then its result is not used.
static void apply_infill(llama_sampler * step, llama_token_data_array & candidates) {
    const size_t n = std::min(candidates.size, n_few);
    std::partial_sort(candidates.data, candidates.data + n, candidates.data + candidates.size, is_likelier);
    candidates.size   = n;
    candidates.sorted = true;
    const std::vector<llama_token_data> before(candidates.data, candidates.data + n);
    llama_sampler_apply(step, &candidates);
    const auto is_chosen = [&](const llama_token_data & c) { return c.id == candidates.data[0].id; };
    if (candidates.size == 0 || std::none_of(before.begin(), before.end(), is_chosen)) {
        std::copy(before.begin(), before.end(), candidates.data);
        candidates.size = n;
    }
}

// A temperature that moves with the entropy may become so small that logits overflow. That is greedy, too; the
// candidates are sorted then.
void sampler_chain::apply_temperature(llama_sampler * step, llama_token_data_array & candidates) const {
    llama_sampler_apply(step, &candidates);
    if (traits.temperature_moves && !std::isfinite(candidates.data[0].logit)) {
        candidates.data[0].logit = 0.0f;
        candidates.size          = 1;
    }
}

void sampler_chain::apply_step(const step & s, llama_token_data_array & candidates,
                               const coupled_draws & coupled) const {
    if (s.added) {
        apply_added(*s.added, s.with, past, candidates);
    } else if (s.what == kind::temperature) {
        apply_temperature(s.sampler, candidates);
    } else if (s.what == kind::infill) {
        apply_infill(s.sampler, candidates);
    } else if (s.what != kind::xtc) {
        llama_sampler_apply(s.sampler, &candidates);
    } else if (!coupled.with.arithmetic || xtc_acts_for_all(s, coupled)) {
        apply_xtc(s.sampler, candidates);
    }
}
