#include "grammar/structure.h"

#include "util/json.h"
#include "util/sandbox.h"

#include "common.h"
#include "json-schema-to-grammar.h"

#include <algorithm>
#include <cstring>

using json = nlohmann::json;

static const size_t  n_max_text      = 64 << 10; // bytes of a grammar, schema, expression, of all choices
static const size_t  n_max_converted = 1 << 20;  // bytes of the grammar that a schema becomes
static const size_t  n_max_choices   = 1024;
static const int     n_max_nesting   = 200; // of groups
static const int     n_max_depth     = 64;  // of a schema
static const int64_t n_max_repeat    = INT32_MAX;
static const size_t  n_kept          = 16; // grammars that no request uses any more

const std::vector<field_row> & structure_fields() {
    static const std::vector<field_row> rows = {
        {"grammar", any_string()},
        {"json_schema", either(any_string(), any_object())},
        {"regex", any_string()},
        {"choice", list_of(string_of(1, n_max_text), 1, n_max_choices)},
    };
    return rows;
}

//
// reading a notation
//

namespace {

// Characters with a place among them, and what is wrong at one.
struct reader {
    std::u32string      text;
    const char *        name;
    std::string         note; // behind the name
    const llama_vocab * vocab;
    size_t              i       = 0;
    int                 nesting = 0;

    reader(const char * name, const std::string & utf8, const llama_vocab * vocab, std::string note = "")
        : name(name), note(std::move(note)), vocab(vocab) {
        for (size_t k = 0; k < utf8.size();) { // valid UTF-8, since it was JSON
            const auto lead = (uint8_t) utf8[k++];
            const int  n    = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
            char32_t   c    = n == 0 ? lead : lead & (0x3F >> n);
            for (int m = 0; m < n && k < utf8.size(); m++) {
                c = c << 6 | ((uint8_t) utf8[k++] & 0x3F);
            }
            text.push_back(c);
        }
    }

    bool     at_end() const { return i >= text.size(); }
    char32_t peek(size_t k = 0) const { return i + k < text.size() ? text[i + k] : 0; }
    bool     take(char32_t c) {
        const bool there = !at_end() && text[i] == c;
        i += there;
        return there;
    }
    bool looking_at(const char * word) const {
        return text.compare(i, strlen(word), std::u32string(word, word + strlen(word))) == 0;
    }

    [[noreturn]] void fail(size_t at, const std::string & what) const {
        const auto end     = text.begin() + (std::ptrdiff_t) std::min(at, text.size());
        const auto n_lines = std::count(text.begin(), end, U'\n');
        const auto line    = std::find(std::make_reverse_iterator(end), text.rend(), U'\n').base();
        invalid(name, name + note + ": line " + std::to_string(n_lines + 1) + ", column " +
                          std::to_string(end - line + 1) + ": " + what);
    }
    [[noreturn]] void fail(const std::string & what) const { fail(i, what); }

    // What stands at the place, for a message.
    std::string here() const { return at_end() ? "the end" : "\"" + utf8(text[i]) + "\""; }

    static std::string utf8(char32_t c) {
        std::string out;
        const int   n = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        for (int k = n; k >= 0; k--) {
            const uint32_t part = (c >> (6 * k)) & (k == n && n > 0 ? 0x3Fu >> n : n == 0 ? 0x7Fu : 0x3Fu);
            out += (char) (k < n ? 0x80 | part : n == 0 ? part : ((0xFF00u >> (n + 1)) & 0xFF) | part);
        }
        return out;
    }

    char32_t read_hex(int n) {
        char32_t c = 0;
        for (int k = 0; k < n; k++, i++) {
            const char32_t d = peek() | 0x20;
            if (!((peek() >= '0' && peek() <= '9') || (d >= 'a' && d <= 'f'))) {
                fail("here must stand " + std::to_string(n) + " hexadecimal digits");
            }
            c = c << 4 | (peek() <= '9' ? peek() - '0' : d - 'a' + 10);
        }
        if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
            fail(i - n, "this is no character");
        }
        return c;
    }

