#include "grammar/schema/shape.h"

#include "grammar/schema/formats.h"
#include "grammar/schema/pattern.h"
#include "util/pauses.h"
#include "util/utf8.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

namespace schema {

static const size_t n_max_shapes     = 3000;
static const int    n_max_choices    = 200; // one within the other
static const int    n_max_depth      = 5;   // levels at which emptiness is looked for
static const size_t n_max_places     = 1 << 20;
static const size_t n_max_opposites  = 4;    // alternatives of one keyword
static const int    n_max_references = 2000; // that lead to each other
static const size_t n_max_warnings   = 1000;
static const size_t n_max_overlaps   = 5;    // schemas of an anyOf that may hold at once
static const size_t n_max_ways       = 200;  // to be other than lists and objects
static const double most_written     = 1e19; // no number is written that is so large

static const json no_schemas = json::array();

// Keywords of schemas that are made here; no reader of JSON puts them into the set of made ones.
static const char * const not_pattern_key  = "\x01not-pattern";
static const char * const not_format_key   = "\x01not-format";
static const char * const not_multiple_key = "\x01not-multiple";
static const char * const term_key         = "\x01term";
static const char * const wanted_key       = "\x01wanted";
static const char * const from_key         = "\x01from";
static const char * const other_number     = "\x01other-number";

terms together(terms all) {
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

unsigned type_of(const json & v) {
    if (v.is_number_float()) {
        const double x = v.get<double>();
        return std::floor(x) == x ? of_integer : of_other;
    }
    return v.is_null()      ? of_null
           : v.is_boolean() ? of_boolean
           : v.is_number()  ? of_integer
           : v.is_string()  ? of_string
           : v.is_array()   ? of_array
                            : of_object;
}

// The text of a value that all values have that are the same.
static void append_text(std::string & out, const json & v) {
    if (v.is_array()) {
        out += '[';
        for (const json & one : v) {
            append_text(out, one);
            out += ',';
        }
        out += ']';
    } else if (v.is_object()) {
        std::map<std::string, const json *> members;
        for (const auto & [name, one] : v.items()) {
            members.emplace(name, &one);
        }
        out += '{';
        for (const auto & [name, one] : members) {
            out += json(name).dump() + ":";
            append_text(out, *one);
            out += ',';
        }
        out += '}';
    } else if (v.is_number_float() && type_of(v) == of_integer && std::abs(v.get<double>()) < 0x1p63) {
        out += std::to_string((int64_t) v.get<double>());
    } else if (v.is_number_float() && type_of(v) == of_integer && v.get<double>() > 0 &&
               v.get<double>() < 0x1p64) {
        out += std::to_string((uint64_t) v.get<double>());
    } else {
        out += v.dump();
    }
}

static unsigned types_named(const json & value) {
    static const std::map<std::string, unsigned> names = {
        {"null", of_null},     {"boolean", of_boolean}, {"integer", of_integer},
        {"string", of_string}, {"array", of_array},     {"number", of_integer | of_other},
        {"object", of_object}, {"any", of_all},         {other_number, of_other},
    };
    unsigned out = 0;
    for (const json & one : value.is_array() ? value : json::array({value})) {
        const auto found = names.find(one.is_string() ? one.get<std::string>() : "");
        out |= found == names.end() ? 0 : found->second;
    }
    return out;
}

static json names_of(unsigned types) {
    json                                    out     = json::array();
    const std::pair<unsigned, const char *> names[] = {
        {of_null, "null"},     {of_boolean, "boolean"}, {of_string, "string"},    {of_array, "array"},
        {of_object, "object"}, {of_integer, "integer"}, {of_other, other_number},
    };
    for (const auto & [bit, name] : names) {
        if (types & bit) {
            out.push_back(name);
        }
    }
    return out;
}

static bool has(const json & s, const char * key) {
    return s.is_object() && s.contains(key);
}

//
// made schemas, refusals
//

void normaliser::refuse(const json & at, const std::string & keyword, const std::string & why) {
    const std::string place = doc.path(at) + (keyword.empty() ? "" : "/" + keyword);
    const std::string text  = place + (place.empty() ? "" : ": ") + why;
    if (!given.lenient) {
        throw refusal(text + "; with \"lenient\": true it is left out");
    }
    n_left_out++;
    warn(text + "; it is left out");
}

void normaliser::warn(const std::string & text) {
    if (warnings.size() < n_max_warnings) {
        warnings.insert(text);
    }
}

std::string normaliser::text_of(const json & value) {
    std::string out;
    append_text(out, value);
    budget.spend(1 + (int64_t) out.size() / 32);
    return out;
}

// Whether all numbers in a value are those that were written. A long integer came as a float beyond 64 bits.
bool normaliser::is_kept(const json & value) const {
    if (value.is_structured()) {
        return std::all_of(value.begin(), value.end(), [this](const json & one) { return is_kept(one); });
    }
    return !value.is_number() ||
           (doc.is_exact(value) && (!value.is_number_float() || std::abs(value.get<double>()) < 0x1p64));
}

const std::set<std::string> & normaliser::values_of(const json & list) {
    const auto [entry, added] = listed.emplace(&list, std::set<std::string>());
    for (const json & one : added ? list : no_schemas) {
        entry->second.insert(text_of(one));
    }
    return entry->second;
}

const json * normaliser::make(json value, const json & original) {
    budget.spend(10);
    made_values.push_back(std::move(value));
    const json * out = &made_values.back();
    made_ones.insert(out);
    doc.stands_for(*out, original);
    return out;
}

// A schema that stands for a term, within one that is made.
json normaliser::term_of(const term & t) {
    const auto [entry, added] = made_by_term.emplace(t, made_terms.size());
    if (added) {
        made_terms.push_back(t);
    }
    return {{term_key, entry->second}};
}

// One of these terms holds; of equal ones the same schema.
const json * normaliser::either(const terms & some, const json & original) {
    const json *& known = made_by_terms[some];
    if (known == nullptr) {
        json all = json::array();
        for (const term & t : some) {
            all.push_back(term_of(t));
        }
        known = make({{"anyOf", std::move(all)}}, original);
        for (const json & one : (*known)["anyOf"]) {
            made_ones.insert(&one);
            doc.stands_for(one, original);
        }
    }
    return known;
}

std::optional<int64_t> normaliser::read_count(const json & at, const std::string & key, const json & value) {
    const bool is_count = value.is_number() && value.get<double>() >= 0 && type_of(value) == of_integer;
    if (!is_count) {
        refuse(at, key, shortened(value.dump()) + " is no count");
        return std::nullopt;
    }
    return (int64_t) std::min(value.get<double>(), 1e15);
}

std::optional<decimal> normaliser::read_number(const json & at, const std::string & key, const json & value) {
    if (!value.is_number()) {
        refuse(at, key, shortened(value.dump()) + " is no number");
        return std::nullopt;
    }
    const std::string text   = value.dump();
    const bool        is_far = std::abs(value.get<double>()) >= most_written;
    auto              out    = read_decimal(text);
    if (!out || (!is_far && !doc.is_exact(value))) {
        refuse(at, key, text + " has more digits than can be kept");
        return std::nullopt;
    }
    return out;
}

const language * normaliser::pattern(const std::string & expression, const json & at, const char * keyword) {
    budget.spend(1 + (int64_t) expression.size() / 64);
    const auto found = patterns.find(expression);
    if (found != patterns.end()) {
        return found->second.get();
    }
    if (const auto why = unknown_patterns.find(expression); why != unknown_patterns.end()) {
        refuse(at, keyword, why->second);
        return nullptr;
    }
    try {
        const auto made =
            patterns.emplace(expression, std::make_unique<language>(::read_pattern(expression, budget)));
        return made.first->second.get();
    } catch (const pattern_error & e) {
        unknown_patterns[expression] = "\"" + shortened(expression) + "\": " + e.what() + " has no rule here";
        refuse(at, keyword, unknown_patterns[expression]);
        return nullptr;
    }
}

// The formats are the same for all schemas, so each is made once.
static const language * format_language(const std::string & name, bool wider = false) {
    static std::mutex                                       mutex;
    static std::map<std::string, std::unique_ptr<language>> known;
    const format_row *                                      row = find_format(name);
    if (row == nullptr) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    const pauses                      none({}); // others may wait for the lock
    auto &                            entry = known[(wider ? "wider " : "") + name];
    if (!entry) {
        work_budget budget;
        entry = std::make_unique<language>(::read_pattern(wider ? row->wider : row->pattern, budget));
    }
    return entry.get();
}

//
// division into alternatives
//

const std::vector<shape> & normaliser::shapes(const terms & all) {
    auto & entry = known[all];
    if (entry) {
        return *entry;
    }
    partial p;
    for (const term & t : all) {
        p.todo.push_back({t, !t.negated, {}});
    }
    auto out = std::make_unique<std::vector<shape>>();
    divide(std::move(p), *out, 0);
    auto & again = known[all]; // the division may have asked for others
    again        = std::move(out);
    return *again;
}

void normaliser::divide(partial p, std::vector<shape> & out, int depth) {
    if (depth > n_max_choices || out.size() > n_max_shapes) {
        throw grammar_error("it is too large: its alternatives combine to more than " +
                            std::to_string(n_max_shapes));
    }
    take_all(p);
    if (p.made.types == 0) {
        return;
    }
    if (p.choices.empty() || p.made.values) {
        finish(p, out);
        return;
    }
    if (depth > 0 && is_dead(p.made, 1, false)) {
        return;
    }
    const choice next = std::move(p.choices.back());
    p.choices.pop_back();
    for (const auto & alternative : next) {
        budget.spend(20 + (int64_t) p.seen.size() + p.made.size());
        partial q = p;
        q.todo    = alternative;
        divide(std::move(q), out, depth + 1);
    }
}

// Ends where nothing is left but choices; or where nothing fits.
void normaliser::take_all(partial & p) {
    while (p.made.types != 0 && !p.todo.empty()) {
        budget.spend(5);
        const waiting w = std::move(p.todo.back());
        p.todo.pop_back();
        take(p, w);
    }
    merge_tests(p);
}

void normaliser::finish(partial & p, std::vector<shape> & out) {
    shape & s = p.made;
    if (s.values) {
        std::vector<json> kept;
        for (const json & value : *s.values) {
            budget.spend(5);
            const bool fits =
                std::all_of(p.seen.begin(), p.seen.end(), [&](const term & t) { return is_valid(value, t); });
            if (fits) {
                kept.push_back(value);
            }
        }
        s.values = std::move(kept);
        if (s.values->empty()) {
            return;
        }
    } else if (!given.open && !s.is_typed && (s.types & s.implied) != 0) {
        s.types &= s.implied;
    }
    if (!is_dead(s, 1)) {
        out.push_back(std::move(s));
    }
}

// Whether a keyword may say what members or items there are, for those that speak of all others.
static bool may_evaluate(const std::string & key) {
    static const std::set<std::string> rows = {"$ref",
                                               "$dynamicRef",
                                               "$recursiveRef",
                                               "allOf",
                                               "anyOf",
                                               "oneOf",
                                               "if",
                                               "dependentSchemas",
                                               "items",
                                               "prefixItems",
                                               "properties",
                                               "patternProperties",
                                               "additionalProperties",
                                               "additionalItems",
                                               "contains"};
    return rows.count(key) > 0;
}

void normaliser::take(partial & p, const waiting & w) {
    const json & s    = *w.what.what;
    last              = is_made(s) ? last : &s;
    const bool is_new = p.seen.insert(w.what).second;
    if ((w.scopes.empty() || !p.seen_by.emplace(w.what, w.scopes).second) && !is_new) {
        return;
    }
    if (p.seen.size() > 5000) {
        throw grammar_error("it is too large: more than 5000 schemas hold at one place");
    }
    if (s.is_boolean()) {
        p.made.types = s.get<bool>() != w.what.negated ? p.made.types : 0;
        return;
    }
    if (!s.is_object()) {
        refuse(s, "", std::string(s.type_name()) + " is no schema");
        leave_out_beside(p, w.scopes);
        return;
    }
    budget.spend((int64_t) s.size() / 4);
    check_cycles(s, 0);
    if (w.what.negated) {
        take_opposite(p, w);
        return;
    }
    waiting here = w;
    if (s.contains("unevaluatedProperties") || s.contains("unevaluatedItems")) {
        here.scopes.push_back(n_scopes);
        p.made.rest.push_back({n_scopes++, &s, w.scopes});
    }
    const bool only_reference = doc.draft() <= 7 && s.contains("$ref") && !is_made(s);
    for (const auto & [key, value] : s.items()) {
        const auto found = readers().find(key);
        if (found != readers().end() && (!only_reference || key == "$ref")) {
            const int64_t n_before = n_left_out;
            (this->*found->second)(p, here, key, value);
            if (n_left_out != n_before && may_evaluate(key)) {
                leave_out_beside(p, here.scopes);
            }
        }
        if (p.made.types == 0) {
            return;
        }
    }
}

// What might have evaluated members or items is left out, so that nobody knows which ones these keywords speak of.
void normaliser::leave_out_beside(partial & p, const std::vector<int> & scopes) {
    p.made.blind.insert(p.made.blind.end(), scopes.begin(), scopes.end());
    for (const auto & r : p.made.rest) {
        for (const char * const key : {"unevaluatedProperties", "unevaluatedItems"}) {
            if (has(*r.what, key) && std::find(scopes.begin(), scopes.end(), r.scope) != scopes.end()) {
                warn(doc.path(*r.what) + "/" + key + ": beside what is left out it is left out, too");
            }
        }
    }
}

const std::map<std::string, normaliser::reader> & normaliser::readers() {
    using n                                         = normaliser;
    static const std::map<std::string, reader> rows = {
        {"$ref", &n::read_reference},
        {"$dynamicRef", &n::read_reference},
        {"$recursiveRef", &n::read_reference},
        {"type", &n::read_type},
        {"enum", &n::read_values},
        {"const", &n::read_values},
        {"allOf", &n::read_all_of},
        {"extends", &n::read_all_of},
        {"anyOf", &n::read_any_of},
        {"oneOf", &n::read_one_of},
        {"not", &n::read_not},
        {"disallow", &n::read_disallow},
        {"if", &n::read_if},
        {"minLength", &n::read_length},
        {"maxLength", &n::read_length},
        {"pattern", &n::read_pattern},
        {"format", &n::read_format},
        {"minimum", &n::read_bound},
        {"maximum", &n::read_bound},
        {"exclusiveMinimum", &n::read_bound},
        {"exclusiveMaximum", &n::read_bound},
        {"multipleOf", &n::read_multiple},
        {"divisibleBy", &n::read_multiple},
        {"properties", &n::read_object},
        {"patternProperties", &n::read_object},
        {"additionalProperties", &n::read_object},
        {"minProperties", &n::read_length},
        {"maxProperties", &n::read_length},
        {"required", &n::read_required},
        {"dependencies", &n::read_dependent},
        {"dependentRequired", &n::read_dependent},
        {"dependentSchemas", &n::read_dependent},
        {"propertyNames", &n::read_names},
        {"items", &n::read_array},
        {"prefixItems", &n::read_array},
        {"additionalItems", &n::read_array},
        {"minItems", &n::read_length},
        {"maxItems", &n::read_length},
        {"contains", &n::read_contains},
        {"uniqueItems", &n::read_unique},
        {not_pattern_key, &n::read_made},
        {not_values_key, &n::read_made},
        {not_format_key, &n::read_made},
        {not_multiple_key, &n::read_made},
        {wanted_key, &n::read_made},
        {term_key, &n::read_made},
    };
    return rows;
}

//
// keywords
//

const json * normaliser::find(const json & from, const std::string & reference) {
    budget.spend(1 + (int64_t) reference.size() / 4);
    return doc.find(from, reference);
}

const json * normaliser::target(const json & from, const std::string & key, const json & value) {
    if (!value.is_string()) {
        refuse(from, key, std::string(value.type_name()) + " is no reference");
        return nullptr;
    }
    const std::string name = value.get<std::string>();
    const json *      to   = nullptr;
    if (cut.count(&from) > 0) {
        n_left_out++; // there is a warning
        return nullptr;
    }
    if (key == "$dynamicRef" && name.find('#') != std::string::npos) {
        const std::string anchor = name.substr(name.find('#') + 1);
        to                       = find(from, name);
        // a pointer, or an anchor that is not dynamic, is a reference as any other
        const bool is_static = to != nullptr && !(to->is_object() && to->contains("$dynamicAnchor") &&
                                                  (*to)["$dynamicAnchor"] == anchor);
        to                   = is_static ? to : doc.find_dynamic(anchor);
    } else {
        to = find(from, name);
    }
    if (to == nullptr) {
        refuse(from, key,
               "\"" + shortened(name) + "\" is not in this document" +
                   (key == "$dynamicRef" ? ", or depends on the way to it" : ""));
    }
    return to;
}

// The schemas that hold for the same value as this one.
static std::vector<const json *> beside(const json & s) {
    std::vector<const json *> out;
    for (const char * const key : {"allOf", "anyOf", "oneOf", "extends"}) {
        if (s.contains(key) && s[key].is_array()) {
            for (const json & one : s[key]) {
                out.push_back(&one);
            }
        }
    }
    for (const char * const key : {"not", "if", "then", "else"}) {
        if (s.contains(key)) {
            out.push_back(&s[key]);
        }
    }
    return out;
}

// What has no reader, since it says nothing about values.
void normaliser::check_names(const json & s) {
    struct row {
        const char * key;
        int          draft; // the first one
        bool         is_map;
    };
    static const row rows[] = {{"$id", 6, false},
                               {"$anchor", 2019, false},
                               {"$dynamicAnchor", 2020, false},
                               {"$defs", 2019, true},
                               {"definitions", 4, true}};
    for (const row & one : rows) {
        if (doc.draft() < one.draft || !s.contains(one.key)) {
            continue;
        }
        const json & value = s[one.key];
        if (one.is_map ? !value.is_object() : !value.is_string()) {
            refuse(s, one.key,
                   shortened(value.dump()) + (one.is_map ? " is no object of schemas" : " is no name"));
        }
    }
    for (const char * const key : {"then", "else"}) {
        if (s.contains(key) && !s.contains("if") && doc.draft() >= 7) {
            warn(doc.path(s) + "/" + key + ": without an if it says nothing");
        }
    }
}

void normaliser::check_cycles(const json & s, int depth) {
    if (!s.is_object() || is_made(s) || ways[&s] != 0) {
        return;
    }
    if (depth > n_max_references) {
        throw grammar_error("it is too large: references lead to each other more than " +
                            std::to_string(n_max_references) + " times");
    }
    ways[&s] = 1;
    budget.spend(2);
    check_names(s);
    const bool only_reference = doc.draft() <= 7 && s.contains("$ref");
    for (const char * const key : {"$ref", "$dynamicRef", "$recursiveRef"}) {
        if (!s.contains(key) || !s[key].is_string() || (only_reference && key[1] != 'r')) {
            continue;
        }
        const json * to = find(s, s[key].get<std::string>());
        if (to == nullptr || !to->is_object()) {
            continue; // that shows when it is read
        }
        if (ways[to] == 1) {
            refuse(s, key, "\"" + s[key].get<std::string>() + "\" leads back to itself without an end");
            cut.insert(&s);
        } else {
            check_cycles(*to, depth + 1);
        }
    }
    for (const json * one : only_reference ? std::vector<const json *>() : beside(s)) {
        check_cycles(*one, depth + 1);
    }
    ways[&s] = 2;
}

void normaliser::read_reference(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (const json * to = target(*w.what.what, key, value)) {
        p.todo.push_back({{to, false}, w.positive, w.scopes});
    }
}

void normaliser::read_type(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (doc.draft() <= 4 && value.is_array() &&
        std::any_of(value.begin(), value.end(), [](const json & one) { return one.is_object(); })) {
        choice out; // draft 3
        for (const json & one : value) {
            const json * what = one.is_object() ? &one : make({{"type", one}}, *w.what.what);
            out.push_back({{{what, false}, w.positive, w.scopes}});
        }
        p.choices.push_back(std::move(out));
        return;
    }
    for (const json & one : value.is_array() ? value : json::array({value})) {
        if (types_named(one) == 0 || (one == "any" && doc.draft() > 4)) {
            refuse(*w.what.what, key, shortened(one.dump()) + " is no type");
            return;
        }
    }
    const unsigned types = types_named(value);
    p.made.types &= types;
    p.made.is_typed = p.made.is_typed || w.positive;
}

void normaliser::read_values(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (key == "enum" && !value.is_array()) {
        refuse(*w.what.what, key, std::string(value.type_name()) + " is no list");
        return;
    }
    std::set<std::string> before, now;
    for (const json & one : p.made.values ? *p.made.values : std::vector<json>()) {
        before.insert(text_of(one));
    }
    std::vector<json> values;
    for (const json & one : key == "enum" ? value : json::array({value})) {
        const std::string text = text_of(one);
        if (!is_kept(one)) {
            refuse(*w.what.what, key,
                   shortened(one.dump()) + " has a number with more digits than can be kept");
            return;
        }
        if ((!p.made.values || before.count(text) > 0) && now.insert(text).second) {
            values.push_back(one);
        }
    }
    p.made.values = std::move(values);
}

bool normaliser::is_list(const json & at, const std::string & key, const json & value) {
    if (!value.is_array()) {
        refuse(at, key, std::string(value.type_name()) + " is no list of schemas");
    }
    return value.is_array();
}

bool normaliser::is_list_of_names(const json & at, const std::string & key, const json & value) {
    const bool is_one = value.is_array() && std::all_of(value.begin(), value.end(),
                                                        [](const json & one) { return one.is_string(); });
    if (!is_one) {
        refuse(at, key, shortened(value.dump()) + " is no list of names");
    }
    return is_one;
}

void normaliser::read_all_of(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (key == "extends" && doc.draft() > 4) {
        return;
    }
    if (key == "extends" && value.is_object()) {
        p.todo.push_back({{&value, false}, w.positive, w.scopes});
        return;
    }
    for (const json & one : is_list(*w.what.what, key, value) ? value : no_schemas) {
        p.todo.push_back({{&one, false}, w.positive, w.scopes});
    }
}

void normaliser::read_any_of(partial & p, const waiting & w, const std::string & key, const json & value) {
    choice out;
    if (!is_list(*w.what.what, key, value)) {
        return;
    }
    for (const json & one : value) {
        out.push_back({{{&one, false}, w.positive, w.scopes}});
    }
    if (!w.scopes.empty()) {
        add_overlaps(value, w, out);
    }
    p.choices.push_back(std::move(out));
}

// Several at once: then all that they speak of is evaluated.
void normaliser::add_overlaps(const json & list, const waiting & w, choice & out) {
    const size_t n           = list.size();
    const auto   is_together = [&](uint32_t set) {
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < i; k++) {
                if ((set >> i & 1) != 0 && (set >> k & 1) != 0 && is_disjoint(list[i], list[k])) {
                    return false;
                }
            }
        }
        return true;
    };
    for (uint32_t set = 0; n <= n_max_overlaps && set >> n == 0; set++) {
        std::vector<waiting> all;
        for (size_t i = 0; i < n; i++) {
            if ((set >> i & 1) != 0) {
                all.push_back({{&list[i], false}, w.positive, w.scopes});
            }
        }
        if (all.size() > 1 && is_together(set)) {
            out.push_back(std::move(all));
        }
    }
    bool overlaps = false;
    for (size_t i = 0; i < n && n > n_max_overlaps; i++) {
        for (size_t k = 0; k < i; k++) {
            overlaps = overlaps || !is_disjoint(list[i], list[k]);
        }
    }
    if (overlaps) {
        refuse(*w.what.what, "anyOf",
               "more than " + std::to_string(n_max_overlaps) +
                   " schemas that can hold at once have no rule beside an unevaluated… keyword");
    }
}

