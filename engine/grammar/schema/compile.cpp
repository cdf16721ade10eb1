#include "grammar/schema/compile.h"

#include "grammar/schema/pattern.h"
#include "util/json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <tuple>

namespace schema {

static const size_t  n_max_unique    = 8; // values of a list whose items are in any order, each at most once
static const size_t  n_max_listed    = 500;    // values of such a list
static const int64_t n_max_composite = 10000;  // lists and objects among the values of a place
static const size_t  n_max_any       = 8;      // properties that may come in any order
static const size_t  n_max_classes   = 64;     // of names, by the patterns that they match
static const size_t  n_max_members   = 4000;   // named properties of an object
static const size_t  n_max_contains  = 4;      // at one place
static const size_t  n_max_wanted    = 20;     // members of an object that opposites want
static const size_t  n_max_wanted_free   = 3;  // of them those that may have any name
static const size_t  n_max_wanted_values = 4;  // and those that ask for the value of the same member
static const int64_t n_max_counted_free  = 64; // beside those that are wanted, where their number has a bound
static const int64_t n_max_counted_states = 150000;
static const size_t  n_far                = 19; // digits of a bound that no number comes near
static const size_t  n_max_alternatives   = 64; // values; more of them are written as a tree
static const int     n_max_indent         = 40; // spaces at the beginning of a line
static const int     n_max_tabs           = 10;

static const char * const bare_name = "^[^:}{\\[\\]\",<>|\\s]+$"; // without quotes

static bool is_composite(const json & v) {
    return v.is_array() || v.is_object();
}

// The text of a value without members or items, in JSON.
static std::string literal(const json & value) {
    if (value.is_string()) {
        std::string out;
        append_json_string(out, value.get<std::string>());
        return out;
    }
    const bool is_whole =
        value.is_number_float() && type_of(value) == of_integer && std::abs(value.get<double>()) < 1e15;
    // 1.0 is 1, which more readers take as an integer
    return is_whole ? std::to_string((int64_t) value.get<double>()) : value.dump();
}

// All but strings; and single types as JSON names them.
static const json object_type  = {{"type", "object"}};
static const json no_string    = {{"type", {"null", "boolean", "number", "array", "object"}}};
static const json single_types = {{{"type", "null"}},   {{"type", "boolean"}}, {{"type", "number"}},
                                  {{"type", "string"}}, {{"type", "array"}},   {{"type", "object"}}};

namespace {

struct nothing_fits : refusal {
    using refusal::refusal;
};

using element  = grammar_element;
using sequence = grammar_rules::sequence;

// The rules of states that lead to one another: a state has its rule when it is first named, and each is written once.
template <typename state> class state_rules {
  public:
    // cost: of a state, in the budget.
    state_rules(grammar_rules & rules, work_budget & budget, int64_t cost)
        : rules(rules), budget(budget), cost(cost) {}

    element of(const state & at) {
        const auto [entry, added] = made.emplace(at, -1);
        if (added) {
            entry->second = rules.add_rule(0);
            open.push_back(&*entry);
            budget.spend(cost);
        }
        return {element::rule, entry->second};
    }

    // A state that is to be written, and its rule; nullptr: all are.
    const std::pair<const state, int32_t> * next() {
        if (open.empty()) {
            return nullptr;
        }
        const auto * const last = open.back();
        open.pop_back();
        return last;
    }

  private:
    grammar_rules &                                      rules;
    work_budget &                                        budget;
    const int64_t                                        cost;
    std::map<state, int32_t>                             made;
    std::vector<const std::pair<const state, int32_t> *> open;
};

class compiler {
  public:
    compiler(const std::string & text, const options & given, work_budget & budget)
        : given(given), budget(budget), doc(text), names(doc, given, budget) {
        for (const std::string & keyword : doc.newer_keywords()) {
            names.warn(keyword + " is no keyword of draft " + std::to_string(doc.draft()) +
                       ", and says nothing");
        }
    }

    compiled make() {
        return make([this] { return sequence{value_of({{&doc.root(), false}})}; });
    }

    compiled make(const call_schema & call) {
        form = call.form;
        if (!call.part.empty()) {
            const json & part = doc.add(call.part, call.path);
            return make([&] { return sequence{value_of({{&part, false}})}; });
        }
        const terms all = together({{&doc.root(), false}, {&object_type, false}});
        return make([&] { return sequence{form && form->quote.empty() ? call_of(all) : value_of(all)}; });
    }

  private:
    void begin() {
        rules = {};
        made.clear();
        by_key.clear();
        counted.clear();
        rules.add_rule(0);
        make_common();
    }
    compiled make(const std::function<sequence()> & root) {
        do {
            begin();
            rules.add_alternative(0, root());
            while (!todo.empty()) {
                const auto [rule, all] = todo.back();
                todo.pop_back();
                write(rule, all);
            }
        } while (find_hollow());
        remove_endless();
        return {std::move(rules), {names.warnings.begin(), names.warnings.end()}};
    }

    // Strings have marks of their own, and names none.
    bool    is_bare() const { return form && !form->quote.empty(); }
    element rule(int32_t id) const { return {element::rule, id}; }
    element new_rule(const std::vector<sequence> & alternatives) {
        const int32_t id = rules.add_rule(0);
        for (const sequence & one : alternatives) {
            rules.add_alternative(id, one);
        }
        return rule(id);
    }
    sequence text(const std::string & utf8) {
        sequence out;
        rules.append_text(out, utf8);
        return out;
    }
    static sequence joined(std::initializer_list<sequence> parts) {
        sequence out;
        for (const sequence & part : parts) {
            out.insert(out.end(), part.begin(), part.end());
        }
        return out;
    }
    element pattern_rule(const std::string & expression) {
        return add_language(rules, ::read_pattern(expression, budget), writing::plain);
    }

    void                             make_common();
    element                          value_of(const terms & all);
    void                             write(int32_t rule, const terms & all);
    std::string                      place_of(const terms & all) const;
    void                             write_shape(int32_t rule, const shape & s, std::set<std::string> & seen);
    void                             check_other_than(const shape & s);
    void                             write_literal(sequence & out, const json & value);
    sequence                         name_literal(const std::string & name);
    element                          string_of(const shape & s);
    element                          text_rule(const language & l, const std::string & key);
    std::optional<element>           number_of(const shape & s);
    bool                             write_array(const shape & s, sequence & out);
    bool                             write_unique(const shape & s, sequence & out);
    sequence                         like_items(const shape & s);
    sequence                         first_items(const shape & s, int64_t n);
    std::optional<std::vector<json>> all_items(const shape & s, size_t i);
    bool find_different(const shape & s, std::vector<json> & values, std::vector<std::set<size_t>> & by_rank);
    bool write_counted_array(const shape & s, sequence & out);
    std::vector<std::string> with_listed_names(const shape & s, std::vector<std::string> known);
    bool                     write_object(const shape & s, sequence & out);

