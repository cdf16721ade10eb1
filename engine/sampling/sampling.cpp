#include "sampling/sampling.h"

#include "util/json.h"

#include "util/text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <variant>

using json   = nlohmann::json;
using params = common_params_sampling;

//
// one row a field
//

namespace {

using member = std::variant<float params::*, int32_t params::*, bool params::*>;

struct field {
    const char * name;
    member       where;
    double       low;
    double       high;
};

const double any = std::numeric_limits<int32_t>::max();

// clang-format off
const field fields[] = {
    {"temperature",        &params::temp,                  0,    100 }, // 0: greedy
    {"dynatemp_range",     &params::dynatemp_range,        0,    100 },
    {"dynatemp_exponent",  &params::dynatemp_exponent,     0,    100 },
    {"top_k",              &params::top_k,                -1,    any }, // 0, -1: off
    {"top_p",              &params::top_p,                 0,    1   },
    {"min_p",              &params::min_p,                 0,    1   },
    {"typical_p",          &params::typ_p,                 0,    1   },
    {"top_n_sigma",        &params::top_n_sigma,          -1,    100 }, // -1: off
    {"xtc_probability",    &params::xtc_probability,       0,    1   },
    {"xtc_threshold",      &params::xtc_threshold,         0,    1   },
    {"adaptive_target",    &params::adaptive_target,      -1,    1   }, // -1: off
    {"adaptive_decay",     &params::adaptive_decay,        0,    0.99},
    {"repeat_penalty",     &params::penalty_repeat,        0.01, 100 },
    {"repeat_last_n",      &params::penalty_last_n,       -1,    any }, // -1: the whole context
    {"presence_penalty",   &params::penalty_present,    -100,    100 },
    {"frequency_penalty",  &params::penalty_freq,       -100,    100 },
    {"dry_multiplier",     &params::dry_multiplier,        0,    100 },
    {"dry_base",           &params::dry_base,              0,    100 },
    {"dry_allowed_length", &params::dry_allowed_length,    0,    any },
    {"dry_penalty_last_n", &params::dry_penalty_last_n,   -1,    any }, // -1: the whole context
    {"mirostat",           &params::mirostat,              0,    2   },
    {"mirostat_tau",       &params::mirostat_tau,          0,    100 },
    {"mirostat_eta",       &params::mirostat_eta,          0,    100 },
    {"min_keep",           &params::min_keep,              0,    any },
    {"ignore_eos",         &params::ignore_eos,            0,    1   },
};
// clang-format on

// Below this a draw is greedy: logits divided by less may overflow, and only ties are drawn from.
const float min_temperature = 1e-5f;

// [[token or text, bias or false], ...]; text stands for each of its tokens, false for minus infinity
void read_logit_bias(params & sampling, const json & value, const llama_vocab * vocab) {
    const char * shape = "logit_bias must be a list of pairs [token id or text, number or false]";
    if (!value.is_array()) {
        invalid("logit_bias", std::string(shape) + ", not " + value.type_name());
    }
    sampling.logit_bias.clear();
    for (const json & pair : value) {
        if (!pair.is_array() || pair.size() != 2 || !(pair[1].is_number() || pair[1] == json(false))) {
            invalid("logit_bias", shape);
        }
        const float bias =
            pair[1].is_number() ? (float) read_number("logit_bias", pair[1], -1e9, 1e9) : -INFINITY;
        if (pair[0].is_number_integer()) {
            const int64_t token = read_integer("logit_bias", pair[0], 0, llama_vocab_n_tokens(vocab) - 1);
            sampling.logit_bias.push_back({(llama_token) token, bias});
        } else if (pair[0].is_string()) {
            for (llama_token token : common_tokenize(vocab, pair[0].get<std::string>(), false, false)) {
                sampling.logit_bias.push_back({token, bias});
            }
        } else {
            invalid("logit_bias", shape);
        }
    }
}

void read_samplers(params & sampling, const json & value, const llama_vocab * vocab) {
    sampling.samplers.clear();
    for (const std::string & name : read_strings("samplers", value)) {
        const auto types = common_sampler_types_from_names({name});
        if (types.empty()) {
            invalid("samplers",
                    "samplers holds \"" + name +
                        "\", which is no sampler; there are penalties, dry, top_n_sigma, top_k, " +
                        "typ_p, top_p, min_p, xtc, temperature, adaptive_p, infill");
        }
        if (types[0] == COMMON_SAMPLER_TYPE_INFILL && end_tokens(vocab).empty()) {
            invalid("samplers", "samplers holds \"infill\", and the model has no token that ends a text");
        }
        sampling.samplers.push_back(types[0]);
    }
}

} // namespace