bool normaliser::is_disjoint(const json & a, const json & b) {
    const auto [entry, added] = disjoint.emplace(std::minmax(&a, &b), 0);
    int & out                 = entry->second;
    if (added) {
        static const json any_type = {
            {"type", names_of(of_all)}}; // or types that nobody names would count as none
        budget.spend(10);
        out = is_empty(together({{&a, false}, {&b, false}, {&any_type, false}}), 1) ? 1 : 0;
    }
    return out == 1;
}

normaliser::listing normaliser::listing_of(const json & s) {
    const json * at = &s;
    for (int i = 0; i < 8 && has(*at, "$ref") && (*at)["$ref"].is_string(); i++) {
        const json * to = find(*at, (*at)["$ref"].get<std::string>());
        at              = to != nullptr ? to : at;
    }
    listing    out;
    const auto add = [&](const std::string & name, const json & what) {
        if (has(what, "const")) {
            out[name] = {text_of(what["const"])};
        } else if (has(what, "enum") && what["enum"].is_array()) {
            out[name] = values_of(what["enum"]);
        }
    };
    add("", *at);
    const bool is_object = has(*at, "type") && (*at)["type"] == "object" && has(*at, "properties") &&
                           has(*at, "required") && (*at)["required"].is_array();
    for (const json & name : is_object ? (*at)["required"] : no_schemas) {
        if (name.is_string() && has((*at)["properties"], name.get_ref<const std::string &>().c_str())) {
            add("/" + name.get<std::string>(), (*at)["properties"][name.get<std::string>()]);
        }
    }
    for (const auto & [name, values] : out) {
        budget.spend(1 + (int64_t) values.size());
    }
    return out;
}

