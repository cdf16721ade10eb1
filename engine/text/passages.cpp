#include "text/passages.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

//
// characters
//

template <size_t n> static bool is_one_of(const std::array<uint32_t, n> & list, uint32_t c) {
    return std::find(list.begin(), list.end(), c) != list.end();
}

struct char_range {
    uint32_t first, last;
};

template <size_t n> static bool is_within(const std::array<char_range, n> & ranges, uint32_t c) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const char_range & r) { return r.first <= c && c <= r.last; });
}

// . ! ? … ‼ ⁇ ⁈ ⁉ ؟ ۔ । ． and those behind which no space stands: 。 ！ ？ ｡
static const std::array<uint32_t, 12> marks      = {'.',    '!',    '?',    0x2026, 0x203C, 0x2047,
                                                    0x2048, 0x2049, 0x061F, 0x06D4, 0x0964, 0xFF0E};
static const std::array<uint32_t, 4>  wide_marks = {0x3002, 0xFF01, 0xFF1F, 0xFF61};
// " ' ) ] } * _ ’ ” “ » « › ‹ and 」 』 】 》 〉 ） ］ ｣ 〕. Directly behind a mark “ « ‹ close, too: „So.“ »So.«
static const std::array<uint32_t, 23> closers = {
    '"',    '\'',   ')',    ']',    '}',    '*',    '_',    0x2019, 0x201D, 0x201C, 0xBB,  0xAB,
    0x203A, 0x2039, 0x300D, 0x300F, 0x3011, 0x300B, 0x3009, 0xFF09, 0xFF3D, 0xFF63, 0x3015};
static const std::array<uint32_t, 10> spaces = {' ',  '\t', '\r',   '\n',   '\v',
                                                '\f', 0xA0, 0x202F, 0x3000, 0x2009};
static const uint32_t opening_guillemet = 0xAB, closing_guillemet = 0xBB, no_break_space = 0xA0,
                      narrow_space = 0x202F;

// What is neither a letter nor a digit, above ASCII.
static const std::array<char_range, 6> symbols = {
    {{0x80, 0xBF}, {0xD7, 0xD7}, {0xF7, 0xF7}, {0x2000, 0x2BFF}, {0x3000, 0x303F}, {0xFF00, 0xFF0F}}};
static const std::array<char_range, 5> lower_case = {
    {{'a', 'z'}, {0xDF, 0xF6}, {0xF8, 0xFF}, {0x3AC, 0x3CE}, {0x430, 0x45F}}};
static const std::array<char_range, 5> upper_case = {
    {{'A', 'Z'}, {0xC0, 0xD6}, {0xD8, 0xDE}, {0x391, 0x3A9}, {0x400, 0x42F}}};

static bool is_mark(uint32_t c) {
    return is_one_of(marks, c) || is_one_of(wide_marks, c);
}

static bool is_space(uint32_t c) {
    return is_one_of(spaces, c);
}

static bool is_digit(uint32_t c) {
    return c >= '0' && c <= '9';
}

static bool is_word_char(uint32_t c) {
    const uint32_t lower = c | 0x20;
    return c < 0x80 ? is_digit(c) || (lower >= 'a' && lower <= 'z') : !is_within(symbols, c) && !is_mark(c);
}

// と and っ behind a closing quote go on with the sentence that has the quote, as "he said" does.
static bool goes_on(uint32_t c, bool closed) {
    return is_within(lower_case, c) || (closed && (c == 0x3068 || c == 0x3063));
}

// The character of these bytes, if they are all; else 0. Wrong bytes are a character each.
static uint32_t character_of(const std::string & bytes) {
    const auto   lead = (uint8_t) bytes[0];
    const size_t n    = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (bytes.size() < n) {
        return 0;
    }
    uint32_t c = n == 1 ? lead : lead & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        c = c << 6 | ((uint8_t) bytes[i] & 0x3F);
    }
    return std::max(c, 1u);
}

//
// abbreviations
//

// Behind these a name or a word follows, so no sentence ends; in lower case.
static const std::u32string_view before_words[] = {
    U"mr",  U"mrs",    U"ms",  U"mx",  U"dr",  U"prof", U"st", U"rev",    U"gen", U"col", U"capt", U"lt",
    U"sgt", U"maj",    U"gov", U"sen", U"hon", U"pres", U"mt", U"messrs", U"vs",  U"e.g", U"i.e",  U"cf",
    U"viz", U"approx", U"z.b", U"d.h", U"u.a", U"bzw",  U"hr", U"sra",    U"dra", U"mme", U"mlle"};
// Behind these a number may follow.
static const std::u32string_view before_numbers[] = {
    U"no",  U"nos", U"nr",  U"vol", U"ch",  U"fig", U"p",    U"pp",  U"art", U"sec", U"jan",
    U"feb", U"mar", U"apr", U"jun", U"jul", U"aug", U"sept", U"sep", U"oct", U"nov", U"dec"};
