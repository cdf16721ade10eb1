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
    regex_reader(grammar_rules & rules, notation_text in, bool in_json)
        : rules(rules), in(std::move(in)), in_json(in_json) {}

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

    bool            at_last_dollar() const;
    bool            at_repetition() const;
    grammar_element one_of(const character_ranges & ranges, size_t where);
    grammar_element one_of_in_json(const character_ranges & ranges, size_t where);
    void            append_anything(grammar_rules::sequence & out);

    grammar_rules & rules;
    notation_text   in;
    const bool      in_json;
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
    const bool              is_loose = in_json && !in.in_group(); // ^ and $ are not implied
    if (!(!in.in_group() && in.take('^')) && is_loose) {
        append_anything(out);
    }
    bool ended = false;
    while (!in.at_end() && in.peek() != '|' && in.peek() != ')') {
        if (at_last_dollar()) {
            ended = in.take('$');
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
    if (is_loose && !ended) {
        append_anything(out);
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
        case '\\': return one_of(read_escape(false), at);
        case '.':  in.next(); return one_of({{0, '\n' - 1}, {'\n' + 1, character_max}}, at);
        case '^':
        case '$':
            in.fail(in.found() +
                    " is allowed only at the beginning and the end; as a character it is written \\" +
                    to_utf8(in.peek()));
    }
    const char32_t c = in.next();
    return one_of({{c, c}}, at);
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
    return one_of(ranges, at);
}

grammar_element regex_reader::one_of(const character_ranges & ranges, size_t where) {
    return in_json ? one_of_in_json(ranges, where) : rules.one_of(ranges, where);
}

// In a JSON string some characters are escaped with a backslash; other control characters are never allowed.
grammar_element regex_reader::one_of_in_json(const character_ranges & ranges, size_t where) {
    static const std::map<char32_t, const char *> escapes = {
        {'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
        {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"},
    };
    character_ranges excluded = complement(ranges);
    excluded.insert(excluded.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
    const character_ranges plain = complement(excluded);
    const int32_t          rule  = rules.add_rule(where);
    if (!plain.empty()) {
        rules.add_alternative(rule, {rules.one_of(plain, where)});
    }
    for (const auto & [c, escaped] : escapes) {
        const auto holds = [c = c](const auto & range) { return range.first <= c && c <= range.second; };
        if (std::any_of(ranges.begin(), ranges.end(), holds)) {
            grammar_rules::sequence out;
            rules.append_text(out, escaped);
            rules.add_alternative(rule, out);
        }
    }
    if (rules.starts[rule].empty()) {
        in.fail(where, "a JSON string holds no control characters but \\b, \\t, \\n, \\f and \\r");
    }
    return {grammar_element::rule, rule};
}

void regex_reader::append_anything(grammar_rules::sequence & out) {
    const size_t at = in.place();
    out.push_back(rules.repeat({one_of({{0, character_max}}, at)}, 0, -1, at));
}

} // namespace

grammar_element read_regex(grammar_rules & rules, const std::string & expression) {
    return regex_reader(rules, notation_text("regex", expression), false).read();
}

grammar_element read_schema_pattern(grammar_rules & rules, const std::string & pattern) {
    return regex_reader(rules, notation_text("json_schema", pattern, ", pattern " + pattern), true).read();
}