const std::vector<normaliser::listing> & normaliser::listings_of(const json & list) {
    const auto [entry, added] = listings.emplace(&list, std::vector<listing>());
    for (const json & one : added ? list : no_schemas) {
        entry->second.push_back(listing_of(one));
    }
    return entry->second;
}

// Whether two sorted sets have nothing in common.
static bool have_nothing_in_common(const std::set<std::string> & a, const std::set<std::string> & b) {
    return a.size() <= b.size()
               ? std::none_of(a.begin(), a.end(), [&](const auto & one) { return b.count(one) > 0; })
               : have_nothing_in_common(b, a);
}

// Whether two schemas of a list surely never hold at once.
bool normaliser::is_apart(const json & list, size_t i, size_t k) {
    const listing & a = listings_of(list)[i];
    const listing & b = listings_of(list)[k];
    budget.spend(1);
    const bool differ = std::any_of(a.begin(), a.end(), [&](const auto & one) {
        const auto other = b.find(one.first);
        return other != b.end() && have_nothing_in_common(one.second, other->second);
    });
    return differ || is_disjoint(list[i], list[k]);
}

// Each alternative, and the opposites of all others that it does not exclude anyway.
void normaliser::read_one_of(partial & p, const waiting & w, const std::string & key, const json & value) {
    choice       out;
    const json & list = value;
    if (!is_list(*w.what.what, key, value)) {
        return;
    }
    for (size_t i = 0; i < list.size(); i++) {
        std::vector<waiting> all = {{{&list[i], false}, w.positive, w.scopes}};
        for (size_t k = 0; k < list.size(); k++) {
            if (i != k && !is_apart(list, i, k)) {
                all.insert(all.begin(), {{&list[k], true}, false, {}}); // taken last
            }
        }
        out.push_back(std::move(all));
    }
    p.choices.push_back(std::move(out));
}

