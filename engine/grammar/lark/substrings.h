// The parts of a text as one rule: %regex {"substring_words": …}.
#pragma once

#include "grammar/rules.h"

#include <string>
#include <vector>

// Any run of these pieces, one behind the other, or nothing.
grammar_element add_runs(grammar_rules & rules, const std::vector<std::string> & pieces);

std::vector<std::string> characters_of(const std::string & utf8);
// Words (letters, digits, _), spaces and other signs of a text of ASCII, each as long as it goes.
std::vector<std::string> words_of(const std::string & ascii);
