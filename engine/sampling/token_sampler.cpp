#include "sampling/token_sampler.h"

#include "sampling/special_tokens.h"
#include "util/json.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace {

// Lists that a draw needs for a moment. There is one for each thread, so that no draw allocates anything.
struct scratch {
    std::vector<llama_token> altered;   // tokens whose logits a penalty or a bias changes
    std::vector<bool>        is_banned; // by token
};
thread_local scratch mine;

} // namespace

static const size_t n_allowed_listed = 4096; // tokens that a grammar allows; more are left in the row

static command_error not_numbers() {
    return command_error("engine_error", "the model computed logits that are not numbers");
}

static command_error none_left() {
    return command_error("invalid_request", "with these settings the samplers leave no token to draw");
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
    : n_vocab(llama_vocab_n_tokens(llama_model_get_vocab(model))),
      chain(model, settings.sampling, settings.breakers.get(), seed, with, prompt),
      never(list_never_drawn(llama_model_get_vocab(model), settings.sampling.ignore_eos)),
      biases(settings.biases), phrases(settings.phrases), allowed(settings.allowed),
      text(settings.structure, settings.structure_start), healing(std::move(healed)),
      coupled{with, with.arithmetic ? arithmetic_code(with) : arithmetic_code(),
              with.distinct_first && generated.empty()},
      replay(settings.replay) {
    for (const llama_token token : generated) {
        accept(token);
    }
}

void token_sampler::accept(llama_token token) {
    n_accepted++;
    chain.accept(token, true);
    phrases.accept(token);
    if (!healing.is_active()) {
        text.accept(token);
    } else if (const std::string begun = healing.accept(token); !healing.is_active()) {
        text.accept_first(begun);
    }
    coupled.text_hash = hash_with(coupled.text_hash, token);
}

// Nearly all draws fit the grammar, and it is cheap to check one token. The others are drawn again among the tokens
// that the grammar allows. A draw that is coupled with others is made only once, so there the grammar comes first.
llama_token token_sampler::draw(const float * logits, const std::vector<llama_token> & forbidden) {
    llama_token token = LLAMA_TOKEN_NULL;
    try {
        const bool once = chain.traits.remembers_draws || coupled.is_first || !coupled.code.spent();
        if (healing.is_active()) {
            row_of_thread().begin(logits, n_vocab);
            choose_by_healing(logits);
            token = draw_chosen(logits, forbidden).id;
        } else if (!text.is_active() || !(once || text.few_may_follow())) {
            row_of_thread().begin(logits, n_vocab);
            if (allowed) {
                choose_allowed(logits);
            } else {
                choose_by_likelihood(logits, forbidden.size());
            }
            token = draw_chosen(logits, forbidden).id;
        }
        if (!healing.is_active() && text.is_active() && (token == LLAMA_TOKEN_NULL || !text.allows(token))) {
            row_of_thread().begin(logits, n_vocab);
            choose_by_grammar(logits);
            token = draw_chosen(logits, forbidden).id;
        }
        if (n_accepted < replay.size()) { // but one that began a banned phrase is drawn
            const llama_token recorded = replay[n_accepted];
            token = std::count(forbidden.begin(), forbidden.end(), recorded) == 0 ? recorded : token;
        }
        accept(token);
        coupled.is_first = false;
    } catch (const grammar_error & e) {
        throw command_error("invalid_request", std::string("the grammar cannot be followed: ") + e.what());
    }
    return token;
}

grammar::certain_text token_sampler::certain() {
    static const size_t n_max = 256; // bytes
    try {
        return text.is_active() && !healing.is_active() ? text.certain(n_max) : grammar::certain_text();
    } catch (const grammar_error &) { // it is thrown again where it becomes the error of a request
        return {};
    }
}

void token_sampler::force(llama_token token) {
    try {
        accept(token);
        coupled.is_first = false;
    } catch (const grammar_error & e) {
        throw command_error("invalid_request", std::string("the grammar cannot be followed: ") + e.what());
    }
}

void token_sampler::choose_by_healing(const float * logits) {
    auto & chosen = buffer_of_thread().chosen;
    chosen.clear();
    for (const llama_token token : healing.allowed(text)) {
        if (may_draw(token)) {
            chosen.push_back({token, logits[token], 0.0f});
        }
    }
    row_of_thread().listed = true;
}

void token_sampler::choose_allowed(const float * logits) {
    auto & chosen = buffer_of_thread().chosen;
    chosen.clear();
    for (const llama_token token : allowed->list) {
        chosen.push_back({token, logits[token], 0.0f});
    }
    row_of_thread().listed = true;
}

// The tokens that the grammar allows are listed if there are few; if not, all others are banned in the row.
void token_sampler::choose_by_grammar(const float * logits) {
    const auto  fitting = text.allowed();
    whole_row & row     = row_of_thread();
    auto &      chosen  = buffer_of_thread().chosen;
    chosen.clear();
    for (llama_token token = 0; token < n_vocab && chosen.size() <= n_allowed_listed; token++) {
        if ((*fitting)[token] && may_draw(token)) {
            chosen.push_back({token, logits[token], 0.0f});
        }
    }
    row.listed = chosen.size() <= n_allowed_listed;
    for (llama_token token = 0; token < n_vocab && !row.listed; token++) {
        if (!(*fitting)[token] || !may_draw(token)) {
            row.change(token, -INFINITY);
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
    const bool bans = !never.empty() || !forbidden.empty() || (biases && !biases->banned.empty());
    if (bans || !all_finite(buffer)) {
        mark(true);
        chosen.erase(std::remove_if(chosen.begin(), chosen.end(), is_out), chosen.end());
        mark(false);
    }
    if (!numbers || (chosen.empty() &&
                     std::any_of(logits, logits + n_vocab, [](float logit) { return std::isnan(logit); }))) {
        throw not_numbers();
    }
}

void token_sampler::add_biases() const {
    const bool changes = biases && !biases->changed.empty();
    if (changes || !phrases.biases().empty()) {
        for (llama_token_data & c : buffer_of_thread().chosen) {
            c.logit += (changes ? biases->of(c.id) : 0.0f) + phrases.of(c.id);
        }
    }
}

// After all changes of single tokens, the likeliest tokens are among those that are changed and, of the others, the
// likeliest before.
void token_sampler::choose_by_likelihood(const float * logits, size_t n_forbidden) {
    candidate_buffer & buffer  = buffer_of_thread();
    auto &             altered = mine.altered;
    row_of_thread().listed     = chain.traits.n_top > 0 && !coupled.is_first;
    if (!row_of_thread().listed) {
        return;
    }
    altered.clear();
    chain.list_changed(altered);
    const size_t n_biased = biases ? biases->banned.size() + biases->changed.size() : 0;
    const size_t n_extra  = never.size() + n_biased + phrases.biases().size() + altered.size() + n_forbidden;
    const float  bound    = choose_likeliest(buffer, logits, n_vocab, chain.traits.n_top + n_extra);
    if (biases) {
        altered.insert(altered.end(), biases->changed.begin(), biases->changed.end());
    }
    for (const llama_logit_bias & b : phrases.biases()) {
        altered.push_back(b.token);
    }
    make_unique(altered);
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
    if (chain.traits.n_top > 0 && !chain.traits.has_penalties) {
        candidates.size = std::min(chain.traits.n_top, buffer.chosen.size());
        sort_chosen(buffer, candidates.size);
        candidates.data   = buffer.chosen.data();
        candidates.sorted = true;
    }
    return candidates;
}

// Banned tokens, then biases, as in a list.
void token_sampler::change_row(whole_row & row, const std::vector<llama_token> & forbidden) const {
    const std::vector<llama_token> none;
    for (const std::vector<llama_token> * tokens : {&never, &forbidden, biases ? &biases->banned : &none}) {
        for (const llama_token token : *tokens) {
            row.change(token, -INFINITY);
        }
    }
    for (const llama_token token : biases ? biases->changed : none) {
        row.change(token, row.logits[token] + biases->of(token));
    }
    for (const llama_logit_bias & b : phrases.biases()) {
        if (!biases || !biases->is_banned(b.token)) { // minus infinity stays what it is
            row.change(b.token, row.logits[b.token] + (biases ? biases->of(b.token) : 0.0f) + b.bias);
        }
    }
    if (!row.summarize()) {
        throw not_numbers();
    }
}

llama_token_data token_sampler::draw_chosen(const float *                    logits,
                                            const std::vector<llama_token> & forbidden) {
    whole_row & row    = row_of_thread();
    auto &      chosen = buffer_of_thread().chosen;
    const bool  listed = row.listed;
    if (listed) {
        remove_banned(logits, forbidden);
        add_biases();
    } else {
        change_row(row, forbidden);
    }
    if (listed ? chosen.empty() : row.is_empty()) {
        if (healing.is_active()) {
            throw command_error("invalid_request",
                                "with these settings no token is left that spells the end of the "
                                "prompt (token_healing)");
        }
        if (text.is_active()) { // a bias may have banned all that it allows
            throw grammar_error("no token that the grammar allows is left, since all are banned");
        }
        throw command_error("invalid_request", "all tokens are banned, so no token is left to sample",
                            allowed ? "allowed_token_ids" : "logit_bias");
    }
    if (listed) {
        llama_token_data_array candidates = {chosen.data(), chosen.size(), -1, false};
        if (coupled.is_first) {
            chain.apply_changes(candidates);
            return draw_first();
        }
        return draw_from_list(candidates_of_chain(), 0);
    }
    return draw_from_row(row);
}

llama_token_data token_sampler::draw_from_list(llama_token_data_array candidates, size_t first_step) {
    auto & chosen = buffer_of_thread().chosen;
    if (candidates.size == 0) {
        throw none_left();
    }
    chain.apply(candidates, first_step, coupled);
    const bool is_one = candidates.selected >= 0 && candidates.selected < (int64_t) candidates.size;
    const llama_token_data drawn = is_one ? candidates.data[candidates.selected] : llama_token_data();
    if (!is_one || !std::isfinite(drawn.logit)) {
        throw none_left();
    }
    // the candidates that the samplers have left, for logprobs_of_draw; after XTC they begin later in the list
    chosen.erase(chosen.begin(), chosen.begin() + (candidates.data - chosen.data()));
    chosen.resize(candidates.size);
    return drawn;
}

llama_token_data token_sampler::draw_from_row(whole_row & row) {
    auto & chosen = buffer_of_thread().chosen;
    if (coupled.is_first) {
        chain.change(row);
        row.list(SIZE_MAX);
        return draw_first();
    }
    const size_t first_step = chain.reduce(row, coupled);
    if (row.listed) {
        return draw_from_list({chosen.data(), chosen.size(), -1, row.sorted}, first_step);
    }
    return chain.draw(row, coupled);
}

// First tokens are distinct before any truncation.
llama_token_data token_sampler::draw_first() {
    auto &       chosen = buffer_of_thread().chosen;
    const size_t drawn  = draw_distinct(coupled.with, chain.traits.temperature, chosen.data(), chosen.size());
    if (drawn == SIZE_MAX) {
        throw command_error("invalid_request", "the penalties leave no token to begin with");
    }
    return chosen[drawn];
}
