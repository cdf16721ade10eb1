// Values that several commands have; which sequences go on (finish, prune).
#pragma once

#include "protocol/commands.h"

#include <string>
#include <vector>

const int64_t n_max_logprobs = 1000;
const int64_t n_max_draft    = 16; // guesses at the next tokens of a sequence, in one step

// Without the field: the adapters as they were loaded. With a salt its cells are shared only with those of that salt.
adapter_set read_adapters(const nlohmann::json & body, const command_facts & facts);

// Token ids that the vocabulary has, or command_error.
std::vector<llama_token> read_tokens(const nlohmann::json & value, const command_facts & facts,
                                     const char * name = "tokens");

// {"id", "index", "at", "exact"}
sequence_name read_sequence_name(const nlohmann::json & fields);

// {"sentences"} or {"paragraphs"}; without the field no limit
const field_row & end_field();
passage_limit     read_end(const nlohmann::json & body);

// certainty, finish, prune
const std::vector<field_row> & contest_fields();
finish_settings                read_finish(const nlohmann::json & body);
prune_settings                 read_prune(const nlohmann::json & body);
