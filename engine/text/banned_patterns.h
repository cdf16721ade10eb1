// Regular expressions that must not match any part of a text.
#pragma once

#include "grammar/rules.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// As a request has it.
struct banned_regex {
    size_t      index; // in its list
    std::string text;
};

// What the expressions of one request may still take to be made.
struct pattern_budget {
    int64_t n_states = 1 << 13;
    int64_t n_work   = 1 << 20; // some tenths of a second
};

// Looks for all expressions at all places of a text, byte by byte. Many texts share one finder; each has its own list of
// matches that may have begun.
class pattern_finder {
  public:
    struct begun {
        size_t  at; // the place of its first byte
        int32_t state;
    };

    static constexpr size_t none = SIZE_MAX;

    // Throws command_error: an expression has no exact meaning, or no longest match, or is too large.
    pattern_finder(const std::vector<banned_regex> & list, pattern_budget & budget);

    // Takes the byte at this place. The list has the earliest matches first. Returns where the earliest one begins that is
    // complete with this byte.
    size_t next(std::vector<begun> & list, char byte, size_t at) const;

  private:
    struct state {
        bool may_end = false, goes_on = false;
    };

    void compute(grammar_rules && rules, pattern_budget & budget);

    int32_t              classes[256] = {}; // by byte
    int32_t              n_classes    = 0;
    std::vector<int32_t> to; // by state and class; -1: no match
    std::vector<state>   states;
};

using pattern_finder_ptr = std::shared_ptr<const pattern_finder>; // nullptr: no expressions
