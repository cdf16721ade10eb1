#include "sampling/settings.h"

#include "sampling/added.h"
#include "sampling/special_tokens.h"
#include "util/json.h"

#include <sampling.h> // llama.cpp's common/sampling.h

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <variant>

using json   = nlohmann::json;
using params = sampling_settings;

// Below this a draw is greedy: logits divided by less may overflow, and only ties are drawn from.
static const float min_temperature = 1e-5f;

static const int32_t any        = std::numeric_limits<int32_t>::max();
static const int32_t n_max_loop = 8192; // tokens; each draw compares the last one with so many before it

static const size_t n_max_steps   = 1024; // of a chain
static const size_t n_max_name    = 64;   // bytes of a sampler's name
static const size_t n_max_regex   = 4096; // bytes
static const size_t n_max_phrases = 256;
static const size_t n_max_phrase  = 1000; // bytes

//
// readers of single fields
//

// [[token or text, bias or false], ...]: a text stands for each of its tokens, false for minus infinity.
static void read_logit_bias(params & sampling, const json & value, const llama_vocab * vocab) {
    sampling.logit_bias.clear();
    for (const json & pair : value) {
        if (pair.size() != 2 || !(pair[0].is_number_integer() || pair[0].is_string()) ||
            !(pair[1].is_number() || pair[1] == json(false))) {
            invalid("logit_bias", "logit_bias must be a list of pairs [token id or text, number or false]");
        }
        const float bias = pair[1].is_number() ? pair[1].get<float>() : -INFINITY;
        if (pair[0].is_number_integer()) {
            const int64_t token = read_integer("logit_bias", pair[0], 0, llama_vocab_n_tokens(vocab) - 1);
            sampling.logit_bias.push_back({(llama_token) token, bias});
        } else {
            for (llama_token token : common_tokenize(vocab, pair[0].get<std::string>(), false, false)) {
                sampling.logit_bias.push_back({token, bias});
            }
        }
    }
}

static void read_samplers(params & sampling, const json & value, const llama_vocab * vocab) {
    sampling.steps.emplace();
    for (const json & entry : value) {
        json              values = entry.is_object() ? entry : json::object();
        const std::string name   = entry.is_object() ? entry["name"] : entry;
        values.erase("name");
        const auto type = llama_type_of(name);
        if (!type && !added_sampler_called(name)) {
            invalid("samplers", "samplers holds \"" + name +
                                    "\", which is no sampler; there are penalties, dry, top_n_sigma, top_k, "
                                    "typ_p, top_p, min_p, xtc, temperature, adaptive_p, infill, " +
                                    names_of_added_samplers());
        }
        if (type == COMMON_SAMPLER_TYPE_INFILL && end_tokens(vocab).empty()) {
            invalid("samplers", "samplers holds \"infill\", and the model has no token that ends a text");
        }
        sampling.steps->push_back(
            {type ? common_sampler_type_to_str(*type) : name, values.empty() ? json() : std::move(values)});
    }
}

static void read_temperature_last(params & sampling, const json & value, const llama_vocab *) {
    sampling.temperature_last = value.get<bool>();
}

//
// one row a field
//

namespace {

// A number of tokens, of which -1 means the whole context.
struct context_length {
    int32_t params::* where;
};

using read_function = void (*)(params & sampling, const json & value, const llama_vocab * vocab);
using destination   = std::variant<float params::*, int32_t params::*, uint32_t params::*, bool params::*,
                                   std::vector<std::string> params::*, context_length, read_function>;

struct sampling_row {
    const char * name;
    value_type   type;
    destination  where;
};

} // namespace

// An entry of `samplers`: a name, or an object with numbers that only this step has.
static value_type type_of_step(const std::vector<sampling_row> & rows) {
    field_table fields = {"samplers", "samplers.", {{"name", string_of(1, n_max_name), true}}};
    for (const sampling_row & row : rows) {
        const bool is_number = row.type.is == value_type::integer || row.type.is == value_type::number;
        if (is_number && row.name != std::string("seed") && row.name != std::string("guidance_scale")) {
            fields.rows.push_back({row.name, row.type});
        }
    }
    return either(string_of(1, n_max_name), object_with(fields));
}

