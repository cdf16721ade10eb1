// What a schema says, normalised: references followed, allOf and siblings merged, anyOf and oneOf divided. Each keyword
// is read in one place. Makes no rules.
#pragma once

#include "grammar/schema/document.h"
#include "grammar/schema/language.h"
#include "grammar/schema/numbers.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace schema {

struct options {
    enum spaces { compact, one, free };

    bool   lenient   = false; // what has no exact meaning is left out, with a warning
    bool   open      = false; // what the standard allows beside the named properties and types is allowed
    bool   any_order = false; // of properties
    spaces space     = one;
};

// A schema that holds, or that does not.
struct term {
    const json * what    = nullptr;
    bool         negated = false;
    bool         operator<(const term & other) const {
        return std::tie(what, negated) < std::tie(other.what, other.negated);
    }
    bool operator==(const term & other) const { return what == other.what && negated == other.negated; }
};
using terms = std::vector<term>; // all hold; sorted, each once

enum : unsigned {
    of_null    = 1,
    of_boolean = 2,
    of_integer = 4,
    of_other   = 8, // numbers that are no integers
    of_string  = 16,
    of_array   = 32,
    of_object  = 64,
    of_all     = 127,
};

// Names in the order in which they came, each once.
class name_list {
  public:
    void add(const std::string & name) {
        if (known.insert(name).second) {
            all.push_back(name);
        }
    }
    bool   has(const std::string & name) const { return known.count(name) > 0; }
    size_t size() const { return all.size(); }
    auto   begin() const { return all.begin(); }
    auto   end() const { return all.end(); }

  private:
    std::vector<std::string> all;
    std::set<std::string>    known;
};

// A schema whose keywords say what the members of an object, or the items of an array, are.
struct part {
    const json *     what;
    bool             positive; // it is no opposite of another one
    std::vector<int> scopes;   // the unevaluated… keywords that see it
};

// One alternative of a schema.
struct shape {
    unsigned types    = of_all;
    unsigned implied  = 0; // the types that its keywords speak of
    bool     is_typed = false;

    std::optional<std::vector<json>> values; // all that there are
    std::vector<json>                other_than;
    const json *                     other_than_at = nullptr;

    int64_t                       min_length = 0, max_length = -1;
    std::vector<const language *> texts, not_texts;
    std::string                   texts_key; // their names
    number_bounds                 numbers;
    std::vector<decimal>          multiples, not_multiples;
    const json *                  multiples_at = nullptr; // where they stand

    std::vector<part> objects;
    name_list         required;
    name_list         named;          // of those that are required: they may come where others may not
    bool              closes = false; // a keyword `required` has given names
    std::vector<term> names;          // of properties
    int64_t           min_properties = 0, max_properties = -1;
    const json *      min_properties_at = nullptr;
    // Some member must be so; of opposites.
    struct wanted {
        term                name;
        std::optional<term> value; // nullopt: any
        const json *        place;
        std::string         keyword;
    };
    std::vector<wanted> wanted_members;

    struct contained {
        term             what;
        const json *     place;
        int64_t          low, high; // high -1: no limit
        std::vector<int> scopes;    // the unevaluatedItems that see it
        int64_t          from = 0;  // the first item that counts
    };
    std::vector<part>      arrays;
    std::vector<contained> contains;
    int64_t                min_items = 0, max_items = -1;
    const json *           unique = nullptr; // where it stands

    struct unevaluated {
        int              scope;
        const json *     what;   // the schema that has the keyword
        std::vector<int> scopes; // of others that see it
    };
    std::vector<unevaluated> rest;
    std::vector<int>         blind; // those beside which something is left out that might evaluate

    // What a copy costs.
    int64_t size() const {
        return (int64_t) (other_than.size() + required.size() + named.size() + objects.size() +
                          arrays.size() + names.size() + wanted_members.size() + texts_key.size() / 16);
    }
};

// A keyword of schemas that are made here: the values that one is not.
constexpr const char * not_values_key = "\x01not-values";

// Whether a value is what schemas allow; `perhaps` where a keyword was left out.
enum class truth { no, perhaps, yes };

class normaliser {
  public:
    normaliser(document & doc, const options & o, work_budget & budget)
        : doc(doc), given(o), budget(budget) {}