    // How a member is written, with name and value, and which of those that are wanted it is then.
    using way = std::pair<uint32_t, sequence>;
    struct member {
        std::vector<way> ways;
        bool             required;
        terms            what; // of the value
    };
    // Free members with the names of some that are wanted, and those of them that they are.
    struct free_kind {
        uint32_t named = 0, fits = 0;
        element  written;
    };
    struct members {
        std::vector<member>    named;
        std::optional<element> free;
        uint32_t wanted = 0, free_wanted = 0; // all that are wanted, and those that a free member may be
        std::vector<free_kind> kinds;
        sequence               between, end, end_of_none;
        int64_t                low = 0, high = -1, top = 0; // counts; above top they are the same
        bool                   counted = false, any_order = false;
    };
    // (next one, or set; number; none has come; those wanted that have come)
    using member_state = std::tuple<uint32_t, int64_t, bool, uint32_t>;
    using writer       = std::function<std::optional<sequence>(const terms &)>; // of a member

    std::vector<std::pair<language, std::set<std::string>>>
                           divide_names(const shape & s, const std::vector<std::string> & named);
    std::optional<element> free_member(const shape & s, const std::vector<std::string> & named);
    bool                   find_members(const shape & s, const std::vector<std::string> & known,
                                        const std::set<std::string> & positive, std::vector<member> & out);
    std::vector<way>       ways_of(const shape & s, const std::string & name, const terms & what,
                                   const writer & write);
    void find_wanted(const shape & s, const std::vector<std::string> & known, members & all);
    void find_kinds(const shape & s, const std::vector<std::string> & known, const std::vector<size_t> & some,
                    members & all);
    bool count_members(const shape & s, members & all);
    element     write_members(const members & all);
    element     write_wanted(uint32_t found, bool first, int64_t left, const members & all);
    void        end_members(int32_t from, const member_state & key, const members & all);
    bool        find_hollow();
    void        remove_endless();
    std::string find_cause(const std::vector<bool> & ends) const;

    // calls
    element                 call_of(const terms & all);
    bool                    write_call(const shape & s, sequence & out);
    std::optional<sequence> argument(const call_form::member & m, const terms & all);
    std::optional<sequence> text_argument(const language & texts);
    language                without_end(const language & l, const std::string & end);
    sequence                string_around(const language & l);

    bool is_never(const terms & all) const {
        return std::any_of(all.begin(), all.end(), [](const term & t) {
            return t.what->is_boolean() && t.what->get<bool>() == t.negated;
        });
    }

    const options                          given;
    std::optional<call_form>               form;
    std::string                            unwritable; // an argument that the form cannot have
    work_budget &                          budget;
    document                               doc;
    normaliser                             names;
    grammar_rules                          rules;
    std::map<terms, int32_t>               made;
    std::vector<std::pair<int32_t, terms>> todo;
    std::map<std::string, element>         by_key;
    std::set<terms>                        counted; // of members that need not be, but may count as some
    std::set<terms>                        hollow;  // of those that no value fits

    element  any, any_text, character, space_rule, indent, never;
    sequence space, comma, colon, open_list, close_list, open_object, close_object;
};

//
// what all schemas share
//

void compiler::make_common() {
    never                      = rule(rules.add_rule(0)); // without alternatives it is no text
    const std::string n_spaces = std::to_string(n_max_indent), n_tabs = std::to_string(n_max_tabs);
    if (given.space == options::one) {
        space_rule = pattern_rule("^( |\\n( {0," + n_spaces + "}|\\t{1," + n_tabs + "}))?$");
    } else if (given.space == options::free) {
        space_rule = pattern_rule("^[ \\t\\n\\r]*$");
    }
    const bool has = given.space != options::compact, free = given.space == options::free;
    space               = has ? sequence{space_rule} : sequence{};
    comma               = joined({free ? space : sequence{}, text(","), space});
    const element blank = given.space == options::one ? pattern_rule("^ ?$") : element();
    colon = joined({free ? space : sequence{}, text(":"), free ? space : has ? sequence{blank} : sequence{}});
    open_list    = joined({text("["), space});
    close_list   = joined({space, text("]")});
    open_object  = joined({text("{"), space});
    close_object = joined({space, text("}")});

    // any character of a string: as it is, or escaped
    const element hex  = rules.one_of({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}, 0);
    const element no_d = rules.one_of({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}, 0);
    const element d = rules.one_of({{'d', 'd'}, {'D', 'D'}}, 0), low = rules.one_of({{'0', '7'}}, 0);
    const element first = rules.one_of({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}, 0);
    const element last  = rules.one_of({{'c', 'f'}, {'C', 'F'}}, 0);
    const element plain = rules.one_of(complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}), 0);
    const element sign  = rules.one_of(
        {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}},
        0);
    const sequence u = text("\\u");
    character        = new_rule({{plain},
                                 joined({text("\\"), {sign}}),
                                 joined({u, {no_d, hex, hex, hex}}),
                                 joined({u, {d, low, hex, hex}}),
                                 joined({u, {d, first, hex, hex}, u, {d, last, hex, hex}})});
    any_text = form && !form->quote.empty()
                   ? new_rule({string_around(every_text())})
                   : new_rule({joined({text("\""), {rules.repeat({character}, 0, -1, 0)}, text("\"")})});

    number_bounds all;
    const element number = add_language(rules, *numbers_within(all, budget), writing::plain);
    any                  = rule(rules.add_rule(0));
    const element name   = form && !form->quote.empty() ? pattern_rule(bare_name) : any_text;
    const element member = new_rule({joined({{name}, colon, {any}})});
    const element more   = rules.repeat(joined({comma, {member}}), 0, -1, 0);
    const element next   = rules.repeat(joined({comma, {any}}), 0, -1, 0);
    for (const sequence & one :
         {text("null"), text("true"), text("false"), sequence{number}, sequence{any_text},
          joined({open_object, text("}")}), joined({open_object, {member, more}, close_object}),
          joined({open_list, text("]")}), joined({open_list, {any, next}, close_list})}) {
        rules.add_alternative(any.value, one);
    }
}

// Those that say something.
static terms speaking(terms all) {
    const auto says_nothing = [](const term & t) {
        return t.what->is_boolean() && t.what->get<bool>() != t.negated;
    };
    all.erase(std::remove_if(all.begin(), all.end(), says_nothing), all.end());
    return all;
}

element compiler::value_of(const terms & given_terms) {
    const terms all = speaking(given_terms);
    if (all.empty()) {
        return any;
    }
    const auto [entry, added] = made.emplace(all, -1);
    if (added) {
        budget.spend(20);
        entry->second = rules.add_rule(0);
        todo.emplace_back(entry->second, all);
    }
    return rule(entry->second);
}

void compiler::write(int32_t to, const terms & all) {
    std::set<std::string> seen;
    try {
        for (const shape & s : std::vector<shape>(names.shapes(all))) {
            budget.spend(20);
            write_shape(to, s, seen);
        }
    } catch (const grammar_error & e) {
        const std::string place = place_of(all);
        throw grammar_error(
            (place.empty() && names.last_read() != nullptr ? place_of({{names.last_read(), false}}) : place) +
            e.what());
    }
}

// For a message: where they stand.
std::string compiler::place_of(const terms & all) const {
    const std::string path = all.empty() ? "" : doc.path(*all[0].what);
    return path.empty() ? "" : path + ": ";
}

void compiler::check_other_than(const shape & s) {
    const auto is_here = [&s](const json & v) { return is_composite(v) && (s.types & type_of(v)) != 0; };
    if (std::any_of(s.other_than.begin(), s.other_than.end(), is_here)) {
        names.refuse(*s.other_than_at, "", "the opposite of a list or an object has no rule here");
    }
}

