#include "grammar/rules.h"

#include <algorithm>

static const size_t n_max_elements = 1 << 20; // of all rules

int32_t grammar_rules::add_rule(size_t where) {
    starts.emplace_back();
    plain.emplace_back();
    definitions.push_back(where);
    return (int32_t) starts.size() - 1;
}

void grammar_rules::add_alternative(int32_t rule, const sequence & added) {
    if (elements.size() + added.size() >= n_max_elements) {
        throw grammar_error("it has more than " + std::to_string(n_max_elements) + " elements");
    }
    starts[rule].push_back((int32_t) elements.size());
    if (added.size() == 1 && added[0].what == grammar_element::rule && added[0].low <= 1 &&
        (added[0].high < 0 || added[0].high >= 1)) {
        plain[rule].one = plain[rule].one || plain[added[0].value].one;
    }
    elements.insert(elements.end(), added.begin(), added.end());
    elements.emplace_back();
}

grammar_element grammar_rules::repeat(const sequence & item, int32_t low, int32_t high, size_t where) {
    const bool is_rule =
        item.size() == 1 && item[0].what == grammar_element::rule && item[0].low == 1 && item[0].high == 1;
    const int32_t rule = is_rule ? item[0].value : add_rule(where);
    if (!is_rule) {
        add_alternative(rule, item);
    }
    return {grammar_element::rule, rule, low, high};
}

grammar_element grammar_rules::append(const grammar_rules & other) {
    const auto first = (int32_t) starts.size();
    for (size_t r = 0; r < other.starts.size(); r++) {
        plain[add_rule(0)] = other.plain[r];
    }
    for (size_t r = 0; r < other.starts.size(); r++) {
        for (int32_t i : other.starts[r]) {
            sequence out;
            for (; other.elements[i].what != grammar_element::end; i++) {
                grammar_element e = other.elements[i];
                switch (e.what) {
                    case grammar_element::bytes:       e.value = set_id(other.sets[e.value]); break;
                    case grammar_element::rule:        e.value += first; break;
                    case grammar_element::other_token: e = other_than(other.token_lists[e.value]); break;
                    case grammar_element::token:
                    case grammar_element::end:         break;
                }
                out.push_back(e);
            }
            add_alternative(first + (int32_t) r, out);
        }
    }
    return {grammar_element::rule, first};
}

grammar_element grammar_rules::other_than(std::vector<int32_t> tokens) {
    std::sort(tokens.begin(), tokens.end());
    token_lists.push_back(std::move(tokens));
    return {grammar_element::other_token, (int32_t) token_lists.size() - 1};
}

//
// characters become bytes
//

int32_t grammar_rules::set_id(const byte_set & set) {
    const auto [entry, added] = set_ids.try_emplace(set, (int32_t) sets.size());
    if (added) {
        sets.push_back(set);
    }
    return entry->second;
}

void grammar_rules::append_text(sequence & out, std::string_view utf8) {
    for (const char c : utf8) {
        out.push_back({grammar_element::bytes, set_id(byte_set().set((uint8_t) c))});
    }
}

// An alternative has one set for each byte. It fits a range of characters that have the same number of bytes and
// share all bytes before the first one that differs, if the bytes after that take all values. Other ranges are
// divided until they fit.
void grammar_rules::add_encoded(int32_t rule, uint32_t low, uint32_t high) {
    const uint32_t cuts[] = {0x80, 0x800, 0xD800, 0xE000, 0x10000, character_max + 1};
    for (const uint32_t cut : cuts) {
        if (low < cut && cut <= high) {
            add_encoded(rule, low, cut - 1);
            add_encoded(rule, cut, high);
            return;
        }
    }
    if (!is_character(low)) {
        return;
    }
    const int n_more = low < 0x80 ? 0 : low < 0x800 ? 1 : low < 0x10000 ? 2 : 3; // continuation bytes
    for (int i = 1; i <= n_more; i++) {
        const uint32_t mask = (1u << (6 * i)) - 1;
        if ((low & ~mask) == (high & ~mask)) {
            continue;
        }
        const uint32_t cut = (low & mask) != 0 ? (low | mask) + 1 : (high & ~mask);
        if ((low & mask) != 0 || (high & mask) != mask) {
            add_encoded(rule, low, cut - 1);
            add_encoded(rule, cut, high);
            return;
        }
    }
    sequence out;
    for (int i = n_more; i >= 0; i--) {
        const uint32_t lead = i == n_more ? (n_more == 0 ? 0 : (0xFF00u >> (n_more + 1)) & 0xFF) : 0x80;
        const uint32_t mask = i == n_more ? 0x7F : 0x3F;
        byte_set       set;
        for (uint32_t b = (low >> (6 * i)) & mask; b <= ((high >> (6 * i)) & mask); b++) {
            set.set(lead | b);
        }
        out.push_back({grammar_element::bytes, set_id(set)});
    }
    add_alternative(rule, out);
}

