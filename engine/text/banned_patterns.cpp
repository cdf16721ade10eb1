#include "text/banned_patterns.h"

#include "grammar/automaton.h"
#include "grammar/regex.h"
#include "util/json.h"

#include <algorithm>

static const int64_t n_longest   = 1024; // bytes of a match: so much text may be held back
static const int64_t n_unbounded = INT64_MAX;

//
// lengths
//

static int64_t longest_of(const grammar_rules & rules, int32_t rule, std::vector<int64_t> & known);

static int64_t longest_of(const grammar_rules & rules, const grammar_element & e,
                          std::vector<int64_t> & known) {
    const int64_t n = e.what == grammar_element::rule ? longest_of(rules, e.value, known) : 1;
    if (n == 0 || e.what != grammar_element::rule) {
        return n;
    }
    return e.high < 0 || n > n_unbounded / std::max(e.high, 1) ? n_unbounded : n * e.high;
}

// Bytes of the longest text of a rule. No rule of an expression refers to itself.
static int64_t longest_of(const grammar_rules & rules, int32_t rule, std::vector<int64_t> & known) {
    known.resize(rules.starts.size(), -1);
    if (known[(size_t) rule] >= 0) {
        return known[(size_t) rule];
    }
    int64_t longest = 0;
    for (const int32_t start : rules.starts[(size_t) rule]) {
        int64_t sum = 0;
        for (int32_t i = start; rules.elements[(size_t) i].what != grammar_element::end; i++) {
            const int64_t n = longest_of(rules, rules.elements[(size_t) i], known);
            sum             = n > n_unbounded - sum ? n_unbounded : sum + n;
        }
        longest = std::max(longest, sum);
    }
    return known[(size_t) rule] = longest;
}

static void check_length(const grammar_rules & rules, int32_t rule, const std::string & name) {
    std::vector<int64_t> known;
    const int64_t        n = longest_of(rules, rule, known);
    if (n == n_unbounded) {
        invalid("banned_strings", name +
                                      " has no longest match, so text would be held back for ever; give its "
                                      "repetitions an upper bound, as {0,20}");
    }
    if (n > n_longest) {
        invalid("banned_strings", name + " may match " + std::to_string(n) + " bytes; it may match " +
                                      std::to_string(n_longest));
    }
    if (rules.find_empty_rules()[(size_t) rule]) {
        invalid("banned_strings", name + " matches the empty text, which is a part of each text");
    }
}

//
// the finder
//

pattern_finder::pattern_finder(const std::vector<banned_regex> & list, pattern_budget & budget) {
    grammar_rules rules;
    const int32_t root = rules.add_rule(0);
    regex_style   style;
    style.part = true;
    for (const banned_regex & one : list) {
        const std::string     note = "[" + std::to_string(one.index) + "].regex";
        const grammar_element all = read_regex(rules, notation_text("banned_strings", one.text, note), style);
        check_length(rules, all.value, "banned_strings" + note);
        rules.add_alternative(root, {all});
    }
    try {
        compute(std::move(rules), budget);
    } catch (const grammar_error & e) {
        invalid("banned_strings", std::string("the regular expressions of banned_strings: ") + e.what());
    }
}

// All states, so that threads can share them: they are few, since no match is long.
void pattern_finder::compute(grammar_rules && rules, pattern_budget & budget) {
    automaton            made(std::move(rules));
    std::vector<uint8_t> byte_of; // by class
    for (int b = 0; b < 256; b++) {
        classes[b] = made.class_of((uint8_t) b);
        byte_of.resize(std::max(byte_of.size(), (size_t) classes[b] + 1));
        byte_of[(size_t) classes[b]] = (uint8_t) b;
    }
    n_classes = (int32_t) byte_of.size();
    for (int32_t from = automaton::first; from < made.n_states(); from++) {
        state s;
        s.may_end = made[from].may_end;
        for (const uint8_t byte : byte_of) {
            made.begin_step();
            const int32_t next = made.step(from, byte);
            to.push_back(next);
            s.goes_on = s.goes_on || next != automaton::dead;
            budget.n_work -= made.work();
            if (budget.n_work < 0 || made.n_states() > budget.n_states) {
                throw grammar_error("they are too large");
            }
        }
        states.push_back(s);
    }
    budget.n_states -= made.n_states();
}

// Of several matches that are equally far only the earliest matters.
size_t pattern_finder::next(std::vector<begun> & list, char byte, size_t at) const {
    static thread_local std::vector<size_t> seen; // by state: the number of the last call that had it
    static thread_local size_t              n_calls = 0;

    n_calls++;
    seen.resize(std::max(seen.size(), states.size()), 0);
    list.push_back({at, automaton::first});
    size_t found = none, n = 0;
    for (const begun b : list) {
        const int32_t next = to[(size_t) (b.state * n_classes + classes[(uint8_t) byte])];
        if (next == automaton::dead || seen[(size_t) next] == n_calls) {
            continue;
        }
        seen[(size_t) next] = n_calls;
        found               = states[(size_t) next].may_end ? std::min(found, b.at) : found;
        if (states[(size_t) next].goes_on) {
            list[n++] = {b.at, next};
        }
    }
    list.resize(n);
    return found;
}