// seen: the simple alternatives that the rule has.
void compiler::write_shape(int32_t to, const shape & s, std::set<std::string> & seen) {
    const auto add = [&](const std::string & key, const sequence & what) {
        if (seen.insert(key).second) {
            rules.add_alternative(to, what);
        }
    };
    if (s.values) {
        const auto n_composite = std::count_if(s.values->begin(), s.values->end(), is_composite);
        if (n_composite > n_max_composite) {
            throw grammar_error("it is too large: " + std::to_string(n_composite) +
                                " lists and objects as values, of which there may be " +
                                std::to_string(n_max_composite));
        }
        std::vector<std::string> tree;
        for (const json & value : *s.values) {
            sequence out;
            if (s.values->size() > n_max_alternatives && !is_composite(value) && !is_bare()) {
                tree.push_back(literal(value));
                continue;
            }
            write_literal(out, value);
            add("v" + value.dump(), out);
        }
        if (!tree.empty()) {
            const language texts = these_texts(tree, budget);
            budget.spend((int64_t) texts.states.size() * 3);
            rules.add_alternative(to, {add_language(rules, texts, writing::plain)});
        }
        return;
    }
    const auto other = [&s](const json & value) {
        return std::find(s.other_than.begin(), s.other_than.end(), value) != s.other_than.end();
    };
    if ((s.types & of_null) != 0 && !other(nullptr)) {
        add("vnull", text("null"));
    }
    for (const bool value : {true, false}) {
        if ((s.types & of_boolean) != 0 && !other(value)) {
            add(value ? "vtrue" : "vfalse", text(value ? "true" : "false"));
        }
    }
    if ((s.types & (of_integer | of_other)) != 0) {
        if (const auto number = number_of(s)) {
            add("r" + std::to_string(number->value), {*number});
        }
    }
    if ((s.types & of_string) != 0) {
        const element string = string_of(s);
        if (string.what != element::end) {
            add("r" + std::to_string(string.value), {string});
        }
    }
    check_other_than(s);
    sequence out;
    if ((s.types & of_array) != 0 && write_array(s, out)) {
        rules.add_alternative(to, out);
    }
    out.clear();
    if ((s.types & of_object) != 0 && write_object(s, out)) {
        rules.add_alternative(to, out);
    }
}

void compiler::write_literal(sequence & out, const json & value) {
    const auto append = [&out](const sequence & more) { out.insert(out.end(), more.begin(), more.end()); };
    budget.spend(2);
    if (value.is_string() && is_bare()) {
        append(text(form->quote + value.get<std::string>() + form->quote));
    } else if (value.is_array() || value.is_object()) {
        append(value.is_array() ? open_list : open_object);
        bool first = true;
        for (const auto & [name, one] : value.items()) {
            append(first ? sequence{} : comma);
            first = false;
            if (value.is_object()) {
                append(name_literal(name));
                append(colon);
            }
            write_literal(out, one);
        }
        append(value.empty()      ? text(value.is_array() ? "]" : "}")
               : value.is_array() ? close_list
                                  : close_object);
    } else {
        append(text(literal(value)));
    }
}

sequence compiler::name_literal(const std::string & name) {
    sequence out;
    if (form && !form->quote.empty()) {
        return text(name);
    }
    write_literal(out, json(name));
    return out;
}

//
// strings and numbers
//

// As a string stands in a value.
sequence compiler::string_around(const language & l) {
    if (form && !form->quote.empty()) {
        const language kept = without_end(l, form->quote);
        return kept.empty()
                   ? sequence{never}
                   : joined(
                         {text(form->quote), {add_language(rules, kept, writing::plain)}, text(form->quote)});
    }
    return joined({text("\""), {add_language(rules, l, writing::json_string)}, text("\"")});
}

element compiler::text_rule(const language & l, const std::string & key) {
    auto & entry = by_key[key];
    if (entry.what == element::end && !l.empty()) {
        budget.spend((int64_t) l.states.size() * 3);
        entry = new_rule({string_around(l)});
    }
    return entry;
}

element compiler::string_of(const shape & s) {
    if (s.max_length >= 0 && s.max_length < s.min_length) {
        return {}; // no text is so long and so short; other types may fit
    }
    const bool others =
        std::any_of(s.other_than.begin(), s.other_than.end(), [](const json & v) { return v.is_string(); });
    const bool bare = is_bare();
    if (s.texts.empty() && s.not_texts.empty() && !others &&
        (!bare || (s.min_length == 0 && s.max_length < 0))) {
        if (s.min_length == 0 && s.max_length < 0) {
            return any_text;
        }
        const int64_t most = INT32_MAX;
        if (s.min_length > most) {
            return {};
        }
        const auto high  = (int32_t) std::min(s.max_length, most);
        auto &     entry = by_key["l" + std::to_string(s.min_length) + "," + std::to_string(high)];
        if (entry.what == element::end) {
            const element inner = rules.repeat({character}, (int32_t) s.min_length, high, 0);
            entry               = new_rule({joined({text("\""), {inner}, text("\"")})});
        }
        return entry;
    }
    budget.spend((int64_t) s.other_than.size());
    std::string key = "t" + std::to_string(s.min_length) + "," + std::to_string(s.max_length) + s.texts_key;
    for (const json & v : s.other_than) {
        key += "\n" + v.dump();
    }
    return by_key.count(key) > 0 ? by_key[key] : text_rule(names.text_language(s), key);
}

// The texts of a number, however many zeros it ends with.
static std::string texts_of(const decimal & d) {
    const std::string sign = d.is_zero() ? "-?" : d.negative ? "-" : "";
    return "^" + sign + d.whole + (d.fraction.empty() ? "(\\.0+)?" : "\\." + d.fraction + "0*") + "$";
}

std::optional<element> compiler::number_of(const shape & s) {
    number_bounds bounds = s.numbers;
    bounds.integers      = (s.types & of_integer) != 0;
    bounds.fractions     = (s.types & of_other) != 0;
    std::string key      = "n" + std::to_string(bounds.integers) + std::to_string(bounds.fractions);
    for (const auto * bound : {&bounds.low, &bounds.high}) {
        key += *bound ? std::string(" ") + ((*bound)->negative ? "-" : "") + (*bound)->whole + "." +
                            (*bound)->fraction
                      : std::string(" *");
    }
    key += std::to_string(bounds.low_open) + std::to_string(bounds.high_open);
    for (const decimal & m : s.multiples) {
        key += " %" + m.whole + "." + m.fraction;
    }
    for (const decimal & m : s.not_multiples) {
        key += " !%" + m.whole + "." + m.fraction;
    }
    std::vector<decimal> others;
    for (const json & v : s.other_than) {
        const auto d = v.is_number() ? read_decimal(v.dump()) : std::nullopt;
        if (d) {
            others.push_back(*d);
            key += " !" + v.dump();
        }
    }
    const auto known = by_key.find(key);
    if (known != by_key.end()) {
        return known->second.what == element::end ? std::nullopt : std::optional(known->second);
    }
    bounds.plain = !others.empty();
    for (auto * bound : {&bounds.low, &bounds.high}) { // no number has so many digits
        const bool is_outside = *bound && (*bound)->negative == (bound == &bounds.low);
        if (is_outside && (*bound)->whole.size() > n_far) {
            bound->reset();
        }
    }
    std::optional<language> some;
    for (const auto * list : {&s.multiples, &s.not_multiples}) {
        for (const decimal & of : *list) {
            bounds.multiple_of = of;
            bounds.no_multiple = list == &s.not_multiples;
            const auto these   = numbers_within(bounds, budget);
            if (!these) {
                names.refuse(*s.multiples_at, "multipleOf",
                             "a multiple of " + of.whole + "." + of.fraction + " has too many remainders");
            }
            some = these && some ? both(*some, *these, budget) : these ? these : some;
        }
    }
    bounds.multiple_of.reset();
    language out = some ? *some : *numbers_within(bounds, budget);
    for (const decimal & d : others) {
        out = without(out, ::read_pattern(texts_of(d), budget), budget);
    }
    auto & entry = by_key[key];
    if (out.empty()) {
        return std::nullopt;
    }
    entry = add_language(rules, out, writing::plain);
    return entry;
}