grammar_element grammar_rules::one_of(character_ranges ranges, size_t where) {
    ranges                    = merged(std::move(ranges));
    const auto [entry, added] = characters.emplace(ranges, grammar_element());
    if (!added) {
        return entry->second;
    }
    byte_set ascii;
    for (const auto & [low, high] : ranges) {
        for (uint32_t c = low; c <= std::min(high, 0x7Fu); c++) {
            ascii.set(c);
        }
    }
    grammar_element & made = entry->second;
    made                   = {grammar_element::bytes, set_id(ascii)};
    if (ranges.back().second >= 0x80) {
        made                  = {grammar_element::rule, add_rule(where)};
        plain[made.value].one = hold_plain(ranges);
        if (ascii.any()) {
            add_alternative(made.value, {{grammar_element::bytes, set_id(ascii)}});
        }
        for (const auto & [low, high] : ranges) {
            if (high >= 0x80) {
                add_encoded(made.value, std::max(low, 0x80u), high);
            }
        }
    }
    return made;
}

//
// left recursion
//

bool grammar_rules::is_passable(const grammar_element & e, const std::vector<bool> & may_be_empty) const {
    return e.what == grammar_element::rule && (e.low == 0 || may_be_empty[e.value]);
}

std::vector<bool> grammar_rules::find_empty_rules() const {
    std::vector<bool> may_be_empty(starts.size());
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t r = 0; r < starts.size(); r++) {
            for (size_t a = 0; a < starts[r].size() && !may_be_empty[r]; a++) {
                int32_t i = starts[r][a];
                while (is_passable(elements[i], may_be_empty)) {
                    i++;
                }
                may_be_empty[r] = elements[i].what == grammar_element::end;
                changed         = changed || may_be_empty[r];
            }
        }
    }
    return may_be_empty;
}

std::vector<std::vector<int32_t>> grammar_rules::find_first_rules() const {
    const std::vector<bool>           may_be_empty = find_empty_rules();
    std::vector<std::vector<int32_t>> first(starts.size());
    for (size_t r = 0; r < starts.size(); r++) {
        for (int32_t i : starts[r]) {
            for (bool more = true; more && elements[i].what == grammar_element::rule; i++) {
                first[r].push_back(elements[i].value);
                more = is_passable(elements[i], may_be_empty);
            }
        }
    }
    return first;
}

// A depth-first search, without recursion of its own: a rule that is found again on its own path is left-recursive.
int32_t grammar_rules::find_left_recursion() const {
    enum { fresh, on_path, done };
    const std::vector<std::vector<int32_t>>  first = find_first_rules();
    std::vector<char>                        seen(starts.size(), fresh);
    std::vector<std::pair<int32_t, int32_t>> path; // (rule, index of the next of its first rules)
    for (size_t from = 0; from < starts.size(); from++) {
        if (seen[from] == fresh) {
            path.emplace_back((int32_t) from, 0);
            seen[from] = on_path;
        }
        while (!path.empty()) {
            auto & [rule, i] = path.back();
            if (i == (int32_t) first[rule].size()) {
                seen[rule] = done;
                path.pop_back();
                continue;
            }
            const int32_t next = first[rule][i++];
            if (seen[next] == on_path) {
                return next;
            }
            if (seen[next] == fresh) {
                seen[next] = on_path;
                path.emplace_back(next, 0);
            }
        }
    }
    return -1;
}

//
// rules that never end
//

// Calls each(rule) for the rules without which an alternative does not end.
template <typename each_rule>
static void walk_needed(const std::vector<grammar_element> & elements, int32_t i, const each_rule & each) {
    for (; elements[i].what != grammar_element::end; i++) {
        if (elements[i].what == grammar_element::rule && elements[i].low > 0) {
            each(elements[i].value);
        }
    }
}

std::vector<bool> grammar_rules::find_ending() const {
    struct alternative {
        int32_t rule;
        size_t  n_missing; // rules that it needs, and that are not known to end
    };
    std::vector<alternative>         all;
    std::vector<std::vector<size_t>> users(starts.size()); // the alternatives that need a rule
    std::vector<bool>                ends(starts.size());
    std::vector<int32_t>             todo;
    const auto                       found = [&](int32_t rule) {
        if (!ends[rule]) {
            ends[rule] = true;
            todo.push_back(rule);
        }
    };
    for (size_t r = 0; r < starts.size(); r++) {
        for (const int32_t i : starts[r]) {
            all.push_back({(int32_t) r, 0});
            walk_needed(elements, i, [&](int32_t needed) {
                users[needed].push_back(all.size() - 1);
                all.back().n_missing++;
            });
            if (all.back().n_missing == 0) {
                found((int32_t) r);
            }
        }
    }
    while (!todo.empty()) {
        const int32_t ended = todo.back();
        todo.pop_back();
        for (const size_t user : users[ended]) {
            if (--all[user].n_missing == 0) {
                found(all[user].rule);
            }
        }
    }
    return ends;
}

bool grammar_rules::remove_endless() {
    const std::vector<bool> ends = find_ending();
    for (auto & list : starts) {
        const auto does_not = [&](int32_t i) {
            bool lacks = false;
            walk_needed(elements, i, [&](int32_t needed) { lacks = lacks || !ends[needed]; });
            return lacks;
        };
        list.erase(std::remove_if(list.begin(), list.end(), does_not), list.end());
    }
    for (grammar_element & e : elements) {
        if (e.what == grammar_element::rule && !ends[e.value]) {
            e.high = 0; // it is in no text
        }
    }
    return ends[0];
}