static const size_t n_longest = 8; // characters that are kept of a word

template <size_t n> static bool has_word(const std::u32string_view (&list)[n], std::u32string word) {
    std::transform(word.begin(), word.end(), word.begin(),
                   [](char32_t c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; });
    return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// "J", and "J.R" or "U.S"; not the word "I".
static bool is_initial(const std::u32string & word) {
    const size_t begin = word.rfind(U'.') + 1;
    return begin + 1 == word.size() && is_within(upper_case, word[begin]) && word != U"I";
}

static bool is_number(const std::u32string & word) {
    return !word.empty() && std::all_of(word.begin(), word.end(), is_digit);
}

bool passage_finder::is_abbreviation(uint32_t following) const {
    if (now.end != '.' || now.n_marks != 1 || now.closed) {
        return false;
    }
    return has_word(before_words, now.word) || is_initial(now.word) ||
           (now.begins_line && is_number(now.word)) ||
           (is_digit(following) && has_word(before_numbers, now.word));
}

//
// passages
//

bool passage_finder::next(char byte) {
    if (limit.n <= 0 || ended()) {
        return false;
    }
    character += byte;
    const uint32_t c = character_of(character);
    if (c == 0) {
        return false;
    }
    n_last = character.size();
    character.clear();
    return take(c);
}

size_t passage_finder::n_behind() const {
    if (ended()) {
        return now.n_spaces + n_last;
    }
    const bool may_end = n_ended + 1 == limit.n && now.has_text;
    return may_end ? now.n_spaces + character.size() : 0;
}

// What has been read stays, for n_behind(), if this is the last passage.
void passage_finder::end_passage() {
    n_ended++;
    if (!ended()) {
        const bool is_quoted = now.is_quoted;
        now                  = {};
        now.is_quoted        = is_quoted;
    }
}

bool passage_finder::take(uint32_t c) {
    if (is_over_before(c)) {
        end_passage();
    }
    if (ended()) {
        return true;
    }
    if (is_space(c)) {
        take_space(c);
        return false;
    }
    if (is_mark(c)) {
        take_mark(c);
    } else if (closes(c)) {
        take_closer();
    } else {
        take_plain(c);
    }
    now.line_is_new = false;
    now.n_spaces = now.n_breaks = 0;
    return false;
}

// Whether what has been read is a passage that ends before this character.
bool passage_finder::is_over_before(uint32_t c) const {
    const bool is_break = c == '\n';
    if (!now.has_text) {
        return false;
    }
    if (limit.unit == passage_unit::paragraphs) {
        return is_break;
    }
    if (is_break && now.n_breaks > 0) {
        return true;
    }
    if (now.n_marks == 0 || is_mark(c) || closes(c) || goes_on(c, now.closed) || (is_space(c) && !is_break)) {
        return false;
    }
    const bool is_apart = is_break || now.n_spaces > 0 || is_one_of(wide_marks, now.end);
    return is_apart && !is_abbreviation(c);
}

void passage_finder::take_space(uint32_t c) {
    now.n_spaces += n_last;
    now.n_breaks += c == '\n';
    now.line_is_new = c == '\n' || (now.line_is_new && now.n_breaks > 0);
    now.last_space  = c;
    now.in_word     = false;
}

// A sentence's end.
void passage_finder::take_mark(uint32_t c) {
    now.n_marks = now.closed ? 1 : now.n_marks + 1;
    now.end     = c;
    now.closed  = false;
    now.in_word = now.in_word && c == '.'; // "e.g"
}

// Whether a quote or a bracket closes behind the sentence's end; » also behind a space, as in French.
bool passage_finder::closes(uint32_t c) const {
    const bool is_typeset = now.last_space == no_break_space || now.last_space == narrow_space;
    const bool may_follow = now.n_spaces == 0 || (c == closing_guillemet && (now.is_quoted || is_typeset));
    return now.n_marks > 0 && may_follow && is_one_of(closers, c);
}

void passage_finder::take_closer() {
    now.closed    = true;
    now.in_word   = false;
    now.is_quoted = false;
}

void passage_finder::take_plain(uint32_t c) {
    const bool is_in_word = is_word_char(c);
    if (is_in_word && !now.in_word) {
        now.word.clear();
        now.begins_line = now.line_is_new;
    } else if (is_in_word && now.n_marks > 0) {
        now.word += U'.';
    }
    if (is_in_word && now.word.size() < n_longest) {
        now.word += c;
    }
    now.has_text  = now.has_text || is_in_word || limit.unit == passage_unit::paragraphs;
    now.in_word   = is_in_word;
    now.is_quoted = c == opening_guillemet || (now.is_quoted && c != closing_guillemet);
    now.n_marks   = 0;
    now.closed    = false;
}
