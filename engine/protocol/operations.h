// What reads the fields of each command; commands.cpp has the table of them.
#pragma once

#include "protocol/commands.h"

const int64_t n_max_logprobs = 1000;

void parse_generate(command & c, const nlohmann::json & body, const command_facts & facts);
void parse_chat(command & c, const nlohmann::json & body, const command_facts & facts);
void parse_prefix(command & c, const nlohmann::json & body, const command_facts & facts);
void parse_score(command & c, const nlohmann::json & body, const command_facts & facts);

// Without the field: the adapters as they were loaded.
adapter_set read_adapters(const nlohmann::json & body, const command_facts & facts);

std::vector<llama_token> read_tokens(const nlohmann::json & value, const command_facts & facts,
                                     const char * name = "tokens");

// {"id", "index", "at"}; the first only with_id.
sequence_name read_sequence_name(const std::string & name, const nlohmann::json & fields, bool with_id);
