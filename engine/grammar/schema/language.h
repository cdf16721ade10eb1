// A regular language over characters, as a deterministic automaton without dead ends. Knows nothing of schemas.
#pragma once

#include "grammar/characters.h"
#include "grammar/rules.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// The work that one schema may cost; grammar_error beyond it.
struct work_budget {
    int64_t n_left = 3000000;
    void    spend(int64_t n);
};

struct language {
    struct edge {
        uint32_t low, high; // characters, both included
        int32_t  to;
    };
    struct state {
        std::vector<edge> edges; // ascending, disjoint
        bool              accepts = false;
    };
    std::vector<state> states; // it begins in the first; none: the language holds no text

    bool empty() const { return states.empty(); }
    bool is_everything() const;
    bool holds(const std::string & utf8) const;
    // Of its shortest and its longest text, in characters; longest -1: there is none, 0 and 0: it is empty.
    std::pair<int64_t, int64_t> lengths() const;
};

language every_text();
language texts_of_length(int64_t low, int64_t high, work_budget & budget); // high -1: no limit
language these_texts(const std::vector<std::string> & utf8, work_budget & budget);

language both(const language & a, const language & b, work_budget & budget);
language either_of(const language & a, const language & b, work_budget & budget);
language without(const language & a, const language & b, work_budget & budget);

// Removes the states that reach no end.
void trim(language & l);

// How its characters are written.
enum class writing { plain, json_string };
// By state: so many plain characters may follow, whichever they are; grammar_rules::n_any: any number.
std::vector<int32_t> count_plain(const std::vector<language::state> & states);
// A rule for the texts of a language that is not empty.
grammar_element add_language(grammar_rules & rules, const language & l, writing how);
// A rule for one of these characters as a JSON string has it.
grammar_element json_character(grammar_rules & rules, const character_ranges & ranges);
