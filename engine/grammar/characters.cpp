#include "grammar/characters.h"

#include <algorithm>

character_ranges merged(character_ranges ranges) {
    std::sort(ranges.begin(), ranges.end());
    character_ranges out;
    for (const auto & [low, high] : ranges) {
        if (!out.empty() && low <= out.back().second + 1) {
            out.back().second = std::max(out.back().second, high);
        } else {
            out.emplace_back(low, high);
        }
    }
    return out;
}

character_ranges complement(character_ranges ranges) {
    character_ranges out;
    uint32_t         from = 0;
    for (const auto & [low, high] : merged(std::move(ranges))) {
        if (low > from) {
            out.emplace_back(from, low - 1);
        }
        from = high + 1;
    }
    if (from <= character_max) {
        out.emplace_back(from, character_max);
    }
    return out;
}

// Ascending, as are the ranges of all plain characters.
static const character_ranges & plain_ranges() {
    static const character_ranges out = complement(
        {{0, 0x1F}, {'"', '"'}, {'<', '<'}, {'\\', '\\'}, {0x7F, 0x7F}, {0x2028, 0x2029}, {0xD800, 0xDFFF}});
    return out;
}

bool touch_plain(uint32_t low, uint32_t high) {
    const character_ranges & all = plain_ranges();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto & range) { return range.first <= high && low <= range.second; });
}

bool is_plain(uint32_t c) {
    return touch_plain(c, c);
}

bool hold_plain(const character_ranges & ranges) {
    const character_ranges others = complement(ranges);
    return std::none_of(others.begin(), others.end(),
                        [](const auto & range) { return touch_plain(range.first, range.second); });
}

std::string to_utf8(char32_t c) {
    std::string out;
    const int   n = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; // continuation bytes
    for (int k = n; k >= 0; k--) {
        const uint32_t part = (c >> (6 * k)) & (k == n && n > 0 ? 0x3Fu >> n : n == 0 ? 0x7Fu : 0x3Fu);
        out += (char) (k < n ? 0x80 | part : n == 0 ? part : ((0xFF00u >> (n + 1)) & 0xFF) | part);
    }
    return out;
}

std::u32string from_utf8(const std::string & utf8) {
    std::u32string text;
    for (size_t i = 0; i < utf8.size();) {
        const auto lead = (uint8_t) utf8[i++];
        const int  n    = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3; // continuation bytes
        char32_t   c    = n == 0 ? lead : lead & (0x3F >> n);
        for (int k = 0; k < n && i < utf8.size(); k++) {
            c = c << 6 | ((uint8_t) utf8[i++] & 0x3F);
        }
        text.push_back(c);
    }
    return text;
}