bool read_sequence_field(sequence_settings & settings, const std::string & name, const json & value) {
    if (name == "max_tokens") {
        settings.n_predict = (int32_t) read_integer(name, value, -1, std::numeric_limits<int32_t>::max());
    } else if (name == "min_tokens") {
        settings.n_min = (int32_t) read_integer(name, value, 0, std::numeric_limits<int32_t>::max());
    } else if (name == "stop") {
        settings.stop = read_strings(name, value);
    } else if (name == "banned_strings") {
        settings.banned = read_strings(name, value);
    } else {
        return false;
    }
    return true;
}

static void read_table_field(params & sampling, const field & row, const json & value, int32_t n_ctx) {
    if (const auto * flag = std::get_if<bool params::*>(&row.where)) {
        if (!value.is_boolean()) {
            invalid(row.name,
                    std::string(row.name) + " is " + value.type_name() + "; it must be true or false");
        }
        sampling.** flag = value.get<bool>();
    } else if (const auto * whole = std::get_if<int32_t params::*>(&row.where)) {
        sampling.** whole = (int32_t) read_integer(row.name, value, (int64_t) row.low, (int64_t) row.high);
        if (sampling.**whole < 0 &&
            (*whole == &params::penalty_last_n || *whole == &params::dry_penalty_last_n)) {
            sampling.** whole = n_ctx;
        }
    } else {
        sampling.*std::get<float params::*>(row.where) =
            (float) read_number(row.name, value, row.low, row.high);
        sampling.temp = sampling.temp < min_temperature ? 0.0f : sampling.temp;
    }
}

void read_sampling_field(params & sampling, const std::string & name, const json & value,
                         const llama_vocab * vocab, int32_t n_ctx) {
    if (name == "seed") {
        sampling.seed = (uint32_t) read_integer(name, value, 0, std::numeric_limits<uint32_t>::max());
    } else if (name == "logit_bias") {
        read_logit_bias(sampling, value, vocab);
    } else if (name == "samplers") {
        read_samplers(sampling, value, vocab);
    } else if (name == "dry_sequence_breakers") {
        sampling.dry_sequence_breakers = read_strings(name, value);
    } else {
        const field * row = std::find_if(std::begin(fields), std::end(fields),
                                         [&](const field & f) { return name == f.name; });
        if (row == std::end(fields)) {
            invalid(name, "sampling has no field \"" + name + "\"");
        }
        read_table_field(sampling, *row, value, n_ctx);
    }
}

uint32_t sequence_seed(uint32_t seed, int64_t index) {
    return (uint32_t) (((uint64_t) seed + (uint64_t) index) % LLAMA_DEFAULT_SEED);
}

//
// drawing
//

// The penalties look back this far; the rest of a long prompt need not be shown to the sampler.
static size_t history_length(const params & sampling) {
    const bool penalties =
        sampling.penalty_repeat != 1.0f || sampling.penalty_freq != 0.0f || sampling.penalty_present != 0.0f;
    const bool    dry = sampling.dry_multiplier > 0.0f;
    const int32_t n =
        std::max(penalties ? sampling.penalty_last_n : 0, dry ? sampling.dry_penalty_last_n : 0);
    return (size_t) std::max(n, 0);
}

