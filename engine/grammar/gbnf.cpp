#include "grammar/gbnf.h"

#include "grammar/characters.h"
#include "grammar/left_recursion.h"
#include "grammar/tokens.h"

#include <map>
#include <utility>

namespace {

class gbnf_reader {
  public:
    gbnf_reader(notation_text in, const llama_vocab * vocab, const literal_hook & hook)
        : in(std::move(in)), tokens(vocab), hook(hook) {}

    grammar_rules read();

  private:
    struct symbol {
        int32_t rule;
        size_t  at; // its first place
        bool    defined = false;
    };

    void skip(bool lines);
    bool at_word() const;
    bool at_line_end() const { return in.peek() == '\n' || in.peek() == '\r'; }
    bool at_repetition() const;

    symbol &        read_word();
    void            read_rule();
    void            read_alternatives(int32_t rule, bool in_group);
    void            read_sequence(int32_t rule, bool in_group);
    bool            read_item(grammar_rules::sequence & item);
    void            read_literal(grammar_rules::sequence & item, size_t at);
    grammar_element read_group(size_t at);
    grammar_element read_class(size_t at);
    grammar_element read_token();
    char32_t        read_character(const char * unclosed, size_t opened_at);
    void            check_symbols();

    notation_text                    in;
    token_names                      tokens;
    const literal_hook &             hook;
    grammar_rules                    rules;
    std::map<std::u32string, symbol> symbols;
};

//
// rules
//

grammar_rules gbnf_reader::read() {
    rules.add_rule(0); // the root, which refers to the rule of that name
    skip(true);
    while (!in.at_end()) {
        read_rule();
    }
    check_symbols();
    rules.add_alternative(0, {{grammar_element::rule, symbols.at(U"root").rule}});
    remove_left_recursion(rules);
    return std::move(rules);
}

void gbnf_reader::check_symbols() {
    const auto root = symbols.find(U"root");
    if (root == symbols.end() || !root->second.defined) {
        in.fail("there is no rule root");
    }
    for (const auto & [word, s] : symbols) {
        if (!s.defined) {
            in.fail(s.at, "there is no rule " + std::string(word.begin(), word.end()));
        }
    }
}

// Spaces and comments; line ends, too, if `lines`.
void gbnf_reader::skip(bool lines) {
    while (in.peek() == ' ' || in.peek() == '\t' || in.peek() == '#' || (lines && at_line_end())) {
        if (in.next() == '#') {
            while (!in.at_end() && !at_line_end()) {
                in.next();
            }
        }
    }
}

bool gbnf_reader::at_word() const {
    const char32_t c = in.peek() | 0x20;
    return (c >= 'a' && c <= 'z') || in.at_digit() || in.peek() == '-';
}

bool gbnf_reader::at_repetition() const {
    return in.peek() == '*' || in.peek() == '+' || in.peek() == '?' || in.peek() == '{';
}

gbnf_reader::symbol & gbnf_reader::read_word() {
    const size_t at = in.place();
    while (at_word()) {
        in.next();
    }
    if (in.place() == at) {
        in.fail("expected the name of a rule, found " + in.found());
    }
    const std::u32string word  = in.slice(at, in.place());
    const auto           known = symbols.find(word);
    return known != symbols.end() ? known->second
                                  : symbols.emplace(word, symbol{rules.add_rule(at), at}).first->second;
}

void gbnf_reader::read_rule() {
    const size_t at = in.place();
    symbol &     s  = read_word();
    if (s.defined) {
        const std::u32string word = in.slice(at, in.place());
        in.fail(at, "the rule " + std::string(word.begin(), word.end()) + " is defined already");
    }
    s.defined = true;
    rules.set_where(s.rule, at);
    skip(false);
    if (!in.take("::=")) {
        in.fail("expected ::=, found " + in.found());
    }
    skip(true);
    read_alternatives(s.rule, false);
    if (!in.at_end() && !at_line_end()) {
        in.fail("expected the end of the line, found " + in.found());
    }
    skip(true);
}

void gbnf_reader::read_alternatives(int32_t rule, bool in_group) {
    do {
        skip(true);
        read_sequence(rule, in_group);
    } while (in.take('|'));
}

void gbnf_reader::read_sequence(int32_t rule, bool in_group) {
    grammar_rules::sequence out, item; // the last item may be repeated
    while (!in.at_end()) {
        if (read_item(item)) {
            out.insert(out.end(), item.begin(), item.end());
        } else if (at_repetition()) {
            if (item.empty() || out.size() < item.size()) {
                in.fail("there is nothing to repeat before " + in.found());
            }
            const size_t at = in.place();
            repetition   times;
            in.read_repetition(times, [this] { skip(true); });
            out.resize(out.size() - item.size());
            item = {rules.repeat(item, times.low, times.high, at)};
            out.push_back(item[0]);
        } else {
            break;
        }
        skip(in_group);
    }
    rules.add_alternative(rule, out);
}

//
// items
//

// False: no item begins here.
bool gbnf_reader::read_item(grammar_rules::sequence & item) {
    const size_t at = in.place();
    if (in.take('"')) {
        read_literal(item, at);
    } else if (in.take('[')) {
        item = {read_class(at)};
    } else if (in.take('.')) {
        item = {rules.one_of({{0, character_max}}, at)};
    } else if (in.take('(')) {
        item = {read_group(at)};
    } else if (in.peek() == '<' || in.peek() == '!') {
        item = {read_token()};
    } else if (at_word()) {
        item = {{grammar_element::rule, read_word().rule}};
    } else {
        return false;
    }
    return true;
}

void gbnf_reader::read_literal(grammar_rules::sequence & item, size_t at) {
    std::string literal;
    while (!in.take('"')) {
        literal += to_utf8(read_character("the text has no closing \"", at));
    }
    item.clear();
    const auto replacement = hook ? hook(rules, literal) : std::nullopt;
    if (replacement) {
        item = {*replacement};
    } else {
        rules.append_text(item, literal);
    }
}

grammar_element gbnf_reader::read_group(size_t at) {
    in.enter_group(at);
    const grammar_element group = {grammar_element::rule, rules.add_rule(at)};
    read_alternatives(group.value, true);
    if (in.at_end()) {
        in.fail(at, "the group has no closing )");
    }
    if (!in.take(')')) {
        in.fail("expected ), found " + in.found());
    }
    in.leave_group();
    return group;
}

char32_t gbnf_reader::read_character(const char * unclosed, size_t opened_at) {
    if (in.at_end()) {
        in.fail(opened_at, unclosed);
    }
    const size_t at = in.place();
    if (!in.take('\\')) {
        return in.next();
    }
    const std::string found = in.found();
    const char32_t    c     = in.at_end() ? 0 : in.next();
    switch (c) {
        case 'x':  return in.read_hex(2);
        case 'u':  return in.read_hex(4);
        case 'U':  return in.read_hex(8);
        case 't':  return '\t';
        case 'r':  return '\r';
        case 'n':  return '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':  return c;
    }
    in.fail(at, "expected x, u, U, t, r, n, \\, \", [, ] or - after \\, found " + found);
}

grammar_element gbnf_reader::read_class(size_t at) {
    const char *     unclosed = "the set of characters has no closing ]";
    const bool       negated  = in.take('^');
    character_ranges ranges;
    while (!in.take(']')) {
        const size_t   from = in.place();
        const char32_t low  = read_character(unclosed, at);
        char32_t       high = low;
        if (in.peek() == '-' && in.peek(1) != ']') {
            in.next();
            high = read_character(unclosed, at);
        }
        if (high < low) {
            in.fail(from, "the range ends before it begins");
        }
        ranges.emplace_back(low, high);
    }
    ranges = negated ? complement(ranges) : ranges;
    if (ranges.empty()) {
        in.fail(at, "the set holds no character");
    }
    return rules.one_of(ranges, at);
}

// <[123]> or <text>; after ! all other tokens
grammar_element gbnf_reader::read_token() {
    if (in.take('!')) {
        return tokens.any_but(rules, {tokens.read(in)});
    }
    return {grammar_element::token, tokens.read(in)};
}

} // namespace

grammar_rules read_gbnf(notation_text in, const llama_vocab * vocab, const literal_hook & hook) {
    return gbnf_reader(std::move(in), vocab, hook).read();
}
