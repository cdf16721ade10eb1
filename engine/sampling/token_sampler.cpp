#include "sampling/token_sampler.h"

#include "sampling/special_tokens.h"
#include "util/json.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

using params = common_params_sampling;

namespace {

// Lists that a draw needs for a moment. There is one for each thread, so that no draw allocates anything.
struct scratch {
    std::vector<llama_token> altered;   // tokens whose logits a penalty or a bias changes
    std::vector<bool>        is_banned; // by token
};
thread_local scratch mine;

} // namespace

//
// the chain's traits
//

// The penalties look at so many of the last tokens; the sampler need not accept the rest of a long prompt.
static size_t history_length(const params & sampling) {
    const bool penalties =
        sampling.penalty_repeat != 1.0f || sampling.penalty_freq != 0.0f || sampling.penalty_present != 0.0f;
    const bool    dry = sampling.dry_multiplier > 0.0f;
    const int32_t n =
        std::max(penalties ? sampling.penalty_last_n : 0, dry ? sampling.dry_penalty_last_n : 0);
    return (size_t) std::max(n, 0);
}

// A sampler that looks at several tokens at once needs all of them, unless top-k comes before it. Penalties and biases
// change single tokens, and a temperature keeps the order. Returns how many of the likeliest tokens the chain needs;
// 0: all.
static size_t n_likeliest_needed(const params & sampling) {
    if (sampling.mirostat != 0) {
        return 0;
    }
    for (const common_sampler_type type : sampling.samplers) {
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

chain_traits::chain_traits(const params & sampling)
    : n_top(n_likeliest_needed(sampling)), n_history(history_length(sampling)),
      remembers_draws(sampling.mirostat != 0 || sampling.adaptive_target >= 0.0f), temperature(sampling.temp),
      temperature_moves(sampling.dynatemp_range > 0.0f), xtc_probability(sampling.xtc_probability) {}

//
// token_sampler
//

// llama.cpp's chain with the settings of one sequence.
static common_sampler * make_chain(const llama_model * model, params sampling, uint32_t seed,
                                   const coupling & coupled) {
    sampling.seed = seed;
    if (coupled.arithmetic && sampling.xtc_probability > 0.0f) {
        sampling.xtc_probability = 1.0f; // apply_chain decides when it acts
    }
    if (sampling.adaptive_target >= 0.0f &&
        std::count(sampling.samplers.begin(), sampling.samplers.end(), COMMON_SAMPLER_TYPE_ADAPTIVE_P) == 0) {
        sampling.samplers.push_back(COMMON_SAMPLER_TYPE_ADAPTIVE_P);
    }
    sampling.no_perf = true;
    return common_sampler_init(model, sampling);
}

static std::vector<llama_token> list_never_drawn(const llama_vocab * vocab, bool ignores_end) {
    int32_t                  n_suppressed = 0;
    const llama_token *      suppressed   = llama_vocab_get_suppress_tokens(vocab, &n_suppressed);
    std::vector<llama_token> tokens(suppressed, suppressed + n_suppressed);
    if (ignores_end) {
        tokens.insert(tokens.end(), end_tokens(vocab).begin(), end_tokens(vocab).end());
    }
    return tokens;
}

token_sampler::token_sampler(const llama_model * model, const sequence_settings & settings, uint32_t seed,
                             const coupling & with, const std::vector<llama_token> & prompt,
                             const std::vector<llama_token> &  generated,
                             std::shared_ptr<const healed_end> healed)
    : n_vocab(llama_vocab_n_tokens(llama_model_get_vocab(model))), traits(settings.sampling),
      sampler(make_chain(model, settings.sampling, seed, with)),
      never(list_never_drawn(llama_model_get_vocab(model), settings.sampling.ignore_eos)),
      biases(settings.biases), text(settings.structure, settings.structure_start), healing(std::move(healed)),
      coupled{with, with.arithmetic ? arithmetic_code(with) : arithmetic_code(),
              with.distinct_first && generated.empty()} {
    for (size_t i = prompt.size() - std::min(prompt.size(), traits.n_history); i < prompt.size(); i++) {
        accept(prompt[i], false);
    }
    for (const llama_token token : generated) {
        accept(token, true);
    }
}

void token_sampler::accept(llama_token token, bool is_generated) {
    common_sampler_accept(sampler.get(), token, is_generated);
    if (is_generated) {
        if (!healing.is_active()) {
            text.accept(token);
        } else if (const std::string begun = healing.accept(token); !healing.is_active()) {
            text.accept_first(begun);
        }
        coupled.text_hash = hash_with(coupled.text_hash, token);
    }
    if (traits.n_history > 0) {
        history.push_back(token);
    }
}

// Nearly all draws fit the grammar, and it is cheap to check one token. The others are drawn again among the tokens
// that the grammar allows. A draw that is coupled with others is made only once, so there the grammar comes first.
llama_token token_sampler::draw(const float * logits, const std::vector<llama_token> & forbidden) {
    llama_token token = LLAMA_TOKEN_NULL;
    try {
        const bool once = traits.remembers_draws || coupled.is_first || !coupled.code.spent();
        if (healing.is_active()) {
            choose_by_healing(logits);
            token = draw_from_few(
                logits, forbidden,
                "with these settings no token is left that spells the end of the prompt (token_healing)");
        } else if (!text.is_active() || !(once || text.few_may_follow())) {
            choose_by_likelihood(logits, forbidden.size());
            remove_banned(logits, forbidden);
            add_biases();
            token = draw_chosen().id;
        }
        if (!healing.is_active() && text.is_active() && (token == LLAMA_TOKEN_NULL || !text.allows(token))) {
            choose_by_grammar(logits);
            token = draw_from_few(logits, forbidden,
                                  "the grammar cannot be followed: no token that the grammar allows is left, "
                                  "since all are banned");
        }
        accept(token, true);
        coupled.is_first = false;
    } catch (const grammar_error & e) {
        throw command_error("invalid_request", std::string("the grammar cannot be followed: ") + e.what());
    }
    return token;
}

// none_left: the error where no token is left: a bias may have banned them all.
llama_token token_sampler::draw_from_few(const float * logits, const std::vector<llama_token> & forbidden,
                                         const char * none_left) {
    remove_banned(logits, forbidden);
    add_biases();
    if (buffer_of_thread().chosen.empty()) {
        throw command_error("invalid_request", none_left);
    }
    return draw_chosen().id;
}

void token_sampler::choose_by_healing(const float * logits) {
    auto & chosen = buffer_of_thread().chosen;
    chosen.clear();
    for (const llama_token token : healing.allowed(text)) {
        chosen.push_back({token, logits[token], 0.0f});
    }
}

void token_sampler::choose_by_grammar(const float * logits) {
    const auto allowed = text.allowed();
    auto &     chosen  = buffer_of_thread().chosen;
    chosen.clear();
    for (llama_token token = 0; token < n_vocab; token++) {
        if ((*allowed)[token]) {
            chosen.push_back({token, logits[token], 0.0f});
        }
    }
}

// Banned tokens are removed before any sampler sees them, because many samplers make a NaN of a logit of minus
// infinity.
void token_sampler::remove_banned(const float * logits, const std::vector<llama_token> & forbidden) {
    candidate_buffer & buffer    = buffer_of_thread();
    auto &             chosen    = buffer.chosen;
    auto &             is_banned = mine.is_banned;
    bool               numbers   = true;
    const auto         mark      = [&](bool value) {
        is_banned.resize((size_t) n_vocab);
        for (const std::vector<llama_token> * tokens : {&std::as_const(never), &forbidden}) {
            for (const llama_token token : *tokens) {
                is_banned[(size_t) token] = value;
            }
        }
    };
    const auto is_out = [&](const llama_token_data & c) {
        numbers &= c.logit < INFINITY;
        return c.logit == -INFINITY || is_banned[(size_t) c.id] || (biases && biases->is_banned(c.id));
    };
    const bool bans = !never.empty() || !forbidden.empty() || (biases && biases->n_banned > 0);
    if (bans || !all_finite(buffer)) { // without it a draw from the full vocabulary takes noticeably less
        mark(true);
        chosen.erase(std::remove_if(chosen.begin(), chosen.end(), is_out), chosen.end());
        mark(false);
    }
    if (!numbers || (chosen.empty() &&
                     std::any_of(logits, logits + n_vocab, [](float logit) { return std::isnan(logit); }))) {
        throw command_error("engine_error", "the model computed logits that are not numbers");
    }
}

void token_sampler::add_biases() const {
    if (biases && !biases->changed.empty()) {
        for (llama_token_data & c : buffer_of_thread().chosen) {
            c.logit += biases->of(c.id);
        }
    }
}

// After all changes of single tokens, the likeliest tokens are among those that are changed and, of the others, the
// likeliest before.
void token_sampler::choose_by_likelihood(const float * logits, size_t n_forbidden) {
    candidate_buffer & buffer = buffer_of_thread();
    if (traits.n_top == 0 || coupled.is_first) {
        choose_all(buffer, logits, n_vocab);
        return;
    }
    auto &       altered  = mine.altered;
    const size_t n_recent = std::min(traits.n_history, history.size());
    const size_t n_biased = biases ? biases->n_banned + biases->changed.size() : 0;
    const size_t n_extra  = never.size() + n_biased + n_recent + n_forbidden;
    const float  bound    = choose_likeliest(buffer, logits, n_vocab, traits.n_top + n_extra);
    altered.assign(history.end() - (std::ptrdiff_t) n_recent, history.end());
    if (biases) {
        altered.insert(altered.end(), biases->changed.begin(), biases->changed.end());
    }
    std::sort(altered.begin(), altered.end());
    altered.erase(std::unique(altered.begin(), altered.end()), altered.end());
    for (const llama_token token : altered) {
        if (logits[token] < bound) {
            buffer.chosen.push_back({token, logits[token], 0.0f});
        }
    }
}

// If the chain changes no logit before its top-k, it gets the likeliest tokens already sorted.
llama_token_data_array token_sampler::candidates_of_chain() const {
    candidate_buffer &     buffer     = buffer_of_thread();
    llama_token_data_array candidates = {buffer.chosen.data(), buffer.chosen.size(), -1, false};
    if (traits.n_top > 0 && traits.n_history == 0) {
        candidates.size = std::min(traits.n_top, buffer.chosen.size());
        sort_chosen(buffer, candidates.size);
        candidates.data   = buffer.chosen.data();
        candidates.sorted = true;
    }
    return candidates;
}

llama_token_data token_sampler::draw_chosen() {
    auto & chosen = buffer_of_thread().chosen;
    if (chosen.empty()) {
        throw command_error("invalid_request", "all tokens are banned, so no token is left to sample",
                            "logit_bias");
    }
    if (coupled.is_first) {
        return draw_first();
    }
    llama_token_data_array candidates = candidates_of_chain();
    apply_chain(candidates);
    const bool is_one = candidates.selected >= 0 && candidates.selected < (int64_t) candidates.size;
    const llama_token_data drawn = is_one ? candidates.data[candidates.selected] : llama_token_data();
    if (!is_one || !std::isfinite(drawn.logit)) {
        throw command_error("invalid_request", "with these settings the samplers leave no token to draw");
    }
    // the candidates that the samplers have left, for logprobs_of_draw; after XTC they begin later in the list
    chosen.erase(chosen.begin(), chosen.begin() + (candidates.data - chosen.data()));
    chosen.resize(candidates.size);
    return drawn;
}

// A temperature that moves with the entropy may become so small that logits overflow. That is greedy, too; the
// candidates are sorted then.
void token_sampler::apply_temperature(llama_sampler * step, llama_token_data_array & candidates) const {
    llama_sampler_apply(step, &candidates);
    if (traits.temperature_moves && !std::isfinite(candidates.data[0].logit)) {
        candidates.data[0].logit = 0.0f;
        candidates.size          = 1;
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
    const auto by_logit = [](const llama_token_data & a, const llama_token_data & b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    };
    const size_t n = std::min(candidates.size, n_few);
    std::partial_sort(candidates.data, candidates.data + n, candidates.data + candidates.size, by_logit);
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

// Applies the samplers one by one. Where draws are coupled, XTC acts by a chance that sequences of equal text have in
// common, and until the arithmetic code is spent it draws in place of the last sampler.
void token_sampler::apply_chain(llama_token_data_array & candidates) {
    llama_sampler * chain = common_sampler_get(sampler.get());
    const int32_t   n     = llama_sampler_chain_n(chain) - (coupled.code.spent() ? 0 : 1);
    for (int32_t i = 0; i < n; i++) {
        llama_sampler *        step = llama_sampler_chain_get(chain, i);
        const std::string_view name = llama_sampler_name(step);
        if (name == "temp-ext") {
            apply_temperature(step, candidates);
        } else if (name == "infill") {
            apply_infill(step, candidates);
        } else if (name != "xtc") {
            llama_sampler_apply(step, &candidates);
        } else if (!coupled.with.arithmetic ||
                   common_chance(coupled.with, coupled.text_hash) < traits.xtc_probability) {
            apply_xtc(step, candidates);
        }
    }
    if (!coupled.code.spent()) {
        candidates.selected = (int64_t) coupled.code.draw(candidates.data, candidates.size);
    }
}

// Applies only the samplers that change single tokens: first tokens are distinct before any truncation.
llama_token_data token_sampler::draw_first() {
    auto &                 chosen     = buffer_of_thread().chosen;
    llama_token_data_array candidates = {chosen.data(), chosen.size(), -1, false};
    llama_sampler *        chain      = common_sampler_get(sampler.get());
    for (int32_t i = 0; i < llama_sampler_chain_n(chain); i++) {
        llama_sampler *        step = llama_sampler_chain_get(chain, i);
        const std::string_view name = llama_sampler_name(step);
        if (name == "logit-bias" || name == "penalties" || name == "dry") {
            llama_sampler_apply(step, &candidates);
        }
    }
    const size_t drawn = draw_distinct(coupled.with, traits.temperature, candidates.data, candidates.size);
    if (drawn == SIZE_MAX) {
        throw command_error("invalid_request", "the penalties leave no token to begin with");
    }
    return candidates.data[drawn];
}
