#include "grammar/schema/language.h"

#include "util/pauses.h"

#include <algorithm>
#include <map>
#include <utility>

static const int64_t n_slice = 30000; // of the work, before other work may go first: some 10 ms

void work_budget::spend(int64_t n) {
    const bool is_over = (n_left - 1) / n_slice != (n_left - 1 - n) / n_slice;
    n_left -= n;
    if (is_over) {
        pause_point();
    }
    if (n_left < 0) {
        throw grammar_error("it is too large: its rules take too much work");
    }
}

static const int32_t nowhere = -1;

bool language::is_everything() const {
    return states.size() == 1 && states[0].accepts && states[0].edges.size() == 1 &&
           states[0].edges[0].low == 0 && states[0].edges[0].high == character_max;
}

bool language::holds(const std::string & utf8) const {
    int32_t at = states.empty() ? nowhere : 0;
    for (const char32_t c : from_utf8(utf8)) {
        int32_t to = nowhere;
        for (const edge & e : at == nowhere ? std::vector<edge>() : states[at].edges) {
            to = e.low <= c && c <= e.high ? e.to : to;
        }
        at = to;
    }
    return at != nowhere && states[at].accepts;
}

language every_text() {
    language l;
    l.states.push_back({{{0, character_max, 0}}, true});
    return l;
}

language texts_of_length(int64_t low, int64_t high, work_budget & budget) {
    language      l;
    const int64_t n = high < 0 ? low : high;
    budget.spend(n);
    for (int64_t i = 0; i <= n; i++) {
        l.states.push_back({{}, i >= low});
        if (i < n || high < 0) {
            l.states.back().edges.push_back({0, character_max, (int32_t) std::min(i + 1, n)});
        }
    }
    if (high >= 0 && high < low) {
        l.states.clear();
    }
    return l;
}

language these_texts(const std::vector<std::string> & utf8, work_budget & budget) {
    std::vector<std::map<uint32_t, int32_t>> next(1);
    std::vector<bool>                        ends(1);
    for (const std::string & text : utf8) {
        int32_t at = 0;
        budget.spend((int64_t) text.size());
        for (const char32_t c : from_utf8(text)) {
            const auto [entry, added] = next[at].emplace(c, (int32_t) next.size());
            const int32_t to          = entry->second;
            if (added) {
                next.emplace_back();
                ends.push_back(false);
            }
            at = to;
        }
        ends[at] = true;
    }
    language l;
    for (size_t i = 0; i < next.size() && !utf8.empty(); i++) {
        l.states.push_back({{}, ends[i]});
        for (const auto & [c, to] : next[i]) {
            l.states.back().edges.push_back({c, c, to});
        }
    }
    return l;
}

std::pair<int64_t, int64_t> language::lengths() const {
    const size_t         n = states.size();
    std::vector<int64_t> shortest(n, -1);
    std::vector<int32_t> todo, n_before(n); // edges that lead to a state
    for (size_t i = 0; i < n; i++) {
        for (const auto & e : states[i].edges) {
            n_before[e.to]++;
        }
    }
    int64_t first = 0, last = 0;
    bool    found = false;
    if (n > 0) {
        shortest[0] = 0;
        todo.push_back(0);
    }
    for (size_t i = 0; i < todo.size(); i++) { // in the order of lengths
        const state & s = states[todo[i]];
        first           = s.accepts && !found ? shortest[todo[i]] : first;
        found           = found || s.accepts;
        for (const auto & e : s.edges) {
            if (shortest[e.to] < 0) {
                shortest[e.to] = shortest[todo[i]] + 1;
                todo.push_back(e.to);
            }
        }
    }
    std::vector<int64_t> longest(n, 0);
    size_t               n_done = 0;
    todo.clear();
    if (n > 0 && n_before[0] == 0) {
        todo.push_back(0);
    }
    for (size_t i = 0; i < todo.size(); i++, n_done++) { // a state when all before it are known
        last = states[todo[i]].accepts ? std::max(last, longest[todo[i]]) : last;
        for (const auto & e : states[todo[i]].edges) {
            longest[e.to] = std::max(longest[e.to], longest[todo[i]] + 1);
            if (--n_before[e.to] == 0) {
                todo.push_back(e.to);
            }
        }
    }
    return {first, n_done < n ? -1 : last}; // what is left leads back to itself
}

