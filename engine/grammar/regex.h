// Regular expressions → rules; docs/structure.md has the syntax.
#pragma once

#include "grammar/notation.h"
#include "grammar/rules.h"

struct regex_style {
    bool lark     = false; // an expression of a Lark grammar: flags, no anchors, no lazy repetitions
    bool any_case = false; // letters of ASCII are both large and small
    bool dot_all  = false; // a dot is a line feed, too
    bool part     = false; // of a text, anywhere: no anchors
};

// Adds the rules of an expression that matches the text of a field, or a part of it, as a whole, and returns a
// reference to the first of them. Throws command_error.
grammar_element read_regex(grammar_rules & rules, notation_text in, regex_style style = {});