void normaliser::read_not(partial & p, const waiting & w, const std::string & key, const json & value) {
    (void) key;
    p.todo.insert(p.todo.begin(), {{&value, true}, false, {}});
    (void) w;
}

void normaliser::read_disallow(partial & p, const waiting & w, const std::string & key, const json & value) {
    (void) p;
    (void) value;
    if (doc.draft() == 3) {
        refuse(*w.what.what, key, "this keyword of draft 3 has no rule here");
    }
}

void normaliser::read_if(partial & p, const waiting & w, const std::string & key, const json & value) {
    (void) key;
    const json &         s   = *w.what.what;
    std::vector<waiting> yes = {{{&value, false}, w.positive, w.scopes}}, no = {{{&value, true}, false, {}}};
    if (!s.contains("then") && !s.contains("else") && w.scopes.empty()) {
        return; // it says nothing, and nobody looks at what it has evaluated
    }
    if (s.contains("then")) {
        yes.push_back({{&s["then"], false}, w.positive, w.scopes});
    }
    if (s.contains("else")) {
        no.push_back({{&s["else"], false}, w.positive, w.scopes});
    }
    std::string name;
    auto        test = test_of(value, name);
    if (!test) {
        p.choices.push_back({yes, no});
        return;
    }
    test->yes   = std::move(yes);
    test->no    = std::move(no);
    test->place = &s;
    p.tests[name].push_back(std::move(*test));
}

// A condition like {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}; nullopt: it is none.
std::optional<normaliser::member_test> normaliser::test_of(const json & condition, std::string & name) {
    const auto says_else = [](const json & s, const std::set<std::string> & known) {
        for (const auto & [key, value] : s.items()) {
            (void) value;
            const bool speaks = readers().count(key) > 0 || key.rfind("unevaluated", 0) == 0;
            if (speaks && known.count(key) == 0) {
                return true;
            }
        }
        return false;
    };
    const bool is_one = condition.is_object() && !is_made(condition) &&
                        !says_else(condition, {"properties", "required", "type"}) &&
                        has(condition, "properties") && condition["properties"].is_object() &&
                        condition["properties"].size() == 1;
    if (!is_one) {
        return std::nullopt;
    }
    name                = condition["properties"].begin().key();
    const json & member = condition["properties"].begin().value();
    member_test  out;
    out.needs_member = has(condition, "required");
    out.needs_object = has(condition, "type");
    if ((out.needs_member && condition["required"] != json::array({name})) ||
        (out.needs_object && condition["type"] != "object") || !member.is_object() ||
        says_else(member, {"const", "enum", "type"}) || has(member, "const") == has(member, "enum") ||
        (has(member, "enum") && !member["enum"].is_array())) {
        return std::nullopt;
    }
    const auto add = [&](const json & value) {
        budget.spend(1);
        out.values.emplace(text_of(value), &value);
        return is_kept(value) &&
               (!has(member, "type") || (types_named(member["type"]) & type_of(value)) != 0);
    };
    const bool all = has(member, "const") ? add(member["const"])
                                          : std::all_of(member["enum"].begin(), member["enum"].end(), add);
    return all ? std::optional(std::move(out)) : std::nullopt;
}

// An alternative in which some of the tests hold. made: what says which.
void normaliser::add_case(choice & out, const std::vector<member_test> & tests, const json * made,
                          const std::function<bool(size_t)> & holds) {
    std::vector<waiting> all = {{{made, false}, false, {}}};
    budget.spend(1 + (int64_t) tests.size() / 8);
    for (size_t i = 0; i < tests.size(); i++) {
        const auto & branch = holds(i) ? tests[i].yes : tests[i].no;
        all.insert(all.end(), branch.begin() + (holds(i) ? 0 : 1), branch.end());
    }
    out.push_back(std::move(all));
}

// Several conditions that ask for the value of the same member: an alternative for each value, in place of one for each
// of all the ways in which they may hold.
void normaliser::merge_tests(partial & p) {
    const auto all_tests = std::exchange(p.tests, {});
    for (const auto & [name, tests] : all_tests) {
        if (tests.size() == 1) {
            p.choices.push_back({tests[0].yes, tests[0].no});
            continue;
        }
        const json &                               s = *tests[0].place;
        std::map<std::string, std::vector<size_t>> holds; // the tests, by value
        std::map<std::string, const json *>        values;
        for (size_t i = 0; i < tests.size(); i++) {
            for (const auto & [text, value] : tests[i].values) {
                holds[text].push_back(i);
                values.emplace(text, value);
            }
        }
        std::map<std::vector<size_t>, json> classes;
        json                                listed = json::array();
        for (const auto & [text, some] : holds) {
            auto & list = classes.emplace(some, json::array()).first->second;
            list.push_back(*values[text]);
            listed.push_back(*values[text]);
        }
        choice     out;
        const json present = {
            {"type", "object"}, {"required", json::array({name})}, {"properties", json::object()}};
        if ((p.made.types & ~of_object) != 0 && (given.open || p.made.is_typed)) {
            add_case(out, tests, make({{"type", names_of(of_all & ~of_object)}}, s),
                     [&](size_t i) { return !tests[i].needs_object; });
        }
        if ((p.made.types & of_object) != 0) {
            if (!p.made.required.has(name)) {
                add_case(out, tests, make({{"type", "object"}, {"properties", {{name, false}}}}, s),
                         [&](size_t i) { return !tests[i].needs_member; });
            }
            const json * other = make({{not_values_key, std::move(listed)}}, s);
            add_case(out, tests, below(present, s, "/properties" + pointer_part(name), {other, false}),
                     [](size_t) { return false; });
            for (auto & [some, list] : classes) {
                const json * one = make({{"enum", std::move(list)}}, s);
                add_case(
                    out, tests, below(present, s, "/properties" + pointer_part(name), {one, false}),
                    [&some = some](size_t i) { return std::binary_search(some.begin(), some.end(), i); });
            }
        }
        p.choices.push_back(std::move(out));
    }
}

void normaliser::read_length(partial & p, const waiting & w, const std::string & key, const json & value) {
    const bool is_low = key[1] == 'i';
    const auto count  = read_count(*w.what.what, key, value);
    if (!count) {
        return;
    }
    const int64_t n      = *count;
    shape &       s      = p.made;
    const bool    length = key.find("Length") != std::string::npos,
                  items  = key.find("Items") != std::string::npos;
    int64_t &     low    = length ? s.min_length : items ? s.min_items : s.min_properties;
    int64_t &     high   = length ? s.max_length : items ? s.max_items : s.max_properties;
    if (is_low) {
        s.min_properties_at = !length && !items ? w.what.what : s.min_properties_at;
        low                 = std::max(low, n);
    } else {
        high = high < 0 ? n : std::min(high, n);
    }
    s.implied |= w.positive ? (length ? of_string : items ? of_array : of_object) : 0u;
}

void normaliser::read_pattern(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (!value.is_string()) {
        refuse(*w.what.what, key, std::string(value.type_name()) + " is no string");
        return;
    }
    p.made.implied |= w.positive ? of_string : 0u;
    if ((p.made.types & of_string) == 0) {
        return;
    }
    const std::string expression = value.get<std::string>();
    if (const language * l = pattern(expression, *w.what.what, "pattern")) {
        p.made.texts.push_back(l);
        p.made.texts_key += "\n+" + expression;
    }
}

