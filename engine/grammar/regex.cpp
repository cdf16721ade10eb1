#include "grammar/regex.h"

#include "grammar/notation.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <utility>

namespace {

class regex_reader {
  public:
    regex_reader(grammar_rules & rules, notation_text in) : rules(rules), in(std::move(in)) {}

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
    grammar_element  read_class();
    character_ranges read_escape(bool in_class);
    character_ranges read_class_item();

    bool at_last_dollar() const;
    bool at_repetition() const;

    grammar_rules & rules;
    notation_text   in;
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
    return !in.in_group() && in.peek() == '$' && (in.n_left() == 1 || after == '|');
}

bool regex_reader::at_repetition() const {
    return in.peek() == '*' || in.peek() == '+' || in.peek() == '?' || in.peek() == '{';
}

void regex_reader::read_sequence(int32_t rule) {
    grammar_rules::sequence out;
    if (!in.in_group()) {
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
        case '\\': return rules.one_of(read_escape(false), at);
        case '.':  in.next(); return rules.one_of({{0, '\n' - 1}, {'\n' + 1, character_max}}, at);
        case '^':
        case '$':
            in.fail(in.found() +
                    " is allowed only at the beginning and the end; as a character it is written \\" +
                    to_utf8(in.peek()));
    }
    const char32_t c = in.next();
    return rules.one_of({{c, c}}, at);
}

grammar_element regex_reader::read_group() {
    const size_t at = in.place();
    in.next();
    in.enter_group(at);
    if (in.peek() == '?' && !in.take("?:")) {
        in.fail(at, "a group is (…) or (?:…); no look-around, no names, no flags");
    }
    const grammar_element group = {grammar_element::rule, rules.add_rule(at)};
    read_alternatives(group.value);
    if (!in.take(')')) {
        in.fail(at, "the group has no closing )");
    }
    in.leave_group();
    return group;
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
        const char32_t code = in.read_hex(c == 'x' ? 2 : 4);
        return {{code, code}};
    }
    return {{c, c}}; // punctuation and spaces, which Python's re.escape escapes, stand for themselves
}

// A character or an escape in [ ].
character_ranges regex_reader::read_class_item() {
    if (in.peek() == '\\') {
        return read_escape(true);
    }
    const char32_t c = in.next();
    return {{c, c}};
}

static bool is_single(const character_ranges & ranges) {
    return ranges.size() == 1 && ranges[0].first == ranges[0].second;
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

grammar_element read_regex(grammar_rules & rules, const std::string & expression) {
    return regex_reader(rules, notation_text("regex", expression)).read();
}
