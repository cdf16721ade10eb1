// Free text in which certain words begin something else.
#pragma once

#include "grammar/rules.h"
#include "grammar/schema/language.h"

#include <string>
#include <utility>
#include <vector>

struct free_text {
    // Once a word is there, this follows. No word holds another one, or an excluded text.
    std::vector<std::pair<std::string, grammar_rules::sequence>> words;
    std::vector<std::string>                                     excluded; // texts that never appear in it
    bool    loops = true;                                                  // it goes on behind what follows
    int64_t n_max = -1; // characters; -1: no limit; without words
};

// Why two of its words, or a word and an excluded text, cannot be told apart; empty: they can.
std::string find_overlap(const free_text & text, work_budget & budget);

// A rule for it. It may end anywhere outside of what follows a word.
grammar_element add_free_text(grammar_rules & rules, const free_text & text, work_budget & budget);
