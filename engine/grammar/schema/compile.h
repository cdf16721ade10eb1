// JSON schemas → rules over bytes. docs/structure.md has the keywords.
#pragma once

#include "grammar/rules.h"
#include "grammar/schema/shape.h"

#include <string>
#include <vector>

namespace schema {

struct compiled {
    grammar_rules            rules; // rule 0 is a value
    std::vector<std::string> warnings;
};

// Throws refusal, or grammar_error where the schema is too large.
compiled compile(const std::string & text, const options & given);

} // namespace schema