void normaliser::read_format(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (!value.is_string()) {
        refuse(*w.what.what, key, shortened(value.dump()) + " is no name of a format");
        return;
    }
    if ((p.made.types & of_string) == 0) {
        return;
    }
    const std::string name = value.get<std::string>();
    const language *  l    = format_language(name);
    if (l == nullptr) {
        static const std::set<std::string> of_numbers = {"int32",  "int64", "float",
                                                         "double", "int",   "integer"};
        if (of_numbers.count(name) == 0) {
            warn(doc.path(*w.what.what) + "/" + key + ": \"" + shortened(name) +
                 "\" is not known here, and says nothing");
        }
        return;
    }
    p.made.texts.push_back(l);
    p.made.texts_key += "\nf" + name;
    p.made.implied |= w.positive ? of_string : 0u;
}

void normaliser::read_bound(partial & p, const waiting & w, const std::string & key, const json & value) {
    const json & s         = *w.what.what;
    const bool   is_low    = key == "minimum" || key == "exclusiveMinimum";
    const bool   exclusive = key[0] == 'e';
    if (exclusive && value.is_boolean()) {
        return; // draft 4: it belongs to the bound beside it
    }
    p.made.implied |= w.positive ? of_integer | of_other : 0u;
    const auto d = read_number(s, key, value);
    if (!d) {
        return;
    }
    const char * const beside = is_low ? "exclusiveMinimum" : "exclusiveMaximum";
    const bool open   = exclusive || (s.contains(beside) && s[beside].is_boolean() && s[beside].get<bool>());
    number_bounds & n = p.made.numbers;
    auto &          bound   = is_low ? n.low : n.high;
    bool &          is_open = is_low ? n.low_open : n.high_open;
    const int       c       = bound ? compare(*d, *bound) * (is_low ? 1 : -1) : 1;
    is_open                 = c > 0 ? open : c == 0 ? is_open || open : is_open;
    bound                   = c > 0 ? d : bound;
}

void normaliser::read_multiple(partial & p, const waiting & w, const std::string & key, const json & value) {
    p.made.implied |= w.positive ? of_integer | of_other : 0u;
    const auto d = read_number(*w.what.what, key, value);
    if (d && (d->is_zero() || d->negative)) {
        refuse(*w.what.what, key, value.dump() + " is not above 0");
    } else if (d) {
        p.made.multiples.push_back(*d);
        p.made.multiples_at = w.what.what;
    }
}

// A schema that is met again is seen by further keywords.
static void add_part(std::vector<part> & parts, const part & one) {
    const auto known =
        std::find_if(parts.begin(), parts.end(), [&](const part & p) { return p.what == one.what; });
    if (known == parts.end()) {
        parts.push_back(one);
        return;
    }
    for (const int scope : one.scopes) {
        if (std::find(known->scopes.begin(), known->scopes.end(), scope) == known->scopes.end()) {
            known->scopes.push_back(scope);
        }
    }
}

void normaliser::read_object(partial & p, const waiting & w, const std::string & key, const json & value) {
    const json & s = *w.what.what;
    if (key != "additionalProperties" && !value.is_object()) {
        refuse(s, key, std::string(value.type_name()) + " is no object");
        return;
    }
    p.made.implied |= w.positive ? of_object : 0u;
    add_part(p.made.objects, {&s, w.positive, w.scopes});
}

void normaliser::read_required(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (value.is_boolean() && doc.draft() == 3) { // of the property that has it
        if (value.get<bool>()) {
            refuse(*w.what.what, key, "the required of draft 3 has no rule here");
        }
        return;
    }
    if (!is_list_of_names(*w.what.what, key, value)) {
        return;
    }
    p.made.implied |= w.positive ? of_object : 0u;
    p.made.closes = p.made.closes || (w.positive && !value.empty() && !is_made(*w.what.what));
    for (const json & name : value) {
        budget.spend(2);
        p.made.required.add(name.get<std::string>());
        if (w.positive) {
            p.made.named.add(name.get<std::string>());
        }
    }
}

void normaliser::read_dependent(partial & p, const waiting & w, const std::string & key, const json & value) {
    const json & s = *w.what.what;
    if (!value.is_object()) {
        refuse(s, key, std::string(value.type_name()) + " is no object");
        return;
    }
    for (const auto & [name, then] : value.items()) {
        const bool is_schema = key != "dependentRequired" && (then.is_object() || then.is_boolean());
        const bool is_name   = then.is_string() && doc.draft() == 3;
        if (key == "dependentSchemas" && !is_schema) {
            refuse(s, key + pointer_part(name), std::string(then.type_name()) + " is no schema");
            return;
        }
        if (!is_schema && !is_name && !is_list_of_names(s, key + pointer_part(name), then)) {
            return;
        }
    }
    p.made.implied |= w.positive ? of_object : 0u;
    for (const auto & [name, then] : value.items()) {
        const json *         absent  = make({{"properties", {{name, false}}}}, s);
        json                 present = {{"type", "object"}, {"required", json::array({name})}};
        std::vector<waiting> has;
        if (then.is_array() || then.is_string()) {
            for (const json & other : then.is_array() ? then : json::array({then})) {
                present["required"].push_back(other);
            }
        } else {
            has.push_back({{&then, false}, w.positive, w.scopes});
        }
        has.push_back({{make(present, s), false}, w.positive, {}});
        p.choices.push_back({{{{absent, false}, false, {}}}, has});
    }
}

void normaliser::read_names(partial & p, const waiting & w, const std::string & key, const json & value) {
    (void) key;
    p.made.implied |= w.positive ? of_object : 0u;
    p.made.names.push_back({&value, false});
}

void normaliser::read_array(partial & p, const waiting & w, const std::string & key, const json & value) {
    const json & s = *w.what.what;
    if (key == "prefixItems" && !is_list(s, key, value)) {
        return;
    }
    p.made.implied |= w.positive && key != "additionalItems" ? of_array : 0u;
    add_part(p.made.arrays, {&s, w.positive, w.scopes});
}

void normaliser::read_contains(partial & p, const waiting & w, const std::string & key, const json & value) {
    const json & s    = *w.what.what;
    const bool   has  = doc.draft() >= 2019;
    const auto   read = [&](const char * name, int64_t otherwise, int64_t unknown) {
        const bool is_here = has && s.contains(name);
        return is_here ? read_count(s, name, s[name]).value_or(unknown) : otherwise;
    };
    (void) key;
    p.made.implied |= w.positive ? of_array : 0u;
    const int64_t from = is_made(s) && s.contains(from_key) ? s[from_key].get<int64_t>() : 0;
    p.made.contains.push_back(
        {{&value, false}, &s, read("minContains", 1, 0), read("maxContains", -1, -1), w.scopes, from});
}

void normaliser::read_unique(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (!value.is_boolean()) {
        refuse(*w.what.what, key, shortened(value.dump()) + " is neither true nor false");
    } else if (value.get<bool>()) {
        p.made.unique = w.what.what;
    }
}

void normaliser::read_made(partial & p, const waiting & w, const std::string & key, const json & value) {
    if (!is_made(*w.what.what)) {
        return; // a keyword of the schema's own, which nobody knows
    }
    if (key == term_key) {
        p.todo.insert(p.todo.begin(), {made_terms[value.get<size_t>()], false, {}});
    } else if (key == wanted_key) {
        p.made.wanted_members.push_back(made_wanted[value.get<size_t>()]);
    } else if (key == not_format_key) {
        p.made.not_texts.push_back(format_language(value.get<std::string>(), true));
        p.made.texts_key += "\n-f" + value.get<std::string>();
    } else if (key == not_multiple_key) {
        if (const auto d = read_number(*w.what.what, "multipleOf", value); d && !d->is_zero()) {
            p.made.not_multiples.push_back(*d);
            p.made.multiples_at = w.what.what;
        }
    } else if (key == not_values_key) {
        for (const json & one : value) {
            p.made.other_than.push_back(one);
            p.made.other_than_at = w.what.what;
        }
    } else if (const language * l = pattern(value.get<std::string>(), *w.what.what, "pattern")) {
        p.made.not_texts.push_back(l);
        p.made.texts_key += "\n-" + value.get<std::string>();
    }
}

//
// opposites
//

void normaliser::add_opposite(choice & out, const json & made, const json & s) {
    out.push_back({{{make(made, s), false}, false, {}}});
}

// A schema, or an alternative, in which a member, or the items, must fit a term. at: where it stands in `made`, as a JSON pointer.
void normaliser::add_below(choice & out, json made, const json & s, const std::string & at, const term & t) {
    out.push_back({{{below(std::move(made), s, at, t), false}, false, {}}});
}

const json * normaliser::below(json made, const json & s, const std::string & at, const term & t) {
    const json::json_pointer place(at);
    made[place]       = term_of(t);
    const json * kept = make(std::move(made), s);
    made_ones.insert(&kept->at(place));
    doc.stands_for(kept->at(place), *t.what);
    return kept;
}

