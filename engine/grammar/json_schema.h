// JSON schemas → rules, by llama.cpp's converter in a subprocess with limits.
#pragma once

#include "grammar/rules.h"

#include "llama.h"

#include <cstddef>
#include <string>

const size_t n_max_converted = 1 << 20; // bytes of the grammar that a schema is converted to

// Throws command_error.
grammar_rules read_json_schema(const std::string & schema, const llama_vocab * vocab);
