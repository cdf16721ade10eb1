// Whether a value that a schema names (of an enum, a const) is what other keywords allow.
#include "grammar/schema/shape.h"

#include <algorithm>

namespace schema {

static const int n_max_levels = 100;

static size_t n_characters(const std::string & utf8) {
    return (size_t) std::count_if(utf8.begin(), utf8.end(),
                                  [](char c) { return ((unsigned char) c & 0xC0) != 0x80; });
}

bool normaliser::is_valid(const json & value, const terms & all) {
    return std::all_of(all.begin(), all.end(), [&](const term & t) { return is_valid(value, t); });
}

bool normaliser::is_valid(const json & value, const term & t, int depth) {
    const json & s = *t.what;
    budget.spend(2);
    if (depth > n_max_levels) {
        throw refusal(doc.path(s) + ": references lead to each other without an end");
    }
    bool out = true;
    if (s.is_boolean()) {
        out = s.get<bool>();
    } else {
        const bool only_reference = doc.draft() <= 7 && s.contains("$ref");
        for (const auto & [key, keyword] : s.items()) {
            out = out && ((only_reference && key != "$ref") || is_valid_by(key, keyword, value, s, depth));
        }
    }
    return out != t.negated;
}

// The keywords that hold other schemas for the same value; nullopt: it is none of them.
std::optional<bool> normaliser::is_valid_by_others(const std::string & key, const json & keyword,
                                                   const json & value, const json & s, int depth) {
    const auto fits = [&](const json & what) { return is_valid(value, {&what, false}, depth + 1); };
    if (key == "allOf") {
        return std::all_of(keyword.begin(), keyword.end(), fits);
    }
    if (key == "anyOf") {
        return std::any_of(keyword.begin(), keyword.end(), fits);
    }
    if (key == "oneOf") {
        return std::count_if(keyword.begin(), keyword.end(), fits) == 1;
    }
    if (key == "not") {
        return !fits(keyword);
    }
    if (key == "if") {
        const char * const then = fits(keyword) ? "then" : "else";
        return !s.contains(then) || fits(s[then]);
    }
    if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
        const json * to = target(s, key, keyword);
        return to == nullptr || fits(*to);
    }
    if (key == "enum" || key == "const") {
        const auto is_it = [&](const json & v) { return same(v, value); };
        return key == "const" ? is_it(keyword) : std::any_of(keyword.begin(), keyword.end(), is_it);
    }
    return std::nullopt;
}

bool normaliser::is_valid_by_dependents(const json & keyword, const json & value, int depth) {
    for (const auto & [name, then] : keyword.items()) {
        if (!value.is_object() || !value.contains(name)) {
            continue;
        }
        const auto has   = [&](const json & n) { return value.contains(n.get<std::string>()); };
        const bool holds = then.is_array()    ? std::all_of(then.begin(), then.end(), has)
                           : then.is_string() ? has(then)
                                              : is_valid(value, {&then, false}, depth + 1);
        if (!holds) {
            return false;
        }
    }
    return true;
}

bool normaliser::is_valid_text(const std::string & text, const shape & s) {
    const auto n  = (int64_t) n_characters(text);
    const auto in = [&](const language * l) { return l->holds(text); };
    return n >= s.min_length && (s.max_length < 0 || n <= s.max_length) &&
           std::all_of(s.texts.begin(), s.texts.end(), in) &&
           std::none_of(s.not_texts.begin(), s.not_texts.end(), in);
}

bool normaliser::is_valid_number(const decimal & d, const shape & s) {
    const number_bounds & n    = s.numbers;
    const int             low  = n.low ? compare(d, *n.low) : 1;
    const int             high = n.high ? compare(d, *n.high) : -1;
    return (low > 0 || (low == 0 && !n.low_open)) && (high < 0 || (high == 0 && !n.high_open)) &&
           std::all_of(s.multiples.begin(), s.multiples.end(),
                       [&](const decimal & m) { return is_multiple(d, m); });
}

bool normaliser::is_valid_array(const json & value, const shape & s, int depth) {
    const auto n = (int64_t) value.size();
    if (n < s.min_items || (s.max_items >= 0 && n > s.max_items)) {
        return false;
    }
    for (size_t i = 0; i < value.size() && !s.arrays.empty(); i++) {
        for (const term & t : item(s, i)) {
            if (!is_valid(value[i], t, depth + 1)) {
                return false;
            }
        }
    }
    for (const auto & c : s.contains) {
        const auto fits  = [&](const json & v) { return is_valid(v, c.what, depth + 1); };
        const auto count = std::count_if(value.begin(), value.end(), fits);
        if (count < c.low || (c.high >= 0 && count > c.high)) {
            return false;
        }
    }
    for (size_t i = 0; i < value.size() && s.unique != nullptr; i++) {
        for (size_t k = 0; k < i; k++) {
            budget.spend(1);
            if (same(value[i], value[k])) {
                return false;
            }
        }
    }
    return true;
}

bool normaliser::is_valid_object(const json & value, const shape & s, int depth) {
    const auto n   = (int64_t) value.size();
    const auto has = [&](const std::string & name) { return value.contains(name); };
    if (n < s.min_properties || (s.max_properties >= 0 && n > s.max_properties) ||
        !std::all_of(s.required.begin(), s.required.end(), has)) {
        return false;
    }
    for (const auto & [name, one] : value.items()) {
        for (const term & t : s.objects.empty() ? terms() : property(s, name)) {
            if (!is_valid(one, t, depth + 1)) {
                return false;
            }
        }
        for (const term & t : s.names) {
            if (!is_valid(json(name), t, depth + 1)) {
                return false;
            }
        }
    }
    return true;
}

// One keyword. The shape of a schema that has only this keyword says what it means, where that needs no recursion.
bool normaliser::is_valid_by(const std::string & key, const json & keyword, const json & value,
                             const json & s, int depth) {
    if (const auto found = is_valid_by_others(key, keyword, value, s, depth)) {
        return *found;
    }
    if (key == "dependencies" || key == "dependentRequired" || key == "dependentSchemas") {
        return is_valid_by_dependents(keyword, value, depth);
    }
    if (key == "unevaluatedProperties" || key == "unevaluatedItems") {
        if (key == "unevaluatedItems" ? value.is_array() : value.is_object()) {
            refuse(s, key, "beside values that are listed it has no rule here");
        }
        return true;
    }
    const auto found = readers().find(key);
    if (found == readers().end()) {
        return true;
    }
    partial p;
    (this->*found->second)(p, {{&s, false}, true, {}}, key, keyword);
    const shape & made = p.made;
    if (!p.todo.empty()) { // a term of a schema that was made
        return std::all_of(p.todo.begin(), p.todo.end(),
                           [&](const waiting & w) { return is_valid(value, w.what, depth + 1); });
    }
    if ((made.types & type_of(value)) == 0 || std::any_of(made.other_than.begin(), made.other_than.end(),
                                                          [&](const json & v) { return same(v, value); })) {
        return false;
    }
    if (value.is_string()) {
        return is_valid_text(value.get<std::string>(), made);
    }
    if (value.is_number()) {
        const auto d = read_number(s, key, value);
        return !d || is_valid_number(*d, made);
    }
    return value.is_array()    ? is_valid_array(value, made, depth)
           : value.is_object() ? is_valid_object(value, made, depth)
                               : true;
}

} // namespace schema