void trim(language & l) {
    const size_t                      n = l.states.size();
    std::vector<std::vector<int32_t>> from(n);
    std::vector<int32_t>              todo;
    std::vector<bool>                 reaches(n);
    for (size_t i = 0; i < n; i++) {
        for (const auto & e : l.states[i].edges) {
            from[e.to].push_back((int32_t) i);
        }
        if (l.states[i].accepts) {
            reaches[i] = true;
            todo.push_back((int32_t) i);
        }
    }
    while (!todo.empty()) {
        const int32_t at = todo.back();
        todo.pop_back();
        for (const int32_t i : from[at]) {
            if (!reaches[i]) {
                reaches[i] = true;
                todo.push_back(i);
            }
        }
    }
    std::vector<int32_t> number(n, nowhere);
    language             out;
    for (size_t i = 0; i < n && reaches[0]; i++) {
        if (reaches[i]) {
            number[i] = (int32_t) out.states.size();
            out.states.push_back(std::move(l.states[i]));
        }
    }
    for (auto & s : out.states) {
        std::vector<language::edge> kept;
        for (const auto & e : s.edges) {
            if (!reaches[e.to]) {
                continue;
            }
            const int32_t to = number[e.to];
            if (!kept.empty() && kept.back().to == to && kept.back().high + 1 == e.low) {
                kept.back().high = e.high;
            } else {
                kept.push_back({e.low, e.high, to});
            }
        }
        s.edges = std::move(kept);
    }
    l = std::move(out);
}

//
// products
//

namespace {

struct product_rule {
    bool needs_a, needs_b; // a text that leaves a, or b, is lost
    bool (*accepts)(bool a, bool b);
};

using edges = std::vector<language::edge>;

// Calls each(low, high, a, b) for the characters that lead to the same states in both, `nowhere` where there is no edge.
template <typename each_range> void walk_together(const edges & a, const edges & b, const each_range & each) {
    const auto target = [](const edges & e, size_t i, uint32_t c) {
        return i < e.size() && e[i].low <= c ? e[i].to : nowhere;
    };
    const auto end_of = [](const edges & e, size_t i, uint32_t c) {
        return i == e.size() ? character_max : e[i].low <= c ? e[i].high : e[i].low - 1;
    };
    size_t   ia = 0, ib = 0;
    uint32_t at = 0;
    while (at <= character_max && (ia < a.size() || ib < b.size())) {
        const uint32_t end = std::min(end_of(a, ia, at), end_of(b, ib, at));
        each(at, end, target(a, ia, at), target(b, ib, at));
        ia += ia < a.size() && a[ia].high == end;
        ib += ib < b.size() && b[ib].high == end;
        at = end + 1;
    }
}

language product(const language & a, const language & b, const product_rule & rule, work_budget & budget) {
    using pair = std::pair<int32_t, int32_t>;
    static const edges      no_edges;
    language                out;
    std::map<pair, int32_t> number;
    std::vector<pair>       todo;
    const auto              accepts = [](const language & l, int32_t state) {
        return state != nowhere && l.states[state].accepts;
    };
    const auto edges_of = [](const language & l, int32_t state) -> const edges & {
        return state == nowhere ? no_edges : l.states[state].edges;
    };
    const auto is_lost = [&rule](const pair & p) {
        return (rule.needs_a && p.first == nowhere) || (rule.needs_b && p.second == nowhere) ||
               (p.first == nowhere && p.second == nowhere);
    };
    const auto state_of = [&](const pair & p) {
        const auto [entry, added] = number.emplace(p, (int32_t) out.states.size());
        if (added) {
            out.states.push_back({{}, rule.accepts(accepts(a, p.first), accepts(b, p.second))});
            todo.push_back(p);
        }
        return entry->second;
    };
    const pair first = {a.empty() ? nowhere : 0, b.empty() ? nowhere : 0};
    if (is_lost(first)) {
        return out;
    }
    state_of(first);
    for (size_t i = 0; i < todo.size(); i++) {
        const pair    p  = todo[i];
        const edges & ea = edges_of(a, p.first);
        const edges & eb = edges_of(b, p.second);
        budget.spend((int64_t) (ea.size() + eb.size()) + 1);
        walk_together(ea, eb, [&](uint32_t low, uint32_t high, int32_t to_a, int32_t to_b) {
            if (!is_lost({to_a, to_b})) {
                const int32_t to = state_of({to_a, to_b}); // it may move the states
                out.states[i].edges.push_back({low, high, to});
            }
        });
    }
    trim(out);
    return out;
}

} // namespace