//
// arrays
//

// How many items have a schema of their own.
static size_t count_first(const shape & s) {
    size_t n = 0;
    for (const part & one : s.arrays) {
        for (const char * const key : {"prefixItems", "items"}) {
            const bool has = one.what->contains(key) && (*one.what)[key].is_array();
            n              = has ? std::max(n, (*one.what)[key].size()) : n;
        }
    }
    return n;
}

bool compiler::write_array(const shape & s, sequence & out) {
    const auto n_first  = (int64_t) count_first(s);
    shape      narrowed = s;
    int64_t &  high     = narrowed.max_items;
    for (int64_t i = 0; i <= n_first; i++) {
        const terms all = names.item(s, (size_t) i);
        if (is_never(all) || names.is_empty(all, 1)) {
            high = high < 0 ? i : std::min(high, i);
        }
    }
    if ((high >= 0 && s.min_items > high) || s.min_items > INT32_MAX) {
        return false;
    }
    if (s.unique != nullptr && (high < 0 || high > 1) && write_unique(narrowed, out)) {
        return true;
    }
    const auto is_counted = [](const shape::contained & c) { return c.low > 0 || c.high >= 0; };
    if (std::any_of(s.contains.begin(), s.contains.end(), is_counted)) {
        return write_counted_array(narrowed, out);
    }
    high = std::min<int64_t>(high, INT32_MAX);
    out  = n_first == 0 && high != 0 ? like_items(narrowed) : first_items(narrowed, n_first);
    return true;
}

// Items that all have the same schema.
sequence compiler::like_items(const shape & s) {
    const element item  = value_of(names.item(s, 0));
    const auto    least = (int32_t) std::max<int64_t>(s.min_items - 1, 0);
    const auto    most  = s.max_items < 0 ? -1 : (int32_t) s.max_items - 1;
    const element more  = rules.repeat(joined({comma, {item}}), least, most, 0);
    const element some  = new_rule({joined({{item, more}, close_list})});
    if (s.min_items == 0) {
        rules.add_alternative(some.value, text("]"));
    }
    return joined({open_list, {some}});
}

// Items with schemas of their own, and like ones behind them: made from the last to the first.
sequence compiler::first_items(const shape & s, int64_t n) {
    const int64_t low = s.min_items, high = s.max_items;
    sequence      after = close_list;
    if (high < 0 || high > n) {
        const element item  = value_of(names.item(s, (size_t) n));
        const auto    least = (int32_t) std::max<int64_t>(low - n, 0);
        const element rest =
            rules.repeat(joined({comma, {item}}), least, high < 0 ? -1 : (int32_t) (high - n), 0);
        after = joined({{rest}, close_list});
    }
    for (int64_t i = std::min(n, high < 0 ? n : high) - 1; i >= 0; i--) {
        const element item = value_of(names.item(s, (size_t) i));
        const element from = new_rule({joined({i > 0 ? comma : sequence{}, {item}, after})});
        if (i >= low) {
            rules.add_alternative(from.value, i > 0 ? close_list : text("]"));
        }
        after = {from};
    }
    return high == 0 ? joined({open_list, text("]")}) : joined({open_list, after});
}

// All values that an item may be; nullopt: they are no list of constants.
std::optional<std::vector<json>> compiler::all_items(const shape & s, size_t i) {
    const terms all = names.item(s, i);
    if (all.empty()) {
        return std::nullopt;
    }
    std::vector<json>     values;
    std::set<std::string> seen;
    for (const shape & one : names.shapes(all)) {
        if (!one.values && ((one.types & ~(of_null | of_boolean)) != 0 || !one.other_than.empty())) {
            return std::nullopt;
        }
        for (const json & v : one.values ? *one.values : std::vector<json>{nullptr, true, false}) {
            const bool fits = one.values || (one.types & type_of(v)) != 0;
            if (fits && values.size() <= n_max_listed && seen.insert(names.text_of(v)).second) {
                values.push_back(v);
            }
        }
    }
    return values.size() > n_max_listed ? std::nullopt : std::optional(values);
}

// The values of items that must differ: all of them, and those that each item may be, by rank; the last ones are those of
// all further items. False: there is no list of them.
bool compiler::find_different(const shape & s, std::vector<json> & values,
                              std::vector<std::set<size_t>> & by_rank) {
    std::map<std::string, size_t> known;
    const auto                    n_first = (int64_t) count_first(s);
    const int64_t                 n = s.max_items < 0 ? n_first + 1 : std::min(s.max_items, n_first + 1);
    for (int64_t i = 0; i < n; i++) {
        const auto found = all_items(s, (size_t) i);
        if (!found) {
            return false;
        }
        by_rank.emplace_back();
        for (const json & v : *found) {
            const auto [entry, added] = known.emplace(names.text_of(v), values.size());
            by_rank.back().insert(entry->second);
            if (added) {
                values.push_back(v);
            }
        }
    }
    return n_first == 0 || values.size() <= n_max_unique;
}

