#include "grammar/left_recursion.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace {

using sequence = grammar_rules::sequence;
using numbers  = std::vector<int32_t>;

// The rules that reach each other by what they begin with, as numbers of groups; -1: a rule that does not reach itself.
numbers find_groups(const std::vector<numbers> & first) {
    const auto           n = (int32_t) first.size();
    std::vector<numbers> users(first.size());
    numbers              order; // a rule stands behind those that it reaches
    std::vector<char>    seen(first.size());
    for (int32_t from = 0; from < n; from++) {
        std::vector<std::pair<int32_t, size_t>> path;
        if (!std::exchange(seen[from], true)) {
            path.emplace_back(from, 0);
        }
        while (!path.empty()) {
            auto & [rule, i] = path.back();
            if (i == first[rule].size()) {
                order.push_back(rule);
                path.pop_back();
                continue;
            }
            const int32_t next = first[rule][i++];
            users[next].push_back(rule);
            if (!std::exchange(seen[next], true)) {
                path.emplace_back(next, 0);
            }
        }
    }
    numbers group(first.size(), -1);
    seen.assign(first.size(), false);
    for (auto from = order.rbegin(); from != order.rend(); ++from) {
        if (std::exchange(seen[*from], true)) {
            continue;
        }
        numbers found = {*from};
        for (size_t i = 0; i < found.size(); i++) {
            for (const int32_t user : users[found[i]]) {
                if (!std::exchange(seen[user], true)) {
                    found.push_back(user);
                }
            }
        }
        const auto & own     = first[*from];
        const bool   reaches = found.size() > 1 || std::find(own.begin(), own.end(), *from) != own.end();
        for (const int32_t rule : found) {
            group[rule] = reaches ? *from : -1;
        }
    }
    return group;
}

// Rules without their empty text, so that whatever stands first in a sequence has a byte.
class full_rules {
  public:
    explicit full_rules(grammar_rules & rules) : rules(rules), empty(rules.find_empty_rules()) {}

    // The rule begins with what has a byte, or is empty.
    void rewrite(int32_t rule) {
        saved.emplace(rule, alternatives(rule));
        rules.starts[rule].clear();
        if (empty[rule]) {
            rules.add_alternative(rule, {{grammar_element::rule, full(rule)}});
            rules.add_alternative(rule, {});
        } else {
            write(rule, saved[rule]);
        }
        finish();
    }

    bool may_be_empty(const sequence & s) const {
        return std::all_of(s.begin(), s.end(), [this](const grammar_element & e) { return may_be_empty(e); });
    }

    // The texts of a sequence but the empty one: where the first elements are empty, the next one begins it.
    std::vector<sequence> parts(const sequence & s) {
        std::vector<sequence> out;
        for (size_t k = 0; k < s.size(); k++) {
            const bool passable = may_be_empty(s[k]);
            if (s[k].what != grammar_element::rule) {
                out.emplace_back(s.begin() + (std::ptrdiff_t) k, s.end());
            } else if (s[k].high != 0) {
                grammar_element first = s[k], more = s[k];
                first.low = first.high = 1;
                more.low               = passable ? 0 : s[k].low - 1;
                more.high              = s[k].high < 0 ? -1 : s[k].high - 1;
                if (is_empty(first.value)) {
                    first.value = full(first.value);
                }
                out.push_back({first});
                if (more.high != 0) {
                    out.back().push_back(more);
                }
                out.back().insert(out.back().end(), s.begin() + (std::ptrdiff_t) k + 1, s.end());
            }
            if (!passable) {
                break;
            }
        }
        return out;
    }

    // Writes the rules that parts() has named.
    void finish() {
        while (!todo.empty()) {
            const int32_t rule = todo.back();
            todo.pop_back();
            const auto known = saved.find(rule);
            write(made.at(rule), known != saved.end() ? known->second : alternatives(rule));
        }
    }

  private:
    bool is_empty(int32_t rule) const { return rule < (int32_t) empty.size() && empty[rule]; }
    bool may_be_empty(const grammar_element & e) const {
        return e.what == grammar_element::rule && (e.low == 0 || is_empty(e.value));
    }

    std::vector<sequence> alternatives(int32_t rule) const {
        std::vector<sequence> out;
        for (const int32_t start : rules.starts[rule]) {
            out.emplace_back();
            for (int32_t i = start; rules.elements[i].what != grammar_element::end; i++) {
                out.back().push_back(rules.elements[i]);
            }
        }
        return out;
    }

    int32_t full(int32_t rule) {
        const auto [entry, added] = made.emplace(rule, -1);
        if (added) {
            entry->second = rules.add_rule(rules.where(rule));
            todo.push_back(rule);
        }
        return entry->second;
    }

