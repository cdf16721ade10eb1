// The field json_schema and the fields beside it → rules. grammar/schema/ has the compiler.
#pragma once

#include "grammar/rules.h"
#include "grammar/schema/compile.h"
#include "util/fields.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

// What says how a schema is read: lenient, json_additional, property_order, json_whitespace.
const std::vector<field_row> & schema_option_fields();
schema::options                read_schema_options(const nlohmann::json & fields);
std::string                    key_of(const schema::options & given);

// Adds what was found about the schemas of a field, within bounds.
void add_warnings(const std::string & name, const std::vector<std::string> & found,
                  std::vector<std::string> & warnings);

// Throws command_error. warnings: gets those about the schema.
grammar_rules read_json_schema(const std::string & text, const schema::options & given,
                               std::vector<std::string> & warnings);

// The parameters of a tool, or a part of them, as the arguments of a call.
struct tool_schema {
    schema::call_schema call;
    std::string         name;           // for messages
    bool                strict = false; // what has no exact meaning is refused
};

// As read_json_schema; of a tool that is not strict what cannot be compiled is left out. All tools share the budget.
grammar_rules read_tool_schema(const tool_schema & tool, const schema::options & given, work_budget & budget,
                               std::vector<std::string> & warnings);
