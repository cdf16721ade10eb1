// Regular expressions as JavaScript has them → languages. Knows nothing of schemas.
#pragma once

#include "grammar/schema/language.h"

#include <stdexcept>
#include <string>

// Why an expression has no language here.
struct pattern_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The texts in which the expression matches somewhere.
language read_pattern(const std::string & expression, work_budget & budget);
