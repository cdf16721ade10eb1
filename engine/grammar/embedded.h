// Schemas that are parts of a grammar: each text is compiled once, all within the work that one schema may cost.
#pragma once

#include "grammar/rules.h"
#include "grammar/schema/shape.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

class embedded_schemas {
  public:
    explicit embedded_schemas(const schema::options & given) : given(given) {}

    // A rule for the values of a schema. Throws schema::refusal or grammar_error.
    grammar_element add(grammar_rules & rules, const std::string & text, bool any_order = false);

    const schema::options    given;
    std::vector<std::string> warnings; // about the schemas

  private:
    work_budget budget;

    std::map<std::pair<std::string, bool>, grammar_rules> known; // by text and order
};
