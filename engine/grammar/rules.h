// The rules of a grammar over bytes, as the readers of notations build them.
#pragma once

#include "grammar/characters.h"

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// A grammar is too large or too ambiguous.
struct grammar_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

using byte_set = std::bitset<256>;

struct grammar_element {
    enum kind { end, bytes, token, other_token, rule };

    kind    what = end;
    int32_t value =
        0; // bytes: the set; token: the id that matches; other_token: the list of ids that do not; rule
    int32_t low  = 1; // rule: its minimum number of repetitions
    int32_t high = 1; // its maximum; -1: no limit
};

// Rule 0 is the root; a rule is a list of alternatives.
class grammar_rules {
  public:
    using sequence = std::vector<grammar_element>;

    // What plain characters (grammar/characters.h) a rule is known to allow; less than the truth is no fault.
    struct plain_texts {
        bool    one   = false; // each of them is a text of the rule
        int32_t first = 0;     // any so many may stand at its beginning; n_any: any number
    };
    static constexpr int32_t n_any = INT32_MAX;

    // where: the place of its definition in the source, in characters.
    int32_t add_rule(size_t where);
    void    set_where(int32_t rule, size_t where) { definitions[rule] = where; }
    size_t  where(int32_t rule) const { return definitions[rule]; }
    void    add_alternative(int32_t rule, const sequence & elements);

    void            append_text(sequence & out, std::string_view utf8);
    grammar_element one_of(character_ranges ranges, size_t where); // the ranges must hold a character
    grammar_element other_than(std::vector<int32_t> tokens);       // any token that is none of these
    grammar_element append(const grammar_rules & other);           // its root
    grammar_element repeat(const sequence & item, int32_t low, int32_t high, size_t where);

    // A rule that refers to itself before any byte: no automaton can follow it; -1: none.
    int32_t find_left_recursion() const;
    // Which rules match the empty text.
    std::vector<bool> find_empty_rules() const;
    // By rule: the rules that may begin at its own beginning.
    std::vector<std::vector<int32_t>> find_first_rules() const;
    // Which rules have a text that ends.
    std::vector<bool> find_ending() const;
    // Removes alternatives by which no text ends. False: no text of the root does.
    bool remove_endless();

    std::vector<grammar_element>                elements; // of all alternatives, each ended by `end`
    std::vector<std::vector<int32_t>>           starts; // by rule: where its alternatives begin in `elements`
    std::vector<byte_set>                       sets;
    std::vector<std::vector<int32_t>>           token_lists;     // each sorted
    std::vector<plain_texts>                    plain;           // by rule
    std::map<character_ranges, grammar_element> json_characters; // as a JSON string has them

  private:
    int32_t set_id(const byte_set & set);
    void    add_encoded(int32_t rule, uint32_t low, uint32_t high);

    bool is_passable(const grammar_element & e, const std::vector<bool> & may_be_empty) const;

    std::vector<size_t>                         definitions; // by rule
    std::unordered_map<byte_set, int32_t>       set_ids;
    std::map<character_ranges, grammar_element> characters; // elements that one_of has made
};
