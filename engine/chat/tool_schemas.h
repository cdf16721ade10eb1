// The schemas of tools: llama.cpp's templates ask for their GBNF, and get a mark, at which our own compiler puts rules.
#pragma once

#include "grammar/structure.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

// Makes llama.cpp ask here, as long as this process lives: for the subprocess in which templates run.
void keep_schemas();
// What it has asked for, as JSON.
nlohmann::json made_schemas();

// The schemas of `made`, each with the tool that it belongs to, by the tools as the client has sent them. warnings: gets
// the tools whose arguments no schema in the grammar holds; such a tool may not be strict: throws command_error.
void read_tool_schemas(std::vector<tool_schema> & out, std::vector<std::string> & warnings,
                       const nlohmann::json & made, const std::string & tools, const std::string & grammar);
