#include "grammar/schema/pattern.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace {

const int     n_max_nesting = 100;
const int64_t n_max_repeat  = 100000;

//
// reading
//

struct node;
using node_ptr = std::shared_ptr<const node>;

struct node {
    enum kind { sequence, alternatives, one_of, repeat, begin, end };

    kind                  what = sequence;
    std::vector<node_ptr> parts;
    character_ranges      ranges;
    int64_t               low = 0, high = 0; // high -1: no limit
};

node_ptr make(node n) {
    return std::make_shared<const node>(std::move(n));
}

// What must, or must not, match at the beginning.
struct look_ahead {
    node_ptr what;
    bool     wanted;
};

class reader {
  public:
    explicit reader(const std::string & utf8) : text(from_utf8(utf8)) {}

    node_ptr read() {
        read_look_aheads();
        node_ptr out = read_alternatives();
        if (i < text.size()) {
            fail("a ) that closes no group");
        }
        return out;
    }

    std::vector<look_ahead> aheads;

  private:
    char32_t peek(size_t k = 0) const { return i + k < text.size() ? text[i + k] : 0; }
    bool     at(const char * word) const {
        size_t k = 0;
        for (; word[k] != 0; k++) {
            if (peek(k) != (char32_t) (unsigned char) word[k]) {
                return false;
            }
        }
        return i + k <= text.size();
    }
    [[noreturn]] void fail(const std::string & what) const {
        throw pattern_error("at character " + std::to_string(i + 1) + ": " + what);
    }

    // ^(?!…) and ^(?=…), before anything else of an expression without alternatives.
    void read_look_aheads() {
        if (!at("^(?!") && !at("^(?=")) {
            return;
        }
        i++;
        while (at("(?!") || at("(?=")) {
            const bool wanted = peek(2) == '=';
            i += 3;
            nesting++;
            const node_ptr what = read_alternatives();
            nesting--;
            if (peek() != ')') {
                fail("a group without )");
            }
            i++;
            aheads.push_back({what, wanted});
        }
        is_anchored = true;
    }

    node_ptr read_alternatives() {
        node out;
        out.what = node::alternatives;
        do {
            out.parts.push_back(read_sequence());
            if (peek() == '|' && is_anchored && nesting == 0) {
                fail("alternatives behind a look-ahead");
            }
        } while (peek() == '|' && ++i > 0);
        return out.parts.size() == 1 ? out.parts[0] : make(out);
    }

    node_ptr read_sequence() {
        node out;
        if (is_anchored && nesting == 0) {
            out.parts.push_back(make({node::begin, {}, {}, 0, 0}));
        }
        while (i < text.size() && peek() != '|' && !(peek() == ')' && nesting > 0)) {
            if (peek() == ')') {
                break;
            }
            node_ptr item = read_item();
            out.parts.push_back(read_repetition(item));
        }
        return out.parts.size() == 1 ? out.parts[0] : make(out);
    }

    bool at_count() const { // {2} {2,} {2,3}: any other { is a character
        size_t k = 1;
        for (; peek(k) >= '0' && peek(k) <= '9'; k++) {
        }
        if (k == 1) {
            return false;
        }
        if (peek(k) == ',') {
            for (k++; peek(k) >= '0' && peek(k) <= '9'; k++) {
            }
        }
        return peek(k) == '}';
    }

    int64_t read_count() {
        int64_t n = 0;
        for (; peek() >= '0' && peek() <= '9'; i++) {
            n = std::min<int64_t>(n * 10 + (peek() - '0'), n_max_repeat + 1);
        }
        if (n > n_max_repeat) {
            fail("a repetition of more than " + std::to_string(n_max_repeat));
        }
        return n;
    }

    node_ptr read_repetition(node_ptr item) {
        int64_t low = 1, high = 1;
        if (peek() == '*' || peek() == '+' || peek() == '?') {
            low  = peek() == '+' ? 1 : 0;
            high = peek() == '?' ? 1 : -1;
            i++;
        } else if (peek() == '{' && at_count()) {
            i++;
            low = high = read_count();
            if (peek() == ',') {
                i++;
                high = peek() == '}' ? -1 : read_count();
            }
            i++;
            if (high >= 0 && high < low) {
                fail("a repetition that ends before it begins");
            }
        } else {
            return item;
        }
        if (peek() == '?') { // lazy: the same texts
            i++;
        }
        if (peek() == '+' || peek() == '*' || (peek() == '{' && at_count())) {
            fail("a repetition of a repetition");
        }
        return make({node::repeat, {item}, {}, low, high});
    }

