// The field json_schema and the fields beside it → rules. grammar/schema/ has the compiler.
#pragma once

#include "grammar/rules.h"
#include "grammar/schema/shape.h"
#include "util/fields.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

// What says how a schema is read: json_additional, property_order, json_whitespace.
const std::vector<field_row> & schema_option_fields();
schema::options                read_schema_options(const nlohmann::json & fields);
std::string                    key_of(const schema::options & given);

// Throws command_error.
grammar_rules read_json_schema(const std::string & text, const schema::options & given);
