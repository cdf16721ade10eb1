// The samplers that llama.cpp lacks, a row each, with the paper or program that it is from. A row says what it does to a
// list of tokens; what it does to a whole row of logits is the same (rows/row_cuts.h).
#pragma once

#include "rows/whole_row.h"
#include "sampling/settings.h"

#include "llama.h"

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// What a sequence has had so far.
struct sampler_past {
    std::vector<llama_token> history; // the last tokens, the newest last, if any matter
    std::vector<llama_token> prompt;  // its tokens, each once, in ascending order, if they matter
};

// Appends the tokens that a sampler may change.
using token_list = void (*)(const sampling_settings &, const sampler_past &,
                            std::vector<llama_token> & tokens);

// Changes the logits of single tokens, to finite ones. The list has each of them once.
struct token_change {
    token_list list;
    void (*apply)(const sampling_settings &, const sampler_past &, llama_token_data_array & candidates);
};

// Bans all of these tokens; where no other is left, none.
struct token_ban {
    token_list list;
};

// Keeps tokens whose probability is at least a share of the likeliest one's; made of the probability of that one and of the
// entropy in nats.
struct least_share {
    double (*of)(const sampling_settings &, double likeliest, double entropy);
};

// Does anything else with all tokens.
struct row_change {
    void (*on_list)(const sampling_settings &, llama_token_data_array & candidates);
    void (*on_row)(const sampling_settings &, whole_row & row);
    bool keeps_some; // min_keep tokens, on a list alone
};

struct added_sampler {
    const char * name; // in `samplers`
    bool (*is_on)(const sampling_settings &);
    std::variant<token_change, token_ban, least_share, row_change> does;
    bool replaces = false; // llama.cpp's sampler of this name, while it is on

    bool is_penalty() const {
        return std::holds_alternative<token_change>(does) || std::holds_alternative<token_ban>(does);
    }
};

// nullptr: there is none.
const added_sampler * added_sampler_called(const std::string & name);
std::string           names_of_added_samplers(); // that llama.cpp lacks
// Of llama.cpp's sampler of this name, if there is one.
std::optional<common_sampler_type> llama_type_of(const std::string & name);

// How many of the last tokens matter to the added samplers that are on, and whether the prompt's do.
size_t n_history_of_added(const sampling_settings & sampling);
bool   prompt_matters(const sampling_settings & sampling);

void apply_added(const added_sampler & sampler, const sampling_settings & sampling, const sampler_past & past,
                 llama_token_data_array & candidates);
// False: it needs a list.
bool apply_added(const added_sampler & sampler, const sampling_settings & sampling, const sampler_past & past,
                 whole_row & row);

// What a penalty can change.
void list_changed(const added_sampler & sampler, const sampling_settings & sampling,
                  const sampler_past & past, std::vector<llama_token> & tokens);
// Calls a penalty with the tokens of a row that it can change.
using penalty = std::function<void(llama_token_data_array & candidates)>;
void change_tokens(whole_row & row, const std::vector<llama_token> & tokens, const penalty & apply);
