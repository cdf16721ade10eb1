#include "grammar/lark/substrings.h"

#include "grammar/characters.h"

#include <cctype>
#include <map>

namespace {

// The suffix automaton of a list of pieces: each run of them leads from the first state to one state.
struct suffix_state {
    int32_t                        length = 0;
    int32_t                        link   = -1;
    std::map<std::string, int32_t> next;
};

void extend(std::vector<suffix_state> & states, int32_t & last, const std::string & piece) {
    const auto added = (int32_t) states.size();
    states.push_back({states[last].length + 1, -1, {}});
    int32_t p = last;
    for (; p >= 0 && states[p].next.count(piece) == 0; p = states[p].link) {
        states[p].next[piece] = added;
    }
    last = added;
    if (p < 0) {
        states[added].link = 0;
        return;
    }
    const int32_t q = states[p].next[piece];
    if (states[q].length == states[p].length + 1) {
        states[added].link = q;
        return;
    }
    const auto   copy   = (int32_t) states.size();
    suffix_state copied = states[q];
    copied.length       = states[p].length + 1;
    states.push_back(std::move(copied));
    for (; p >= 0 && states[p].next[piece] == q; p = states[p].link) {
        states[p].next[piece] = copy;
    }
    states[q].link = states[added].link = copy;
}

} // namespace

grammar_element add_runs(grammar_rules & rules, const std::vector<std::string> & pieces) {
    std::vector<suffix_state> states(1);
    int32_t                   last = 0;
    for (const std::string & piece : pieces) {
        extend(states, last, piece);
    }
    const auto first = (int32_t) rules.starts.size();
    for (size_t i = 0; i < states.size(); i++) {
        rules.add_rule(0);
    }
    for (size_t i = 0; i < states.size(); i++) {
        for (const auto & [piece, to] : states[i].next) {
            grammar_rules::sequence out;
            rules.append_text(out, piece);
            out.push_back({grammar_element::rule, first + to});
            rules.add_alternative(first + (int32_t) i, out);
        }
        rules.add_alternative(first + (int32_t) i, {});
    }
    return {grammar_element::rule, first};
}

std::vector<std::string> characters_of(const std::string & utf8) {
    std::vector<std::string> out;
    for (const char32_t c : from_utf8(utf8)) {
        out.push_back(to_utf8(c));
    }
    return out;
}

std::vector<std::string> words_of(const std::string & ascii) {
    const auto kind = [](char c) {
        return isspace((unsigned char) c) ? 0 : isalnum((unsigned char) c) || c == '_' ? 1 : 2;
    };
    std::vector<std::string> out;
    for (size_t i = 0; i < ascii.size(); i++) {
        if (i == 0 || kind(ascii[i]) != kind(ascii[i - 1])) {
            out.emplace_back();
        }
        out.back() += ascii[i];
    }
    return out;
}