// Anything but one list, or one object.
const json * normaliser::other_than(const json & value, const json & s) {
    const int64_t n = (int64_t) value.size();
    terms         some;
    const auto    add = [&](json made) { some.push_back({make(std::move(made), s), false}); };
    add({{"type", names_of(of_all & ~type_of(value))}});
    if (value.is_array()) {
        json before = json::array();
        add({{"type", "array"}, {"minItems", n + 1}});
        if (n > 0) {
            add({{"type", "array"}, {"maxItems", n - 1}});
        }
        for (const json & one : value) {
            json first = before;
            first.push_back({{"not", {{"const", one}}}});
            before.push_back(true);
            add({{"type", "array"}, {"minItems", before.size()}, {"prefixItems", std::move(first)}});
        }
    } else {
        json names = json::array();
        for (const auto & [name, one] : value.items()) {
            json differs                = {{"type", "object"}, {"required", json::array({name})}};
            json lacks                  = {{"type", "object"}};
            differs["properties"][name] = {{"not", {{"const", one}}}};
            lacks["properties"][name]   = false;
            add(std::move(differs));
            add(std::move(lacks));
            names.push_back(name);
        }
        add({{"type", "object"}, {"minProperties", n + 1}, {"required", std::move(names)}});
    }
    return either(some, s);
}

// None of these values. Lists and objects must be few: the ways in which a value differs from each of them combine.
void normaliser::oppose_listed(const json & values, const json & s, choice & out) {
    size_t n_ways = 1;
    for (const json & one : values) {
        n_ways *= n_ways > n_max_ways || !one.is_structured() ? 1 : 2 * one.size() + 2;
    }
    json                 plain = json::array();
    std::vector<waiting> all;
    for (const json & one : values) {
        if (one.is_structured() && n_ways <= n_max_ways) {
            all.push_back({{other_than(one, s), false}, false, {}});
        } else {
            plain.push_back(one);
        }
    }
    all.push_back({{make({{not_values_key, std::move(plain)}}, s), false}, false, {}});
    out.push_back(std::move(all));
}

std::optional<bool> normaliser::oppose_values(const std::string & key, const json & value, const waiting & w,
                                              choice & out) {
    const json & s = *w.what.what;
    if (key == "type") {
        const auto is_schema = [](const json & one) { return !one.is_string(); };
        if (value.is_array() && std::any_of(value.begin(), value.end(), is_schema)) {
            return false;
        }
        if (const unsigned others = of_all & ~types_named(value)) {
            add_opposite(out, {{"type", names_of(others)}}, s);
        }
        return true;
    }
    if (key == "enum" || key == "const") {
        oppose_listed(key == "enum" ? value : json::array({value}), s, out);
        return true;
    }
    if (key == "pattern") {
        add_opposite(out, {{"type", "string"}, {not_pattern_key, value}}, s);
        return true;
    }
    if (key == "format") {
        const format_row * row = value.is_string() ? find_format(value.get<std::string>()) : nullptr;
        if (row != nullptr && !row->wider.empty()) {
            add_opposite(out, {{"type", "string"}, {not_format_key, value}}, s);
        }
        return row == nullptr || !row->wider.empty();
    }
    if (key == "multipleOf" || key == "divisibleBy") {
        add_opposite(out, {{"type", "number"}, {not_multiple_key, value}}, s);
        return true;
    }
    return std::nullopt;
}

std::optional<bool> normaliser::oppose_bounds(const std::string & key, const json & value, const waiting & w,
                                              choice & out) {
    struct opposite {
        const char * type;
        const char * bound;   // of the opposite
        const char * if_open; // the same, where this flag of draft 4 holds
        const char * flag;
    };
    static const std::map<std::string, opposite> numbers = {
        {"minimum", {"number", "exclusiveMaximum", "maximum", "exclusiveMinimum"}},
        {"maximum", {"number", "exclusiveMinimum", "minimum", "exclusiveMaximum"}},
        {"exclusiveMinimum", {"number", "maximum", nullptr, nullptr}},
        {"exclusiveMaximum", {"number", "minimum", nullptr, nullptr}},
    };
    static const std::map<std::string, opposite> counts = {
        {"minLength", {"string", "maxLength", nullptr, nullptr}},
        {"maxLength", {"string", "minLength", nullptr, nullptr}},
        {"minItems", {"array", "maxItems", nullptr, nullptr}},
        {"maxItems", {"array", "minItems", nullptr, nullptr}},
        {"minProperties", {"object", "maxProperties", nullptr, nullptr}},
        {"maxProperties", {"object", "minProperties", nullptr, nullptr}},
    };
    const json & s = *w.what.what;
    if (const auto found = numbers.find(key); found != numbers.end()) {
        const opposite & o       = found->second;
        const bool       is_open = o.flag != nullptr && s.contains(o.flag) && s[o.flag] == true;
        if (!value.is_boolean()) {
            add_opposite(out, {{"type", o.type}, {is_open ? o.if_open : o.bound, value}}, s);
        }
        return true;
    }
    if (const auto found = counts.find(key); found != counts.end()) {
        const bool is_low = key[1] == 'i';
        const auto count  = read_count(s, key, value);
        if (count && *count + (is_low ? -1 : 1) >= 0) {
            add_opposite(
                out, {{"type", found->second.type}, {found->second.bound, *count + (is_low ? -1 : 1)}}, s);
        }
        return true;
    }
    return std::nullopt;
}

std::optional<bool> normaliser::oppose_others(const std::string & key, const json & value, const waiting & w,
                                              choice & out) {
    const auto opposite_of = [](const json & one) { return waiting{{&one, true}, false, {}}; };
    const bool of_list     = key == "allOf" || key == "anyOf" || key == "oneOf";
    if (of_list && !is_list(*w.what.what, key, value)) {
        return true;
    }
    if (key == "allOf") {
        for (const json & one : value) {
            out.push_back({opposite_of(one)});
        }
        return true;
    }
    if (key == "anyOf" || key == "oneOf") { // none of them; of oneOf also two at once
        std::vector<waiting> all;
        for (const json & one : value) {
            all.push_back(opposite_of(one));
        }
        out.push_back(std::move(all));
        for (size_t i = 0; i < value.size() && key == "oneOf"; i++) {
            for (size_t k = 0; k < i; k++) {
                if (!is_apart(value, i, k)) {
                    out.push_back({{{&value[i], false}, false, {}}, {{&value[k], false}, false, {}}});
                }
            }
        }
        return true;
    }
    if (key == "not") {
        out.push_back({{{&value, false}, false, {}}});
        return true;
    }
    if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") {
        if (const json * to = target(*w.what.what, key, value)) {
            out.push_back({opposite_of(*to)});
        }
        return true;
    }
    return std::nullopt;
}

static bool says_nothing(const json & s) {
    return s == true || s == json::object();
}

// Of what a member must not be; nullopt: anything.
static std::optional<term> opposite_value(const json & s) {
    return s == false ? std::nullopt : std::optional(term{&s, true});
}

static bool speaks_of_members(const std::string & key) {
    return key == "properties" || key == "patternProperties" || key == "additionalProperties" ||
           key == "dependentSchemas";
}

static bool speaks_of_items(const std::string & key) {
    return key.find("Items") != std::string::npos || key == "items" || key == "contains";
}

std::optional<bool> normaliser::oppose_members(const std::string & key, const json & value, const waiting & w,
                                               choice & out) {
    const json & s = *w.what.what;
    if (key == "required") {
        const bool of_draft_3 = value.is_boolean() && doc.draft() == 3;
        for (const json & name : !of_draft_3 && is_list_of_names(s, key, value) ? value : no_schemas) {
            add_opposite(out, {{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}}, s);
        }
        return true;
    }
    if (key == "properties" && value.is_object()) {
        for (const auto & [name, one] : value.items()) {
            if (one != true) {
                const json made = {
                    {"type", "object"}, {"required", json::array({name})}, {"properties", json::object()}};
                add_below(out, made, s, "/properties" + pointer_part(name), {&one, true});
            }
        }
        return true;
    }
    if (key == "patternProperties" && value.is_object()) {
        for (const auto & [expression, one] : value.items()) {
            if (!says_nothing(one) && pattern(expression, s, "patternProperties") != nullptr) {
                const json * name = make({{"pattern", expression}}, s);
                add_wanted(out, {{name, false}, opposite_value(one), &s, key});
            }
        }
        return true;
    }
    if (key == "propertyNames") {
        if (!says_nothing(value)) {
            add_wanted(out, {{&value, true}, std::nullopt, &s, key});
        }
        return true;
    }
    if (key == "additionalProperties" || key == "unevaluatedProperties") {
        return says_nothing(value) || oppose_others_of(key, value, s, out);
    }
    return std::nullopt;
}