// Items that are all different. False: the keyword is left out.
bool compiler::write_unique(const shape & s, sequence & out) {
    std::vector<json>             values;
    std::vector<std::set<size_t>> by_rank;
    if (!find_different(s, values, by_rank)) {
        const std::string most = std::to_string(count_first(s) > 0 ? n_max_unique : n_max_listed);
        names.refuse(*s.unique, "uniqueItems",
                     "items that must differ have a rule only where they are an enum of at most " + most +
                         " values");
        return false;
    }
    // in any order: a state for each set of values; in their own order: one for each value
    const bool any_order = values.size() <= n_max_unique;
    if (!any_order) {
        names.warn(doc.path(*s.unique) + "/uniqueItems: more than " + std::to_string(n_max_unique) +
                   " values come in the order of the schema");
    }
    const auto n    = (int64_t) values.size();
    const auto most = s.max_items < 0 ? n : std::min(s.max_items, n);
    // how many items `contains` has found: those that may fit for its lower bound, those that surely do for the upper one
    using counts = std::vector<int64_t>;
    using state =
        std::tuple<uint32_t, int64_t, counts>; // (set, or first index that may come; number of items; found)
    const auto with = [&](counts found_so_far, int64_t count, const json & value) {
        for (size_t c = 0; c < s.contains.size(); c++) {
            const term & t = s.contains[c].what;
            if (count < s.contains[c].from) {
                continue;
            }
            found_so_far[2 * c] += names.is_valid(value, t);
            found_so_far[2 * c + 1] += !names.is_valid(value, term{t.what, !t.negated});
        }
        return found_so_far;
    };
    const auto is_enough = [&](const counts & found_so_far) {
        bool out = true;
        for (size_t c = 0; c < s.contains.size(); c++) {
            const auto & [low, high] = std::tie(s.contains[c].low, s.contains[c].high);
            out = out && found_so_far[2 * c] >= low && (high < 0 || found_so_far[2 * c + 1] <= high);
        }
        return out;
    };
    state_rules<state> states(rules, budget, 20);
    const element      first = states.of({0, 0, counts(2 * s.contains.size())});
    while (const auto * const next = states.next()) {
        const auto & [set, count, found_so_far] = next->first;
        const int32_t from                      = next->second;
        for (uint32_t i = any_order ? 0 : set; i < values.size() && count < most; i++) {
            const auto & fit = by_rank[std::min((size_t) count, by_rank.size() - 1)];
            if ((any_order && (set >> i & 1) != 0) || fit.count(i) == 0) {
                continue;
            }
            sequence item = count > 0 ? comma : sequence{};
            write_literal(item, values[i]);
            item.push_back(states.of(
                {any_order ? set | 1u << i : i + 1, count + 1, with(found_so_far, count, values[i])}));
            rules.add_alternative(from, item);
        }
        if (count >= s.min_items && is_enough(found_so_far)) {
            rules.add_alternative(from, count > 0 ? close_list : text("]"));
        }
    }
    out = joined({open_list, {first}});
    return true;
}

// Whether an item may be counted, where n are.
static bool has_room(const shape::contained & c, int64_t i, int64_t n) {
    return i >= c.from && (c.high < 0 || n < c.high);
}

// An array of which some items must fit schemas of `contains`: a state for each number of items, and of those that fit
// each schema.
bool compiler::write_counted_array(const shape & s, sequence & out) {
    std::vector<shape::contained> counted;
    int64_t                       n_states = 1, from = 0;
    for (const auto & c : s.contains) {
        if (c.low > 0 || c.high >= 0) {
            counted.push_back(c);
            n_states = std::min<int64_t>(n_states * (std::max(c.low, c.high) + 1), 1 << 30);
            from     = std::max(from, c.from);
        }
    }
    const auto    n_first = (int64_t) count_first(s);
    const int64_t cap     = std::max({n_first, s.min_items, s.max_items, from});
    n_states *= (cap + 1) << counted.size();
    if (counted.size() > n_max_contains || n_states > n_max_counted_states) {
        names.refuse(*s.contains[0].place, "contains", "beside counts this large it has no rule here");
        counted.clear();
    }
    if (counted.empty()) {
        shape without = s;
        for (shape::contained & c : without.contains) {
            c.low = 0, c.high = -1;
        }
        return write_array(without, out);
    }
    using counts     = std::vector<int64_t>; // numbers above the bounds are the same, or too many
    using item_state = std::tuple<int64_t, counts, bool>;
    state_rules<item_state> states(rules, budget, 20);
    const auto              state_of = [&](int64_t i, const counts & n, bool first) {
        return states.of({std::min(i, cap), n, first});
    };
    const element begin = state_of(0, counts(counted.size()), true);
    while (const auto * const next = states.next()) {
        const auto & [i, n, first] = next->first;
        const int32_t at           = next->second;
        bool          enough       = i >= s.min_items;
        for (size_t c = 0; c < counted.size(); c++) {
            enough = enough && n[c] >= counted[c].low;
        }
        if (enough) {
            rules.add_alternative(at, first ? text("]") : close_list);
        }
        if (s.max_items >= 0 && i >= s.max_items) {
            continue;
        }
        for (uint32_t fits = 0; fits >> counted.size() == 0;
             fits++) { // the schemas that the item is counted for
            terms  all   = names.item(s, (size_t) i);
            counts after = n;
            bool   may   = true;
            for (size_t c = 0; c < counted.size(); c++) {
                const shape::contained & one = counted[c];
                if ((fits >> c & 1) != 0) {
                    all.push_back(one.what);
                    may      = may && has_room(one, i, n[c]);
                    after[c] = std::min(n[c] + 1, std::max(one.low, one.high));
                } else if (one.high >= 0 && i >= one.from) { // else it does not matter that it is not counted
                    all.push_back({one.what.what, !one.what.negated});
                }
            }
            if (may) {
                rules.add_alternative(at, joined({first ? sequence{} : comma,
                                                  {value_of(together(all))},
                                                  {state_of(i + 1, after, false)}}));
            }
        }
    }
    out = joined({open_list, {begin}});
    return true;
}

//
// objects
//

// The expressions of patternProperties, and where they stand.
static std::map<std::string, const json *> patterns_of(const shape & s) {
    std::map<std::string, const json *> out;
    for (const part & one : s.objects) {
        if (one.what->contains("patternProperties")) {
            for (const auto & [expression, value] : (*one.what)["patternProperties"].items()) {
                (void) value;
                out.emplace(expression, one.what);
            }
        }
    }
    return out;
}

// All names that are none of these, divided by the patterns that they match.
std::vector<std::pair<language, std::set<std::string>>>
compiler::divide_names(const shape & s, const std::vector<std::string> & named) {
    language base = s.names.empty() ? every_text() : names.strings(together(s.names));
    base          = named.empty() ? base : without(base, these_texts(named, budget), budget);
    std::vector<std::pair<language, std::set<std::string>>> classes = {{base, {}}};
    for (const auto & [expression, at] : patterns_of(s)) {
        const language * l = names.pattern(expression, *at, "patternProperties");
        if (l == nullptr) {
            continue;
        }
        std::vector<std::pair<language, std::set<std::string>>> next;
        for (auto & [texts, matched] : classes) {
            next.emplace_back(without(texts, *l, budget), matched);
            matched.insert(expression);
            next.emplace_back(both(texts, *l, budget), matched);
        }
        next.erase(
            std::remove_if(next.begin(), next.end(), [](const auto & one) { return one.first.empty(); }),
            next.end());
        classes = std::move(next);
        if (classes.size() > n_max_classes) {
            throw grammar_error("it is too large: its patternProperties overlap in too many ways");
        }
    }
    return classes;
}

// A member whose name is not known; nullopt: there is none.
std::optional<element> compiler::free_member(const shape & s, const std::vector<std::string> & named) {
    std::vector<sequence> alternatives;
    const bool            open = names.is_open(s);
    for (const auto & [texts, matched] : divide_names(s, named)) {
        const terms all = names.free_property(s, matched);
        if (texts.empty() || (matched.empty() && !open) || is_never(all) || names.is_empty(all, 1)) {
            continue;
        }
        element name = any_text;
        if (!texts.is_everything()) {
            budget.spend((int64_t) texts.states.size() * 3);
            name = new_rule(
                {joined({text("\""), {add_language(rules, texts, writing::json_string)}, text("\"")})});
        }
        if (form && !form->quote.empty()) {
            const language kept = both(texts, ::read_pattern(bare_name, budget), budget);
            name                = kept.empty() ? never : add_language(rules, kept, writing::plain);
        }
        alternatives.push_back(joined({{name}, colon, {value_of(all)}}));
    }
    return alternatives.empty() ? std::nullopt : std::optional(new_rule(alternatives));
}

