#include "sampling.h"

#include "text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

using json   = nlohmann::json;
using params = common_params_sampling;

void invalid(const std::string & param, const std::string & message) {
    throw command_error("invalid_request", message, param);
}

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

const size_t n_max_list  = 1024; // stop strings, breakers, ...
const size_t n_max_bytes = 4096; // of one such string

std::string number(double value) {
    char text[32];
    snprintf(text, sizeof(text), "%.15g", value);
    return text;
}

double read_number(const std::string & name, const json & value, double low, double high) {
    if (!value.is_number()) {
        invalid(name, name + " is " + value.type_name() + "; it must be a number");
    }
    const double x = value.get<double>();
    if (!(x >= low && x <= high)) { // so that NaN fails too
        invalid(name,
                name + " is " + number(x) + "; it must be between " + number(low) + " and " + number(high));
    }
    return x;
}

std::vector<std::string> read_strings(const std::string & name, const json & value) {
    if (!value.is_array()) {
        invalid(name, name + " is " + value.type_name() + "; it must be a list of strings");
    }
    if (value.size() > n_max_list) {
        invalid(name, name + " has " + std::to_string(value.size()) + " entries; at most " +
                          std::to_string(n_max_list) + " are allowed");
    }
    std::vector<std::string> strings;
    for (const json & entry : value) {
        if (!entry.is_string()) {
            invalid(name, name + " holds " + entry.type_name() + "; it must be a list of strings");
        }
        strings.push_back(entry.get<std::string>());
        if (strings.back().empty() || strings.back().size() > n_max_bytes) {
            invalid(name, name + " holds a string of " + std::to_string(strings.back().size()) +
                              " bytes; 1 to " + std::to_string(n_max_bytes) + " are allowed");
        }
    }
    return strings;
}

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

void read_samplers(params & sampling, const json & value) {
    sampling.samplers.clear();
    for (const std::string & name : read_strings("samplers", value)) {
        const auto types = common_sampler_types_from_names({name});
        if (types.empty()) {
            invalid("samplers",
                    "samplers holds \"" + name +
                        "\", which is no sampler; there are penalties, dry, top_n_sigma, top_k, " +
                        "typ_p, top_p, min_p, xtc, temperature, adaptive_p, infill");
        }
        sampling.samplers.push_back(types[0]);
    }
}

} // namespace

int64_t read_integer(const std::string & name, const json & value, int64_t low, int64_t high) {
    if (!value.is_number_integer()) {
        invalid(name, name + " is " + (value.is_number() ? number(value.get<double>()) : value.type_name()) +
                          "; it must be a whole number");
    }
    const bool too_large =
        value.is_number_unsigned() && value.get<uint64_t>() > (uint64_t) std::numeric_limits<int64_t>::max();
    const int64_t x = too_large ? std::numeric_limits<int64_t>::max() : value.get<int64_t>();
    if (x < low || x > high) {
        invalid(name, name + " is " + value.dump() + "; it must be between " + std::to_string(low) + " and " +
                          std::to_string(high));
    }
    return x;
}

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
    }
}

void read_sampling_field(params & sampling, const std::string & name, const json & value,
                         const llama_vocab * vocab, int32_t n_ctx) {
    if (name == "seed") {
        sampling.seed = (uint32_t) read_integer(name, value, 0, std::numeric_limits<uint32_t>::max());
    } else if (name == "logit_bias") {
        read_logit_bias(sampling, value, vocab);
    } else if (name == "samplers") {
        read_samplers(sampling, value);
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
static size_t n_history(const params & sampling) {
    const bool penalties =
        sampling.penalty_repeat != 1.0f || sampling.penalty_freq != 0.0f || sampling.penalty_present != 0.0f;
    const bool    dry = sampling.dry_multiplier > 0.0f;
    const int32_t n =
        std::max(penalties ? sampling.penalty_last_n : 0, dry ? sampling.dry_penalty_last_n : 0);
    return (size_t) std::max(n, 0);
}

static void ban_end_of_text(params & sampling, const llama_vocab * vocab) {
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        if (llama_vocab_is_eog(vocab, token)) {
            sampling.logit_bias.push_back({token, -INFINITY});
        }
    }
}

std::vector<llama_token> tokens_with(const std::vector<std::string> & phrases, const llama_vocab * vocab) {
    std::vector<std::string> lower;
    for (const std::string & phrase : phrases) {
        lower.push_back(ascii_lower(phrase));
    }
    std::vector<llama_token> tokens;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        const std::string piece = ascii_lower(common_token_to_piece(vocab, token, false));
        const auto        holds = [&](const std::string & phrase) {
            return piece.find(phrase) != std::string::npos;
        };
        if (std::any_of(lower.begin(), lower.end(), holds)) {
            tokens.push_back(token);
        }
    }
    return tokens;
}

common_sampler_ptr make_sampler(const llama_model * model, const params & sampling,
                                const std::vector<llama_token> & prompt,
                                const std::vector<llama_token> & generated) {
    params mine = sampling; // common_sampler_init may change it
    if (mine.ignore_eos) {
        ban_end_of_text(mine, llama_model_get_vocab(model));
    }
    if (mine.adaptive_target >= 0.0f &&
        std::count(mine.samplers.begin(), mine.samplers.end(), COMMON_SAMPLER_TYPE_ADAPTIVE_P) == 0) {
        mine.samplers.push_back(COMMON_SAMPLER_TYPE_ADAPTIVE_P);
    }
    mine.no_perf = true;
    common_sampler_ptr sampler(common_sampler_init(model, mine));
    for (size_t i = prompt.size() - std::min(prompt.size(), n_history(mine)); i < prompt.size(); i++) {
        common_sampler_accept(sampler.get(), prompt[i], false);
    }
    for (llama_token token : generated) {
        common_sampler_accept(sampler.get(), token, true);
    }
    return sampler;
}

llama_token sample_token(common_sampler * sampler, llama_context * ctx, int32_t i_row,
                         const std::vector<llama_token> & forbidden) {
    float *            logits = forbidden.empty() ? nullptr : llama_get_logits_ith(ctx, i_row);
    std::vector<float> before;
    for (llama_token token : forbidden) {
        before.push_back(logits[token]);
        logits[token] = -INFINITY;
    }
    const llama_token drawn = common_sampler_sample(sampler, ctx, i_row);
    for (size_t i = 0; i < forbidden.size(); i++) {
        logits[forbidden[forbidden.size() - 1 - i]] = before[forbidden.size() - 1 - i];
    }
    common_sampler_accept(sampler, drawn, true);
    return drawn;
}

token_logprob logprobs_of(const float * logits, int32_t n_vocab, llama_token token, int32_t n_top,
                          std::vector<token_logprob> & top) {
    const float max = *std::max_element(logits, logits + n_vocab);
    double      sum = 0.0;
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += std::exp(logits[i] - max);
    }
    const float log_sum = max + (float) std::log(sum);

    top.clear();
    if (n_top > 0) {
        std::vector<llama_token> ids(n_vocab);
        for (int32_t i = 0; i < n_vocab; i++) {
            ids[i] = i;
        }
        n_top = std::min(n_top, n_vocab);
        std::partial_sort(ids.begin(), ids.begin() + n_top, ids.end(),
                          [logits](llama_token a, llama_token b) {
                              return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                          });
        for (int32_t i = 0; i < n_top; i++) {
            top.push_back({ids[i], logits[ids[i]] - log_sum});
        }
    }
    return {token, logits[token] - log_sum};
}
