#include "util/utf8.h"

#include <cstdint>
#include <string_view>

const char * const replacement_character = "\xEF\xBF\xBD";

// The length of the character that starts at s[i]; 0 if it is invalid (then `n_bad` bytes are replaced), -1 if it is
// unfinished.
static int utf8_length(std::string_view s, size_t i, size_t & n_bad) {
    const auto byte = [&](size_t k) { return (uint8_t) s[k]; };

    const uint8_t lead = byte(i);
    n_bad              = 1;
    if (lead < 0x80) {
        return 1;
    }
    const int length = lead >= 0xC2 && lead <= 0xDF   ? 2
                       : lead >= 0xE0 && lead <= 0xEF ? 3
                       : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                      : 0;
    if (length == 0) {
        return 0;
    }
    // the second byte's range excludes overlong forms, surrogates and values above U+10FFFF
    const uint8_t low  = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (int k = 1; k < length; k++) {
        if (i + k >= s.size()) {
            return -1;
        }
        const uint8_t next = byte(i + k);
        if (next < (k == 1 ? low : 0x80) || next > (k == 1 ? high : 0xBF)) {
            n_bad = k;
            return 0;
        }
    }
    return length;
}

std::string take_utf8(std::string & bytes) {
    std::string text;
    text.reserve(bytes.size());
    size_t i = 0;
    while (i < bytes.size()) {
        size_t    n_bad  = 0;
        const int length = utf8_length(bytes, i, n_bad);
        if (length < 0) {
            break;
        }
        if (length > 0) {
            text.append(bytes, i, length);
            i += length;
        } else {
            text += replacement_character;
            i += n_bad;
        }
    }
    bytes.erase(0, i);
    return text;
}

std::string shortened(const std::string & text, size_t n_bytes) {
    std::string begin = text.substr(0, n_bytes);
    return text.size() <= n_bytes ? text : take_utf8(begin) + "…";
}