    bool    at_digit() const { return peek() >= '0' && peek() <= '9'; }
    int32_t read_count() {
        const size_t at = i;
        int64_t      n  = 0;
        for (; at_digit(); i++) {
            n = std::min(n * 10 + (peek() - '0'), n_max_repeat + 1);
        }
        if (i == at) {
            fail("here must stand a number, not " + here());
        }
        if (n > n_max_repeat) {
            fail(at, "the number must be at most " + std::to_string(n_max_repeat));
        }
        return (int32_t) n;
    }

    // * + ? {m} {m,} {m,n}, of which the last two may have spaces within; false: none stands here.
    bool read_repetition(int32_t & low, int32_t & high, const std::function<void()> & skip) {
        const size_t at = i;
        if (take('*') || take('+') || take('?')) {
            low  = text[at] == '+' ? 1 : 0;
            high = text[at] == '?' ? 1 : -1;
            return true;
        }
        if (!take('{')) {
            return false;
        }
        skip();
        low = high = peek() == ',' ? 0 : read_count();
        skip();
        if (take(',')) {
            skip();
            high = at_digit() ? read_count() : -1;
            skip();
        }
        if (!take('}')) {
            fail("here must stand a }, not " + here());
        }
        if (high >= 0 && high < low) {
            fail(at, "{" + std::to_string(low) + "," + std::to_string(high) + "} ends before it begins");
        }
        return true;
    }

    void enter(size_t at) {
        if (++nesting > n_max_nesting) {
            fail(at, "groups are nested more than " + std::to_string(n_max_nesting) + " deep");
        }
    }
};

//
// regular expressions; docs/structure.md has the syntax
//

struct regex_reader : reader {
    grammar_rules & rules;
    const bool      in_json; // within a JSON string, as a schema's pattern: there it may match anywhere

    regex_reader(grammar_rules & rules, const char * name, const std::string & utf8,
                 const std::string & note = "")
        : reader(name, utf8, nullptr, note), rules(rules), in_json(!note.empty()) {}

    grammar_element read() {
        const int32_t rule = rules.add_rule(0);
        read_alternatives(rule);
        if (!at_end()) {
            fail("this ) closes no group");
        }
        return {grammar_element::rule, rule};
    }