// The names of a shape, in the order in which they stand; and those that no opposite of a schema has brought.
static std::vector<std::string> names_of(const shape & s, std::set<std::string> & positive) {
    std::vector<std::string> known;
    std::set<std::string>    seen;
    const auto               add = [&](const std::string & name, bool is_positive) {
        if (seen.insert(name).second) {
            known.push_back(name);
        }
        if (is_positive) {
            positive.insert(name);
        }
    };
    for (const part & one : s.objects) {
        if (one.what->contains("properties")) {
            for (const auto & [name, value] : (*one.what)["properties"].items()) {
                (void) value;
                add(name, one.positive);
            }
        }
    }
    for (const std::string & name : s.required) {
        add(name, s.named.has(name));
    }
    return known;
}

// The named members. False: one that is required cannot be.
bool compiler::find_members(const shape & s, const std::vector<std::string> & known,
                            const std::set<std::string> & positive, std::vector<member> & out) {
    if (known.size() > n_max_members) {
        throw grammar_error("it is too large: an object has more than " + std::to_string(n_max_members) +
                            " properties");
    }
    const bool is_open = names.is_open(s);
    for (const std::string & name : known) {
        terms all = names.property(s, name);
        budget.spend(10 + (int64_t) all.size());
        const auto allows = [&](const term & t) { return names.is_valid(json(name), t); };
        const bool absent = is_never(all) || names.is_empty(all, 1) || hollow.count(all) > 0 ||
                            (!is_open && positive.count(name) == 0) ||
                            !std::all_of(s.names.begin(), s.names.end(), allows);
        if (absent && s.required.has(name)) {
            return false;
        }
        if (!absent) {
            const auto write = [&](const terms & what) {
                return std::optional(joined({name_literal(name), colon, {value_of(what)}}));
            };
            out.push_back({ways_of(s, name, all, write), s.required.has(name), all});
        }
    }
    return true;
}

// The ways to write a member: as it is, and as those of the wanted ones that it may be.
std::vector<compiler::way> compiler::ways_of(const shape & s, const std::string & name, const terms & what,
                                             const writer & write) {
    uint32_t sure = 0, maybe = 0;
    size_t   n_maybe = 0;
    for (size_t i = 0; i < std::min(s.wanted_members.size(), n_max_wanted); i++) {
        const auto & one = s.wanted_members[i];
        if (!names.is_sure(json(name), one.name)) {
            continue;
        }
        n_maybe += one.value ? 1 : 0;
        (one.value ? maybe : sure) |= 1u << i;
    }
    if (n_maybe > n_max_wanted_values) {
        throw grammar_error("it is too large: " + std::to_string(n_maybe) +
                            " opposites speak of one property");
    }
    std::vector<way> out;
    for (uint32_t some = maybe;; some = (some - 1) & maybe) { // all sets of them
        terms all = what;
        for (size_t i = 0; i < s.wanted_members.size(); i++) {
            if ((some >> i & 1) != 0) {
                all.push_back(*s.wanted_members[i].value);
            }
        }
        all                = together(all);
        const bool is_any  = some == 0;
        const auto written = !is_any && names.is_empty(all, 1) ? std::nullopt : write(all);
        if (written) {
            out.emplace_back(sure | some, *written);
        }
        if (is_any) {
            return out;
        }
    }
}

// What is still wanted beside the members that come anyway, and the free members that may be so.
void compiler::find_wanted(const shape & s, const std::vector<std::string> & known, members & all) {
    const auto drop = [&](size_t i) {
        names.refuse(*s.wanted_members[i].place, s.wanted_members[i].keyword,
                     "the opposite of this keyword has no rule beside others of its kind");
    };
    for (size_t i = 0; i < s.wanted_members.size(); i++) {
        if (i < n_max_wanted) {
            all.wanted |= 1u << i;
        } else {
            drop(i);
        }
    }
    for (const member & m : all.named) {
        for (uint32_t anyway = all.wanted; m.required && anyway != 0; anyway = 0) {
            for (const way & one : m.ways) {
                anyway &= one.first;
            }
            all.wanted &= ~anyway;
        }
    }
    std::vector<size_t> some; // that a free member may be
    for (size_t i = 0; i < n_max_wanted && all.free; i++) {
        if ((all.wanted >> i & 1) == 0) {
            continue;
        }
        shape with = s;
        budget.spend(10 + s.size());
        with.names.push_back(s.wanted_members[i].name);
        if (!free_member(with, known)) {
            continue;
        }
        if (some.size() < n_max_wanted_free) {
            some.push_back(i);
            all.free_wanted |= 1u << i;
        } else {
            drop(i);
            all.wanted &= ~(1u << i);
        }
    }
    if (!some.empty()) {
        find_kinds(s, known, some, all);
    }
}

// The kinds of free members, by the wanted ones that they may be.
void compiler::find_kinds(const shape & s, const std::vector<std::string> & known,
                          const std::vector<size_t> & some, members & all) {
    for (size_t set = 0; set >> some.size() == 0; set++) { // those whose names it may have
        for (size_t is = set;; is = (is - 1) & set) {      // and whose values
            shape     made = s;
            free_kind kind;
            bool      is_needed = true;
            budget.spend(10 + s.size());
            for (size_t k = 0; k < some.size(); k++) {
                const auto &   one   = s.wanted_members[some[k]];
                const uint32_t bit   = 1u << some[k];
                const bool     named = (set >> k & 1) != 0, fits = (is >> k & 1) != 0;
                made.names.push_back({one.name.what, one.name.negated != !named});
                kind.named |= named ? bit : 0;
                kind.fits |= fits ? bit : 0;
                is_needed = is_needed && (!named || fits || one.value);
                if (fits && one.value) {
                    made.objects.push_back({names.others_as(*one.value), false, {}});
                }
            }
            if (const auto found = is_needed ? free_member(made, known) : std::nullopt) {
                kind.written = *found;
                all.kinds.push_back(kind);
            }
            if (is == 0) {
                break;
            }
        }
    }
}

// Adds names that propertyNames lists, where names that nobody gives would have to be counted.
std::vector<std::string> compiler::with_listed_names(const shape & s, std::vector<std::string> known) {
    if (s.names.empty() || s.min_properties <= (int64_t) known.size() + 1 || !names.is_open(s)) {
        return known;
    }
    std::set<std::string> seen(known.begin(), known.end());
    const auto            shapes = names.shapes(together(s.names));
    const bool            listed = std::all_of(shapes.begin(), shapes.end(), [](const shape & one) {
        return one.values && one.values->size() <= n_max_listed;
    });
    for (const shape & one : listed ? shapes : std::vector<shape>()) {
        for (const json & name : *one.values) {
            if (name.is_string() && seen.insert(name.get<std::string>()).second) {
                known.push_back(name.get<std::string>());
            }
        }
    }
    return known;
}

bool compiler::write_object(const shape & s, sequence & out) {
    std::set<std::string>          positive;
    const std::vector<std::string> known = with_listed_names(s, names_of(s, positive));
    members                        all;
    if (!find_members(s, known, positive, all.named)) {
        return false;
    }
    all.free = free_member(s, known);
    find_wanted(s, known, all);
    all.low         = s.min_properties;
    all.high        = s.max_properties;
    all.between     = comma;
    all.end         = close_object;
    all.end_of_none = text("}");
    if (!count_members(s, all)) {
        return false;
    }
    all.any_order = given.any_order && all.named.size() <= n_max_any;
    if (given.any_order && !all.any_order) {
        names.warn("property_order: an object with more than " + std::to_string(n_max_any) +
                   " properties has them in the order of the schema");
    }
    out = joined({open_object, {write_members(all)}});
    return true;
}