static const std::vector<sampling_row> & sampling_rows() {
    const auto integer = integer_between;
    const auto number  = number_between;
    const auto pairs   = list_of(list_of(either(number(-1e9, 1e9), either(any_string(), true_or_false()))));
    // clang-format off
    static const std::vector<sampling_row> rows = [&] {
        std::vector<sampling_row> all = {
        {"temperature",           number(0, 100),                  &params::temp                              }, // 0: greedy
        {"dynatemp_range",        number(0, 100),                  &params::dynatemp_range                    },
        {"dynatemp_exponent",     number(0, 100),                  &params::dynatemp_exponent                 },
        {"temperature_last",      true_or_false(),                 read_temperature_last                      },
        {"smoothing_factor",      number(0, 100),                  &params::smoothing_factor                  },
        {"smoothing_curve",       number(0, 10),                   &params::smoothing_curve                   },
        {"skew",                  number(-10, 10),                 &params::skew                              },
        {"do_sample",             true_or_false(),                 &params::do_sample                         },
        {"top_k",                 integer(-1, any),                &params::top_k                             }, // 0, -1: off
        {"top_p",                 number(0, 1),                    &params::top_p                             },
        {"min_p",                 number(0, 1),                    &params::min_p                             },
        {"typical_p",             number(0, 1),                    &params::typ_p                             },
        {"top_n_sigma",           number(-1, 100),                 &params::top_n_sigma                       }, // -1: off
        {"top_a",                 number(0, 1),                    &params::top_a                             },
        {"tfs",                   number(0, 1),                    &params::tfs                               },
        {"epsilon_cutoff",        number(0, 10000),                &params::epsilon_cutoff                    },
        {"eta_cutoff",            number(0, 10000),                &params::eta_cutoff                        },
        {"xtc_probability",       number(0, 1),                    &params::xtc_probability                   },
        {"xtc_threshold",         number(0, 1),                    &params::xtc_threshold                     },
        {"adaptive_target",       number(-1, 1),                   &params::adaptive_target                   }, // -1: off
        {"adaptive_decay",        number(0, 0.99),                 &params::adaptive_decay                    },
        {"repeat_penalty",        number(0.01, 100),               &params::penalty_repeat                    },
        {"repeat_last_n",         integer(-1, any),                context_length{&params::penalty_last_n}    },
        {"presence_penalty",      number(-100, 100),               &params::penalty_present                   },
        {"frequency_penalty",     number(-100, 100),               &params::penalty_freq                      },
        {"dry_multiplier",        number(0, 100),                  &params::dry_multiplier                    },
        {"dry_base",              number(0, 100),                  &params::dry_base                          },
        {"dry_allowed_length",    integer(0, any),                 &params::dry_allowed_length                },
        {"dry_penalty_last_n",    integer(-1, any),                context_length{&params::dry_penalty_last_n}},
        {"dry_sequence_breakers", short_strings(),                 &params::dry_sequence_breakers             },
        {"rep_pen_slope",         number(0, 10),                   &params::rep_pen_slope                     }, // 0: off
        {"repetition_decay",      integer(0, any),                 &params::repetition_decay                  },
        {"encoder_repetition_penalty", number(0.01, 100),          &params::encoder_repetition_penalty        },
        {"no_repeat_ngram_size",  integer(0, 100),                 &params::no_repeat_ngram_size              }, // 0: off
        {"mirostat",              integer(0, 2),                   &params::mirostat                          },
        {"mirostat_tau",          number(0, 100),                  &params::mirostat_tau                      },
        {"mirostat_eta",          number(0, 100),                  &params::mirostat_eta                      },
        {"seed",                  integer(0, LLAMA_DEFAULT_SEED),  &params::seed                              },
        {"guidance_scale",        number(-100, 100),               &params::guidance_scale                    }, // 1: off
        {"min_keep",              integer(0, any),                 &params::min_keep                          },
        {"ignore_eos",            true_or_false(),                 &params::ignore_eos                        },
        {"logit_bias",            pairs,                           read_logit_bias                            },
    };
        all.push_back({"samplers", list_of(type_of_step(all), 0, n_max_steps), read_samplers});
        return all;
    }();
    // clang-format on
    return rows;
}

field_row processor_field() {
    return {"logits_processor", either(true_or_false(), any_object())};
}

field_row thinking_field() {
    return {"thinking_budget_tokens", integer_between(-1, any)};
}

static const field_table & repetition_fields() {
    static const field_table table = {"repetition_detection",
                                      "repetition_detection.",
                                      {
                                          {"min_pattern_size", integer_between(0, n_max_loop)},
                                          {"max_pattern_size", integer_between(0, n_max_loop)},
                                          {"min_count", integer_between(0, n_max_loop)},
                                      }};
    return table;
}

static const field_table & phrase_fields() {
    static const field_table table = {"phrase_bias",
                                      "phrase_bias.",
                                      {
                                          {"text", string_of(1, n_max_phrase), true},
                                          {"bias", number_between(-1000, 1000), true},
                                          {"finish", true_or_false()},
                                          {"once", true_or_false()},
                                      }};
    return table;
}