    void write(int32_t out, const std::vector<sequence> & from) {
        for (const sequence & one : from) {
            for (const sequence & part : parts(one)) {
                rules.add_alternative(out, part);
            }
        }
    }

    grammar_rules &                          rules;
    const std::vector<bool>                  empty; // of the rules as they were given
    std::map<int32_t, std::vector<sequence>> saved; // alternatives as they were given
    std::map<int32_t, int32_t>               made;  // by rule: the one without its empty text
    numbers                                  todo;
};

// The rules of one group. A text of one of them is a beginning, which none of them begins, and what may follow behind a
// text of one to make it a text of another.
class rewriting {
  public:
    rewriting(grammar_rules & rules, full_rules & full, const numbers & group, numbers members)
        : rules(rules), full(full), group(group), members(std::move(members)) {}

    void run() {
        for (const int32_t rule : members) {
            read(rule);
        }
        for (const int32_t rule : members) {
            rules.starts[rule].clear();
            for (const auto & [from, begun] : beginnings) {
                for (sequence out : begun) {
                    out.push_back(behind(rule, from));
                    rules.add_alternative(rule, out);
                }
            }
        }
        while (!todo.empty()) {
            const auto [goal, from] = todo.back();
            todo.pop_back();
            write(goal, from);
        }
        full.finish();
    }

  private:
    void read(int32_t rule) {
        for (const int32_t start : numbers(rules.starts[rule])) {
            sequence all;
            for (int32_t i = start; rules.elements[i].what != grammar_element::end; i++) {
                all.push_back(rules.elements[i]);
            }
            const bool follows =
                !all.empty() && all[0].what == grammar_element::rule && group[all[0].value] == group[rule];
            if (!follows) {
                beginnings[rule].push_back(std::move(all));
                continue;
            }
            const int32_t  from = all[0].value;
            const sequence rest(all.begin() + 1, all.end());
            if (full.may_be_empty(rest)) {
                same[from].push_back(rule);
            }
            for (sequence & part : full.parts(rest)) {
                followers[from].emplace_back(rule, std::move(part));
            }
        }
    }

    // What follows a text of `from` so that it is one of `goal`.
    grammar_element behind(int32_t goal, int32_t from) {
        const auto [entry, added] = made.emplace(std::make_pair(goal, from), -1);
        if (added) {
            entry->second = rules.add_rule(rules.where(goal));
            todo.emplace_back(goal, from);
        }
        return {grammar_element::rule, entry->second};
    }

    void write(int32_t goal, int32_t from) {
        const int32_t     out  = made.at({goal, from});
        numbers           all  = {from}; // the rules whose text it is as it stands
        std::set<int32_t> seen = {from};
        for (size_t i = 0; i < all.size(); i++) {
            for (const int32_t to : same[all[i]]) {
                if (seen.insert(to).second) {
                    all.push_back(to);
                }
            }
        }
        for (const int32_t rule : all) {
            if (rule == goal) {
                rules.add_alternative(out, {});
            }
            for (const auto & [to, what] : followers[rule]) {
                sequence more = what;
                more.push_back(behind(goal, to));
                rules.add_alternative(out, more);
            }
        }
    }

    grammar_rules &                                              rules;
    full_rules &                                                 full;
    const numbers &                                              group;
    const numbers                                                members;
    std::map<int32_t, std::vector<sequence>>                     beginnings; // by rule
    std::map<int32_t, std::vector<std::pair<int32_t, sequence>>> followers;  // by rule: (of which one, what)
    std::map<int32_t, numbers>                                   same; // by rule: of which it is a text, too
    std::map<std::pair<int32_t, int32_t>, int32_t>               made; // rules of what follows
    std::vector<std::pair<int32_t, int32_t>>                     todo;
};

} // namespace

void remove_left_recursion(grammar_rules & rules) {
    if (rules.find_left_recursion() < 0) {
        return;
    }
    full_rules    full(rules);
    const numbers given = find_groups(rules.find_first_rules());
    for (size_t rule = 0; rule < given.size(); rule++) {
        if (given[rule] >= 0) {
            full.rewrite((int32_t) rule);
        }
    }
    const numbers              group = find_groups(rules.find_first_rules());
    std::map<int32_t, numbers> members;
    for (size_t rule = 0; rule < group.size(); rule++) {
        if (group[rule] >= 0) {
            members[group[rule]].push_back((int32_t) rule);
        }
    }
    for (const auto & [number, rules_of_it] : members) {
        rewriting(rules, full, group, rules_of_it).run();
    }
}