// Whether so many members may be; and how far they must be counted.
bool compiler::count_members(const shape & s, members & all) {
    const auto n_required =
        std::count_if(all.named.begin(), all.named.end(), [](const member & m) { return m.required; });
    const auto    n_named = (int64_t) all.named.size();
    const int64_t n_sure  = n_named + (all.free ? 1 : 0); // names that surely differ
    if (all.low > n_sure && all.free) {
        names.refuse(*s.min_properties_at, "minProperties",
                     std::to_string(all.low) + " names that nobody gives must differ, which has no rule");
        all.low = n_sure;
    }
    if (all.low > n_sure || (all.high >= 0 && all.high < std::max<int64_t>(all.low, n_required))) {
        return false;
    }
    all.counted = all.low > n_required || (all.high >= 0 && (all.free || all.high < n_named));
    all.top     = all.high >= 0 ? all.high : std::max<int64_t>(all.low, n_required);
    for (const member & m : all.low > n_required ? all.named : std::vector<member>()) {
        if (!m.required) {
            counted.insert(m.what);
        }
    }
    if (all.counted && std::min(all.top, n_named + 1) * (n_named + 1) > 100000) {
        throw grammar_error("it is too large: its properties are counted to " + std::to_string(all.top));
    }
    return true;
}

// Rules for what may follow: one for each next property, or set of those that have come, and number of members.
element compiler::write_members(const members & all) {
    state_rules<member_state> states(rules, budget, 10);
    const auto                state_of = [&](uint32_t at, int64_t n, bool first, uint32_t found) {
        return states.of({at, all.counted ? std::min(n, all.top) : 0, first, found & all.wanted});
    };
    uint32_t required = 0;
    for (size_t i = 0; i < all.named.size() && all.any_order; i++) {
        required |= all.named[i].required ? 1u << i : 0u;
    }
    const auto    n     = (uint32_t) all.named.size();
    const element begin = state_of(0, 0, true, 0);
    while (const auto * const state = states.next()) {
        const auto & [at, count, first, found] = state->first;
        const int32_t  from                    = state->second;
        const sequence between                 = first ? sequence{} : all.between;
        const bool     room                    = !all.counted || all.high < 0 || count < all.high;
        for (uint32_t i = all.any_order ? 0 : at; i < (all.any_order ? n : std::min(n, at + 1)); i++) {
            const bool has_come = all.any_order && (at >> i & 1) != 0;
            for (const way & one : room && !has_come ? all.named[i].ways : std::vector<way>()) {
                const uint32_t to   = all.any_order ? at | 1u << i : at + 1;
                const element  next = state_of(to, count + 1, false, found | one.first);
                rules.add_alternative(from, joined({between, one.second, {next}}));
            }
            if (!all.any_order && !all.named[i].required) {
                rules.add_alternative(from, {state_of(at + 1, count, first, found)});
            }
        }
        if (all.any_order ? (at & required) == required : at == n) {
            end_members(from, state->first, all);
        }
    }
    return begin;
}

// Where all that is required has come: free members, and the end.
void compiler::end_members(int32_t from, const member_state & key, const members & all) {
    const auto [at, count, first, found] = key;
    const int64_t missing                = all.counted ? all.low - count : 0;
    (void) at;
    const int64_t left = all.counted && all.high >= 0 ? std::min<int64_t>(all.high - count, INT32_MAX) : -1;
    if (found != all.wanted) {
        if ((all.wanted & ~found & ~all.free_wanted) == 0 && missing <= 1 && left != 0) {
            rules.add_alternative(from, {write_wanted(found, first, left, all)});
        }
        return;
    }
    if (missing <= 0) {
        rules.add_alternative(from, first ? all.end_of_none : all.end);
    }
    if (all.free && missing <= 1 && left != 0) { // two free names might be equal
        const element more =
            rules.repeat(joined({all.between, {*all.free}}), 0, left < 0 ? -1 : (int32_t) left - 1, 0);
        rules.add_alternative(from, joined({first ? sequence{} : all.between, {*all.free, more}, all.end}));
    }
}

// Free members until all that are wanted have come. Two might have the same name, of which the last one counts: a member
// that has the name of one that is wanted, and is not so, begins its search anew.
// found: those that named members were. left: how many there may be, or -1.
element compiler::write_wanted(uint32_t found, bool first, int64_t left, const members & all) {
    if (left > n_max_counted_free) {
        throw grammar_error("it is too large: its properties are counted to " + std::to_string(left));
    }
    using state =
        std::tuple<uint32_t, bool, int64_t>; // (those that have come; no member has; how many there may be)
    state_rules<state> states(rules, budget, 10);
    const element      begin = states.of({found, first, left});
    while (const auto * const now = states.next()) {
        const auto & [come, none, room] = now->first;
        if (come == all.wanted) {
            rules.add_alternative(now->second, all.end);
        }
        for (const free_kind & kind : room != 0 ? all.kinds : std::vector<free_kind>()) {
            const uint32_t next = found | (come & ~kind.named) | kind.fits;
            rules.add_alternative(
                now->second,
                joined({none ? sequence{} : all.between,
                        {kind.written, states.of({next, false, std::max<int64_t>(room, 0) - 1})}}));
        }
    }
    return begin;
}

//
// calls
//

static std::string escaped(const std::string & text) {
    std::string out;
    for (const char c : text) {
        out += strchr("^$\\.*+?()[]{}|/", c) != nullptr ? std::string("\\") + c : std::string(1, c);
    }
    return out;
}

// The texts behind which `end` is first found where it is written behind them.
language compiler::without_end(const language & l, const std::string & end) {
    std::string found = escaped(end);
    for (size_t n = 1; n < end.size(); n++) {
        if (end.compare(0, n, end, end.size() - n, n) == 0) { // it may begin in the text, and go on in itself
            found += "|(?:" + escaped(end.substr(0, end.size() - n)) + ")$";
        }
    }
    return end.empty() ? l : without(l, ::read_pattern(found, budget), budget);
}

// All arguments of a call.
element compiler::call_of(const terms & all) {
    const element to = rule(rules.add_rule(0));
    for (const shape & s : std::vector<shape>(names.shapes(all))) {
        sequence out;
        if (s.values) {
            names.refuse(doc.root(), "",
                         "whole objects as values have no rule in the calls of this model's template");
            continue;
        }
        check_other_than(s);
        if ((s.types & of_object) != 0 && write_call(s, out)) {
            rules.add_alternative(to.value, out);
        }
    }
    return to;
}

