// The commands (the values of `op`): their fields and their readers, a row for each.
#pragma once

#include "protocol/commands.h"
#include "util/fields.h"

#include <string>
#include <vector>

// Which thread reads a command: that of the reader, or a worker if it is long or always.
enum class read_by { reader, worker_if_long, worker };

struct operation {
    command::kind kind;
    read_by       thread;
    field_table   fields; // its name is the command's
    // The fields have been checked by then. nullptr: there is nothing else to read.
    void (*parse)(command & c, const nlohmann::json & body, const command_facts & facts);
};

// nullptr: there is no such command.
const operation * find_operation(const std::string & name);

// All fields of all commands as JSON Schema, with a field a line: what --fields prints.
std::string fields_of_all_operations();

void parse_generate(command & c, const nlohmann::json & body, const command_facts & facts);
void parse_chat(command & c, const nlohmann::json & body, const command_facts & facts);
void parse_prefix(command & c, const nlohmann::json & body, const command_facts & facts);
void parse_pin(command & c, const nlohmann::json & body, const command_facts & facts);
void parse_score(command & c, const nlohmann::json & body, const command_facts & facts);
