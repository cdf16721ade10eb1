#include "sampling/added.h"

#include "rows/row_cuts.h"

#include <sampling.h> // llama.cpp's common/sampling.h

#include <algorithm>
#include <cmath>
#include <utility>

using settings = sampling_settings;

static void sort(llama_token_data_array & candidates) {
    std::sort(candidates.data, candidates.data + candidates.size, is_likelier);
    candidates.sorted = true;
}

static float max_of(const llama_token_data_array & candidates) {
    return std::max_element(
               candidates.data, candidates.data + candidates.size,
               [](const llama_token_data & a, const llama_token_data & b) { return a.logit < b.logit; })
        ->logit;
}

//
// penalties
//

// The penalties of llama.cpp by place: a token counts less if it came long ago. `repetition_decay`: over so many tokens
// before the last `repeat_last_n` the penalties fall to nothing, as in ExLlamaV2. `rep_pen_slope`: in the older half of the
// last `repeat_last_n`, as many as there are, the repeat penalty is so much weaker, as in koboldcpp.
namespace {
class fading_penalties {
  public:
    fading_penalties(const settings & sampling, const sampler_past & past) : sampling(sampling), past(past) {
        const size_t n = past.history.size();
        n_full         = std::min(n, (size_t) std::max(sampling.penalty_last_n, 0));
        n_all          = std::min(n, n_full + (size_t) sampling.repetition_decay);
        slope =
            sampling.rep_pen_slope > 1.0f || sampling.rep_pen_slope <= 0.0f ? 1.0f : sampling.rep_pen_slope;
    }

    llama_token token(size_t age) const {
        return past.history[past.history.size() - 1 - age];
    } // 0: the newest
    size_t n() const { return n_all; }

    float strength(size_t age) const { // of 1
        return age < n_full ? 1.0f : 1.0f - (float) (age - n_full) / (float) sampling.repetition_decay;
    }

    float repeat(size_t age) const {
        const float penalty = sampling.penalty_repeat;
        const bool  is_far  = age >= n_full - n_full / 2 && penalty > 1.0f;
        return 1.0f + (penalty - 1.0f) * (is_far ? slope : 1.0f) * strength(age);
    }

  private:
    const settings &     sampling;
    const sampler_past & past;
    size_t               n_full, n_all;
    float                slope;
};

struct token_penalty {
    llama_token token;
    float       repeat, subtracted;
};

// Tokens in the order in which they come, each once, and where each is: no sort of thousands of them is needed.
class token_places {
  public:
    explicit token_places(size_t n_most) {
        size_t n = 64;
        while (n < 2 * n_most) {
            n *= 2;
        }
        slots().assign(n, -1);
    }

    // The place of a token in `list`, at whose end it is added if it is new and `adds`; -1: it is not there.
    int32_t find(llama_token token, std::vector<token_penalty> & list, bool adds) const {
        std::vector<int32_t> & all = slots();
        size_t                 at  = (uint32_t) token * 2654435761u & (all.size() - 1);
        while (all[at] >= 0 && list[(size_t) all[at]].token != token) {
            at = (at + 1) & (all.size() - 1);
        }
        if (all[at] < 0 && adds) {
            all[at] = (int32_t) list.size();
            list.push_back({token, 1.0f, 0.0f});
        }
        return all[at];
    }

  private:
    static std::vector<int32_t> & slots() {
        static thread_local std::vector<int32_t> slots;
        return slots;
    }
};
} // namespace

// Of all tokens that have one, each once, the newest first.
static std::vector<token_penalty> & list_penalties(const fading_penalties & by, const settings & sampling,
                                                   const token_places & places) {
    static thread_local std::vector<token_penalty> penalties;

    penalties.clear();
    for (size_t age = 0; age < by.n(); age++) {
        const size_t    n_before = penalties.size();
        token_penalty & own      = penalties[(size_t) places.find(by.token(age), penalties, true)];
        if (penalties.size() > n_before) { // the newest of its kind
            own.repeat     = by.repeat(age);
            own.subtracted = sampling.penalty_present * by.strength(age);
        }
        own.subtracted += sampling.penalty_freq * by.strength(age);
    }
    return penalties;
}