    // In JSON some characters are written with a backslash; other control characters are left out.
    grammar_element one_of(const character_ranges & ranges, size_t where) {
        if (!in_json) {
            return rules.one_of(ranges, where);
        }
        static const std::map<char32_t, const char *> escapes = {
            {'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
            {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"},
        };
        character_ranges taken_out = grammar_rules::complement(ranges);
        taken_out.insert(taken_out.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
        const character_ranges plain = grammar_rules::complement(taken_out);
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
            fail(where, "this character cannot stand in JSON here");
        }
        return {grammar_element::rule, rule};
    }

    void append_anything(grammar_rules::sequence & out) {
        out.push_back(rules.repeat({one_of({{0, 0x10FFFF}}, i)}, 0, -1, i));
    }

    void read_alternatives(int32_t rule) {
        do {
            read_sequence(rule);
        } while (take('|'));
    }

    void read_sequence(int32_t rule) {
        grammar_rules::sequence out;
        const bool              loose = in_json && nesting == 0;
        if (!(nesting == 0 && take('^')) && loose) { // else everything is anchored
            append_anything(out);
        }
        bool ended = false;
        while (!at_end() && peek() != '|' && peek() != ')') {
            if (nesting == 0 && peek() == '$' && (i + 1 == text.size() || peek(1) == '|')) {
                i++;
                ended = true;
                break;
            }
            const size_t    at   = i;
            grammar_element item = read_item();
            int32_t         low = 1, high = 1;
            if (read_repetition(low, high, [] {})) {
                item = rules.repeat({item}, low, high, at);
                take('?'); // a lazy repetition takes the same texts
                if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') {
                    fail("a repetition cannot be repeated without a group");
                }
            }
            out.push_back(item);
        }
        if (loose && !ended) {
            append_anything(out);
        }
        rules.add_alternative(rule, out);
    }

    grammar_element read_item() {
        const size_t at = i;
        switch (peek()) {
            case '(': return read_group();
            case '[': return read_class();
            case '.': i++; return one_of({{0, '\n' - 1}, {'\n' + 1, 0x10FFFF}}, at);
            case '*':
            case '+':
            case '?':
            case '{':
                fail("there is nothing to repeat before " + here() + "; as a character it is written \\" +
                     utf8(peek()));
            case '^':
            case '$':
                fail(here() +
                     " may stand only at the beginning and the end; as a character it is written \\" +
                     utf8(peek()));
            case '\\': return one_of(read_escape(false), at);
        }
        const char32_t c = text[i++];
        return one_of({{c, c}}, at);
    }

    grammar_element read_group() {
        const size_t at = i++;
        enter(at);
        if (peek() == '?' && peek(1) != ':') {
            fail(at, "of groups there are (…) and (?:…); no look-around, no names, no flags");
        }
        i += peek() == '?' ? 2 : 0;
        const grammar_element group = {grammar_element::rule, rules.add_rule(at)};
        read_alternatives(group.value);
        if (!take(')')) {
            fail(at, "the group has no closing )");
        }
        nesting--;
        return group;
    }

    // After a backslash: a character or a class of them.
    character_ranges read_escape(bool in_class) {
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
        const size_t   at = i++;
        const char32_t c  = peek();
        i++;
        if (const auto known = classes.find(c); known != classes.end()) {
            return known->second;
        }
        if (c == 'D' || c == 'W' || c == 'S') {
            return grammar_rules::complement(classes.at(c | 0x20));
        }
        if (c == 'x' || c == 'u') {
            const char32_t code = read_hex(c == 'x' ? 2 : 4);
            return {{code, code}};
        }
        if (c < '!' || c > '~' || isalnum((int) c)) { // signs mean themselves
            i = std::min(i, text.size());
            fail(at, std::string("after \\ may stand d, w, s, D, W, S, n, t, r, f, v, x, u and signs") +
                         (in_class ? "" : "; no back-references, no \\b"));
        }
        return {{c, c}};
    }

    grammar_element read_class() {
        const size_t     at      = i++;
        const bool       negated = take('^');
        character_ranges ranges;
        for (bool first = true; first || peek() != ']'; first = false) {
            if (at_end()) {
                fail(at, "the set of characters has no closing ]");
            }
            const size_t     from = i;
            character_ranges low =
                peek() == '\\' ? read_escape(true) : character_ranges{{text[i], text[i++]}};
            if (peek() == '-' && peek(1) != ']' && i + 1 < text.size()) {
                i++;
                const auto high = peek() == '\\' ? read_escape(true) : character_ranges{{text[i], text[i++]}};
                if (low.size() != 1 || low[0].first != low[0].second || high.size() != 1 ||
                    high[0].first != high[0].second || high[0].first < low[0].first) {
                    fail(from, "this is no range of characters");
                }
                low[0].second = high[0].first;
            }
            ranges.insert(ranges.end(), low.begin(), low.end());
        }
        i++;
        ranges = negated ? grammar_rules::complement(ranges) : ranges;
        if (ranges.empty()) {
            fail(at, "the set holds no character");
        }
        return one_of(ranges, at);
    }
};

//
// GBNF, as llama.cpp's grammars/README.md describes it
//

const char * const pattern_mark = "structure-pattern-";

struct gbnf_reader : reader {
    using reader::reader;

    struct symbol {
        int32_t rule;
        size_t  at; // first met
        bool    defined = false;
    };

    grammar_rules                    rules;
    std::map<std::u32string, symbol> symbols;
    std::vector<std::string>
        patterns; // of a schema, for which texts stand that say pattern_mark and a number

    grammar_rules read() {
        rules.add_rule(0); // the root, which calls the rule of that name
        skip(true);
        while (!at_end()) {
            read_rule();
        }
        const auto root = symbols.find(U"root");
        if (root == symbols.end() || !root->second.defined) {
            fail("there is no rule root");
        }
        for (const auto & [word, s] : symbols) {
            if (!s.defined) {
                fail(s.at, "there is no rule " + std::string(word.begin(), word.end()));
            }
        }
        rules.add_alternative(0, {{grammar_element::rule, root->second.rule}});
        if (const int32_t rule = rules.find_left_recursion(); rule >= 0) {
            fail(rules.where(rule), "this rule comes to itself before it takes anything (left recursion)");
        }
        return std::move(rules);
    }

