// Characters as Unicode code points: ranges of them, and their UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

constexpr uint32_t character_max = 0x10FFFF;

using character_ranges = std::vector<std::pair<uint32_t, uint32_t>>; // of code points, both ends included

// Surrogates have code points, but are no characters.
inline bool is_character(uint32_t c) {
    return c <= character_max && (c < 0xD800 || c >= 0xE000);
}

// The same characters in ascending ranges that neither overlap nor touch.
character_ranges merged(character_ranges ranges);
// All other code points.
character_ranges complement(character_ranges ranges);

// Plain characters are those that texts of all kinds may have: none that is escaped, ends a string or a line, or
// begins a tag.
bool is_plain(uint32_t c);
bool hold_plain(const character_ranges & ranges); // all of them
bool touch_plain(uint32_t low, uint32_t high);    // the range holds one

std::string    to_utf8(char32_t c);
std::u32string from_utf8(const std::string & utf8); // the text must be valid UTF-8