    // The alternatives of these schemas together. Throws refusal.
    const std::vector<shape> & shapes(const terms & all);
    bool                       is_empty(const terms & all, int depth = 0); // surely; false if it is not known
    bool is_open(const shape & s); // names may come that neither `properties` nor a pattern gives
    // What a property, or an item, of a shape must be. is_whole: no choice is left that may evaluate it.
    terms property(const shape & s, const std::string & name, bool is_whole = true);
    terms item(const shape & s, size_t i);
    // A schema that says that all members must fit a term.
    const json * others_as(const term & t) {
        return below(json::object(), *t.what, "/additionalProperties", t);
    }
    // What a property is that has no name of its own, and whose name matches these patterns.
    terms free_property(const shape & s, const std::set<std::string> & matched);
    // The texts that these schemas allow.
    language text_language(const shape & s);
    language strings(const terms & all);

    // A text that a value shares with all that are the same in JSON Schema's sense: 1 and 1.0 are, the order of properties
    // is nothing.
    std::string text_of(const json & value);
    // False: the value is surely not what they allow.
    bool is_valid(const json & value, const term & t) { return validity(value, t, 0) != truth::no; }
    bool is_valid(const json & value, const terms & all);
    // True: the value surely is what it allows.
    bool is_sure(const json & value, const term & t) { return validity(value, t, 0) == truth::yes; }

    const language * pattern(const std::string & expression, const json & at, const char * keyword);
    // Throws, or remembers a warning: the keyword is left out.
    void refuse(const json & at, const std::string & keyword, const std::string & why);
    void warn(const std::string & text);

    // The schema that was read last, for messages about work that is too much; nullptr: there was none.
    const json * last_read() const { return last; }

    std::set<std::string> warnings;

  private:
    struct waiting {
        term             what;
        bool             positive = true;
        std::vector<int> scopes;
    };
    using choice = std::vector<std::vector<waiting>>; // one of these must hold
    // A condition that asks only for the value of one member.
    struct member_test {
        std::vector<waiting>                yes, no; // no: begins with the opposite of the condition
        const json *                        place;
        std::map<std::string, const json *> values;
        bool                                needs_member = false, needs_object = false;
    };
    struct partial {
        shape                made;
        std::vector<waiting> todo;
        std::set<term>       seen;
        // Those that an unevaluated… keyword sees, with all that do: another one may see the same schema.
        std::set<std::pair<term, std::vector<int>>>     seen_by;
        std::vector<choice>                             choices;
        std::map<std::string, std::vector<member_test>> tests; // by the member's name
    };
    using reader = void (normaliser::*)(partial &, const waiting &, const std::string &, const json &);

    static const std::map<std::string, reader> & readers();

    void divide(partial p, std::vector<shape> & out, int depth);
    void finish(partial & p, std::vector<shape> & out);
    void take_all(partial & p);
    void leave_out_beside(partial & p, const std::vector<int> & scopes);
    void take(partial & p, const waiting & w);
    void take_opposite(partial & p, const waiting & w);
    void check_form(const std::string & key, const json & value, const waiting & w);
    // The alternatives in which a keyword does not hold. False: it has none here. nullopt: another function's.
    std::optional<bool> oppose_values(const std::string & key, const json & value, const waiting & w,
                                      choice & out);
    std::optional<bool> oppose_bounds(const std::string & key, const json & value, const waiting & w,
                                      choice & out);
    std::optional<bool> oppose_others(const std::string & key, const json & value, const waiting & w,
                                      choice & out);
    std::optional<bool> oppose_members(const std::string & key, const json & value, const waiting & w,
                                       choice & out);
    std::optional<bool> oppose_items(const std::string & key, const json & value, const waiting & w,
                                     choice & out);
    std::optional<bool> oppose_dependent(const std::string & key, const json & value, const waiting & w,
                                         choice & out);
    bool oppose_further_items(const std::string & key, const json & value, const json & s, choice & out);
    bool oppose_others_of(const std::string & key, const json & value, const json & s, choice & out);
    void add_wanted(choice & out, shape::wanted one);
    bool oppose(const std::string & key, const json & value, const waiting & w, choice & out);
    void add_opposite(choice & out, const json & made, const json & s);
    const json * other_than(const json & value, const json & s);
    void         oppose_listed(const json & values, const json & s, choice & out);
    void         add_below(choice & out, json made, const json & s, const std::string & at, const term & t);
    const json * below(json made, const json & s, const std::string & at, const term & t);

