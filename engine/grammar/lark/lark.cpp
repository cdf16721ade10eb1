#include "grammar/lark/lark.h"

#include "grammar/characters.h"
#include "grammar/lark/items.h"
#include "grammar/lark/library.h"
#include "grammar/left_recursion.h"
#include "grammar/regex.h"

#include <nlohmann/json.hpp>

#include <map>
#include <utility>
#include <vector>

using json = nlohmann::json;

namespace {

struct symbol {
    int32_t rule;
    size_t  at; // its first place
    bool    terminal;
    bool    defined = false;
};

class lark_reader {
  public:
    lark_reader(notation_text in, const llama_vocab * vocab, embedded_schemas & schemas)
        : in(std::move(in)), items(this->in, rules, vocab), schemas(schemas) {}

    grammar_rules read();

  private:
    void skip(bool lines) { skip_space(in, lines); }
    bool at_name(size_t k = 0) const;
    bool at_repetition() const;

    std::u32string read_name(const char * what);
    symbol &       find(const std::u32string & name, size_t at);
    symbol &       define(const std::u32string & name, size_t at);

    void read_directive();
    void read_import();
    void import_terminal(const std::u32string & name, const std::u32string & as, size_t at);
    void read_options();
    void read_definition();
    void refuse_marks(size_t at);

    void            read_alternatives(int32_t rule);
    bool            take_bar();
    void            read_sequence(int32_t rule);
    bool            read_item(grammar_rules::sequence & item);
    void            read_times(grammar_rules::sequence & item, size_t at);
    bool            read_name_item(grammar_rules::sequence & item);
    grammar_element read_group(char32_t close);
    bool            read_embedded(grammar_rules::sequence & item);
    void            refuse_in_terminal(size_t at, const std::string & what) const;

    void check_symbols();
    void check_terminals();