const std::vector<llama_token> & end_tokens(const llama_vocab * vocab) {
    static const std::vector<llama_token> found = [vocab] {
        std::vector<llama_token> tokens;
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
            if (llama_vocab_is_eog(vocab, token)) {
                tokens.push_back(token);
            }
        }
        return tokens;
    }();
    return found;
}

std::vector<llama_token> tokens_with(const word_finder & phrases, const llama_vocab * vocab) {
    std::vector<llama_token> tokens;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        int32_t state = 0;
        bool    holds = false;
        for (const char c : ascii_lower(common_token_to_piece(vocab, token, false))) {
            state = phrases.next(state, c);
            holds = holds || phrases.word(state);
        }
        if (holds) {
            tokens.push_back(token);
        }
    }
    return tokens;
}

token_biases::token_biases(std::vector<llama_logit_bias> list, int32_t n_vocab) : banned((size_t) n_vocab) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto & a, const auto & b) { return a.token < b.token; });
    for (const llama_logit_bias & entry : list) {
        if (entry.bias == -INFINITY) {
            n_banned += banned[(size_t) entry.token] ? 0 : 1;
            banned[(size_t) entry.token] = true;
        }
    }
    for (const llama_logit_bias & entry : list) {
        if (is_banned(entry.token)) {
            continue;
        }
        if (changed.empty() || changed.back() != entry.token) {
            changed.push_back(entry.token);
            biases.push_back(0.0f);
        }
        biases.back() += entry.bias;
    }
}

float token_biases::of(llama_token token) const {
    const auto at = std::lower_bound(changed.begin(), changed.end(), token);
    return at == changed.end() || *at != token ? 0.0f : biases[(size_t) (at - changed.begin())];
}

//
// the likeliest of a row
//

// Scans over a row. A portable build has each for several CPUs; the loader takes the best one.
#if defined(CPU_VARIANTS)
#define SCAN __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SCAN
#endif