static void fade(const settings & sampling, const sampler_past & past, llama_token_data_array & candidates) {
    const fading_penalties by(sampling, past);
    const token_places     places(by.n());
    auto &                 penalties = list_penalties(by, sampling, places);
    for (size_t i = 0; i < candidates.size; i++) {
        llama_token_data & c  = candidates.data[i];
        const int32_t      at = places.find(c.id, penalties, false);
        if (at >= 0) {
            const token_penalty & own = penalties[(size_t) at];
            c.logit = (c.logit <= 0.0f ? c.logit * own.repeat : c.logit / own.repeat) - own.subtracted;
        }
    }
    candidates.sorted = false;
}

static bool has_penalties(const settings & sampling) {
    return sampling.penalty_repeat != 1.0f || sampling.penalty_freq != 0.0f ||
           sampling.penalty_present != 0.0f;
}

static bool fades(const settings & sampling) {
    const bool sloping = sampling.rep_pen_slope > 0.0f && sampling.rep_pen_slope < 1.0f;
    return has_penalties(sampling) &&
           (sampling.repetition_decay > 0 || (sloping && sampling.penalty_repeat > 1.0f));
}

static void list_faded(const settings & sampling, const sampler_past & past,
                       std::vector<llama_token> & tokens) {
    const fading_penalties by(sampling, past);
    for (const token_penalty & own : list_penalties(by, sampling, token_places(by.n()))) {
        tokens.push_back(own.token);
    }
}

// The repetition penalty of the prompt's tokens, upside down: above 1 it raises them.
static void raise_prompt(const settings & sampling, const sampler_past & past,
                         llama_token_data_array & candidates) {
    const float by = sampling.encoder_repetition_penalty;
    for (size_t i = 0; i < candidates.size; i++) {
        llama_token_data & c = candidates.data[i];
        if (std::binary_search(past.prompt.begin(), past.prompt.end(), c.id)) {
            c.logit = c.logit < 0.0f ? c.logit / by : c.logit * by;
        }
    }
    candidates.sorted = false;
}

// The tokens that would complete a run of n that the prompt and the text have had.
static void list_completions(const settings & sampling, const sampler_past & past,
                             std::vector<llama_token> & tokens) {
    const auto & history = past.history;
    const size_t n       = (size_t) sampling.no_repeat_ngram_size;
    if (history.size() < n) {
        return;
    }
    const auto begun = history.end() - (std::ptrdiff_t) (n - 1);
    for (auto at = history.begin(); at + (std::ptrdiff_t) (n - 1) != history.end(); at++) {
        if (std::equal(begun, history.end(), at)) {
            tokens.push_back(at[(std::ptrdiff_t) (n - 1)]);
        }
    }
}

//
// cuts
//

// text-generation-webui's and Aphrodite's unit of the two cutoffs, which their clients send.
static double ten_thousandths(float x) {
    return (double) x * 1e-4;
}

// Tail-free sampling: the first token stays, and of all the last one goes.
static void cut_tail(const settings & sampling, llama_token_data_array & candidates) {
    sort(candidates);
    const size_t n       = n_before_tail(candidates.data, candidates.size, 1.0f, sampling.tfs, true);
    const size_t n_least = (size_t) std::max(sampling.min_keep, 1);
    candidates.size      = std::min(candidates.size, std::max(n, n_least));
}

static void keep_from_share(const settings & sampling, double share, llama_token_data_array & candidates) {
    const float  low     = max_of(candidates) + (float) std::log(std::min(share, 1.0));
    const auto   is_out  = [low](const llama_token_data & c) { return c.logit < low; };
    const auto   end     = candidates.data + candidates.size;
    const size_t n       = candidates.size - (size_t) std::count_if(candidates.data, end, is_out);
    const size_t n_least = std::min(candidates.size, (size_t) std::max(sampling.min_keep, 1));
    if (n < n_least) {
        sort(candidates);
        candidates.size = n_least;
    } else {
        candidates.size = (size_t) (std::remove_if(candidates.data, end, is_out) - candidates.data);
    }
}

// The probability of the likeliest token, and the entropy.
static std::pair<double, double> certainty(const llama_token_data_array & candidates) {
    const float max = max_of(candidates);
    double      sum = 0.0, surplus = 0.0;
    for (size_t i = 0; i < candidates.size; i++) {
        const double d      = (double) candidates.data[i].logit - max;
        const double weight = std::exp(d);
        sum += weight;
        surplus += weight > 0.0 ? weight * d : 0.0;
    }
    return {1.0 / sum, std::log(sum) - surplus / sum};
}

//
// smoothing
//