    void skip(bool lines) {
        while (!at_end() && (peek() == ' ' || peek() == '\t' || peek() == '#' ||
                             (lines && (peek() == '\n' || peek() == '\r')))) {
            if (peek() == '#') {
                while (!at_end() && peek() != '\n' && peek() != '\r') {
                    i++;
                }
            } else {
                i++;
            }
        }
    }

    bool at_word() const {
        const char32_t c = peek() | 0x20;
        return (c >= 'a' && c <= 'z') || at_digit() || peek() == '-';
    }

    symbol & read_word() {
        const size_t at = i;
        while (at_word()) {
            i++;
        }
        if (i == at) {
            fail("here must stand the name of a rule, not " + here());
        }
        const auto known = symbols.find(text.substr(at, i - at));
        return known != symbols.end()
                   ? known->second
                   : symbols.emplace(text.substr(at, i - at), symbol{rules.add_rule(at), at}).first->second;
    }

    void read_rule() {
        const size_t at = i;
        symbol &     s  = read_word();
        if (s.defined) {
            fail(at, "the rule " +
                         std::string(text.begin() + (std::ptrdiff_t) at, text.begin() + (std::ptrdiff_t) i) +
                         " is there already");
        }
        s.defined = true;
        rules.set_where(s.rule, at);
        skip(false);
        if (!looking_at("::=")) {
            fail("here must stand ::=, not " + here());
        }
        i += 3;
        skip(true);
        read_alternatives(s.rule, false);
        if (!at_end() && peek() != '\n' && peek() != '\r') {
            fail(here() + " is not possible here");
        }
        skip(true);
    }

    void read_alternatives(int32_t rule, bool in_group) {
        do {
            skip(true);
            read_sequence(rule, in_group);
        } while (take('|'));
    }

    void read_sequence(int32_t rule, bool in_group) {
        grammar_rules::sequence out, item;
        size_t                  at  = i;
        int32_t                 low = 1, high = 1;
        while (!at_end()) {
            if (read_item(item)) {
                out.insert(out.end(), item.begin(), item.end());
            } else if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') {
                if (item.empty() || out.size() < item.size()) {
                    fail("there is nothing to repeat before " + here());
                }
                at = i;
                read_repetition(low, high, [this] { skip(true); });
                out.resize(out.size() - item.size());
                item = {rules.repeat(item, low, high, at)};
                out.push_back(item[0]);
            } else {
                break;
            }
            skip(in_group);
        }
        rules.add_alternative(rule, out);
    }

    // What one repetition would be of; false: none begins here.
    bool read_item(grammar_rules::sequence & item) {
        const size_t at = i;
        if (take('"')) {
            item.clear();
            while (!take('"')) {
                rules.append_text(item, utf8(read_character("the text has no closing \"", at)));
            }
            if (!patterns.empty() && holds_mark(at)) {
                item = {read_pattern(at + 1)};
            }
        } else if (take('[')) {
            item = {read_class(at)};
        } else if (take('.')) {
            item = {rules.one_of({{0, 0x10FFFF}}, at)};
        } else if (take('(')) {
            enter(at);
            item = {{grammar_element::rule, rules.add_rule(at)}};
            read_alternatives(item[0].value, true);
            if (!take(')')) {
                at_end() ? fail(at, "the group has no closing )") : fail(here() + " is not possible here");
            }
            nesting--;
        } else if (peek() == '<' || peek() == '!') {
            item = {read_token()};
        } else if (at_word()) {
            item = {{grammar_element::rule, read_word().rule}};
        } else {
            return false;
        }
        return true;
    }

    bool holds_mark(size_t from) const {
        return text.find(std::u32string(pattern_mark, pattern_mark + strlen(pattern_mark)), from) < i;
    }

    grammar_element read_pattern(size_t at) {
        const size_t end    = i;
        i                   = at + strlen(pattern_mark);
        const size_t number = at_digit() ? (size_t) read_count() : patterns.size();
        if (i + 1 != end || number >= patterns.size()) {
            fail(at, "the schema has a pattern where none is possible");
        }
        i                           = end;
        const std::string & pattern = patterns.at(number);
        return regex_reader(rules, "json_schema", pattern, ", pattern " + pattern).read();
    }

