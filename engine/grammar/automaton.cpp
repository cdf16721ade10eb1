#include "grammar/automaton.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>
#include <utility>

static const int64_t n_max_positions = 1 << 14; // of one state: the ways in which a text can be read
static const int64_t n_max_work      = 1 << 20; // positions that one step may visit: some tenths of a second

byte_classes::byte_classes(const std::vector<byte_set> & all) {
    for (const byte_set & set : all) {
        std::array<int32_t, 2 * 256> parts; // by class, and whether the set has the byte
        parts.fill(-1);
        n = 0;
        for (int b = 0; b < 256; b++) {
            int32_t & part = parts[2 * of[b] + set[b]];
            part           = part < 0 ? n++ : part;
            of[b]          = part;
        }
        if (n == 256) {
            break;
        }
    }
    for (const byte_set & set : all) {
        sets.emplace_back();
        for (int b = 0; b < 256; b++) {
            sets.back()[of[b]] = set[b];
        }
    }
}

static size_t mix(size_t hash, int32_t number) {
    const uint64_t mixed = (hash ^ (uint32_t) number) * 0x9E3779B97F4A7C15u;
    return (size_t) (mixed ^ mixed >> 32);
}

size_t hash_of_numbers::operator()(const std::vector<int32_t> & numbers) const {
    size_t hash = numbers.size();
    for (const int32_t number : numbers) {
        hash = mix(hash, number);
    }
    return hash;
}

//
// positions
//

int32_t & position_table::slot_of(const position & p) {
    const size_t mask = slots.size() - 1; // their number is a power of two
    size_t       i    = mix(mix(mix(0, p.element), p.count), p.parent) & mask;
    while (slots[i] >= 0 && !(positions[slots[i]] == p)) {
        i = (i + 1) & mask;
    }
    return slots[i];
}

void position_table::grow() {
    slots.assign(std::max(slots.size() * 4, (size_t) 1024), -1);
    for (size_t id = 0; id < positions.size(); id++) {
        slot_of(positions[id]) = (int32_t) id;
    }
}

int32_t position_table::find_or_add(const position & p, bool & added) {
    if (2 * positions.size() >= slots.size()) {
        grow();
    }
    int32_t & slot = slot_of(p);
    added          = slot < 0;
    if (added) {
        slot = (int32_t) positions.size();
        positions.push_back(p);
        visited.push_back(-1);
    }
    return slot;
}

bool position_table::visit(int32_t id, int64_t stamp) {
    return std::exchange(visited[id], stamp) != stamp;
}

void position_table::clear() {
    positions.clear();
    slots.clear();
    visited.clear();
}

// The end of a rule is the position to return to: the last element of a rule leaves nothing on the stack.
int32_t automaton::position_id(int32_t element, int32_t count, int32_t parent) {
    if (parent != dead && rules.elements[element].what == grammar_element::end) {
        return parent;
    }
    bool          added;
    const int32_t id = positions.find_or_add({element, count, parent}, added);
    n_numbers += added ? 16 : 0;
    return id;
}

//
// states
//

automaton::automaton(grammar_rules r) : rules(std::move(r)), classes(rules.sets) {
    reset();
}

void automaton::reset() {
    positions.clear();
    states.clear();
    next.clear();
    state_ids.clear();
    n_numbers = 0;
    position_ids todo;
    for (int32_t element : rules.starts[0]) {
        todo.push_back(position_id(element, 0, dead));
    }
    if (state_of(todo) == dead) {
        throw grammar_error("no text fits it");
    }
}

// The positions that a position at a rule leads to: the rule's alternatives, or the element after the rule.
void automaton::enter_rule(position_table::position p, position_ids & todo) {
    const grammar_element e = rules.elements[p.element];
    if (p.count >= e.low) {
        todo.push_back(position_id(p.element + 1, 0, p.parent));
    }
    if (e.high >= 0 && p.count >= e.high) {
        return;
    }
    const bool    is_unbounded = e.high < 0 && p.count >= e.low; // then the count does not matter any more
    const int32_t count        = p.count + (is_unbounded ? 0 : 1);
    const int32_t back =
        count == e.high ? position_id(p.element + 1, 0, p.parent) : position_id(p.element, count, p.parent);
    for (int32_t element : rules.starts[e.value]) {
        todo.push_back(position_id(element, 0, back));
    }
}

// The plain characters that may follow a position at a rule.
int32_t automaton::count_plain(const grammar_element & e, int32_t count) const {
    const auto &  own  = rules.plain[e.value];
    const int32_t left = e.high < 0 ? grammar_rules::n_any : e.high - count;
    return left > 0 ? std::max(own.one ? left : 0, own.first) : 0;
}

