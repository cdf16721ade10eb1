#include "grammar/free_text.h"

#include <algorithm>
#include <map>

namespace {

// Aho and Corasick's automaton over characters: its state is the longest beginning of a word that the text ends with.
struct word_state {
    std::map<char32_t, int32_t> next;          // by character; all others lead to the first state
    int32_t                     shorter  = 0;  // the state of the longest shorter beginning
    int32_t                     word     = -1; // that is complete here
    int32_t                     inner    = -1; // a shorter word that is complete here, too
    bool                        excluded = false;
};

class word_automaton {
  public:
    word_automaton(const free_text & text, work_budget & budget) : budget(budget) {
        for (size_t i = 0; i < text.words.size(); i++) {
            word_state & end = states[add(text.words[i].first)];
            end.inner        = end.word; // the same word
            end.word         = (int32_t) i;
        }
        for (const std::string & one : text.excluded) {
            states[add(one)].excluded = true;
        }
        link();
    }

    std::vector<word_state> states = std::vector<word_state>(1);

  private:
    int32_t add(const std::string & word) {
        int32_t at = 0;
        budget.spend((int64_t) word.size());
        for (const char32_t c : from_utf8(word)) {
            const auto [entry, added] = states[at].next.emplace(c, (int32_t) states.size());
            at                        = entry->second;
            if (added) {
                states.emplace_back(); // it may move the entry
            }
        }
        return at;
    }

    // Breadth first, so that a shorter beginning is complete before a longer one needs it.
    void link() {
        std::vector<int32_t> todo = {0};
        for (size_t i = 0; i < todo.size(); i++) {
            word_state & own = states[todo[i]];
            for (const auto & [c, to] : own.next) {
                const auto shorter = states[own.shorter].next.find(c);
                states[to].shorter =
                    todo[i] != 0 && shorter != states[own.shorter].next.end() ? shorter->second : 0;
                todo.push_back(to);
            }
            const word_state & shorter = states[own.shorter];
            budget.spend((int64_t) (own.next.size() + shorter.next.size()));
            own.excluded = own.excluded || shorter.excluded;
            own.inner    = own.inner >= 0 ? own.inner : shorter.word >= 0 ? shorter.word : shorter.inner;
            own.next.insert(shorter.next.begin(), shorter.next.end());
        }
    }

    work_budget & budget;
};

// The characters that lead from one state to each other one.
std::map<int32_t, character_ranges> ways(const word_state & from) {
    std::map<int32_t, character_ranges> out;
    character_ranges                    named;
    for (const auto & [c, to] : from.next) {
        out[to].emplace_back(c, c);
        named.emplace_back(c, c);
    }
    for (const auto & range : complement(named)) {
        out[0].push_back(range);
    }
    return out;
}

} // namespace

std::string find_overlap(const free_text & text, work_budget & budget) {
    const std::vector<word_state> states = word_automaton(text, budget).states;
    for (size_t i = 0; i < text.words.size(); i++) {
        const std::string & word = text.words[i].first;
        int32_t             at   = 0;
        for (const char32_t c : from_utf8(word)) {
            at                     = states[at].next.at(c);
            const word_state & s   = states[at];
            const int32_t      own = s.word == (int32_t) i ? -1 : s.word;
            if (s.excluded) {
                return "\"" + word + "\" begins something, but holds a text that is excluded";
            }
            if (own >= 0 || s.inner >= 0) {
                return "\"" + word + "\" begins something and holds \"" +
                       text.words[own >= 0 ? own : s.inner].first + "\", which begins something, too";
            }
        }
    }
    return "";
}

grammar_element add_free_text(grammar_rules & rules, const free_text & text, work_budget & budget) {
    const std::vector<word_state> states = word_automaton(text, budget).states;
    if (text.n_max >= 0) { // no words
        language l;
        for (const word_state & from : states) {
            l.states.push_back({{}, true});
            for (const auto & [to, ranges] : ways(from)) {
                for (const auto & [low, high] : ranges) {
                    if (!states[to].excluded) {
                        l.states.back().edges.push_back({low, high, to});
                    }
                }
            }
            auto & edges = l.states.back().edges;
            std::sort(edges.begin(), edges.end(),
                      [](const auto & a, const auto & b) { return a.low < b.low; });
        }
        return add_language(rules, both(l, texts_of_length(0, text.n_max, budget), budget), writing::plain);
    }
    const auto                   first = (int32_t) rules.starts.size();
    std::vector<language::state> within(states.size()); // until a word is complete
    for (size_t i = 0; i < states.size(); i++) {
        for (const auto & [to, ranges] : ways(states[i])) {
            for (const auto & [low, high] : ranges) {
                if (!states[to].excluded && states[to].word < 0) {
                    within[i].edges.push_back({low, high, to});
                }
            }
        }
    }
    for (const int32_t n : count_plain(within)) {
        rules.plain[rules.add_rule(0)].first = n;
    }
    for (size_t i = 0; i < states.size(); i++) {
        const int32_t rule = first + (int32_t) i;
        rules.add_alternative(rule, {});
        for (const auto & [to, ranges] : ways(states[i])) {
            if (states[to].excluded) {
                continue;
            }
            grammar_rules::sequence out  = {rules.one_of(ranges, 0)};
            const int32_t           word = states[to].word;
            if (word >= 0) {
                const auto & behind = text.words[word].second;
                out.insert(out.end(), behind.begin(), behind.end());
            }
            if (word < 0 || text.loops) {
                out.push_back({grammar_element::rule, first + (word < 0 ? to : 0)});
            }
            rules.add_alternative(rule, out);
        }
    }
    return {grammar_element::rule, first};
}