language both(const language & a, const language & b, work_budget & budget) {
    return product(a, b, {true, true, [](bool x, bool y) { return x && y; }}, budget);
}

language either_of(const language & a, const language & b, work_budget & budget) {
    return product(a, b, {false, false, [](bool x, bool y) { return x || y; }}, budget);
}

language without(const language & a, const language & b, work_budget & budget) {
    return product(a, b, {true, false, [](bool x, bool y) { return x && !y; }}, budget);
}

//
// rules
//

static bool holds(const character_ranges & ranges, uint32_t c) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [c](const auto & r) { return r.first <= c && c <= r.second; });
}

// A character has one way of writing: a letter behind a backslash, else four digits, the last of which is in `digits`.
static grammar_element make_json_character(grammar_rules & rules, const character_ranges & ranges) {
    static const std::map<uint32_t, uint32_t> letters = {
        {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'},
    };
    character_ranges excluded = complement(ranges);
    excluded.insert(excluded.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0xD800, 0xDFFF}});
    const character_ranges plain = complement(excluded);
    character_ranges       escapes, digits[2];
    for (const auto & [c, letter] : letters) {
        if (holds(ranges, c)) {
            escapes.emplace_back(letter, letter);
        }
    }
    for (uint32_t c = 0; c < 0x20; c++) {
        if (holds(ranges, c) && letters.count(c) == 0) {
            const uint32_t digit = (uint32_t) "0123456789abcdef"[c & 15];
            digits[c >> 4].emplace_back(digit, digit);
        }
    }
    if (escapes.empty() && digits[0].empty() && digits[1].empty() && !plain.empty()) {
        return rules.one_of(plain, 0);
    }
    const int32_t rule = rules.add_rule(0);
    const auto    add  = [&](const char * before, const character_ranges & last) {
        if (!last.empty()) {
            grammar_rules::sequence out;
            rules.append_text(out, before);
            out.push_back(rules.one_of(last, 0));
            rules.add_alternative(rule, out);
        }
    };
    add("", plain);
    add("\\", escapes);
    add("\\u000", digits[0]);
    add("\\u001", digits[1]);
    return {grammar_element::rule, rule};
}

grammar_element json_character(grammar_rules & rules, const character_ranges & ranges) {
    const auto [known, added] = rules.json_characters.try_emplace(ranges);
    if (added) {
        known->second = make_json_character(rules, ranges);
    }
    return known->second;
}

// That is how far the nearest state is that does not take all plain characters.
std::vector<int32_t> count_plain(const std::vector<language::state> & states) {
    std::vector<std::vector<int32_t>> from(
        states.size()); // by state: those that a plain character leads from
    std::vector<int32_t> n(states.size(), grammar_rules::n_any), todo;
    for (size_t i = 0; i < states.size(); i++) {
        character_ranges taken;
        for (const auto & e : states[i].edges) {
            taken.emplace_back(e.low, e.high);
            if (touch_plain(e.low, e.high) && (from[e.to].empty() || from[e.to].back() != (int32_t) i)) {
                from[e.to].push_back((int32_t) i);
            }
        }
        if (!hold_plain(taken)) {
            n[i] = 0;
            todo.push_back((int32_t) i);
        }
    }
    for (size_t k = 0; k < todo.size(); k++) {
        for (const int32_t i : from[todo[k]]) {
            if (n[i] == grammar_rules::n_any) {
                n[i] = n[todo[k]] + 1;
                todo.push_back(i);
            }
        }
    }
    return n;
}

grammar_element add_language(grammar_rules & rules, const language & l, writing how) {
    const auto first = (int32_t) rules.starts.size();
    for (const int32_t n : count_plain(l.states)) {
        rules.plain[rules.add_rule(0)].first = n;
    }
    for (size_t i = 0; i < l.states.size(); i++) {
        const language::state &             s = l.states[i];
        std::map<int32_t, character_ranges> by_target;
        for (const auto & e : s.edges) {
            by_target[e.to].emplace_back(e.low, e.high);
        }
        for (const auto & [to, ranges] : by_target) {
            const grammar_element one =
                how == writing::plain ? rules.one_of(ranges, 0) : json_character(rules, ranges);
            rules.add_alternative(first + (int32_t) i, {one, {grammar_element::rule, first + to}});
        }
        if (s.accepts) {
            rules.add_alternative(first + (int32_t) i, {});
        }
    }
    return {grammar_element::rule, first};
}