// The state of these positions and of all that they lead to before a byte or token is taken.
int32_t automaton::state_of(position_ids & todo) {
    state   made;
    int64_t n_visited = 0;
    n_lookups++;
    byte_set bytes;
    while (!todo.empty()) {
        const int32_t id = todo.back();
        todo.pop_back();
        if (!positions.visit(id, n_lookups)) {
            continue;
        }
        n_work++;
        if (++n_visited > n_max_positions) {
            throw grammar_error("it is too ambiguous: at one place the text can be read in more than " +
                                std::to_string(n_max_positions) + " ways");
        }
        const position_table::position p = positions[id];
        const grammar_element          e = rules.elements[p.element];
        if (e.what == grammar_element::rule) {
            made.n_plain = std::max(made.n_plain, count_plain(e, p.count));
            enter_rule(p, todo);
            continue;
        }
        made.positions.push_back(id);
        made.may_end = made.may_end || e.what == grammar_element::end;
        made.has_token =
            made.has_token || e.what == grammar_element::token || e.what == grammar_element::other_token;
        bytes |= e.what == grammar_element::bytes ? rules.sets[e.value] : byte_set();
    }
    return made.positions.empty() ? dead : add_state(std::move(made), bytes);
}

// The number of an equal state where there is one.
int32_t automaton::add_state(state && made, const byte_set & bytes) {
    std::sort(made.positions.begin(), made.positions.end());
    const auto [entry, added] = state_ids.emplace(made.positions, (int32_t) states.size());
    if (added) {
        made.n_bytes = (int32_t) bytes.count();
        next.resize(next.size() + classes.n, unknown);
        n_numbers += classes.n + 2 * (int64_t) made.positions.size() + 32;
        states.push_back(std::move(made));
    }
    return entry->second;
}

//
// steps
//

uint8_t automaton::only_byte(int32_t from) {
    uint8_t byte = 0;
    while (byte < 255 && step(from, byte) == dead) {
        byte++;
    }
    return byte;
}

int32_t automaton::compute_step(int32_t from, uint8_t byte) {
    position_ids todo;
    byte_set     same = byte_set().set(); // the classes that lead to the same state
    for (int32_t id : states[from].positions) {
        const position_table::position p = positions[id];
        const grammar_element          e = rules.elements[p.element];
        if (e.what != grammar_element::bytes) {
            continue;
        }
        const byte_set & set = classes.sets[e.value];
        if (set[classes.of[byte]]) {
            todo.push_back(position_id(p.element + 1, 0, p.parent));
            same &= set;
        } else {
            same &= ~set;
        }
    }
    n_work += (int64_t) states[from].positions.size();
    if (n_work > n_max_work) {
        throw grammar_error("it is too ambiguous: finding what may come next takes more than " +
                            std::to_string(n_max_work) + " steps");
    }
    const int32_t to = state_of(todo);
    for (int32_t i = 0; i < classes.n; i++) {
        if (same[i]) {
            next[(size_t) from * classes.n + i] = to;
        }
    }
    return to;
}

int32_t automaton::step_by_text(int32_t from, std::string_view text) {
    for (size_t i = 0; i < text.size() && from != dead; i++) {
        begin_step();
        from = step(from, (uint8_t) text[i]);
    }
    return from;
}

bool automaton::takes(const grammar_element & e, llama_token token) const {
    const auto is_listed = [&] {
        const auto & list = rules.token_lists[e.value];
        return std::binary_search(list.begin(), list.end(), token);
    };
    return (e.what == grammar_element::token && e.value == token) ||
           (e.what == grammar_element::other_token && !is_listed());
}

void automaton::add_tokens(int32_t from, token_set & set) const {
    bool                 others = false; // all tokens are taken but `left`
    std::vector<int32_t> left;
    for (const int32_t id : states[from].positions) {
        const grammar_element e = rules.elements[positions[id].element];
        if (e.what == grammar_element::token) {
            set.add(e.value);
        } else if (e.what == grammar_element::other_token) {
            const auto &         list = rules.token_lists[e.value];
            std::vector<int32_t> both;
            std::set_intersection(left.begin(), left.end(), list.begin(), list.end(),
                                  std::back_inserter(both));
            left   = others ? both : list;
            others = true;
        }
    }
    for (size_t token = 0; others && token < set.size(); token++) {
        if (!std::binary_search(left.begin(), left.end(), (int32_t) token)) {
            set.add(token);
        }
    }
}

int32_t automaton::step_by_token(int32_t from, llama_token token, std::string_view bytes) {
    int32_t to = bytes.empty() ? dead : from;
    for (size_t i = 0; i < bytes.size() && to != dead; i++) {
        to = step(to, (uint8_t) bytes[i]);
    }
    if (!states[from].has_token) {
        return to;
    }
    position_ids todo;
    for (int32_t id : states[from].positions) {
        const position_table::position p = positions[id];
        if (takes(rules.elements[p.element], token)) {
            todo.push_back(position_id(p.element + 1, 0, p.parent));
        }
    }
    if (todo.empty()) {
        return to;
    }
    if (to != dead) {
        todo.insert(todo.end(), states[to].positions.begin(), states[to].positions.end());
    }
    return state_of(todo);
}
