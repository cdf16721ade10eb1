// The numbers within bounds, as texts. Knows nothing of schemas.
#pragma once

#include "grammar/schema/language.h"

#include <optional>
#include <string>
#include <vector>

// A decimal number, exactly: without leading zeros of `whole` (which is "0" below 1) or trailing ones of `fraction`.
struct decimal {
    bool        negative = false;
    std::string whole    = "0";
    std::string fraction;

    bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// From the text of a JSON number; nullopt: it has more than 400 digits.
std::optional<decimal> read_decimal(const std::string & text);
int                    compare(const decimal & a, const decimal & b); // -1, 0, 1
bool                   is_multiple(const decimal & value, const decimal & of);

struct number_bounds {
    std::optional<decimal> low, high;
    bool                   low_open = false, high_open = false;
    std::optional<decimal> multiple_of;
    bool                   no_multiple = false;               // it must not divide them
    bool                   integers = true, fractions = true; // which may be
    bool                   plain = false;                     // without exponents
};

// nullopt: `multiple_of` has no rule of a size that is borne.
std::optional<language> numbers_within(const number_bounds & bounds, work_budget & budget);
