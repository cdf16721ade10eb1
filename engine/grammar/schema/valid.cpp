// Whether a value that a schema names (of an enum, a const) is what other keywords allow.
#include "grammar/schema/shape.h"

#include <algorithm>

namespace schema {

static const int n_max_levels = 100;

static size_t n_characters(const std::string & utf8) {
    return (size_t) std::count_if(utf8.begin(), utf8.end(),
                                  [](char c) { return ((unsigned char) c & 0xC0) != 0x80; });
}

static truth truth_of(bool is_so) {
    return is_so ? truth::yes : truth::no;
}

static truth opposite(truth t) {
    return t == truth::yes ? truth::no : t == truth::no ? truth::yes : t;
}

// Of some truths that must all hold; it asks for no more of them once one does not.
template <typename list, typename asked> static truth all_of(const list & all, const asked & ask) {
    truth out = truth::yes;
    for (auto it = all.begin(); it != all.end() && out != truth::no; ++it) {
        out = std::min(out, ask(*it));
    }
    return out;
}

// Of how many surely hold, and how many may.
template <typename iterator, typename asked>
static std::pair<int64_t, int64_t> count_of(iterator begin, iterator end, const asked & ask) {
    std::pair<int64_t, int64_t> out;
    for (auto it = begin; it != end; ++it) {
        const truth found = ask(*it);
        out.first += found == truth::yes;
        out.second += found != truth::no;
    }
    return out;
}

// Whether a count is within bounds; high -1: there is none.
static truth within(std::pair<int64_t, int64_t> count, int64_t low, int64_t high) {
    if (count.second < low || (high >= 0 && count.first > high)) {
        return truth::no;
    }
    return count.first >= low && (high < 0 || count.second <= high) ? truth::yes : truth::perhaps;
}

bool normaliser::is_valid(const json & value, const terms & all) {
    return std::all_of(all.begin(), all.end(), [&](const term & t) { return is_valid(value, t); });
}

truth normaliser::validity(const json & value, const term & t, int depth) {
    const json & s = *t.what;
    budget.spend(2);
    if (depth > n_max_levels) {
        throw refusal(doc.path(s) + ": references lead to each other without an end");
    }
    truth out = truth::yes;
    if (s.is_boolean()) {
        out = truth_of(s.get<bool>());
    } else if (!s.is_object()) {
        refuse(s, "", std::string(s.type_name()) + " is no schema");
        out = truth::perhaps;
    } else {
        const bool only_reference = doc.draft() <= 7 && s.contains("$ref");
        for (const auto & [key, keyword] : s.items()) {
            if (out != truth::no && (!only_reference || key == "$ref")) {
                out = std::min(out, validity_by(key, keyword, value, s, depth));
            }
        }
    }
    return t.negated ? opposite(out) : out;
}

// The keywords that hold other schemas for the same value; nullopt: it is none of them.
std::optional<truth> normaliser::validity_by_others(const std::string & key, const json & keyword,
                                                    const json & value, const json & s, int depth) {
    const auto fits = [&](const json & what) { return validity(value, {&what, false}, depth + 1); };
    if (key == "allOf" || key == "anyOf" || key == "oneOf") {
        if (!is_list(s, key, keyword)) {
            return truth::perhaps;
        }
        return key == "allOf"
                   ? all_of(keyword, fits)
                   : within(count_of(keyword.begin(), keyword.end(), fits), 1, key == "oneOf" ? 1 : -1);
    }
    if (key == "not") {
        return opposite(fits(keyword));
    }
    if (key == "if") {
        const auto  branch = [&](const char * name) { return s.contains(name) ? fits(s[name]) : truth::yes; };
        const truth holds  = fits(keyword);
        if (holds != truth::perhaps) {
            return branch(holds == truth::yes ? "then" : "else");
        }
        const truth then = branch("then"), other = branch("else");
        return then == other ? then : truth::perhaps;
    }
    if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
        const json * to = target(s, key, keyword);
        return to == nullptr ? truth::perhaps : fits(*to);
    }
    if (key == "enum" || key == "const") {
        if (key == "enum" && !keyword.is_array()) {
            refuse(s, key, std::string(keyword.type_name()) + " is no list");
            return truth::perhaps;
        }
        budget.spend(1 + (int64_t) value.size());
        return truth_of(key == "const" ? text_of(keyword) == text_of(value)
                                       : values_of(keyword).count(text_of(value)) > 0);
    }
    if (key == not_values_key && is_made(s)) {
        return truth_of(values_of(keyword).count(text_of(value)) == 0);
    }
    return std::nullopt;
}