    char32_t read_character(const char * unclosed, size_t opened_at) {
        if (at_end()) {
            fail(opened_at, unclosed);
        }
        if (!take('\\')) {
            return text[i++];
        }
        const char32_t c = peek();
        i++;
        switch (c) {
            case 'x':  return read_hex(2);
            case 'u':  return read_hex(4);
            case 'U':  return read_hex(8);
            case 't':  return '\t';
            case 'r':  return '\r';
            case 'n':  return '\n';
            case '\\':
            case '"':
            case '[':
            case ']':
            case '-':  return c;
        }
        fail(i - 2, "after \\ may stand x, u, U, t, r, n, \\, \", [, ] and -");
    }

    grammar_element read_class(size_t at) {
        const char *     unclosed = "the set of characters has no closing ]";
        const bool       negated  = take('^');
        character_ranges ranges;
        while (!take(']')) {
            const size_t   from = i;
            const char32_t low  = read_character(unclosed, at);
            char32_t       high = low;
            if (peek() == '-' && peek(1) != ']') {
                i++;
                high = read_character(unclosed, at);
            }
            if (high < low) {
                fail(from, "the range ends before it begins");
            }
            ranges.emplace_back(low, high);
        }
        ranges = negated ? grammar_rules::complement(ranges) : ranges;
        if (ranges.empty()) {
            fail(at, "the set holds no character");
        }
        return rules.one_of(ranges, at);
    }

    // <[123]>, <text>, and with ! all other tokens
    grammar_element read_token() {
        const size_t at   = i;
        const auto   what = take('!') ? grammar_element::other_token : grammar_element::token;
        const size_t from = i;
        const size_t end  = text.find(U'>', i);
        if (!take('<') || end == std::u32string::npos) {
            fail(at, "here must stand a token: <text> or <[id]>");
        }
        int32_t id = -1;
        if (take('[')) {
            id = read_count();
            if (!take(']') || i != end) {
                fail("here must stand ]>, not " + here());
            }
        } else {
            std::string token;
            for (size_t k = from; k <= end; k++) {
                token += utf8(text[k]);
            }
            const auto ids = common_tokenize(vocab, token, false, true);
            id             = ids.size() == 1 ? ids[0] : -1;
        }
        if (id < 0 || id >= llama_vocab_n_tokens(vocab)) {
            fail(at, "the model has no such token");
        }
        i = end + 1;
        return {what, id};
    }
};

//
// JSON schemas
//

// The schema with a mark in place of each pattern: llama.cpp's converter knows little of regular expressions,
// and takes them for what JSON's strings look like, not for what they say.
std::string take_patterns(const std::string & text, std::vector<std::string> & patterns) {
    bool       is_pattern = false; // the value that comes next
    const auto replace    = [&](int depth, nlohmann::ordered_json::parse_event_t event,
                                nlohmann::ordered_json & value) {
        using event_t = nlohmann::ordered_json::parse_event_t;
        if (depth > n_max_depth) {
            invalid("json_schema",
                    "json_schema is nested more than " + std::to_string(n_max_depth) + " levels deep");
        }
        if (std::exchange(is_pattern, event == event_t::key && value == "pattern") && value.is_string() &&
            event == event_t::value) {
            patterns.push_back(value.get<std::string>());
            value = std::string("^") + pattern_mark + std::to_string(patterns.size() - 1) + "$";
        }
        return true;
    };
    try {
        return nlohmann::ordered_json::parse(text, replace).dump();
    } catch (const nlohmann::json::exception & e) {
        invalid("json_schema", std::string("json_schema: ") + e.what());
    }
}