bool compiler::write_call(const shape & s, sequence & out) {
    std::set<std::string>          positive, writable;
    const std::vector<std::string> known = names_of(s, positive);
    members                        all;
    const auto                     allows_name = [&](const std::string & name) {
        return (positive.count(name) > 0 || names.is_open(s)) &&
               std::all_of(s.names.begin(), s.names.end(),
                           [&](const term & t) { return names.is_valid(json(name), t); });
    };
    for (const bool required : {true, false}) {
        for (const call_form::member & m : form->members) {
            if (m.required != required) {
                continue;
            }
            const terms what    = names.property(s, m.name);
            const bool  is_here = allows_name(m.name) && !is_never(what) && !names.is_empty(what, 1);
            const auto  write   = [&](const terms & all_of_it) { return argument(m, all_of_it); };
            const auto  ways    = is_here ? ways_of(s, m.name, what, write) : std::vector<way>();
            const bool  needed  = required || s.required.has(m.name);
            writable.insert(m.name);
            if (!ways.empty()) {
                all.named.push_back({ways, needed, {}});
            } else if (needed) {
                unwritable = is_here ? m.name : unwritable;
                return false;
            }
        }
    }
    for (const std::string & name : s.required) {
        if (writable.count(name) == 0) {
            unwritable = name;
            return false;
        }
    }
    find_wanted(s, known, all);
    all.low  = std::max<int64_t>(s.min_properties, form->at_least_one && !form->members.empty() ? 1 : 0);
    all.high = s.max_properties;
    const bool spaces = form->space && given.space != options::compact;
    all.between       = joined(
        {text(form->separator), spaces ? sequence{pattern_rule("^( |\n{1,2}[ \t]{0,20})?$")} : sequence{}});
    if (!count_members(s, all)) {
        return false;
    }
    out = {write_members(all)};
    return true;
}

// A text as it is, and what ends it.
std::optional<sequence> compiler::text_argument(const language & texts) {
    std::vector<sequence> ways;
    const language        plain =
        form->cdata ? without(texts, ::read_pattern("^<!\\[CDATA\\[", budget), budget) : texts;
    if (const language kept = without_end(plain, form->close); !kept.empty()) {
        budget.spend((int64_t) kept.states.size() * 3);
        ways.push_back({add_language(rules, kept, writing::plain)});
    }
    if (const language kept = without_end(texts, "]]>"); form->cdata && !kept.empty()) {
        budget.spend((int64_t) kept.states.size() * 3);
        ways.push_back(joined({text("<![CDATA["), {add_language(rules, kept, writing::plain)}, text("]]>")}));
    }
    return ways.empty() ? std::nullopt : std::optional(joined({{new_rule(ways)}, text(form->close)}));
}

// What a parser would not read as a text, but as JSON of one of these types.
static std::string json_of(const std::set<std::string> & types) {
    std::string out = "^\\s*\"";
    if (types.count("object") + types.count("array") > 0) {
        out += "|^\\s*[\\[{]";
    }
    if (types.count("number") > 0) {
        out += "|^\\s*-?[0-9][-+.0-9eE]*\\s*$";
    }
    for (const char * const word : {"true", "false", "null"}) {
        if (types.count(std::string(word) == "null" ? "null" : "boolean") > 0) {
            out += "|^\\s*" + std::string(word) + "\\s*$";
        }
    }
    return out;
}

// One argument; nullopt: it cannot be written.
std::optional<sequence> compiler::argument(const call_form::member & m, const terms & all) {
    const sequence        name = joined({text(form->before), text(m.name)});
    std::vector<sequence> ways;
    if (m.written != call_form::json) {
        language texts = names.strings(all);
        if (m.written == call_form::mixed) {
            texts = without(texts, ::read_pattern(json_of(m.types), budget), budget);
        }
        if (const auto written = texts.empty() ? std::nullopt : text_argument(texts)) {
            ways.push_back(joined({name, text(form->after_text), *written}));
        }
    }
    const size_t type_at = form->after.find('%');
    const auto   add     = [&](const term & type, const std::string & after) {
        terms both = all;
        both.push_back(type);
        both = together(both);
        if (!names.is_empty(both, 1) && !names.shapes(both).empty()) {
            ways.push_back(joined({name, text(after), {value_of(both)}, text(form->close)}));
        }
    };
    if (m.written == call_form::mixed) {
        add({&no_string, false}, form->after);
    } else if (m.written == call_form::json && type_at == std::string::npos) {
        ways.push_back(joined({name, text(form->after), {value_of(all)}, text(form->close)}));
    } else if (m.written == call_form::json) {
        for (const json & type : single_types) {
            std::string after = form->after;
            add({&type, false}, after.replace(type_at, 1, type["type"].get<std::string>()));
        }
    }
    return ways.empty() ? std::nullopt : std::optional(sequence{new_rule(ways)});
}

//
// rules without an end
//

// Whether members that nobody can write were counted. They are known then, and all rules must be made again.
bool compiler::find_hollow() {
    const size_t            n_before = hollow.size();
    const std::vector<bool> ends     = counted.empty() ? std::vector<bool>() : rules.find_ending();
    for (const terms & all : counted) {
        const auto found = made.find(speaking(all));
        if (found != made.end() && !ends[found->second]) {
            hollow.insert(all);
        }
    }
    return hollow.size() > n_before;
}

// An alternative that no finite text fits would let a text begin that can never end.
void compiler::remove_endless() {
    if (const std::vector<bool> ends = rules.find_ending(); !ends[0]) {
        if (!unwritable.empty()) {
            throw refusal("the model's template cannot write the argument \"" + unwritable + "\"");
        }
        throw nothing_fits(find_cause(ends) + "no value fits it");
    }
    rules.remove_endless();
}

// Where the first schema stands without which no text ends, and that has no alternative of its own that would.
std::string compiler::find_cause(const std::vector<bool> & ends) const {
    std::map<int32_t, const terms *> written;
    for (const auto & [all, rule] : made) {
        written[rule] = &all;
    }
    std::string          out;
    std::vector<bool>    seen(ends.size());
    std::vector<int32_t> open = {0};
    for (size_t k = 0; k < open.size(); k++) {
        const auto found = written.find(open[k]);
        if (found != written.end()) {
            out = place_of(*found->second);
            if (rules.starts[open[k]].empty()) {
                break;
            }
        }
        for (int32_t i : rules.starts[open[k]]) {
            for (; rules.elements[i].what != element::end; i++) {
                const element & e = rules.elements[i];
                if (e.what == element::rule && e.low > 0 && !ends[e.value] && !seen[e.value]) {
                    seen[e.value] = true;
                    open.push_back(e.value);
                }
            }
        }
    }
    return out;
}

} // namespace

// make: what compiles with some options. Says so where only what is narrower here than in the standard admits no value.
static compiled compile(const options & given, const std::function<compiled(const options &)> & make) {
    try {
        return make(given);
    } catch (const nothing_fits & e) {
        options open = given;
        open.open    = true;
        try {
            make(open);
        } catch (const std::runtime_error &) {
            throw refusal(e.what());
        }
        throw refusal(
            std::string(e.what()) +
            " that has the names and types it speaks of only; with \"json_additional\": true one does");
    }
}

compiled compile(const std::string & text, const options & given, work_budget & budget) {
    return compile(given, [&](const options & o) { return compiler(text, o, budget).make(); });
}

compiled compile(const std::string & text, const options & given) {
    work_budget budget;
    return compile(text, given, budget);
}

compiled compile(const call_schema & call, const options & given, work_budget & budget) {
    budget.spend((int64_t) call.document->size() / 32); // it is read for each of its parts
    return compile(given, [&](const options & o) { return compiler(*call.document, o, budget).make(call); });
}

} // namespace schema
