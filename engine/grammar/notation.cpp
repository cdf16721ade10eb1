#include "grammar/notation.h"

#include "grammar/characters.h"
#include "util/json.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

static const int     n_max_nesting = 200; // of groups
static const int64_t n_max_repeat  = INT32_MAX;

notation_text::notation_text(std::string name, const std::string & utf8, std::string note)
    : text(std::make_shared<const std::u32string>(from_utf8(utf8))), name(std::move(name)),
      note(std::move(note)), end(text->size()) {}

bool notation_text::take(char32_t c) {
    const bool is_there = !at_end() && (*text)[i] == c;
    i += is_there;
    return is_there;
}

bool notation_text::take(const char * word) {
    const size_t n        = strlen(word);
    const bool   is_there = n <= n_left() && text->compare(i, n, std::u32string(word, word + n)) == 0;
    i += is_there ? n : 0;
    return is_there;
}

notation_text notation_text::part(size_t from, size_t to) const {
    notation_text out(*this);
    out.i       = from;
    out.end     = to;
    out.nesting = 0;
    return out;
}

char32_t notation_text::read_hex(int n_digits) {
    char32_t c = 0;
    for (int k = 0; k < n_digits; k++, i++) {
        const char32_t d = peek() | 0x20;
        if (!at_digit() && !(d >= 'a' && d <= 'f')) {
            fail("expected " + std::to_string(n_digits) + " hexadecimal digits, found " + found());
        }
        c = c << 4 | (at_digit() ? peek() - '0' : d - 'a' + 10);
    }
    if (!is_character(c)) {
        fail(i - n_digits, "this is the code of no character; codes are 0 to D7FF and E000 to 10FFFF");
    }
    return c;
}

int32_t notation_text::read_count() {
    const size_t at = i;
    int64_t      n  = 0;
    for (; at_digit(); i++) {
        n = std::min(n * 10 + (peek() - '0'), n_max_repeat + 1);
    }
    if (i == at) {
        fail("expected a number, found " + found());
    }
    if (n > n_max_repeat) {
        fail(at, "the number is too large; it must be at most " + std::to_string(n_max_repeat));
    }
    return (int32_t) n;
}

bool notation_text::read_repetition(repetition & found_one, const std::function<void()> & skip) {
    const size_t at = i;
    if (take('*') || take('+') || take('?')) {
        found_one = {(*text)[at] == '+' ? 1 : 0, (*text)[at] == '?' ? 1 : -1};
        return true;
    }
    if (!take('{')) {
        return false;
    }
    skip();
    const int32_t low  = peek() == ',' ? 0 : read_count();
    int32_t       high = low;
    skip();
    if (take(',')) {
        skip();
        high = at_digit() ? read_count() : -1;
        skip();
    }
    if (!take('}')) {
        fail("expected }, found " + found());
    }
    if (high >= 0 && high < low) {
        fail(at, "{" + std::to_string(low) + "," + std::to_string(high) +
                     "} ends before it begins; the first number must be at most the second");
    }
    found_one = {low, high};
    return true;
}

void notation_text::enter_group(size_t at) {
    if (++nesting > n_max_nesting) {
        fail(at, "groups are nested more than " + std::to_string(n_max_nesting) + " deep");
    }
}

std::string notation_text::found() const {
    return at_end() ? "the end" : "\"" + to_utf8((*text)[i]) + "\"";
}

void notation_text::fail(size_t at, const std::string & what) const {
    const auto place   = text->begin() + (std::ptrdiff_t) std::min(at, text->size());
    const auto n_lines = std::count(text->begin(), place, U'\n');
    const auto line    = std::find(std::make_reverse_iterator(place), text->rend(), U'\n').base();
    invalid(name, name + note + ": line " + std::to_string(n_lines + 1) + ", column " +
                      std::to_string(place - line + 1) + ": " + what);
}