namespace {

const int32_t n_lanes = 16;  // a SIMD register of any kind
const int32_t n_block = 64;  // tokens of a block
const int32_t n_finer = 16;  // where a vocabulary has few blocks
const size_t  n_few   = 128; // are sorted by counting

// What choosing from a row needs; one a thread, so that no draw allocates anything.
struct scratch {
    std::vector<float>            maxima; // of each block
    std::vector<llama_token_data> chosen;
    std::vector<llama_token_data> ranked;
    std::vector<llama_token>      others; // whose logits something changes
    std::vector<bool>             out;    // by token: it must not be drawn
};
thread_local scratch mine;

// The largest logit of each block of the row, in mine.maxima. Of n blocks the b-th is tokens b, b + n, b + 2n, …:
// side by side, so that whole registers are compared and no maximum is taken across one.
SCAN void find_maxima(const float * logits, int32_t n_vocab, int32_t block) {
    const int32_t n = n_vocab < n_lanes * block ? n_vocab : n_vocab / block / n_lanes * n_lanes;
    mine.maxima.assign(logits, logits + n);
    float * maxima = mine.maxima.data();
    for (int32_t first = n; first < n_vocab; first += n) {
        const float * row = logits + first;
        const int32_t end = std::min(n, n_vocab - first);
        for (int32_t b = 0; b < end; b++) {
            maxima[b] = row[b] > maxima[b] ? row[b] : maxima[b];
        }
    }
}

SCAN void choose_all(const float * logits, int32_t n_vocab) {
    mine.chosen.resize((size_t) n_vocab);
    for (int32_t i = 0; i < n_vocab; i++) {
        mine.chosen[(size_t) i] = {i, logits[i], 0.0f};
    }
}

// Whether each candidate's logit is a number, and a finite one.
SCAN bool all_finite() {
    bool finite = true;
    for (const llama_token_data & c : mine.chosen) {
        finite &= c.logit > -INFINITY && c.logit < INFINITY;
    }
    return finite;
}

// A value that at least n of the maxima reach, and not many more; -infinity where halving does not find it.
SCAN float reached_by(size_t n) {
    const auto n_reach = [](float value) {
        int32_t count = 0;
        for (const float max : mine.maxima) {
            count += max >= value;
        }
        return (size_t) count;
    };
    float high = mine.maxima[0];
    for (const float max : mine.maxima) {
        high = max > high ? max : high;
    }
    float low = high - 64.0f; // e^-64
    if (n_reach(low) < n) {
        return -INFINITY;
    }
    for (int i = 0; i < 16; i++) {
        const float  middle      = 0.5f * (low + high);
        const size_t count       = n_reach(middle);
        (count < n ? high : low) = middle;
        if (count >= n && count <= n + n / 8) {
            break;
        }
    }
    return low;
}

// Puts the n likeliest tokens into mine.chosen, and whichever else reach the bound that it returns. As many
// tokens do as there are blocks whose maximum does.
SCAN float choose(const float * logits, int32_t n_vocab, size_t n) {
    const bool many = (size_t) (n_vocab / n_block) >= 4 * n;
    find_maxima(logits, n_vocab, many ? n_block : n_finer);
    const size_t n_blocks = mine.maxima.size();
    const size_t n_each   = (size_t) n_vocab / n_blocks + 1; // tokens of a block, at most
    const float  bound    = n < n_blocks ? reached_by(n) : -INFINITY;
    size_t       n_chosen = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        if (mine.maxima[b] < bound) {
            continue;
        }
        if (n_chosen + n_each > mine.chosen.size()) {
            mine.chosen.resize(2 * (n_chosen + n_each));
        }
        // without a branch: written, and kept or not
        for (size_t i = b; i < (size_t) n_vocab; i += n_blocks) {
            mine.chosen[n_chosen] = {(llama_token) i, logits[i], 0.0f};
            n_chosen += logits[i] >= bound;
        }
    }
    mine.chosen.resize(n_chosen);
    return bound;
}