// As a polynomial of the distance from the largest logit.
static quadratic_curve curve_of(const settings & sampling) {
    const float factor = sampling.smoothing_factor, curve = sampling.smoothing_curve;
    return {factor * (3.0f - curve) / 2.0f, factor * (curve - 1.0f) / 2.0f};
}

static void smooth_list(const settings & sampling, llama_token_data_array & candidates) {
    const quadratic_curve curve = curve_of(sampling);
    const float           max   = max_of(candidates);
    for (size_t i = 0; i < candidates.size; i++) {
        float & logit = candidates.data[i].logit;
        logit         = logit == -INFINITY ? logit : max + curve(logit - max);
    }
    candidates.sorted =
        candidates.sorted && sampling.smoothing_curve >= 1.0f && sampling.smoothing_curve <= 3.0f;
}

//
// the table
//

static const std::vector<added_sampler> & table() {
    using past                                   = sampler_past;
    using tokens                                 = std::vector<llama_token>;
    static const std::vector<added_sampler> rows = {
        {"penalties", fades, token_change{list_faded, fade}, true},
        // EncoderRepetitionPenaltyLogitsProcessor of transformers, to which text-generation-webui gives the prompt
        {"encoder_repetition_penalty",
         [](const settings & s) { return s.encoder_repetition_penalty != 1.0f; },
         token_change{[](const settings &, const past & p, tokens & list) {
                          list.insert(list.end(), p.prompt.begin(), p.prompt.end());
                      },
                      raise_prompt}},
        // Paulus et al. 2017, A Deep Reinforced Model for Abstractive Summarization; NoRepeatNGramLogitsProcessor of
        // transformers
        {"no_repeat_ngram", [](const settings & s) { return s.no_repeat_ngram_size > 0; },
         token_ban{list_completions}},
        // BlinkDL's RWKV-LM, 2021
        {"top_a", [](const settings & s) { return s.top_a > 0.0f; },
         least_share{[](const settings & s, double likeliest, double) { return s.top_a * likeliest; }}},
        // Phénix and Egan 2019, Tail Free Sampling
        {"tfs", [](const settings & s) { return s.tfs < 1.0f; },
         row_change{cut_tail, [](const settings & s, whole_row & row) { keep_before_tail(row, s.tfs); },
                    true}},
        // Hewitt et al. 2022, Truncation Sampling as Language Model Desmoothing; the next one, too
        {"epsilon_cutoff", [](const settings & s) { return s.epsilon_cutoff > 0.0f; },
         least_share{[](const settings & s, double likeliest, double) {
             return ten_thousandths(s.epsilon_cutoff) / likeliest;
         }}},
        {"eta_cutoff", [](const settings & s) { return s.eta_cutoff > 0.0f; },
         least_share{[](const settings & s, double likeliest, double entropy) {
             const double epsilon = ten_thousandths(s.eta_cutoff);
             return std::min(epsilon, std::sqrt(epsilon) * std::exp(-entropy)) / likeliest;
         }}},
        // kalomaze's quadratic sampling, 2024, first in text-generation-webui; the curve came later
        {"smoothing", [](const settings & s) { return s.smoothing_factor > 0.0f; },
         row_change{smooth_list, [](const settings & s, whole_row & row) { smooth(row, curve_of(s)); },
                    false}},
    };
    return rows;
}

const added_sampler * added_sampler_called(const std::string & name) {
    const auto found = std::find_if(table().begin(), table().end(),
                                    [&](const added_sampler & row) { return name == row.name; });
    return found == table().end() ? nullptr : &*found;
}

std::string names_of_added_samplers() {
    std::string names;
    for (const added_sampler & row : table()) {
        if (!row.replaces) {
            names += (names.empty() ? "" : ", ") + std::string(row.name);
        }
    }
    return names;
}

std::optional<common_sampler_type> llama_type_of(const std::string & name) {
    const added_sampler * added = added_sampler_called(name);
    if (added && !added->replaces) {
        return std::nullopt; // llama.cpp would log that it does not know it
    }
    const auto types = common_sampler_types_from_names({name});
    return types.empty() ? std::nullopt : std::optional(types[0]);
}

static size_t n_history_of_step(const settings & sampling) {
    if (sampling.no_repeat_ngram_size > 0) {
        return SIZE_MAX;
    }
    return fades(sampling)
               ? (size_t) std::max(sampling.penalty_last_n, 0) + (size_t) sampling.repetition_decay
               : 0;
}