// An alternative in which a member must be so.
void normaliser::add_wanted(choice & out, shape::wanted one) {
    made_wanted.push_back(std::move(one));
    add_opposite(out, {{"type", "object"}, {wanted_key, made_wanted.size() - 1}}, *made_wanted.back().place);
}

// The opposite of a keyword that speaks of all other members. False: it has none.
bool normaliser::oppose_others_of(const std::string & key, const json & value, const json & s, choice & out) {
    if (key == "unevaluatedProperties") {
        if (has(s, "additionalProperties")) {
            return true; // it says nothing
        }
        const auto evaluates = [](const auto & member) {
            return may_evaluate(member.key()) && member.key() != "properties" &&
                   member.key() != "patternProperties" && !speaks_of_items(member.key());
        };
        const auto members = s.items();
        if (std::any_of(members.begin(), members.end(), evaluates)) {
            return false;
        }
    }
    json listed = json::array({{{"enum", json::array()}}});
    for (const auto & [name, one] : has(s, "properties") ? s["properties"].items() : no_schemas.items()) {
        listed[0]["enum"].push_back(name);
        (void) one;
    }
    for (const auto & [expression, one] :
         has(s, "patternProperties") ? s["patternProperties"].items() : no_schemas.items()) {
        (void) one;
        if (pattern(expression, s, "patternProperties") == nullptr) {
            return true; // it is left out
        }
        listed.push_back({{"pattern", expression}});
    }
    const json * names = make({{"anyOf", std::move(listed)}}, s);
    add_wanted(out, {{names, true}, opposite_value(value), &s, key});
    return true;
}

std::optional<bool> normaliser::oppose_items(const std::string & key, const json & value, const waiting & w,
                                             choice & out) {
    const json & s       = *w.what.what;
    const bool   by_rank = key == "prefixItems" || (key == "items" && value.is_array());
    if (by_rank) {
        json before = json::array();
        for (const json & one : value.is_array() ? value : no_schemas) {
            const std::string at = "/prefixItems/" + std::to_string(before.size());
            if (one != true) {
                add_below(out, {{"type", "array"}, {"prefixItems", before}, {"minItems", before.size() + 1}},
                          s, at, {&one, true});
            }
            before.push_back(true);
        }
        return before.size() <= n_max_opposites;
    }
    if (key == "items" || key == "additionalItems" || key == "unevaluatedItems") {
        return oppose_further_items(key, value, s, out);
    }
    if (key == "contains") {
        const bool counts = doc.draft() >= 2019;
        const auto count  = [&](const char * name) {
            return counts && s.contains(name) ? read_count(s, name, s[name]) : std::nullopt;
        };
        const int64_t low = count("minContains").value_or(1);
        if (low == 1) {
            add_below(out, {{"type", "array"}}, s, "/items", {&value, true});
        } else if (low > 1) {
            add_below(out, {{"type", "array"}, {"minContains", 0}, {"maxContains", low - 1}}, s, "/contains",
                      {&value, false});
        }
        if (const auto high = count("maxContains")) {
            add_below(out, {{"type", "array"}, {"minContains", *high + 1}}, s, "/contains", {&value, false});
        }
        return true;
    }
    if (key == "uniqueItems") {
        return value == false;
    }
    return std::nullopt;
}

// The opposite of a keyword that speaks of the items behind the first ones. False: it has none.
bool normaliser::oppose_further_items(const std::string & key, const json & value, const json & s,
                                      choice & out) {
    const bool         additional = key == "additionalItems", unevaluated = key == "unevaluatedItems";
    const bool         by_items  = has(s, "items") && s["items"].is_array();
    const char * const first     = by_items || additional ? "items" : "prefixItems";
    const size_t       n         = has(s, first) && s[first].is_array() ? s[first].size() : 0;
    const auto         evaluates = [&](const auto & member) {
        return may_evaluate(member.key()) && !speaks_of_members(member.key()) && member.key() != first;
    };
    const auto members = s.items();
    if (says_nothing(value) || (additional && n == 0)) {
        return true;
    }
    if (unevaluated && std::any_of(members.begin(), members.end(), evaluates)) {
        return false;
    }
    if (value == false) {
        add_opposite(out, {{"type", "array"}, {"minItems", n + 1}}, s);
    } else {
        add_below(out, {{"type", "array"}, {from_key, n}}, s, "/contains", {&value, true});
    }
    return true;
}

std::optional<bool> normaliser::oppose_dependent(const std::string & key, const json & value,
                                                 const waiting & w, choice & out) {
    const json & s = *w.what.what;
    if (key == "if") {
        for (const bool holds : {true, false}) {
            const char * const branch = holds ? "then" : "else";
            if (s.contains(branch)) {
                out.push_back({{{&s[branch], true}, false, {}}, {{&value, !holds}, false, {}}});
            }
        }
        return true;
    }
    if (key != "dependentRequired" && key != "dependentSchemas" && key != "dependencies") {
        return std::nullopt;
    }
    for (const auto & [name, then] : value.is_object() ? value.items() : no_schemas.items()) {
        const json present = {{"type", "object"}, {"required", json::array({name})}};
        const bool is_name = then.is_string() && doc.draft() == 3;
        if (key != "dependentRequired" && (then.is_object() || then.is_boolean())) {
            out.push_back({{{&then, true}, false, {}}, {{make(present, s), false}, false, {}}});
            continue;
        }
        if (key == "dependentSchemas") {
            refuse(s, key + pointer_part(name), std::string(then.type_name()) + " is no schema");
            continue;
        }
        if (!is_name && !is_list_of_names(s, key + pointer_part(name), then)) {
            continue;
        }
        for (const json & other : then.is_array() ? then : json::array({then})) {
            json made                                    = present;
            made["properties"][other.get<std::string>()] = false;
            add_opposite(out, made, s);
        }
    }
    return true;
}

bool normaliser::oppose(const std::string & key, const json & value, const waiting & w, choice & out) {
    for (const auto by :
         {&normaliser::oppose_values, &normaliser::oppose_bounds, &normaliser::oppose_others,
          &normaliser::oppose_members, &normaliser::oppose_items, &normaliser::oppose_dependent}) {
        if (const auto found = (this->*by)(key, value, w, out)) {
            return *found;
        }
    }
    return readers().count(key) == 0;
}

// Of a keyword whose opposite has no rule.
static unsigned type_spoken_of(const std::string & key) {
    return key == "format" ? of_string : speaks_of_items(key) ? of_array : of_object;
}

