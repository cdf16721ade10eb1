// Bytes → valid UTF-8.
#pragma once

#include <string>

// What stands for invalid bytes: U+FFFD.
extern const char * const replacement_character;

// Moves complete characters from the front of `bytes` into the result, and U+FFFD for invalid bytes (one for each maximal
// invalid part, as Unicode 15 §3.9 recommends). An unfinished character at the end stays in `bytes`.
std::string take_utf8(std::string & bytes);

// The beginning of a text for a message, and "…" where it is longer.
std::string shortened(const std::string & text, size_t n_bytes = 80);
