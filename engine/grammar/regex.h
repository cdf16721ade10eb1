// Regular expressions → rules; docs/structure.md has the syntax.
#pragma once

#include "grammar/rules.h"

#include <string>

// Adds the rules of an expression that matches the whole text of the field `regex`, and returns a reference to the
// first of them. Throws command_error.
grammar_element read_regex(grammar_rules & rules, const std::string & expression);