// Refuses a keyword of the wrong type, as where it is no opposite.
void normaliser::check_form(const std::string & key, const json & value, const waiting & w) {
    static const std::set<std::string> simple = {
        "type",        "pattern",     "format",           "minLength",        "maxLength",
        "minItems",    "maxItems",    "minProperties",    "maxProperties",    "minimum",
        "maximum",     "required",    "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "divisibleBy", "uniqueItems", "prefixItems",      "properties",       "patternProperties"};
    if (key == "enum" && !value.is_array()) {
        refuse(*w.what.what, key, std::string(value.type_name()) + " is no list");
    } else if (simple.count(key) > 0) {
        partial p;
        (this->*readers().at(key))(p, w, key, value);
    }
}

void normaliser::take_opposite(partial & p, const waiting & w) {
    const json & s = *w.what.what;
    if (is_made(s) && s.contains(term_key)) {
        const term & t = made_terms[s[term_key].get<size_t>()];
        p.todo.insert(p.todo.begin(), {{t.what, !t.negated}, false, {}});
        return;
    }
    const bool only_reference = doc.draft() <= 7 && s.contains("$ref");
    if (!only_reference && s.contains("type") && (p.made.types & types_named(s["type"])) == 0) {
        return; // it holds anyway
    }
    choice        out;
    std::string   without;
    const int64_t n_before = n_left_out;
    for (const auto & [key, value] : s.items()) {
        if ((only_reference && key != "$ref") || key == "then" || key == "else") {
            continue;
        }
        check_form(key, value, w);
        if (!oppose(key, value, w, out) && (p.made.types & type_spoken_of(key)) != 0) {
            without = key;
        }
    }
    if (n_left_out != n_before) {
        return; // of the opposite of what is not known nothing is known
    }
    if (!without.empty()) {
        refuse(s, without, "the opposite of this keyword has no rule here (for not, oneOf, if)");
        return;
    }
    if (out.empty()) {
        p.made.types = 0;
        return;
    }
    if (out.size() == 1) {
        p.todo.insert(p.todo.begin(), out[0].begin(), out[0].end());
        return;
    }
    p.choices.push_back(std::move(out));
}

//
// members
//

// Adds the keywords that see another one of their kind, which evaluates all that is left.
static void see_all(const shape & s, const char * keyword, std::vector<int> & covered) {
    covered.insert(covered.end(), s.blind.begin(), s.blind.end());
    for (const auto & r : s.rest) {
        if (has(*r.what, keyword)) {
            covered.insert(covered.end(), r.scopes.begin(), r.scopes.end());
        }
    }
}

// The schemas that a property must fit: that of its name, those of the patterns that match, else that of all others.
// name: nullptr for a free name. matches: of an expression and the schema that has it; nullopt: it is not known, so that
// the name is left free.
template <typename matching>
static terms schemas_of(const shape & s, const std::string * name, const matching & matches, bool with_rest) {
    terms            out;
    std::vector<int> covered;
    for (const auto & one : s.objects) {
        bool found = false;
        if (name != nullptr && has(*one.what, "properties") && (*one.what)["properties"].contains(*name)) {
            out.push_back({&(*one.what)["properties"][*name], false});
            found = true;
        }
        if (has(*one.what, "patternProperties")) {
            for (const auto & [expression, value] : (*one.what)["patternProperties"].items()) {
                const std::optional<bool> match = matches(expression, *one.what);
                if (match.value_or(false)) {
                    out.push_back({&value, false});
                }
                found = found || match.value_or(true);
            }
        }
        if (!found && has(*one.what, "additionalProperties")) {
            out.push_back({&(*one.what)["additionalProperties"], false});
            found = true;
        }
        if (found) {
            covered.insert(covered.end(), one.scopes.begin(), one.scopes.end());
        }
    }
    see_all(s, "unevaluatedProperties", covered);
    for (const auto & r : s.rest) {
        if (with_rest && has(*r.what, "unevaluatedProperties") &&
            std::find(covered.begin(), covered.end(), r.scope) == covered.end()) {
            out.push_back({&(*r.what)["unevaluatedProperties"], false});
        }
    }
    return out;
}

terms normaliser::property(const shape & s, const std::string & name, bool is_whole) {
    budget.spend(1 + (int64_t) (s.objects.size() + s.rest.size()) / 16);
    const auto matches = [&](const std::string & expression, const json & what) {
        budget.spend((int64_t) name.size() / 8);
        const language * l = pattern(expression, what, "patternProperties");
        return l == nullptr ? std::nullopt : std::optional(l->holds(name));
    };
    return together(schemas_of(s, &name, matches, is_whole));
}

terms normaliser::free_property(const shape & s, const std::set<std::string> & matched) {
    const auto matches = [&](const std::string & expression, const json & what) {
        const bool known = pattern(expression, what, "patternProperties") != nullptr;
        return known ? std::optional(matched.count(expression) > 0) : std::nullopt;
    };
    return together(schemas_of(s, nullptr, matches, true));
}

terms normaliser::item(const shape & s, size_t i) {
    terms            out;
    std::vector<int> covered;
    for (const part & one : s.arrays) {
        const json * first = has(*one.what, "prefixItems") ? &(*one.what)["prefixItems"] : nullptr;
        const json * items = has(*one.what, "items") ? &(*one.what)["items"] : nullptr;
        const json * after = items;
        if (items != nullptr && items->is_array()) {
            first = items;
            after = has(*one.what, "additionalItems") ? &(*one.what)["additionalItems"] : nullptr;
        }
        const bool   is_first = first != nullptr && first->is_array() && i < first->size();
        const json * what     = is_first ? &(*first)[i] : after;
        if (what != nullptr) {
            out.push_back({what, false});
            covered.insert(covered.end(), one.scopes.begin(), one.scopes.end());
        }
    }
    see_all(s, "unevaluatedItems", covered);
    for (const auto & r : s.rest) {
        if (!has(*r.what, "unevaluatedItems") ||
            std::find(covered.begin(), covered.end(), r.scope) != covered.end()) {
            continue;
        }
        const json & what = (*r.what)["unevaluatedItems"];
        terms        some = {{&what, false}};
        for (const auto & c : s.contains) { // what it has found counts as evaluated since 2020-12
            const bool seen = std::find(c.scopes.begin(), c.scopes.end(), r.scope) != c.scopes.end();
            if (seen && doc.draft() >= 2020) {
                some.push_back(c.what);
            }
        }
        out.push_back({some.size() == 1 ? &what : either(some, *r.what), false});
    }
    return together(std::move(out));
}

bool normaliser::is_open(const shape & s) {
    bool says = given.open, closes = s.closes;
    for (const part & one : s.objects) {
        closes =
            closes || (one.positive && (has(*one.what, "patternProperties") || has(*one.what, "properties")));
        says = says || (one.positive && has(*one.what, "additionalProperties"));
        for (const auto & [expression, value] : has(*one.what, "patternProperties")
                                                    ? (*one.what)["patternProperties"].items()
                                                    : no_schemas.items()) {
            (void) value; // any name may fit one that is not known
            says = says || pattern(expression, *one.what, "patternProperties") == nullptr;
        }
    }
    const auto says_rest = [](const shape::unevaluated & r) { return has(*r.what, "unevaluatedProperties"); };
    return says || !closes || std::any_of(s.rest.begin(), s.rest.end(), says_rest);
}

//
// emptiness
//

bool normaliser::is_dead(const shape & s, int depth, bool is_whole) {
    unsigned types = s.types;
    if (s.values) {
        return s.values->empty();
    }
    if (s.max_length >= 0 && s.max_length < s.min_length) {
        types &= ~of_string;
    }
    const number_bounds & n = s.numbers;
    if (n.low && n.high) {
        const int c = compare(*n.low, *n.high);
        if (c > 0 || (c == 0 && (n.low_open || n.high_open))) {
            types &= ~(of_integer | of_other);
        }
    }
    if (s.max_items >= 0 && s.max_items < s.min_items) {
        types &= ~of_array;
    }
    if ((types & of_object) != 0) {
        bool dead = s.max_properties >= 0 &&
                    s.max_properties < std::max(s.min_properties, (int64_t) s.required.size());
        for (const std::string & name : s.required) {
            if (dead || depth >= n_max_depth) {
                break;
            }
            const terms all = property(s, name, is_whole);
            dead            = !all.empty() && is_empty(all, depth + 1);
        }
        types &= dead ? ~of_object : of_all;
    }
    return types == 0;
}

bool normaliser::is_empty(const terms & all, int depth) {
    for (const term & t : all) {
        if (t.what->is_boolean() && t.what->get<bool>() == t.negated) {
            return true;
        }
    }
    if (all.size() == 1 || depth > n_max_depth || nesting > 30) {
        return false; // a schema of its own is seldom empty; that shows when its rules are made
    }
    if (!active.insert(all).second) {
        return false;
    }
    nesting++;
    bool out = false;
    try {
        const auto & list = shapes(all);
        out = std::all_of(list.begin(), list.end(), [&](const shape & s) { return is_dead(s, depth + 1); });
    } catch (const refusal &) { // it comes again where the schema is used
        out = false;
    }
    nesting--;
    active.erase(all);
    return out;
}

//
// texts
//

// A pattern or format beside a length holds for texts of so many characters that this bound allows. Longer ones are valid,
// too, but few write them, and a schema with them would be too large.
const int64_t n_written = 400'000;

language normaliser::text_language(const shape & s) {
    language out = every_text();
    for (const language * l : s.texts) {
        out = out.is_everything() ? *l : both(out, *l, budget);
    }
    for (const language * l : s.not_texts) {
        out = without(out, *l, budget);
    }
    std::vector<std::string> others;
    for (const json & value : s.other_than) {
        if (value.is_string()) {
            others.push_back(value.get<std::string>());
        }
    }
    if (!others.empty()) {
        out = without(out, these_texts(others, budget), budget);
    }
    if (s.min_length > 0 || s.max_length >= 0) {
        const auto [shortest, longest] = out.lengths();
        const bool is_short            = longest >= 0 && s.max_length >= longest;
        int64_t    n_edges             = 1; // of a pattern: they are written out for each length
        for (const auto & state : out.states) {
            n_edges += (int64_t) state.edges.size();
        }
        const int64_t most = std::max(s.min_length, std::clamp<int64_t>(n_written / n_edges, 128, 2048));
        const int64_t high = is_short ? -1 : s.max_length >= most ? most : s.max_length;
        const int64_t low  = shortest >= s.min_length ? 0 : s.min_length;
        if (low > 0 || high >= 0) {
            out = both(out, texts_of_length(low, high, budget), budget);
        }
    }
    return out;
}

language normaliser::strings(const terms & all) {
    language out;
    for (const shape & s : shapes(all)) {
        if (s.values) {
            std::vector<std::string> texts;
            for (const json & value : *s.values) {
                if (value.is_string()) {
                    texts.push_back(value.get<std::string>());
                }
            }
            out = either_of(out, these_texts(texts, budget), budget);
        } else if ((s.types & of_string) != 0) {
            out = either_of(out, text_language(s), budget);
        }
    }
    return out;
}

} // namespace schema
