#include "grammar/regex.h"

#include "grammar/notation.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <utility>

namespace {

bool is_single(const character_ranges & ranges) {
    return ranges.size() == 1 && ranges[0].first == ranges[0].second;
}

class regex_reader {
  public:
    regex_reader(grammar_rules & rules, notation_text in, regex_style style)
        : rules(rules), in(std::move(in)), style(style) {}

    grammar_element read() {
        const int32_t rule = rules.add_rule(0);
        read_alternatives(rule);
        if (!in.at_end()) {
            in.fail("this ) closes no group; as a character it is written \\)");
        }
        return {grammar_element::rule, rule};
    }

  private:
    void             read_alternatives(int32_t rule);
    void             read_sequence(int32_t rule);
    grammar_element  read_item();
    grammar_element  read_group();
    bool             read_flags();
    grammar_element  read_class();
    character_ranges read_escape(bool in_class);
    character_ranges read_class_item();
    character_ranges in_any_case(character_ranges ranges, size_t at) const;

    bool at_last_dollar() const;
    bool at_repetition() const;

    grammar_rules & rules;
    notation_text   in;
    regex_style     style; // here
};

//
// structure
//

void regex_reader::read_alternatives(int32_t rule) {
    do {
        read_sequence(rule);
    } while (in.take('|'));
}

// A $ that ends an alternative of the whole expression.
bool regex_reader::at_last_dollar() const {
    const char32_t after = in.peek(1);
    return !style.lark && !style.part && !in.in_group() && in.peek() == '$' &&
           (in.n_left() == 1 || after == '|');
}

bool regex_reader::at_repetition() const {
    return in.peek() == '*' || in.peek() == '+' || in.peek() == '?' || in.peek() == '{';
}

void regex_reader::read_sequence(int32_t rule) {
    grammar_rules::sequence out;
    if (!style.lark && !style.part && !in.in_group()) {
        in.take('^'); // it says nothing new
    }
    while (!in.at_end() && in.peek() != '|' && in.peek() != ')') {
        if (at_last_dollar()) {
            in.take('$');
            break;
        }
        const size_t    at   = in.place();
        grammar_element item = read_item();
        repetition      times;
        if (in.read_repetition(times, [] {})) {
            item = rules.repeat({item}, times.low, times.high, at);
            if (style.lark && in.peek() == '?') {
                in.fail("a lazy repetition needs a lexer, and there is none here; write what the text may "
                        "not hold");
            }
            in.take('?'); // a lazy repetition matches the same texts
            if (at_repetition()) {
                in.fail("a repetition cannot be repeated without a group");
            }
        }
        out.push_back(item);
    }
    rules.add_alternative(rule, out);
}

grammar_element regex_reader::read_item() {
    const size_t at = in.place();
    if (at_repetition()) {
        in.fail("there is nothing to repeat before " + in.found() + "; as a character it is written \\" +
                to_utf8(in.peek()));
    }
    switch (in.peek()) {
        case '(':  return read_group();
        case '[':  return read_class();
        case '\\': {
            const character_ranges found = read_escape(false);
            return rules.one_of(is_single(found) ? in_any_case(found, at) : found, at);
        }
        case '.':
            in.next();
            return rules.one_of(style.dot_all ? complement({}) : complement({{'\n', '\n'}}), at);
        case '^':
        case '$':
            in.fail(in.found() +
                    (style.lark   ? " is no part of a terminal"
                     : style.part ? " is not possible: a match may stand anywhere in the text"
                                  : " is allowed only at the beginning and the end") +
                    "; as a character it is written \\" + to_utf8(in.peek()));
    }
    const char32_t c = in.next();
    return rules.one_of(in_any_case({{c, c}}, at), at);
}

grammar_element regex_reader::read_group() {
    const size_t at = in.place();
    in.next();
    in.enter_group(at);
    const regex_style     around = style;
    const grammar_element group  = {grammar_element::rule, rules.add_rule(at)};
    if (in.peek() == '?' && !in.take("?:")) {
        if (!style.lark || !read_flags()) {
            in.fail(at, style.lark
                            ? "a group is (…), (?:…) or (?flags:…) with the flags i and s; no look-around, "
                              "no names"
                            : "a group is (…) or (?:…); no look-around, no names, no flags");
        }
        if (in.take(')')) { // the flags are of what follows
            in.leave_group();
            rules.add_alternative(group.value, {});
            return group;
        }
        in.take(':');
    }
    read_alternatives(group.value);
    if (!in.take(')')) {
        in.fail(at, "the group has no closing )");
    }
    in.leave_group();
    style = around;
    return group;
}

// ?i ?s ?is ?-s …, before : or ). False: it is something else.
bool regex_reader::read_flags() {
    in.next();
    const size_t from = in.place();
    bool         on   = true;
    while (in.peek() != ':' && in.peek() != ')') {
        if (in.take('-')) {
            on = false;
        } else if (in.take('i')) {
            style.any_case = on;
        } else if (in.take('s')) {
            style.dot_all = on;
        } else if (!in.take('u')) {
            return false;
        }
    }
    return in.place() > from;
}

//
// characters
//

// After a backslash: a character, or a class of characters.
character_ranges regex_reader::read_escape(bool in_class) {
    static const std::map<char32_t, character_ranges> classes = {
        {'d', {{'0', '9'}}},
        {'w', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
        {'s', {{'\t', '\r'}, {' ', ' '}}},
        {'n', {{'\n', '\n'}}},
        {'t', {{'\t', '\t'}}},
        {'r', {{'\r', '\r'}}},
        {'f', {{'\f', '\f'}}},
        {'v', {{'\v', '\v'}}},
    };
    const size_t at = in.place();
    in.next();
    const std::string found    = in.found();
    const char32_t    c        = in.peek();
    const bool        is_class = strchr("dwsDWSntrfvxu", (int) c) != nullptr;
    if (c == 0 || c > '~' || !(isalnum((int) c) ? is_class : ispunct((int) c) || isspace((int) c))) {
        in.fail(at,
                "expected d, w, s, D, W, S, n, t, r, f, v, x, u, punctuation or a space after \\, found " +
                    found + (in_class ? "" : "; no back-references, no \\b"));
    }
    in.next();
    if (const auto known = classes.find(c); known != classes.end()) {
        return known->second;
    }
    if (c == 'D' || c == 'W' || c == 'S') {
        return complement(classes.at(c | 0x20));
    }
    if (c == 'x' || c == 'u') {
        const bool braces = in.take('{');
        int        n      = 0;
        while (braces && n < 8 && in.peek((size_t) n) != '}') {
            n++;
        }
        const char32_t code = in.read_hex(braces ? n : c == 'x' ? 2 : 4);
        if (braces && (n == 0 || !in.take('}'))) {
            in.fail(at, "expected hexadecimal digits and } after " + found + "{");
        }
        return {{code, code}};
    }
    return {{c, c}}; // punctuation and spaces, which Python's re.escape escapes, stand for themselves
}

// A character or an escape in [ ].
character_ranges regex_reader::read_class_item() {
    if (in.peek() == '\\') {
        return read_escape(true);
    }
    const bool twice = in.peek() == in.peek(1) && (in.peek() == '&' || in.peek() == '~' || in.peek() == '-');
    if (style.lark && (in.peek() == '[' || twice)) {
        in.fail("a set in a set, or of what two sets share, has no rule here; as a character " + in.found() +
                " is written \\" + to_utf8(in.peek()));
    }
    const char32_t c = in.next();
    return {{c, c}};
}

// Letters with their other case, where a flag says so.
character_ranges regex_reader::in_any_case(character_ranges ranges, size_t at) const {
    if (!style.any_case) {
        return ranges;
    }
    for (size_t i = 0, n = ranges.size(); i < n; i++) {
        const auto [low, high] = ranges[i];
        if (high >= 0x80) {
            in.fail(at, "with the flag i only characters of ASCII are read");
        }
        for (uint32_t c = low; c <= high; c++) {
            if (isalpha((int) c)) {
                ranges.emplace_back(c ^ 0x20, c ^ 0x20);
            }
        }
    }
    return ranges;
}

grammar_element regex_reader::read_class() {
    const size_t at = in.place();
    in.next();
    const bool       negated = in.take('^');
    character_ranges ranges;
    for (bool first = true; first || in.peek() != ']'; first = false) {
        if (in.at_end()) {
            in.fail(at, "the set of characters has no closing ]");
        }
        const size_t     from = in.place();
        character_ranges low  = read_class_item();
        if (in.peek() == '-' && in.peek(1) != ']' && in.n_left() > 1) {
            in.next();
            const character_ranges high = read_class_item();
            if (!is_single(low) || !is_single(high) || high[0].first < low[0].first) {
                in.fail(from, "this is no range; a range is two characters in ascending order");
            }
            low[0].second = high[0].first;
            low           = in_any_case(low, from);
        } else if (is_single(low)) {
            low = in_any_case(low, from);
        }
        ranges.insert(ranges.end(), low.begin(), low.end());
    }
    in.next();
    ranges = negated ? complement(ranges) : ranges;
    if (ranges.empty()) {
        in.fail(at, "the set holds no character");
    }
    return rules.one_of(ranges, at);
}

} // namespace

grammar_element read_regex(grammar_rules & rules, notation_text in, regex_style style) {
    return regex_reader(rules, std::move(in), style).read();
}