static const field_table & regex_fields() {
    static const field_table table = {
        "banned_strings", "banned_strings.", {{"regex", string_of(1, n_max_regex), true}}};
    return table;
}

const std::vector<field_row> & length_fields() {
    static const std::vector<field_row> rows = {
        {"max_tokens", integer_between(-1, any)}, // -1: until the end
        {"min_tokens", integer_between(0, any)},
        {"stop", short_strings()},
        {"banned_strings", short_strings_or(regex_fields())},
        {"phrase_bias", list_of(object_with(phrase_fields()), 0, n_max_phrases)},
        {"repetition_detection", object_with(repetition_fields())},
        {"loop_detect_window", integer_between(0, n_max_loop)},
        {"loops", one_of({"end", "rewind"})},
    };
    return rows;
}

static field_table table_of_sampling_rows(const char * name) {
    field_table table = {name, "", {}};
    for (const sampling_row & row : sampling_rows()) {
        table.rows.push_back({row.name, row.type});
    }
    return table;
}

const field_table & sampling_fields() {
    static const field_table table = table_of_sampling_rows("sampling");
    return table;
}

const field_table & sequence_fields() {
    static const field_table table = [] {
        field_table both = table_of_sampling_rows("sequences");
        both.rows.insert(both.rows.end(), length_fields().begin(), length_fields().end());
        both.rows.push_back(thinking_field());
        both.rows.push_back(processor_field());
        both.rows.push_back({"replay", token_ids()});
        return both;
    }();
    return table;
}

//
// reading
//

namespace {

// Stores a value in the destination of its row.
struct row_reader {
    params &            sampling;
    const json &        value;
    const llama_vocab * vocab;
    int32_t             n_ctx;

    template <typename T> void operator()(T params::* where) const { sampling.*where = value.get<T>(); }

    void operator()(context_length length) const {
        const int32_t n        = value.get<int32_t>();
        sampling.*length.where = n < 0 ? n_ctx : n;
    }

    void operator()(read_function read) const { read(sampling, value, vocab); }
};

} // namespace

void read_sampling(params & sampling, const json & fields, const llama_vocab * vocab, int32_t n_ctx) {
    for (const auto & [name, value] : fields.items()) {
        const auto & rows = sampling_rows();
        const auto   row  = std::find_if(rows.begin(), rows.end(),
                                         [&name = name](const sampling_row & r) { return name == r.name; });
        if (row != rows.end()) { // else it is one of length_fields
            std::visit(row_reader{sampling, value, vocab, n_ctx}, row->where);
        }
    }
    sampling.temp = sampling.temp < min_temperature ? 0.0f : sampling.temp;
}

// Where a request names no steps. Of the added ones tfs and top_a stand as in koboldcpp, the cutoffs as in
// text-generation-webui, and smoothing follows the temperature as in both.
static const std::vector<chain_step> & usual_steps() {
    static const std::vector<chain_step> steps = {
        {"penalties"},       {"encoder_repetition_penalty"},
        {"no_repeat_ngram"}, {"dry"},
        {"top_n_sigma"},     {"top_k"},
        {"top_a"},           {"tfs"},
        {"typ_p"},           {"epsilon_cutoff"},
        {"eta_cutoff"},      {"top_p"},
        {"min_p"},           {"xtc"},
        {"temperature"},     {"smoothing"},
    };
    return steps;
}

static bool is_penalty(const chain_step & step) {
    const added_sampler * added = added_sampler_called(step.name);
    return step.name == "penalties" || step.name == "dry" || (added && added->is_penalty());
}

static bool is_of_temperature(const chain_step & step) {
    return step.name == "temperature" || step.name == "smoothing";
}

// Behind all others, as in text-generation-webui and TabbyAPI, or before all that cut, as in TabbyAPI.
static void move_temperature(std::vector<chain_step> & steps, bool last) {
    const auto begin = std::stable_partition(steps.begin(), steps.end(),
                                             [](const auto & step) { return !is_of_temperature(step); });
    if (!last) {
        std::rotate(std::find_if_not(steps.begin(), begin, is_penalty), begin, steps.end());
    }
}

static std::shared_ptr<params> settings_of_step(const params & chain) {
    auto own = std::make_shared<params>(chain);
    own->steps.reset();
    own->logit_bias.clear(); // token_sampler adds biases itself
    return own;
}