    node_ptr read_item() {
        const char32_t c = peek();
        switch (c) {
            case '(':  return read_group();
            case '[':  return read_class();
            case '^':  i++; return make({node::begin, {}, {}, 0, 0});
            case '$':  i++; return make({node::end, {}, {}, 0, 0});
            case '.':  i++; return one_of(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
            case '*':
            case '+':
            case '?':  fail("nothing to repeat");
            case '\\': return one_of(read_escape(false));
        }
        i++;
        return one_of({{c, c}});
    }

    static node_ptr one_of(const character_ranges & ranges) {
        return make({node::one_of, {}, merged(ranges), 0, 0});
    }

    node_ptr read_group() {
        i++;
        if (peek() == '?') {
            if (at("?:")) {
                i += 2;
            } else if (at("?<") && peek(2) != '=' && peek(2) != '!') {
                while (i < text.size() && peek() != '>') {
                    i++;
                }
                i++;
            } else {
                fail("look-around, or flags");
            }
        }
        if (++nesting > n_max_nesting) {
            fail("groups nested more than " + std::to_string(n_max_nesting) + " deep");
        }
        node_ptr out = read_alternatives();
        nesting--;
        if (peek() != ')') {
            fail("a group without )");
        }
        i++;
        return out;
    }

    char32_t read_hex(int n) {
        char32_t c = 0;
        for (int k = 0; k < n; k++, i++) {
            const char32_t d     = peek();
            const bool     digit = d >= '0' && d <= '9', letter = (d | 0x20) >= 'a' && (d | 0x20) <= 'f';
            if (!digit && !letter) {
                fail("expected a hexadecimal digit");
            }
            c = c << 4 | (digit ? d - '0' : (d | 0x20) - 'a' + 10);
        }
        return c;
    }

    char32_t read_code(bool is_long) {
        if (is_long && peek() == '{') {
            size_t n = 0;
            i++;
            while (peek(n) != '}' && n < 7) {
                n++;
            }
            const char32_t code = read_hex((int) n);
            i++;
            if (!is_character(code)) {
                fail("the code of no character");
            }
            return code;
        }
        const char32_t code = read_hex(is_long ? 4 : 2);
        if (code >= 0xD800 && code < 0xDC00 && at("\\u")) {
            i += 2;
            const char32_t low = read_hex(4);
            return 0x10000 + ((code - 0xD800) << 10) + ((low - 0xDC00) & 0x3FF);
        }
        return code;
    }

    static const std::map<char32_t, character_ranges> & classes() {
        static const character_ranges digits = {{'0', '9'}};
        static const character_ranges words  = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
        static const character_ranges spaces = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                                                {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                                {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
        // what only JavaScript, or only Python, calls a space is no \s, and no \S
        character_ranges any_spaces = spaces;
        any_spaces.insert(any_spaces.end(), {{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}});
        static const std::map<char32_t, character_ranges> all = {
            {'d', digits},         {'D', complement(digits)},
            {'w', words},          {'W', complement(words)},
            {'s', spaces},         {'S', complement(any_spaces)},
            {'n', {{'\n', '\n'}}}, {'t', {{'\t', '\t'}}},
            {'r', {{'\r', '\r'}}}, {'f', {{'\f', '\f'}}},
            {'v', {{'\v', '\v'}}}, {'a', {{'a', 'a'}}},
        };
        return all;
    }

    char32_t read_control() {
        const char32_t letter = peek();
        if (!((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z')) {
            fail("expected a letter after \\c");
        }
        i++;
        return letter & 31;
    }

    // At a backslash.
    character_ranges read_escape(bool in_class) {
        i++;
        if (i >= text.size()) {
            fail("a \\ at the end");
        }
        const char32_t c = peek();
        i++;
        if (const auto known = classes().find(c); known != classes().end()) {
            return known->second;
        }
        char32_t out = c;
        if (c == '0') {
            if (peek() >= '0' && peek() <= '9') {
                fail("an octal number");
            }
            out = 0;
        } else if (c == 'c') {
            out = read_control();
        } else if (c == 'x' || c == 'u') {
            out = read_code(c == 'u');
        } else if (c == 'b' && in_class) {
            out = '\b';
        } else if ((c >= '1' && c <= '9') || c == 'k') {
            fail("a back-reference");
        } else if (c < 0x80 && isalnum((int) c) != 0) {
            fail("\\" + to_utf8(c));
        }
        return {{out, out}};
    }

    node_ptr read_class() {
        i++;
        const bool negated = peek() == '^';
        i += negated;
        character_ranges ranges;
        while (peek() != ']') {
            if (i >= text.size()) {
                fail("a [ without ]");
            }
            if (negated && at("\\s")) {
                ranges.insert(ranges.end(), {{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}}); // as for \S
            }
            character_ranges low = read_class_item();
            if (peek() == '-' && peek(1) != ']' && i + 1 < text.size()) {
                i++;
                const character_ranges high = read_class_item();
                const auto             one  = [](const character_ranges & r) {
                    return r.size() == 1 && r[0].first == r[0].second;
                };
                if (one(low) && one(high)) {
                    if (high[0].first < low[0].first) {
                        fail("a range of characters that ends before it begins");
                    }
                    low[0].second = high[0].first;
                } else { // [\w-.]: the - is a character
                    low.insert(low.end(), high.begin(), high.end());
                    low.emplace_back('-', '-');
                }
            }
            ranges.insert(ranges.end(), low.begin(), low.end());
        }
        i++;
        return one_of(negated ? complement(ranges) : ranges);
    }

    character_ranges read_class_item() {
        if (peek() == '\\') {
            return read_escape(true);
        }
        const char32_t c = peek();
        i++;
        return {{c, c}};
    }

    const std::u32string text;
    size_t               i           = 0;
    int                  nesting     = 0;
    bool                 is_anchored = false;
};

//
// from nodes to states
//

class machine {
  public:
    explicit machine(work_budget & budget) : budget(budget) {}

    language make_language(const node & what) {
        const int32_t first = add_state(), start = add_state(), last = add_state();
        goal = last;
        add_edge(first, {edge::always, first_any, first});
        add_edge(first, {edge::free, -1, start});
        build(what, start, last);
        return determine(first);
    }

  private:
    struct edge {
        enum kind { always, free, at_begin, at_end };

        kind    what;
        int32_t set; // the characters; free, at_begin, at_end: none
        int32_t to;
    };
    using states = std::vector<int32_t>;

    static const int32_t first_any = 0;

    int32_t add_state() {
        budget.spend(1);
        edges.emplace_back();
        return (int32_t) edges.size() - 1;
    }
    void    add_edge(int32_t from, const edge & e) { edges[from].push_back(e); }
    int32_t set_of(const character_ranges & ranges) {
        const auto [entry, added] = numbers.emplace(ranges, (int32_t) sets.size());
        if (added) {
            sets.push_back(ranges);
        }
        return entry->second;
    }

    void build(const node & n, int32_t from, int32_t to) {
        switch (n.what) {
            case node::one_of: add_edge(from, {edge::always, set_of(n.ranges), to}); return;
            case node::begin:  add_edge(from, {edge::at_begin, -1, to}); return;
            case node::end:    add_edge(from, {edge::at_end, -1, to}); return;
            case node::alternatives:
                for (const auto & part : n.parts) {
                    build(*part, from, to);
                }
                return;
            case node::sequence:
                for (size_t k = 0; k < n.parts.size(); k++) {
                    const int32_t next = k + 1 == n.parts.size() ? to : add_state();
                    build(*n.parts[k], from, next);
                    from = next;
                }
                if (n.parts.empty()) {
                    add_edge(from, {edge::free, -1, to});
                }
                return;
            case node::repeat: build_repeat(n, from, to); return;
        }
    }

    void build_repeat(const node & n, int32_t from, int32_t to) {
        for (int64_t k = 0; k < n.low; k++) {
            const int32_t next = add_state();
            build(*n.parts[0], from, next);
            from = next;
        }
        if (n.high < 0) {
            const int32_t again = add_state();
            add_edge(from, {edge::free, -1, again});
            build(*n.parts[0], again, again);
            add_edge(again, {edge::free, -1, to});
            return;
        }
        for (int64_t k = n.low; k < n.high; k++) {
            const int32_t next = add_state();
            add_edge(from, {edge::free, -1, to});
            build(*n.parts[0], from, next);
            from = next;
        }
        add_edge(from, {edge::free, -1, to});
    }

    // All states that these lead to without a character.
    states closure(states todo, bool at_begin, bool at_end) {
        std::set<int32_t> seen(todo.begin(), todo.end());
        while (!todo.empty()) {
            const int32_t at = todo.back();
            todo.pop_back();
            budget.spend(1);
            for (const edge & e : edges[at]) {
                const bool follows = e.what == edge::free || (e.what == edge::at_begin && at_begin) ||
                                     (e.what == edge::at_end && at_end);
                if (follows && seen.insert(e.to).second) {
                    todo.push_back(e.to);
                }
            }
        }
        if (seen.count(goal) > 0 && !at_end) {
            return {goal}; // anything may follow
        }
        return states(seen.begin(), seen.end());
    }

    language determine(int32_t first) {
        language                  out;
        std::map<states, int32_t> number;
        std::vector<states>       todo;
        const auto                state_of = [&](const states & s, bool at_begin) {
            const auto [entry, added] = number.emplace(s, (int32_t) out.states.size());
            if (added) {
                const states ended = closure(s, at_begin, true);
                out.states.push_back({{}, std::find(ended.begin(), ended.end(), goal) != ended.end()});
                todo.push_back(s);
            }
            return entry->second;
        };
        state_of(closure({first}, true, false), true);
        number.clear(); // later the same states are not at the beginning
        for (size_t i = 0; i < todo.size(); i++) {
            if (todo[i] == states{goal}) {
                out.states[i] = {{{0, character_max, (int32_t) i}}, true};
                continue;
            }
            // characters that all these states treat alike
            std::vector<std::pair<uint32_t, std::pair<bool, int32_t>>> marks; // (where, (begins, state))
            for (const int32_t at : todo[i]) {
                for (const edge & e : edges[at]) {
                    if (e.what != edge::always) {
                        continue;
                    }
                    for (const auto & [low, high] : sets[e.set]) {
                        marks.push_back({low, {true, e.to}});
                        marks.push_back({high + 1, {false, e.to}});
                    }
                }
            }
            std::sort(marks.begin(), marks.end());
            budget.spend((int64_t) marks.size());
            std::map<int32_t, int>    active;
            std::map<states, int32_t> known;
            for (size_t k = 0; k < marks.size();) {
                const uint32_t where = marks[k].first;
                for (; k < marks.size() && marks[k].first == where; k++) {
                    int & n = active[marks[k].second.second];
                    n += marks[k].second.first ? 1 : -1;
                }
                states to;
                for (const auto & [state, n] : active) {
                    if (n > 0) {
                        to.push_back(state);
                    }
                }
                budget.spend((int64_t) active.size());
                if (to.empty() || where > character_max) {
                    continue;
                }
                auto [entry, added] = known.emplace(to, 0);
                if (added) {
                    entry->second = state_of(closure(to, false, false), false);
                }
                const uint32_t end = k < marks.size() ? marks[k].first - 1 : character_max;
                out.states[i].edges.push_back({where, std::min(end, character_max), entry->second});
            }
        }
        trim(out);
        return out;
    }

    work_budget &                       budget;
    std::vector<std::vector<edge>>      edges;
    std::vector<character_ranges>       sets    = {{{0, character_max}}};
    std::map<character_ranges, int32_t> numbers = {{{{0, character_max}}, 0}};
    int32_t                             goal    = -1;
};

} // namespace

language read_pattern(const std::string & expression, work_budget & budget) {
    reader         in(expression);
    const node_ptr what = in.read();
    language       out  = machine(budget).make_language(*what);
    for (const look_ahead & ahead : in.aheads) {
        node anchored;
        anchored.parts       = {make({node::begin, {}, {}, 0, 0}), ahead.what};
        const language there = machine(budget).make_language(anchored);
        out                  = ahead.wanted ? both(out, there, budget) : without(out, there, budget);
    }
    return out;
}