    void read_reference(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_type(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_values(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_all_of(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_any_of(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_one_of(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_not(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_disallow(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_if(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_length(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_pattern(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_format(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_bound(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_multiple(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_object(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_required(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_dependent(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_names(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_array(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_contains(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_unique(partial & p, const waiting & w, const std::string & key, const json & value);
    void read_made(partial & p, const waiting & w, const std::string & key, const json & value);

    std::optional<member_test> test_of(const json & condition, std::string & name);
    void                       merge_tests(partial & p);
    void add_case(choice & out, const std::vector<member_test> & tests, const json * made,
                  const std::function<bool(size_t)> & holds);
    bool is_disjoint(const json & a, const json & b);
    // The values of a list, each as a text that equal ones share.
    const std::set<std::string> & values_of(const json & list);
    // The values that a schema surely has, or that members have of which it surely has one, by name ("": its own).
    using listing = std::map<std::string, std::set<std::string>>;
    listing                      listing_of(const json & s);
    const std::vector<listing> & listings_of(const json & list);
    bool                         is_apart(const json & list, size_t i, size_t k);
    void                         add_overlaps(const json & list, const waiting & w, choice & out);
    bool                         is_kept(const json & value) const;
    bool                         is_dead(const shape & s, int depth, bool is_whole = true);
    const json *                 make(json value, const json & original);
    json                         term_of(const term & t);
    const json *                 either(const terms & some, const json & original);
    const json *                 find(const json & from, const std::string & reference);
    const json *                 target(const json & from, const std::string & key, const json & value);
    bool                         is_list(const json & at, const std::string & key, const json & value);
    bool                   is_list_of_names(const json & at, const std::string & key, const json & value);
    bool                   is_made(const json & s) const { return made_ones.count(&s) > 0; }
    std::optional<int64_t> read_count(const json & at, const std::string & key, const json & value);
    std::optional<decimal> read_number(const json & at, const std::string & key, const json & value);
    truth                  validity(const json & value, const term & t, int depth);
    truth validity_by(const std::string & key, const json & keyword, const json & value, const json & s,
                      int depth);
    std::optional<truth> validity_by_others(const std::string & key, const json & keyword, const json & value,
                                            const json & s, int depth);
    truth                validity_by_dependents(const json & keyword, const json & value, int depth);
    bool                 is_valid_text(const std::string & text, const shape & s);
    bool                 is_valid_number(const decimal & d, const shape & s);
    truth                validity_of_array(const json & value, const shape & s, int depth);
    truth                validity_of_object(const json & value, const shape & s, int depth);
    void                 check_names(const json & s);
    // Leaves out references by which a schema asks for itself in the same place.
    void check_cycles(const json & s, int depth);

    document &      doc;
    const options & given;
    work_budget &   budget;

    std::map<terms, std::unique_ptr<std::vector<shape>>> known;
    std::map<std::pair<const json *, const json *>, int> disjoint; // 1: yes, 0: no or not yet known
    std::map<const json *, std::set<std::string>>        listed;   // by list
    std::map<const json *, std::vector<listing>>         listings; // by list of schemas
    std::map<std::string, std::unique_ptr<language>>     patterns;
    std::map<std::string, std::string>                   unknown_patterns; // why they have no rule
    std::deque<json>                                     made_values;
    std::set<const json *>                               made_ones;
    std::vector<term>                                    made_terms;
    std::vector<shape::wanted>                           made_wanted;
    std::map<term, size_t>                               made_by_term;
    std::map<terms, const json *>                        made_by_terms;
    std::set<terms>                                      active; // emptiness is being looked for
    std::map<const json *, int> ways;           // 1: references from it are followed, 2: they end
    std::set<const json *>      cut;            // schemas whose reference is left out
    int64_t                     n_left_out = 0; // calls of refuse
    int                         n_scopes = 0, nesting = 0;
    const json *                last = nullptr;
};

unsigned type_of(const json & value);
// A sorted list in which each is once.
terms together(terms all);

} // namespace schema