// e^x for x <= 0, to about 1e-7 of its value, without a branch: the compiler makes SIMD of loops with it.
// x = n ln 2 + r, and a Taylor polynomial for e^r.
inline float exp_negative(float x) {
    x             = std::max(x, -87.0f);
    const float n = std::floor(x * 1.44269504f + 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts
    const float er =
        1.0f +
        r * (1.0f + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
    const int32_t bits = ((int32_t) n + 127) * (1 << 23);
    float         scale;
    memcpy(&scale, &bits, sizeof(scale));
    return er * scale;
}

const int32_t n_wide    = 64; // several registers
const int32_t n_stretch = 64 * n_wide;

// log(sum(exp(logits))), after find_maxima
SCAN float log_sum_exp(const float * logits, int32_t n_vocab) {
    const float max = *std::max_element(mine.maxima.begin(), mine.maxima.end());
    double      sum = 0.0;
    int32_t     i   = 0;
    while (i + n_wide <= n_vocab) {
        float         sums[n_wide] = {0}; // side by side, of a stretch that is short enough for float
        const int32_t end          = std::min(n_vocab, i + n_stretch);
        for (; i + n_wide <= end; i += n_wide) {
            for (int32_t k = 0; k < n_wide; k++) {
                sums[k] += exp_negative(logits[i + k] - max);
            }
        }
        for (const float x : sums) {
            sum += x;
        }
    }
    for (; i < n_vocab; i++) {
        sum += exp_negative(logits[i] - max);
    }
    return max + (float) std::log(sum);
}

// JSON has no other numbers, and sums of them must stay some.
float finite_logprob(float logprob) {
    return logprob > -9999.0f && logprob < INFINITY ? logprob : -9999.0f;
}

// Brings the n likeliest of mine.chosen to its beginning, best first. A few are sorted by counting, for each,
// how many are better: more comparisons, but none that a processor has to guess.
SCAN void sort_chosen(size_t n) {
    const size_t n_chosen = mine.chosen.size();
    if (n_chosen > n_few) {
        std::partial_sort(mine.chosen.begin(), mine.chosen.begin() + (std::ptrdiff_t) n, mine.chosen.end(),
                          [](const llama_token_data & a, const llama_token_data & b) {
                              return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
                          });
        return;
    }
    float       logits[n_few];
    llama_token ids[n_few];
    for (size_t i = 0; i < n_chosen; i++) {
        logits[i] = mine.chosen[i].logit;
        ids[i]    = mine.chosen[i].id;
    }
    mine.ranked = mine.chosen;
    for (const llama_token_data & c : mine.chosen) {
        int32_t rank = 0;
        for (size_t i = 0; i < n_chosen; i++) {
            rank += (logits[i] > c.logit) | ((logits[i] == c.logit) & (ids[i] < c.id));
        }
        mine.ranked[(size_t) rank] = c;
    }
    mine.chosen.swap(mine.ranked);
}

} // namespace

token_logprob logprobs_of(const float * logits, int32_t n_vocab, llama_token token, int32_t n_top,
                          std::vector<token_logprob> & top) {
    top.clear();
    n_top = std::min(n_top, n_vocab);
    if (n_top > 0) {
        choose(logits, n_vocab, (size_t) n_top);
        n_top = std::min(n_top, (int32_t) mine.chosen.size()); // a row may hold what is no number
        sort_chosen((size_t) n_top);
    } else {
        find_maxima(logits, n_vocab, n_block);
    }
    const float log_sum = log_sum_exp(logits, n_vocab);
    for (int32_t i = 0; i < n_top; i++) {
        top.push_back({mine.chosen[i].id, finite_logprob(mine.chosen[i].logit - log_sum)});
    }
    return {token, finite_logprob(logits[token] - log_sum)};
}

token_logprob token_sampler::logprobs_of_draw(llama_token token, int32_t n_top,
                                              std::vector<token_logprob> & top) {
    top.clear();
    const auto is_out = [](const llama_token_data & c) { return c.logit == -INFINITY; };
    mine.chosen.erase(std::remove_if(mine.chosen.begin(), mine.chosen.end(), is_out), mine.chosen.end());
    if (mine.chosen.empty()) {
        return {token, finite_logprob(-INFINITY)};
    }
    n_top = std::min(std::max(n_top, 1), (int32_t) mine.chosen.size());
    sort_chosen((size_t) n_top);
    const float max = mine.chosen[0].logit;
    double      sum = 0.0;
    float       own = max;
    for (const llama_token_data & c : mine.chosen) {
        sum += exp_negative(c.logit - max);
        own = c.id == token ? c.logit : own;
    }
    const float log_sum = max + (float) std::log(sum);
    for (int32_t i = 0; i < n_top; i++) {
        top.push_back({mine.chosen[i].id, finite_logprob(mine.chosen[i].logit - log_sum)});
    }
    return {token, finite_logprob(own - log_sum)};
}

//
// token_sampler
//

// A sampler that looks at several tokens at once and is not switched off needs all of them, unless top-k has
// left only the likeliest. Returns how many that are; 0: all. Penalties and biases change single tokens, and
// a temperature keeps the order.
static size_t n_looked_at(const params & sampling) {
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

token_sampler::token_sampler(const llama_model * model, const sequence_settings & settings, uint32_t seed,
                             const coupling & coupled, const std::vector<llama_token> & prompt,
                             const std::vector<llama_token> & generated)
    : n_vocab(llama_vocab_n_tokens(llama_model_get_vocab(model))), n_top(n_looked_at(settings.sampling)),
      n_history(history_length(settings.sampling)), biases(settings.biases), structure(settings.structure),
      start(settings.structure_start),
      grammar_first(settings.sampling.mirostat != 0 || settings.sampling.adaptive_target >= 0.0f),
      coupled(coupled), code(coupled.arithmetic ? arithmetic_code(coupled) : arithmetic_code()),
      first(coupled.distinct_first && generated.empty()), temperature(settings.sampling.temp),
      temperature_moves(settings.sampling.dynatemp_range > 0.0f),
      xtc_probability(settings.sampling.xtc_probability) {
    const llama_vocab * vocab = llama_model_get_vocab(model);
    params              own   = settings.sampling; // common_sampler_init may change it
    own.seed                  = seed;
    if (coupled.arithmetic && own.xtc_probability > 0.0f) {
        own.xtc_probability = 1.0f; // apply_steps decides when it acts
    }
    if (own.adaptive_target >= 0.0f &&
        std::count(own.samplers.begin(), own.samplers.end(), COMMON_SAMPLER_TYPE_ADAPTIVE_P) == 0) {
        own.samplers.push_back(COMMON_SAMPLER_TYPE_ADAPTIVE_P);
    }
    own.no_perf = true;
    sampler.reset(common_sampler_init(model, own));

    int32_t             n_suppressed = 0;
    const llama_token * suppressed   = llama_vocab_get_suppress_tokens(vocab, &n_suppressed);
    never.assign(suppressed, suppressed + n_suppressed);
    if (own.ignore_eos) {
        never.insert(never.end(), end_tokens(vocab).begin(), end_tokens(vocab).end());
    }
    if (structure && start && start->lazy) {
        watch.emplace(*start);
    } else if (structure && start) {
        at = structure->behind(start->begun);
    }
    for (size_t i = prompt.size() - std::min(prompt.size(), n_history); i < prompt.size(); i++) {
        accept(prompt[i], false);
    }
    for (const llama_token token : generated) {
        accept(token, true);
    }
}

void token_sampler::accept(llama_token token, bool is_generated) {
    common_sampler_accept(sampler.get(), token, is_generated);
    if (structure && is_generated) {
        accept_by_grammar(token);
    }
    if (is_generated) {
        text_hash = hash_with(text_hash, token);
    }
    if (n_history > 0) {
        history.push_back(token);
    }
}

// A grammar that waits begins with the text of its trigger. What followed that in the same token may not fit:
// then the text goes on as it likes.
void token_sampler::accept_by_grammar(llama_token token) {
    if (!watch) {
        structure->accept(at, token);
    } else if (const auto begun = watch->feed(structure->text(token))) {
        watch.reset();
        at = structure->behind(*begun);
        if (!structure->fits(at)) {
            structure.reset();
        }
    }
}

// Nearly all draws fit, and to check one token is cheap; the others are made again among what the grammar
// allows. A draw that is coupled with others is made only once, so there the grammar comes first.
llama_token token_sampler::draw(const float * logits, const std::vector<llama_token> & forbidden) {
    llama_token token = LLAMA_TOKEN_NULL;
    try {
        const bool once = grammar_first || first || !code.spent();
        if (!is_bound() || !(once || structure->few_may_follow(at))) {
            choose_likeliest(logits, forbidden.size());
            settle_chosen(logits, forbidden);
            token = draw_chosen().id;
        }
        if (is_bound() && (token == LLAMA_TOKEN_NULL || !structure->allows(at, token))) {
            choose_allowed(logits);
            settle_chosen(logits, forbidden);
            token = draw_allowed();
        }
        accept(token, true);
        first = false;
    } catch (const grammar_error & e) {
        throw command_error("invalid_request", std::string("the grammar cannot be followed: ") + e.what());
    }
    return token;
}

void token_sampler::choose_allowed(const float * logits) {
    const auto allowed = structure->allowed(at);
    mine.chosen.clear();
    for (llama_token token = 0; token < n_vocab; token++) {
        if ((*allowed)[token]) {
            mine.chosen.push_back({token, logits[token], 0.0f});
        }
    }
}

// Takes out what must not be drawn before any sampler sees it, for many of them make a number that is none
// of a logit of minus infinity; adds the biases to the rest.
void token_sampler::settle_chosen(const float * logits, const std::vector<llama_token> & forbidden) {
    bool       numbers = true;
    const auto mark    = [&](bool value) {
        mine.out.resize((size_t) n_vocab);
        for (const std::vector<llama_token> * tokens : {&std::as_const(never), &forbidden}) {
            for (const llama_token token : *tokens) {
                mine.out[(size_t) token] = value;
            }
        }
    };
    const auto is_out = [&](const llama_token_data & c) {
        numbers &= c.logit < INFINITY;
        return c.logit == -INFINITY || mine.out[(size_t) c.id] || (biases && biases->is_banned(c.id));
    };
    const bool bans = !never.empty() || !forbidden.empty() || (biases && biases->n_banned > 0);
    if (bans || !all_finite()) { // without it a draw from the whole vocabulary takes noticeably less
        mark(true);
        mine.chosen.erase(std::remove_if(mine.chosen.begin(), mine.chosen.end(), is_out), mine.chosen.end());
        mark(false);
    }
    if (!numbers || (mine.chosen.empty() &&
                     std::any_of(logits, logits + n_vocab, [](float logit) { return std::isnan(logit); }))) {
        throw command_error("engine_error", "the model computed logits that are no numbers");
    }
    if (biases && !biases->changed.empty()) {
        for (llama_token_data & c : mine.chosen) {
            c.logit += biases->of(c.id);
        }
    }
}

llama_token token_sampler::draw_allowed() {
    if (mine.chosen.empty()) { // a bias may have banned them all
        throw grammar_error("no token of the model that is not banned can go on with the text here");
    }
    return draw_chosen().id;
}

// The likeliest after all changes of single tokens are among those that are changed and, of the others, the
// likeliest before.
void token_sampler::choose_likeliest(const float * logits, size_t n_forbidden) {
    if (n_top == 0 || first) {
        choose_all(logits, n_vocab);
        return;
    }
    const size_t n_recent = std::min(n_history, history.size());
    const size_t n_biased = biases ? biases->n_banned + biases->changed.size() : 0;
    const size_t n_extra  = never.size() + n_biased + n_recent + n_forbidden;
    const float  bound    = choose(logits, n_vocab, n_top + n_extra);
    mine.others.assign(history.end() - (std::ptrdiff_t) n_recent, history.end());
    if (biases) {
        mine.others.insert(mine.others.end(), biases->changed.begin(), biases->changed.end());
    }
    std::sort(mine.others.begin(), mine.others.end());
    mine.others.erase(std::unique(mine.others.begin(), mine.others.end()), mine.others.end());
    for (const llama_token token : mine.others) {
        if (logits[token] < bound) {
            mine.chosen.push_back({token, logits[token], 0.0f});
        }
    }
}

// Where the chain changes no logit before its top-k, it finds the likeliest in order.
llama_token_data_array token_sampler::candidates_of_chain() {
    llama_token_data_array candidates = {mine.chosen.data(), mine.chosen.size(), -1, false};
    if (n_top > 0 && n_history == 0) {
        candidates.size = std::min(n_top, mine.chosen.size());
        sort_chosen(candidates.size);
        candidates.data   = mine.chosen.data();
        candidates.sorted = true;
    }
    return candidates;
}

llama_token_data token_sampler::draw_chosen() {
    if (mine.chosen.empty()) {
        throw command_error("invalid_request", "every token is banned, so there is none to go on with",
                            "logit_bias");
    }
    if (first) {
        return draw_first();
    }
    llama_token_data_array candidates = candidates_of_chain();
    apply_steps(candidates);
    const bool is_one = candidates.selected >= 0 && candidates.selected < (int64_t) candidates.size;
    const llama_token_data drawn = is_one ? candidates.data[candidates.selected] : llama_token_data();
    if (!is_one || !std::isfinite(drawn.logit)) {
        throw command_error("invalid_request", "with these settings the samplers leave no token to draw");
    }
    // what the samplers have left, for logprobs_of_draw; XTC begins it later
    mine.chosen.erase(mine.chosen.begin(), mine.chosen.begin() + (candidates.data - mine.chosen.data()));
    mine.chosen.resize(candidates.size);
    return drawn;
}

// Where the temperature moves with the entropy it may become so small that logits overflow: that is greedy,
// too. Tokens are in order then.
void token_sampler::apply_temperature(llama_sampler * step, llama_token_data_array & candidates) const {
    llama_sampler_apply(step, &candidates);
    if (temperature_moves && !std::isfinite(candidates.data[0].logit)) {
        candidates.data[0].logit = 0.0f;
        candidates.size          = 1;
    }
}

// It takes the last one that is likely enough, and of what other steps have made impossible the likelihood is 0.
static void apply_xtc(llama_sampler * step, llama_token_data_array & candidates) {
    const auto is_out = [](const llama_token_data & c) { return c.logit == -INFINITY; };
    candidates.size   = (size_t) (std::remove_if(candidates.data, candidates.data + candidates.size, is_out) -
                                  candidates.data);
    llama_sampler_apply(step, &candidates);
}

// It compares each token with each other one. Where it finds no text it takes the model's end of text, were
// that banned or not allowed: then there is nothing to choose for it.
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
    const auto was_there = [&](const llama_token_data & c) { return c.id == candidates.data[0].id; };
    if (candidates.size == 0 || std::none_of(before.begin(), before.end(), was_there)) {
        std::copy(before.begin(), before.end(), candidates.data);
        candidates.size = n;
    }
}

// The chain one by one. Where draws are coupled XTC acts by a chance that sequences of equal text have in
// common, and while the code lasts it draws in the place of the last sampler.
void token_sampler::apply_steps(llama_token_data_array & candidates) {
    llama_sampler * chain = common_sampler_get(sampler.get());
    const int32_t   n     = llama_sampler_chain_n(chain) - (code.spent() ? 0 : 1);
    for (int32_t i = 0; i < n; i++) {
        llama_sampler *        step = llama_sampler_chain_get(chain, i);
        const std::string_view name = llama_sampler_name(step);
        if (name == "temp-ext") {
            apply_temperature(step, candidates);
        } else if (name == "infill") {
            apply_infill(step, candidates);
        } else if (name != "xtc") {
            llama_sampler_apply(step, &candidates);
        } else if (!coupled.arithmetic || common_chance(coupled, text_hash) < xtc_probability) {
            apply_xtc(step, candidates);
        }
    }
    if (!code.spent()) {
        candidates.selected = (int64_t) code.draw(candidates.data, candidates.size);
    }
}

// Of the chain only what changes single tokens: first tokens are distinct before any truncation.
llama_token_data token_sampler::draw_first() {
    llama_token_data_array candidates = {mine.chosen.data(), mine.chosen.size(), -1, false};
    llama_sampler *        chain      = common_sampler_get(sampler.get());
    for (int32_t i = 0; i < llama_sampler_chain_n(chain); i++) {
        llama_sampler *        step = llama_sampler_chain_get(chain, i);
        const std::string_view name = llama_sampler_name(step);
        if (name == "logit-bias" || name == "penalties" || name == "dry") {
            llama_sampler_apply(step, &candidates);
        }
    }
    const size_t drawn = draw_distinct(coupled, temperature, candidates.data, candidates.size);
    if (drawn == SIZE_MAX) {
        throw command_error("invalid_request", "the penalties leave no token to begin with");
    }
    return candidates.data[drawn];
}
