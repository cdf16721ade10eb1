#include "util/word_finder.h"

#include <algorithm>
#include <numeric>
#include <utility>

// Nodes are numbered by depth, and edges in the order of nodes. A sorted list of words gives this order: at each depth,
// words with the same beginning are neighbours.
word_finder::word_finder(const std::vector<std::string> & list) : words(list), nodes(1) {
    std::vector<size_t> order(words.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return words[a] < words[b]; });
    std::vector<int32_t> at(words.size(), 0); // the node of each word's beginning
    for (size_t depth = 0; !order.empty(); depth++) {
        std::vector<size_t> longer;
        int32_t             from = -1;
        for (const size_t i : order) {
            if (words[i].size() == depth) {
                nodes[(size_t) at[i]].word = (int32_t) i;
                continue;
            }
            longer.push_back(i);
        }
        for (const size_t i : longer) {
            const uint8_t byte = (uint8_t) words[i][depth];
            if (at[i] != from || edges.back().byte != byte) {
                from = at[i];
                if (edges.empty() || nodes[(size_t) from].n_edges == 0) {
                    nodes[(size_t) from].first = (uint32_t) edges.size();
                }
                nodes[(size_t) from].n_edges++;
                edges.push_back({byte, (int32_t) nodes.size()});
                nodes.emplace_back();
                nodes.back().depth = (uint32_t) depth + 1;
            }
            at[i] = edges.back().to;
        }
        order = std::move(longer);
    }
    link();
}

// A node needs only nodes of smaller depth, which come before it.
void word_finder::link() {
    for (size_t from = 0; from < nodes.size(); from++) {
        for (uint32_t k = 0; k < nodes[from].n_edges; k++) {
            const edge e = edges[nodes[from].first + k];
            node &     n = nodes[(size_t) e.to];
            n.shorter    = from == 0 ? 0 : next(nodes[from].shorter, (char) e.byte);
            n.word       = n.word < 0 ? nodes[(size_t) n.shorter].word : n.word;
        }
    }
}

int32_t word_finder::child(int32_t state, uint8_t byte) const {
    const node & n     = nodes[(size_t) state];
    const auto   begin = edges.begin() + n.first, end = begin + n.n_edges;
    const auto   found =
        std::lower_bound(begin, end, byte, [](const edge & e, uint8_t wanted) { return e.byte < wanted; });
    return found == end || found->byte != byte ? -1 : found->to;
}

int32_t word_finder::next(int32_t state, char byte) const {
    int32_t to = child(state, (uint8_t) byte);
    while (to < 0 && state != 0) {
        state = nodes[(size_t) state].shorter;
        to    = child(state, (uint8_t) byte);
    }
    return std::max(to, 0);
}