    notation_text                    in;
    grammar_rules                    rules;
    item_reader                      items;
    embedded_schemas &               schemas;
    std::map<std::u32string, symbol> symbols;
    int32_t                          terminal = -1;                  // the rule of the terminal that is read
    std::map<int32_t, std::vector<std::pair<int32_t, size_t>>> uses; // by terminal: others, and where
};

// Names of rules begin with a small letter, those of terminals with a large one, behind any _.
bool is_terminal(const std::u32string & name) {
    const size_t i = name.find_first_not_of(U'_');
    return i != std::u32string::npos && name[i] >= 'A' && name[i] <= 'Z';
}

//
// definitions
//

grammar_rules lark_reader::read() {
    rules.add_rule(0); // the root, which refers to the rule start
    skip(true);
    while (!in.at_end()) {
        if (in.peek() == '%') {
            read_directive();
        } else {
            read_definition();
        }
        skip(false);
        if (!in.at_end() && !at_line_end(in)) {
            in.fail("expected the end of the line, found " + in.found());
        }
        skip(true);
    }
    check_symbols();
    check_terminals();
    rules.add_alternative(0, {{grammar_element::rule, symbols.at(U"start").rule}});
    if (!rules.remove_endless()) {
        in.fail(symbols.at(U"start").at, "no text of the rule start ever ends");
    }
    remove_left_recursion(rules);
    return std::move(rules);
}

void lark_reader::check_symbols() {
    const auto start = symbols.find(U"start");
    if (start == symbols.end() || !start->second.defined) {
        in.fail("there is no rule start");
    }
    for (const auto & [name, s] : symbols) {
        if (!s.defined) {
            in.fail(s.at, std::string("there is no ") + (s.terminal ? "terminal " : "rule ") + text_of(name));
        }
    }
}

// A terminal is a regular expression, so that it does not refer to itself.
void lark_reader::check_terminals() {
    enum { fresh, on_path, done };
    std::map<int32_t, int> seen;
    for (const auto & [from, its] : uses) {
        std::vector<std::pair<int32_t, size_t>> path;
        if (seen[from] == fresh) {
            path.emplace_back(from, 0);
            seen[from] = on_path;
        }
        while (!path.empty()) {
            auto & [rule, i]  = path.back();
            const auto & next = uses[rule];
            if (i == next.size()) {
                seen[rule] = done;
                path.pop_back();
                continue;
            }
            const auto [to, at] = next[i++];
            if (seen[to] == on_path) {
                in.fail(at, "a terminal cannot refer to itself; a rule, with a small letter, can");
            }
            if (seen[to] == fresh) {
                seen[to] = on_path;
                path.emplace_back(to, 0);
            }
        }
    }
}

bool lark_reader::at_name(size_t k) const {
    return is_letter(in.peek(k)) || in.peek(k) == '_';
}

bool lark_reader::at_repetition() const {
    return in.peek() == '*' || in.peek() == '+' || in.peek() == '?' || in.peek() == '{' || in.peek() == '~';
}

std::u32string lark_reader::read_name(const char * what) {
    const size_t at = in.place();
    if (!at_name()) {
        in.fail(std::string("expected ") + what + ", found " + in.found());
    }
    while (at_name() || in.at_digit() || (in.peek() == '-' && in.peek(1) != '>')) {
        in.next();
    }
    return in.slice(at, in.place());
}

symbol & lark_reader::find(const std::u32string & name, size_t at) {
    const auto known = symbols.find(name);
    return known != symbols.end()
               ? known->second
               : symbols.emplace(name, symbol{rules.add_rule(at), at, is_terminal(name)}).first->second;
}

symbol & lark_reader::define(const std::u32string & name, size_t at) {
    symbol & s = find(name, at);
    if (s.defined) {
        in.fail(at, text_of(name) + " is defined already");
    }
    s.defined = true;
    s.at      = at;
    rules.set_where(s.rule, at);
    return s;
}

// What Lark puts between a name and its colon.
void lark_reader::refuse_marks(size_t at) {
    switch (in.peek()) {
        case '.':
            in.fail("a priority says which of two readings a lexer takes; there is no lexer here, and all "
                    "readings "
                    "are allowed");
        case '{': in.fail("templates, rules with parameters, are not read here");
        case '[':
            in.fail(
                "options of rules (lazy, suffix, stop, max_tokens, temperature, capture) are not read here");
    }
    if (in.peek() == ':' && in.peek(1) == ':') {
        in.fail("rules with parameters (::) are not read here");
    }
    if (!in.take(':')) {
        in.fail(in.place() == at ? at : in.place(), "expected :, found " + in.found());
    }
}

void lark_reader::read_definition() {
    while (in.peek() == '?' || in.peek() == '!') { // they shape Lark's trees
        in.next();
    }
    const size_t         at   = in.place();
    const std::u32string name = read_name("the name of a rule or terminal");
    skip(false);
    refuse_marks(at);
    const symbol & s = define(name, at);
    terminal         = s.terminal ? s.rule : -1;
    read_alternatives(s.rule);
    terminal = -1;
}

//
// directives
//

void lark_reader::read_directive() {
    static const std::map<std::string, const char *> refused = {
        {"ignore",
         "says what a lexer leaves out between terminals; there is no lexer here: write it into the rules"},
        {"declare", "names terminals that a lexer finds; there is no lexer here"},
        {"override", "is not read here; only the terminals of common are imported"},
        {"extend", "is not read here; only the terminals of common are imported"},
        {"grammar_options", "is not read here"},
    };
    const size_t at = in.place();
    in.next();
    const std::string name = at_name() ? text_of(read_name("a directive")) : "";
    if (name == "import") {
        return read_import();
    }
    if (name == "llguidance") {
        return read_options();
    }
    const auto why = refused.find(name);
    in.fail(at,
            "%" + name + " " +
                (why != refused.end() ? why->second : "is no directive here; %import and %llguidance are"));
}

// %import common.NAME, %import common.NAME -> OTHER, %import common (A, B)
void lark_reader::read_import() {
    skip(false);
    const size_t at = in.place();
    if (!in.take("common") || at_name() || in.at_digit()) {
        in.fail(at, "only the terminals of common are imported here, as in %import common.INT");
    }
    skip(false);
    if (in.take('(')) {
        do {
            skip(true);
            const size_t         where = in.place();
            const std::u32string name  = read_name("the name of a terminal");
            import_terminal(name, name, where);
            skip(true);
        } while (in.take(','));
        if (!in.take(')')) {
            in.fail("expected , or ), found " + in.found());
        }
        return;
    }
    if (!in.take('.')) {
        in.fail("expected ., found " + in.found());
    }
    const size_t         where = in.place();
    const std::u32string name  = read_name("the name of a terminal");
    skip(false);
    std::u32string as = name;
    if (in.take("->")) {
        skip(false);
        as = read_name("the name of a terminal");
    }
    import_terminal(name, as, where);
}

void lark_reader::import_terminal(const std::u32string & name, const std::u32string & as, size_t at) {
    const auto found = common_terminals().find(text_of(name));
    if (found == common_terminals().end()) {
        std::string all;
        for (const auto & [one, expression] : common_terminals()) {
            all += (all.empty() ? "" : ", ") + one;
        }
        in.fail(at, "common has no " + text_of(name) + " here; it has " + all);
    }
    if (!is_terminal(as)) {
        in.fail(at, "the name of a terminal begins with a large letter");
    }
    regex_style style;
    style.lark = true;
    rules.add_alternative(define(as, at).rule,
                          {read_regex(rules, notation_text("grammar", found->second), style)});
}

// %llguidance {…}: options that do not say which texts fit have no effect.
void lark_reader::read_options() {
    skip(true);
    const size_t at      = in.place();
    const json   options = json::parse(items.read_json(), nullptr, false);
    for (const auto & [name, value] : options.items()) {
        const bool without_effect = name == "no_forcing" || value == false;
        if (!value.is_boolean() || !without_effect) {
            in.fail(at, "%llguidance's option " + name + " is not read here");
        }
    }
}

//
// alternatives
//

void lark_reader::read_alternatives(int32_t rule) {
    do {
        read_sequence(rule);
    } while (take_bar());
}

// Outside of groups a line that begins with | belongs to the one before.
bool lark_reader::take_bar() {
    const size_t at = in.place();
    skip(true);
    if (in.take('|')) {
        return true;
    }
    in.go_to(at);
    return false;
}

void lark_reader::read_sequence(int32_t rule) {
    grammar_rules::sequence out, item;
    skip(in.in_group());
    while (!in.at_end()) {
        const size_t at = in.place();
        if (!read_item(item)) {
            break;
        }
        skip(in.in_group());
        if (at_repetition()) {
            read_times(item, at);
            skip(in.in_group());
            if (at_repetition()) {
                in.fail("a repetition cannot be repeated without a group");
            }
        }
        out.insert(out.end(), item.begin(), item.end());
    }
    if (at_repetition() && in.peek() != '~') {
        in.fail("there is nothing to repeat before " + in.found());
    }
    if (in.take("->")) { // it names a branch of Lark's tree
        skip(in.in_group());
        read_name("a name");
    }
    rules.add_alternative(rule, out);
}

void lark_reader::read_times(grammar_rules::sequence & item, size_t at) {
    repetition   times;
    const size_t from = in.place();
    if (in.take('~')) {
        skip(false);
        times.low = times.high = in.read_count();
        skip(false);
        if (in.take("..")) {
            skip(false);
            times.high = in.read_count();
        }
        if (times.high < times.low) {
            in.fail(from,
                    "the repetition ends before it begins; the first number must be at most the second");
        }
    } else {
        in.read_repetition(times, [this] { skip(true); });
    }
    item = {rules.repeat(item, times.low, times.high, at)};
}

// False: no item begins here.
bool lark_reader::read_item(grammar_rules::sequence & item) {
    const size_t at = in.place();
    switch (in.peek()) {
        case '"': item = items.read_text(); return true;
        case '/': item = {items.read_expression()}; return true;
        case '(': item = {read_group(')')}; return true;
        case '[': item = {rules.repeat({read_group(']')}, 0, 1, at)}; return true;
        case '<':
            refuse_in_terminal(at, "tokens");
            item = {items.read_tokens()};
            return true;
        case '%':  return read_embedded(item);
        case '@':  in.fail("other grammars (@name) are not read here");
        case '&':  in.fail("& and ~, what two expressions share and what one is not, are not read here");
        case '~':  in.fail("& and ~, what two expressions share and what one is not, are not read here");
        case '\'': in.fail("a text is written in double quotes");
        default:   return at_name() && read_name_item(item);
    }
}

void lark_reader::refuse_in_terminal(size_t at, const std::string & what) const {
    if (terminal >= 0) {
        in.fail(at, "a terminal cannot have " + what + "; a rule, with a small letter, can");
    }
}

// A name, unless it begins the definition of the next rule.
bool lark_reader::read_name_item(grammar_rules::sequence & item) {
    const size_t         at   = in.place();
    const std::u32string name = read_name("a name");
    if (in.peek() == '{' && in.peek(1) != ',' && !(in.peek(1) >= '0' && in.peek(1) <= '9') &&
        in.peek(1) != ' ') {
        in.fail("templates, rules with parameters, are not read here");
    }
    if (in.peek() == ':') {
        in.fail(at, in.peek(1) == ':' ? "rules with parameters (::) are not read here"
                                      : "a definition begins on a line of its own");
    }
    const symbol & s = find(name, at);
    if (!s.terminal) {
        refuse_in_terminal(at, "a rule");
    } else if (terminal >= 0) {
        uses[terminal].emplace_back(s.rule, at);
    }
    item = {{grammar_element::rule, s.rule}};
    return true;
}

grammar_element lark_reader::read_group(char32_t close) {
    const size_t at = in.place();
    in.next();
    in.enter_group(at);
    const grammar_element group = {grammar_element::rule, rules.add_rule(at)};
    read_alternatives(group.value);
    skip(true);
    if (in.at_end()) {
        in.fail(at, "the group has no closing " + to_utf8(close));
    }
    if (!in.take(close)) {
        in.fail("expected " + to_utf8(close) + ", found " + in.found());
    }
    in.leave_group();
    return group;
}

//
// JSON in the grammar
//

// %json {schema} or %regex {…}
bool lark_reader::read_embedded(grammar_rules::sequence & item) {
    const size_t at = in.place();
    if (in.take("%json")) {
        refuse_in_terminal(at, "a schema");
        skip(true);
        const std::string text = items.read_json();
        try {
            item = {schemas.add(rules, text)};
        } catch (const std::runtime_error & e) {
            in.fail(at, std::string("%json: ") + e.what());
        }
        return true;
    }
    if (in.take("%regex")) {
        skip(true);
        item = {items.read_runs()};
        return true;
    }
    for (const char * const name : {"%lark", "%if"}) {
        if (in.take(name)) {
            in.fail(at, std::string(name) + " is not read here");
        }
    }
    in.fail("a directive begins on a line of its own; within a rule there are %json and %regex");
}

} // namespace

bool is_lark(const std::string & utf8) {
    notation_text in("grammar", utf8);
    skip_space(in, true);
    if (in.peek() == '%' || in.peek() == '?' || in.peek() == '!') {
        return true;
    }
    const size_t at = in.place();
    while (is_letter(in.peek()) || in.peek() == '_' || in.peek() == '-' || in.at_digit()) {
        in.next();
    }
    const bool named = in.place() > at;
    skip_space(in, false);
    const bool defined =
        in.take(':') ? !in.take(":=") : in.peek() == '[' || in.peek() == '{' || in.peek() == '.';
    return named && defined;
}

grammar_rules read_lark(notation_text in, const llama_vocab * vocab, embedded_schemas & schemas) {
    return lark_reader(std::move(in), vocab, schemas).read();
}
