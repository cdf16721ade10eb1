#include "cache/prefix_cache.h"

#include <algorithm>

static const int32_t n_max_reads = 2; // of files, for one search: the first file may have been deleted

static store_params with_exact(store_params params, bool exact) {
    params.exact = exact;
    return params;
}

prefix_cache::prefix_cache(cell_memory & memory, const vocabulary & vocab, int32_t n_idle_max,
                           int32_t n_parallel, const store_params & params)
    : facts(memory.facts), vocab(vocab), store(with_exact(params, memory.facts.exact)),
      snapshots(memory, store), tree(memory, vocab, snapshots, n_idle_max, n_parallel) {}

// The folder is asked a bounded number of times, so that no search goes on for ever. It is listed first where many
// tokens would have to be computed.
prefix_cache::match prefix_cache::find(const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                                       uint64_t adapters, search & asked) {
    const branch_match in_cells = tree.find(tokens, n_max, by, adapters);
    match              best     = {in_cells, false, false};
    snapshot *         found    = nullptr;
    if (store.active()) {
        const bool may_ask = store.may_ask() && asked.n_read < n_max_reads;
        found              = find_snapshot(tokens, n_max, by, adapters, may_ask, best);
        if (may_ask && !asked.listed && n_max - best.n_matched >= n_worthwhile) {
            asked.listed   = true;
            asked.question = store.ask_for_list();
            best.pending   = true;
            return best;
        }
    }
    if (found &&
        best.length - n_in_cells(*found, in_cells) > tree.counts().n_room()) { // so it is not even read
        found = nullptr;
        best  = {in_cells, false, false};
    }
    if (found && !store.is_loaded(*found)) {
        asked.n_read++;
        asked.question = store.ask_for(*found);
        best.pending   = true;
        return best;
    }
    if (found) {
        best.from     = restore(*found, best, in_cells);
        best.restored = true;
    }
    return best.from ? best : match{tree.find(tokens, n_max, by, adapters), false, false};
}

// The snapshot that has at least n_worthwhile tokens more than `best`, which becomes its match; nullptr: there is none.
snapshot * prefix_cache::find_snapshot(const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                                       uint64_t adapters, bool may_ask, match & best) {
    snapshot * found = nullptr;
    for (snapshot & s : store.all()) {
        if (s.adapters != adapters || !(may_ask || store.is_loaded(s))) {
            continue;
        }
        const token_match m = match_tokens(s.tokens, (int32_t) s.tokens.size(), tokens, n_max, by, vocab);
        const bool        usable = !facts.exact || m.length == (int32_t) s.tokens.size();
        if (usable && m.n_matched >= best.n_matched + n_worthwhile) {
            best  = {{m, nullptr}, false, false};
            found = &s;
        }
    }
    return found;
}

int32_t prefix_cache::n_in_cells(const snapshot & s, const branch_match & in_cells) const {
    return facts.exact || !in_cells.from
               ? 0
               : common_length(s.tokens, in_cells.from->tokens, in_cells.from->n_decoded);
}

// A live branch with the parts of a snapshot that the match needs, except those that another branch has in cells.
branch * prefix_cache::restore(snapshot & s, const match & m, const branch_match & in_cells) {
    const std::vector<llama_token> tokens   = s.tokens; // evictions may remove s
    const uint64_t                 adapters = s.adapters;
    const int32_t                  n_same   = n_in_cells(s, in_cells);
    const snapshot_parts           parts    = store.load(s);
    int32_t                        n_shared = 0, n = 0;
    size_t                         first = 0, last = 0;
    for (; last < parts.size() && n < m.length; last++) {
        n += (int32_t) parts[last]->n_tokens;
        if (n <= n_same) {
            n_shared = n;
            first    = last + 1;
        }
    }
    branch * b =
        parts.empty() ? nullptr : tree.open(adapters, n_shared > 0 ? in_cells.from : nullptr, n_shared);
    if (!b) {
        return nullptr;
    }
    if (n - n_shared > tree.counts().n_room()) { // the cells that b shares are not idle any more
        tree.remove(b);
        return nullptr;
    }
    tree.make_room(n - n_shared);
    for (size_t i = first; i < last; i++) {
        if (!snapshots.restore(*parts[i], *b)) {
            tree.remove(b);
            return nullptr;
        }
    }
    b->tokens.assign(tokens.begin(), tokens.begin() + n);
    b->n_decoded = n;
    tree.truncate(b, m.length);
    return b;
}

void prefix_cache::drop(uint64_t adapters) {
    tree.drop_idle(adapters);
    store.drop(adapters);
}