// Each temperature has its own settings then, and what looks at the chain's alone sees all of them.
static void multiply_temperatures(std::vector<chain_step> & steps, params & sampling) {
    const params before = sampling;
    sampling.temp       = 1.0f;
    for (chain_step & step : steps) {
        if (step.name == "temperature") {
            step.own                = step.own ? step.own : settings_of_step(before);
            sampling.temp           = sampling.temp * step.own->temp;
            sampling.dynatemp_range = std::max(sampling.dynatemp_range, step.own->dynatemp_range);
        }
    }
}

static void settle_values(std::vector<chain_step> & steps, params & sampling, const llama_vocab * vocab,
                          int32_t n_ctx) {
    bool several = false; // temperatures
    for (chain_step & step : steps) {
        if (!step.values.is_null()) {
            const auto own = settings_of_step(sampling);
            read_sampling(*own, step.values, vocab, n_ctx);
            step.own    = own;
            step.values = nullptr;
            several     = several || step.name == "temperature";
        }
    }
    if (several) {
        multiply_temperatures(steps, sampling);
    }
}

size_t largest_of(const params & sampling, size_t (*of)(const params &)) {
    size_t n = of(sampling);
    if (sampling.steps) {
        for (const chain_step & step : *sampling.steps) {
            n = step.own ? std::max(n, of(*step.own)) : n;
        }
    }
    return n;
}

void settle_steps(params & sampling, const llama_vocab * vocab, int32_t n_ctx) {
    std::vector<chain_step> steps = sampling.steps.value_or(usual_steps());
    if (sampling.temperature_last && (*sampling.temperature_last || !sampling.steps)) {
        move_temperature(steps, *sampling.temperature_last);
    }
    if (!sampling.do_sample) { // as in transformers, where warpers are left out, and processors are not
        steps.erase(std::remove_if(steps.begin(), steps.end(), std::not_fn(is_penalty)), steps.end());
        steps.push_back({"temperature"});
        sampling.temp = sampling.dynatemp_range = sampling.skew = 0.0f;
        sampling.mirostat                                       = 0;
        sampling.adaptive_target                                = -1.0f;
    }
    settle_values(steps, sampling, vocab, n_ctx);
    sampling.samplers.clear();
    for (const chain_step & step : steps) {
        const added_sampler * added = added_sampler_called(step.name);
        const auto            type  = llama_type_of(step.name);
        if (type && !(added && added->is_on(step.of(sampling)))) {
            sampling.samplers.push_back(*type);
        }
    }
    sampling.steps = std::move(steps);
}

static void read_loops(loop_limit & loops, const json & fields) {
    if (const auto given = fields.find("repetition_detection"); given != fields.end()) {
        loops.shortest = std::max(given->value("min_pattern_size", 1), 1);
        loops.longest  = given->value("max_pattern_size", 0);
        loops.count    = given->value("min_count", 2);
        if (loops.longest > 0 && (loops.count < 2 || loops.shortest > loops.longest)) {
            invalid("repetition_detection",
                    "repetition_detection.min_count must be at least 2, and min_pattern_size at "
                    "most max_pattern_size");
        }
    }
    loops.window  = fields.value("loop_detect_window", loops.window);
    loops.rewinds = fields.value("loops", loops.rewinds ? "rewind" : "end") == std::string("rewind");
}

static void read_banned(banned_texts & banned, const json & fields) {
    const auto given = fields.find("banned_strings");
    if (given == fields.end()) {
        return;
    }
    banned.strings.clear();
    banned.regexes.clear();
    for (size_t i = 0; i < given->size(); i++) {
        const json & entry = (*given)[i];
        if (entry.is_string()) {
            banned.strings.push_back(entry);
        } else {
            banned.regexes.push_back({i, entry["regex"]});
        }
    }
}

void read_lengths(sequence_settings & settings, const json & fields) {
    settings.n_predict    = fields.value("max_tokens", settings.n_predict);
    settings.n_min        = fields.value("min_tokens", settings.n_min);
    settings.n_thinking   = fields.value("thinking_budget_tokens", settings.n_thinking);
    settings.ends.strings = fields.value("stop", settings.ends.strings);
    read_banned(settings.banned, fields);
    read_loops(settings.loops, fields);
    if (const auto phrases = fields.find("phrase_bias"); phrases != fields.end()) {
        settings.phrase_list.clear();
        for (const json & p : *phrases) {
            settings.phrase_list.push_back(
                {p["text"], p["bias"], p.value("finish", false), p.value("once", false)});
        }
    }
}

uint32_t sequence_seed(uint32_t seed, int64_t index) {
    return (uint32_t) (((uint64_t) seed + (uint64_t) index) % LLAMA_DEFAULT_SEED);
}
