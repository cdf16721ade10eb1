// Rules that refer to themselves before any byte, which no automaton can follow, as rules that do not.
#pragma once

#include "grammar/rules.h"

// Rewrites a list like `sum ::= sum "+" number | number` as `number ("+" number)*`, of several rules, too. The
// texts stay the same; a rule that always begins with itself has none.
void remove_left_recursion(grammar_rules & rules);