grammar_rules read_schema(const std::string & text, const llama_vocab * vocab) {
    std::vector<std::string> patterns;
    const std::string        marked = take_patterns(text, patterns);
    std::string              told; // warnings, then after \0 the grammar, or \0 and an error
    const auto               convert = [&marked]() -> std::string {
        try {
            return json_schema_to_grammar(common_json::parse(marked), true);
        } catch (const std::exception & e) {
            return std::string("\0", 1) + e.what();
        }
    };
    // its converter takes time and memory without bound for some schemas, and references in a circle overflow
    // its stack
    const bool   done = run_apart(convert, n_max_converted, told);
    const size_t mark = told.find('\0');
    if (!done || mark == std::string::npos) {
        invalid("json_schema", "json_schema is too large: its conversion to a grammar takes more than " +
                                   std::to_string(t_apart_ms / 1000) + " seconds or " +
                                   std::to_string(n_max_converted) + " bytes, or never ends");
    }
    std::string grammar = told.substr(mark + 1);
    if (mark > 0 || grammar.empty() ||
        grammar[0] == '\0') { // a warning says that the grammar would allow more
        std::string message =
            mark > 0 ? told.substr(0, mark) : grammar.substr(std::min<size_t>(1, grammar.size()));
        std::replace(message.begin(), message.end(), '\n', ' ');
        invalid("json_schema", "json_schema: " + message);
    }
    gbnf_reader reader("json_schema", grammar, vocab, ", as a grammar");
    reader.patterns = std::move(patterns);
    return reader.read();
}

//
// choices
//

grammar_rules read_choices(const std::string & text) {
    grammar_rules rules;
    rules.add_rule(0);
    for (const json & choice : json::parse(text)) {
        grammar_rules::sequence out;
        rules.append_text(out, choice.get<std::string>());
        rules.add_alternative(0, out);
    }
    return rules;
}

// The field as text, by which its grammar is found again.
std::string text_of(const json & value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

grammar_rules read_rules(const std::string & name, const std::string & text, const llama_vocab * vocab) {
    if (name == "grammar") {
        return gbnf_reader("grammar", text, vocab).read();
    }
    if (name == "regex") {
        grammar_rules rules;
        regex_reader(rules, "regex", text).read(); // its first rule is the root
        return rules;
    }
    return name == "choice" ? read_choices(text) : read_schema(text, vocab);
}

} // namespace

std::shared_ptr<grammar> structure_cache::make(const std::string & name, const std::string & text,
                                               const vocabulary_ptr & with) {
    try {
        grammar_rules rules = read_rules(name, text, vocabulary->vocab);
        return std::make_shared<grammar>(std::move(rules), with);
    } catch (const grammar_error & e) {
        invalid(name, name + ": line 1, column 1: " + e.what());
    }
}

std::shared_ptr<grammar> structure_cache::find(const json & fields) {
    std::vector<std::string> given;
    for (const field_row & row : structure_fields()) {
        if (fields.contains(row.name)) {
            given.push_back(row.name);
        }
    }
    if (given.empty()) {
        return nullptr;
    }
    if (given.size() > 1) {
        invalid(given[1], "only one of " + given[0] + " and " + given[1] + " may be given");
    }
    const std::string & name = given[0];
    const std::string   text = text_of(fields[name]);
    if (text.size() > n_max_text) {
        invalid(name, name + " has " + std::to_string(text.size()) + " bytes; it may have " +
                          std::to_string(n_max_text));
    }
    return find(name, text, name + " " + text, vocabulary);
}

std::shared_ptr<grammar> structure_cache::find_chat(const std::string &           text,
                                                    const std::set<llama_token> & shown) {
    if (text.size() > n_max_converted) {
        invalid("tools", "tools become a grammar of " + std::to_string(text.size()) + " bytes; it may have " +
                             std::to_string(n_max_converted));
    }
    vocabulary_ptr with;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        vocabulary_ptr &                  known_one = chat_vocabularies[shown];
        if (!known_one) {
            known_one = std::make_shared<token_tree>(vocabulary->vocab, shown);
        }
        with = known_one;
    }
    std::string key = "chat";
    for (llama_token token : shown) {
        key += " " + std::to_string(token);
    }
    return find("grammar", text, key + "\n" + text, with);
}

std::shared_ptr<grammar> structure_cache::find(const std::string & name, const std::string & text,
                                               const std::string & key, const vocabulary_ptr & with) {
    const auto find_known = [&] {
        return std::find_if(known.begin(), known.end(), [&](const auto & e) { return e.first == key; });
    };
    std::unique_lock<std::mutex> lock(mutex);
    auto                         entry = find_known();
    if (entry == known.end()) {
        lock.unlock(); // others go on while it is made
        auto made = make(name, text, with);
        lock.lock();
        known.emplace_front(key, std::move(made));
    } else {
        known.splice(known.begin(), known, entry);
    }
    const auto found = known.front().second;
    known.resize(std::min(known.size(), n_kept));
    return found;
}