size_t n_history_of_added(const settings & sampling) {
    return largest_of(sampling, n_history_of_step);
}

bool prompt_matters(const settings & sampling) {
    return largest_of(sampling,
                      [](const settings & s) { return (size_t) (s.encoder_repetition_penalty != 1.0f); }) > 0;
}

//
// application
//

void list_changed(const added_sampler & sampler, const settings & sampling, const sampler_past & past,
                  std::vector<llama_token> & tokens) {
    const token_change * change = std::get_if<token_change>(&sampler.does);
    (change ? change->list : std::get<token_ban>(sampler.does).list)(sampling, past, tokens);
}

static std::vector<llama_token> & changed_once(const added_sampler & sampler, const settings & sampling,
                                               const sampler_past & past) {
    static thread_local std::vector<llama_token> tokens;

    tokens.clear();
    list_changed(sampler, sampling, past, tokens);
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
}

static void ban(const std::vector<llama_token> & tokens, llama_token_data_array & candidates) {
    const auto is_out = [&](const llama_token_data & c) {
        return std::binary_search(tokens.begin(), tokens.end(), c.id);
    };
    const auto end = candidates.data + candidates.size;
    if (!tokens.empty() && !std::all_of(candidates.data, end, is_out)) {
        candidates.size = (size_t) (std::remove_if(candidates.data, end, is_out) - candidates.data);
    }
}

static void ban(const std::vector<llama_token> & tokens, whole_row & row) {
    std::vector<std::pair<llama_token, float>> before;
    for (const llama_token token : tokens) {
        before.emplace_back(token, row.logits[token]);
        row.change(token, -INFINITY);
    }
    row.summarize();
    if (row.is_empty()) {
        for (const auto & [token, logit] : before) {
            row.change(token, logit);
        }
        row.summarize();
    }
}

void change_tokens(whole_row & row, const std::vector<llama_token> & tokens, const penalty & apply) {
    auto & chosen = buffer_of_thread().chosen;
    chosen.clear();
    for (const llama_token token : tokens) {
        if (row.range.has(row.logits[token])) {
            chosen.push_back({token, row.logits[token], 0.0f});
        }
    }
    llama_token_data_array candidates = {chosen.data(), chosen.size(), -1, false};
    apply(candidates);
    for (const llama_token_data & c : chosen) {
        if (c.logit != row.logits[c.id]) {
            row.change(c.id, c.logit);
        }
    }
    row.summarize();
}

void apply_added(const added_sampler & sampler, const settings & sampling, const sampler_past & past,
                 llama_token_data_array & candidates) {
    if (const token_change * change = std::get_if<token_change>(&sampler.does)) {
        change->apply(sampling, past, candidates);
    } else if (std::holds_alternative<token_ban>(sampler.does)) {
        ban(changed_once(sampler, sampling, past), candidates);
    } else if (const least_share * share = std::get_if<least_share>(&sampler.does)) {
        const auto [likeliest, entropy] = certainty(candidates);
        keep_from_share(sampling, share->of(sampling, likeliest, entropy), candidates);
    } else {
        std::get<row_change>(sampler.does).on_list(sampling, candidates);
    }
}

bool apply_added(const added_sampler & sampler, const settings & sampling, const sampler_past & past,
                 whole_row & row) {
    const bool keeps_some = sampling.min_keep > 1;
    if (sampler.is_penalty() && row.cut) {
        return false;
    }
    if (const token_change * change = std::get_if<token_change>(&sampler.does)) {
        static thread_local std::vector<llama_token> tokens;
        tokens.clear();
        change->list(sampling, past, tokens);
        change_tokens(row, tokens, [&](llama_token_data_array & candidates) {
            change->apply(sampling, past, candidates);
        });
    } else if (std::holds_alternative<token_ban>(sampler.does)) {
        ban(changed_once(sampler, sampling, past), row);
    } else if (const least_share * share = std::get_if<least_share>(&sampler.does)) {
        if (keeps_some) {
            return false;
        }
        const auto [likeliest, entropy] = certainty_of(row);
        keep_from(row, (float) std::min(1.0, share->of(sampling, likeliest, entropy)));
    } else {
        const row_change & other = std::get<row_change>(sampler.does);
        if (keeps_some && other.keeps_some) {
            return false;
        }
        other.on_row(sampling, row);
    }
    return true;
}