truth normaliser::validity_by_dependents(const json & keyword, const json & value, int depth) {
    truth out = truth::yes;
    for (const auto & [name, then] : keyword.items()) {
        if (!value.is_object() || !value.contains(name)) {
            continue;
        }
        const auto has = [&](const json & n) {
            return n.is_string() && value.contains(n.get<std::string>());
        };
        out = std::min(out, then.is_array()    ? truth_of(std::all_of(then.begin(), then.end(), has))
                            : then.is_string() ? truth_of(has(then))
                                               : validity(value, {&then, false}, depth + 1));
    }
    return out;
}

bool normaliser::is_valid_text(const std::string & text, const shape & s) {
    budget.spend((int64_t) (text.size() * (1 + s.texts.size() + s.not_texts.size())) / 8);
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
                       [&](const decimal & m) { return is_multiple(d, m); }) &&
           std::none_of(s.not_multiples.begin(), s.not_multiples.end(),
                        [&](const decimal & m) { return is_multiple(d, m); });
}

truth normaliser::validity_of_array(const json & value, const shape & s, int depth) {
    const auto n = (int64_t) value.size();
    if (n < s.min_items || (s.max_items >= 0 && n > s.max_items)) {
        return truth::no;
    }
    truth out = truth::yes;
    for (size_t i = 0; i < value.size() && !s.arrays.empty() && out != truth::no; i++) {
        const auto fits = [&](const term & t) { return validity(value[i], t, depth + 1); };
        out             = std::min(out, all_of(item(s, i), fits));
    }
    for (const auto & c : s.contains) {
        const auto fits = [&](const json & v) { return validity(v, c.what, depth + 1); };
        const auto from = value.begin() + std::min(c.from, n);
        out             = std::min(out, within(count_of(from, value.end(), fits), c.low, c.high));
    }
    std::set<std::string> seen;
    for (size_t i = 0; i < value.size() && s.unique != nullptr; i++) {
        if (!seen.insert(text_of(value[i])).second) {
            return truth::no;
        }
    }
    return out;
}

truth normaliser::validity_of_object(const json & value, const shape & s, int depth) {
    const auto n   = (int64_t) value.size();
    const auto has = [&](const std::string & name) { return value.contains(name); };
    if (n < s.min_properties || (s.max_properties >= 0 && n > s.max_properties) ||
        !std::all_of(s.required.begin(), s.required.end(), has)) {
        return truth::no;
    }
    truth out = truth::yes;
    for (const auto & [name, one] : value.items()) {
        const json & member = one;
        const json   text   = name;
        const auto   fits   = [&](const term & t) { return validity(member, t, depth + 1); };
        const auto   named  = [&](const term & t) { return validity(text, t, depth + 1); };
        out                 = std::min(
            {out, all_of(s.objects.empty() ? terms() : property(s, name), fits), all_of(s.names, named)});
    }
    for (const auto & wanted : s.wanted_members) {
        truth found = truth::no;
        for (const auto & [name, one] : value.items()) {
            const truth fits = wanted.value ? validity(one, *wanted.value, depth + 1) : truth::yes;
            found            = std::max(found, std::min(fits, validity(name, wanted.name, depth + 1)));
        }
        out = std::min(out, found);
    }
    return out;
}

// One keyword. The shape of a schema that has only this keyword says what it means, where that needs no recursion.
truth normaliser::validity_by(const std::string & key, const json & keyword, const json & value,
                              const json & s, int depth) {
    if (const auto found = validity_by_others(key, keyword, value, s, depth)) {
        return *found;
    }
    if ((key == "dependencies" || key == "dependentRequired" || key == "dependentSchemas") &&
        keyword.is_object()) {
        return validity_by_dependents(keyword, value, depth);
    }
    if (key == "unevaluatedProperties" || key == "unevaluatedItems") {
        const bool speaks = key == "unevaluatedItems" ? value.is_array() : value.is_object();
        if (speaks) {
            refuse(s, key, "beside values that are listed it has no rule here");
        }
        return speaks ? truth::perhaps : truth::yes;
    }
    const auto found = readers().find(key);
    if (found == readers().end()) {
        return truth::yes;
    }
    const int64_t n_before = n_left_out;
    partial       p;
    (this->*found->second)(p, {{&s, false}, true, {}}, key, keyword);
    const shape & made = p.made;
    truth         out  = truth::yes;
    if (!p.todo.empty()) { // a term of a schema that was made
        out = all_of(p.todo, [&](const waiting & w) { return validity(value, w.what, depth + 1); });
    } else if ((made.types & type_of(value)) == 0) {
        out = truth::no;
    } else if (value.is_string()) {
        out = truth_of(is_valid_text(value.get<std::string>(), made));
    } else if (value.is_number()) {
        const auto d = read_number(s, key, value);
        out          = !d ? truth::perhaps : truth_of(is_valid_number(*d, made));
    } else if (value.is_array() || value.is_object()) {
        out =
            value.is_array() ? validity_of_array(value, made, depth) : validity_of_object(value, made, depth);
    }
    return n_left_out != n_before ? std::min(out, truth::perhaps) : out;
}

} // namespace schema
