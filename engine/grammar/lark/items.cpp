#include "grammar/lark/items.h"

#include "grammar/characters.h"
#include "grammar/lark/substrings.h"
#include "grammar/regex.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <vector>

using json = nlohmann::json;

static const int32_t n_max_listed = 4096; // tokens of all <[1-9]>

std::string text_of(const std::u32string & characters) {
    std::string out;
    for (const char32_t c : characters) {
        out += to_utf8(c);
    }
    return out;
}

bool is_letter(char32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool at_line_end(const notation_text & in) {
    return in.peek() == '\n' || in.peek() == '\r';
}

void skip_space(notation_text & in, bool lines) {
    while (true) {
        if (in.peek() == '#' || (in.peek() == '/' && in.peek(1) == '/')) {
            while (!in.at_end() && !at_line_end(in)) {
                in.next();
            }
        } else if (in.peek() == ' ' || in.peek() == '\t' || (lines && at_line_end(in))) {
            in.next();
        } else {
            return;
        }
    }
}

//
// texts and expressions
//

grammar_rules::sequence item_reader::read_text() {
    const size_t            at       = in.place();
    bool                    any_case = false;
    const std::string       text     = read_literal(any_case);
    grammar_rules::sequence out;
    if (!any_case && in.peek() == '.' && in.peek(1) == '.') {
        in.go_to(in.place() + 2);
        if (in.peek() != '"') {
            in.fail("expected a text behind .., found " + in.found());
        }
        const std::u32string low = from_utf8(text), high = from_utf8(read_literal(any_case));
        if (any_case || low.size() != 1 || high.size() != 1 || high[0] < low[0]) {
            in.fail(at, "this is no range; a range is two characters in ascending order, without flags");
        }
        return {rules.one_of({{low[0], high[0]}}, at)};
    }
    if (!any_case) {
        rules.append_text(out, text);
        return out;
    }
    for (const char32_t c : from_utf8(text)) {
        if (c >= 0x80) {
            in.fail(at, "with the flag i only characters of ASCII are read");
        }
        const char32_t other = is_letter(c) ? c ^ 0x20 : c;
        out.push_back(rules.one_of({{c, c}, {other, other}}, at));
    }
    return out;
}

// A text in quotes with JSON's escapes and \x41, and the flag behind it.
std::string item_reader::read_literal(bool & any_case) {
    const size_t at = in.place();
    std::string  raw;
    raw += (char) in.next();
    while (!in.take('"')) {
        if (in.at_end() || at_line_end(in)) {
            in.fail(at, "the text has no closing \"");
        }
        char32_t c = in.next();
        raw += c == '\\' && in.peek() == 'x' ? "\\u00" : to_utf8(c);
        if (c == '\\' && !in.at_end()) {
            c = in.next();
            raw += c == 'x' ? "" : to_utf8(c);
        }
    }
    raw += '"';
    const json value = json::parse(raw, nullptr, false);
    if (!value.is_string()) {
        in.fail(
            at,
            "the text has an escape that is none; there are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u0041 \\x41");
    }
    any_case = in.take('i');
    return value.get<std::string>();
}

grammar_element item_reader::read_expression() {
    const size_t at = in.place();
    in.next();
    const size_t from = in.place();
    while (in.peek() != '/') {
        if (!in.at_end() && in.next() == '\\' && !in.at_end()) {
            in.next();
        }
        if (in.at_end()) {
            in.fail(at, "the expression has no closing /");
        }
    }
    const size_t to = in.place();
    in.next();
    regex_style style;
    style.lark = true;
    for (; in.peek() < 0x80 && isalpha((int) in.peek()); in.next()) {
        switch (in.peek()) {
            case 'i': style.any_case = true; break;
            case 's': style.dot_all = true; break;
            case 'u': break;
            default:
                in.fail("an expression has no flag " + to_utf8(in.peek()) + " here; it may have i, s and u");
        }
    }
    return read_regex(rules, in.part(from, to), style);
}

//
// tokens
//

std::pair<int32_t, int32_t> item_reader::read_token_range() {
    const size_t  at   = in.place();
    const int32_t low  = in.read_count();
    const int32_t high = in.take('-') ? in.read_count() : low;
    if (high < low || !tokens.has(high)) {
        in.fail(at, "these are no tokens of the model");
    }
    return {low, high};
}

grammar_element item_reader::read_tokens() {
    const size_t at = in.place();
    if (in.peek(1) != '[') {
        return {grammar_element::token, tokens.read(in)};
    }
    in.go_to(at + 2);
    const bool           all   = in.take('*');
    const bool           other = !all && in.take('^');
    std::vector<int32_t> listed;
    while (!all) {
        const auto [low, high] = read_token_range();
        if (high - low >= n_max_listed - n_listed) {
            in.fail(at, "more than " + std::to_string(n_max_listed) + " tokens are listed");
        }
        n_listed += high - low + 1;
        for (int32_t id = low; id <= high; id++) {
            listed.push_back(id);
        }
        if (!in.take(',')) {
            break;
        }
    }
    if (!in.take("]>")) {
        in.fail("expected ]>, found " + in.found());
    }
    if (all || other) {
        return tokens.any_but(rules, std::move(listed));
    }
    const grammar_element group = {grammar_element::rule, rules.add_rule(at)};
    for (const int32_t id : listed) {
        rules.add_alternative(group.value, {{grammar_element::token, id}});
    }
    return group;
}

//
// JSON in the grammar
//

std::string item_reader::read_json() {
    const size_t at = in.place();
    if (in.peek() != '{') {
        in.fail("expected {, found " + in.found());
    }
    int  depth     = 0;
    bool in_string = false;
    do {
        if (in.at_end()) {
            in.fail(at, "the object has no closing }");
        }
        const char32_t c = in.next();
        if (in_string && c == '\\' && !in.at_end()) {
            in.next();
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        }
    } while (depth > 0 || in_string);
    const std::string text = text_of(in.slice(at, in.place()));
    if (!json::accept(text)) {
        in.fail(at, "this is not JSON");
    }
    return text;
}

grammar_element item_reader::read_runs() {
    const size_t             at     = in.place();
    const json               object = json::parse(read_json());
    static const char *      names  = "substring_words, substring_chars or substring_chunks";
    std::vector<std::string> pieces;
    if (object.size() != 1) {
        in.fail(at, std::string("%regex has one of ") + names);
    }
    const std::string name  = object.begin().key();
    const json        value = object.begin().value();
    if (name == "substring_chunks" && value.is_array()) {
        for (const json & piece : value) {
            if (!piece.is_string()) {
                in.fail(at, "%regex: substring_chunks is a list of texts");
            }
            pieces.push_back(piece.get<std::string>());
        }
    } else if ((name == "substring_words" || name == "substring_chars") && value.is_string()) {
        const std::string text  = value.get<std::string>();
        const bool        words = name == "substring_words";
        if (words && std::any_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; })) {
            in.fail(
                at,
                "%regex: substring_words is read in ASCII only; substring_chunks takes the words as a list");
        }
        pieces = words ? words_of(text) : characters_of(text);
    } else {
        in.fail(at,
                std::string("%regex has a text in substring_words or substring_chars, or a list of texts in "
                            "substring_chunks"));
    }
    pieces.erase(std::remove(pieces.begin(), pieces.end(), ""), pieces.end());
    return add_runs(rules, pieces);
}
