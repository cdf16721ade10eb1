#include "cache/prefix_tree.h"

#include "common.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

static const int32_t n_worthwhile = 32; // tokens: fewer are computed again sooner than put back
static const int32_t n_max_reads  = 2;  // of files, for one search: the first may be gone
static const size_t  n_max_parts  = 16; // of a snapshot: then it is taken as a whole again

static store_params with_exact(store_params params, bool exact) {
    params.exact = exact;
    return params;
}

// For two requests, each with a branch for its prompt, but the idle ones keep as many as one had.
static int32_t n_spare(int32_t n_ids, int32_t n_parallel) {
    const int32_t n_two = 2 * (n_parallel + 1);
    return std::max(std::min(n_parallel, n_ids), std::min(n_two, n_ids - n_parallel - 1));
}

prefix_tree::prefix_tree(llama_context * ctx, int32_t n_idle_max, int32_t n_parallel,
                         const store_params & store)
    : ctx(ctx), memory(llama_get_memory(ctx)), vocab(llama_model_get_vocab(llama_get_model(ctx))),
      is_recurrent(llama_model_is_recurrent(llama_get_model(ctx)) ||
                   llama_model_is_hybrid(llama_get_model(ctx))),
      n_window(llama_model_n_swa(llama_get_model(ctx))), exact(is_recurrent || n_window > 0),
      n_cells_((int32_t) llama_n_ctx(ctx)), n_idle_max(n_idle_max),
      n_spare_ids(n_spare((int32_t) llama_n_seq_max(ctx) - 1, n_parallel)),
      spare_id((llama_seq_id) llama_n_seq_max(ctx) - 1), store(with_exact(store, exact)) {
    for (llama_seq_id id = spare_id - 1; id >= 0; id--) {
        free_ids.push_back(id);
    }
}

//
// counting
//

int32_t prefix_tree::n_used() const {
    int32_t n = 0;
    for (const branch & b : branches) {
        n += b.n_own();
    }
    return n;
}

int32_t prefix_tree::n_idle() const {
    note_pinned();
    int32_t n = 0;
    for (const branch & b : branches) {
        n += b.n_freeable();
    }
    return n;
}

void prefix_tree::note_pinned() const {
    for (const branch & b : branches) {
        b.n_pinned = b.live ? b.n_past() : 0;
    }
    for (const branch & live : branches) {
        const branch * b = live.live ? &live : nullptr;
        for (int32_t n = live.n_past(); b && b->parent; b = b->parent) {
            n                   = std::min(n, b->n_shared);
            b->parent->n_pinned = std::max(b->parent->n_pinned, n);
        }
    }
}

int32_t prefix_tree::n_pinned(const branch & b, int32_t length) const {
    note_pinned();
    int32_t n = 0;
    for (const branch * a = &b; a && length > n; a = a->parent) {
        n      = std::max(n, std::min(length, a->n_pinned));
        length = std::min(length, a->n_shared);
    }
    return n;
}

int32_t prefix_tree::n_shared() const {
    int32_t n = 0;
    for (const branch & b : branches) {
        n += b.n_shared;
    }
    return n;
}

//
// finding
//

// How many of the held tokens stand for how many of the wanted ones; by text, goes on over the bytes of both
// from where the tokens part.
void prefix_tree::match_tokens(const std::vector<llama_token> & held, int32_t n_held,
                               const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                               match & m) const {
    m.length = m.n_matched = common_length(held, tokens, std::min(n_held, n_max));
    std::string ours, theirs; // what one side is ahead of the other
    int32_t     i = m.length, k = m.n_matched;
    while (by == by_text) {
        if (ours.empty() && theirs.empty()) {
            m.length    = i;
            m.n_matched = k;
        }
        if (ours.size() <= theirs.size()) {
            if (i >= n_held) {
                return;
            }
            ours += common_token_to_piece(vocab, held[i++], true);
        } else {
            if (k >= n_max) {
                return;
            }
            theirs += common_token_to_piece(vocab, tokens[k++], true);
        }
        const size_t n = std::min(ours.size(), theirs.size());
        if (ours.compare(0, n, theirs, 0, n) != 0) {
            return;
        }
        ours.erase(0, n);
        theirs.erase(0, n);
    }
}

bool prefix_tree::can_cut(const branch & b, int32_t length) const {
    return is_recurrent ? length == b.n_past()
                        : llama_memory_seq_pos_min(memory, b.seq_id) <= std::max(0, length - n_window + 1);
}

prefix_tree::match prefix_tree::find(const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                                     uint64_t adapters) const {
    match best;
    for (const branch & b : branches) {
        if (b.adapters != adapters) {
            continue;
        }
        match m;
        m.from = const_cast<branch *>(&b);
        match_tokens(b.tokens, b.n_decoded, tokens, n_max, by, m);
        if (m.n_matched > best.n_matched && !b.hidden && can_cut(b, m.length)) {
            best = m;
        }
    }
    return best;
}

//
// the store
//

// What is on disk is asked for, at most so often that no search goes on for ever; the folder is listed first
// where much would have to be computed.
prefix_tree::match prefix_tree::recall(const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                                       uint64_t adapters, search & asked) {
    const match in_cells = find(tokens, n_max, by, adapters);
    match       best     = in_cells;
    snapshot *  found    = nullptr;
    if (store.active()) {
        const bool may_ask = store.may_ask() && asked.n_read < n_max_reads;
        for (snapshot & s : store.all()) {
            if (s.adapters != adapters || !(may_ask || store.is_loaded(s))) {
                continue;
            }
            match m;
            match_tokens(s.tokens, (int32_t) s.tokens.size(), tokens, n_max, by, m);
            // of a sliding window a snapshot has only the last one: enough to decode the last token again
            const int32_t n_cut  = (int32_t) s.tokens.size() - m.length;
            const bool    usable = n_cut <= (is_recurrent ? 0 : n_window > 0 ? 1 : n_cut);
            if (usable && m.n_matched >= best.n_matched + n_worthwhile) {
                best  = m;
                found = &s;
            }
        }
        if (may_ask && !asked.listed && n_max - best.n_matched >= n_worthwhile) {
            asked.listed   = true;
            asked.question = store.ask_for_list();
            best.pending   = true;
            return best;
        }
    }
    if (found && best.length - n_in_cells(*found, in_cells) > n_room()) { // not even read
        found = nullptr;
        best  = in_cells;
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
    return best.from ? best : find(tokens, n_max, by, adapters);
}

int32_t prefix_tree::n_in_cells(const snapshot & s, const match & in_cells) const {
    return exact || !in_cells.from ? 0
                                   : common_length(s.tokens, in_cells.from->tokens, in_cells.from->n_decoded);
}

// A live branch with the parts of a snapshot that the match needs, except those that another branch has in
// cells.
branch * prefix_tree::restore(snapshot & s, const match & m, const match & in_cells) {
    const std::vector<llama_token> tokens   = s.tokens; // s may go when others come
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
    branch * b = parts.empty() ? nullptr : open(adapters, n_shared > 0 ? in_cells.from : nullptr, n_shared);
    if (!b) {
        return nullptr;
    }
    if (n - n_shared > n_room()) { // what b shares is not idle any more
        remove(b);
        return nullptr;
    }
    make_room(n - n_shared);
    for (size_t i = first; i < last; i++) {
        if (!put_back(*parts[i], b)) {
            remove(b);
            return nullptr;
        }
    }
    b->tokens.assign(tokens.begin(), tokens.begin() + n);
    b->n_decoded = n;
    truncate(b, m.length);
    return b;
}

// llama.cpp empties the sequence that it puts cells into.
bool prefix_tree::put_back(const snapshot_part & part, branch * b) {
    const llama_seq_id id   = exact ? b->seq_id : spare_id;
    const bool         done = llama_state_seq_set_data(ctx, part.data.get(), part.n_bytes, id) != 0;
    if (!done) {
        fprintf(stderr, "llama-batched: prefix cache: llama.cpp refuses a snapshot of %d tokens\n",
                (int) part.n_tokens);
    } else if (id != b->seq_id) {
        llama_memory_seq_cp(memory, id, b->seq_id, -1, -1);
    }
    if (id != b->seq_id) {
        llama_memory_seq_rm(memory, id, -1, -1);
    }
    return done;
}

void prefix_tree::save(const branch & b) {
    if (store.has_disk()) {
        keep_snapshot(b, true);
    }
}

// A short end of what other snapshots have is not worth one. What b shares with each branch that it grew from
// is a part of its own, and is taken from other snapshots that have it: n candidates have one of their
// prompt.
void prefix_tree::keep_snapshot(const branch & b, bool to_disk) {
    if (!store.active() || b.n_past() < n_worthwhile || b.n_decoded < b.n_past()) {
        return;
    }
    const int32_t n_new = b.n_past() - store.n_held(b.tokens, b.adapters);
    if (n_new < n_worthwhile) {
        return;
    }
    snapshot_parts parts = store.parts_of(b.tokens, b.adapters);
    int32_t        n     = 0; // tokens of parts
    for (const auto & part : parts) {
        n += (int32_t) part->n_tokens;
    }
    if (n_new * 4 < b.n_past() - n) {
        return;
    }
    if (parts.size() >= n_max_parts) {
        parts.clear();
        n = 0;
    }
    std::vector<int32_t> ends = {b.n_past()};
    for (const branch * a = &b; !exact && a->parent; a = a->parent) {
        ends.push_back(std::min(ends.back(), a->n_shared));
    }
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
        if (*end == n || (*end < b.n_past() && *end - n < n_worthwhile)) {
            continue;
        }
        if (!take_part(b, n, *end, parts)) {
            return;
        }
        n = *end;
    }
    store.put(b.tokens, b.adapters, parts, to_disk);
}

// Appends a part of the tokens `from` to `to`.
bool prefix_tree::take_part(const branch & b, int32_t from, int32_t to, snapshot_parts & parts) {
    const llama_seq_id id = exact ? b.seq_id : spare_id;
    if (id != b.seq_id) {
        llama_memory_seq_cp(memory, b.seq_id, id, from, to);
    }
    const size_t n_bytes = llama_state_seq_get_size(ctx, id);
    size_t       n_taken = 0;
    if (store.may_take(n_bytes)) {
        parts.push_back(std::make_shared<snapshot_part>(to - from, n_bytes));
        n_taken = llama_state_seq_get_data(ctx, parts.back()->data.get(), n_bytes, id);
    }
    if (id != b.seq_id) {
        llama_memory_seq_rm(memory, id, -1, -1);
    }
    return n_bytes > 0 && n_taken == n_bytes;
}

//
// changing
//

branch * prefix_tree::open(uint64_t adapters, branch * from, int32_t n_shared) {
    while (free_ids.empty()) {
        if (!evict_one(for_id, from)) {
            return nullptr;
        }
    }
    if (from) {
        from->used_at = ++clock;
    }
    branch & b = branches.emplace_back();
    b.seq_id   = free_ids.back();
    b.used_at  = ++clock;
    b.adapters = adapters;
    free_ids.pop_back();
    if (from && n_shared > 0) {
        llama_memory_seq_cp(memory, from->seq_id, b.seq_id, 0, n_shared);
        b.parent   = from;
        b.n_shared = b.n_decoded = n_shared;
        b.tokens.assign(from->tokens.begin(), from->tokens.begin() + n_shared);
        b.hidden = from->hidden;
    }
    return &b;
}

// Who shares nothing has no parent: that one may go without a thought of it.
static void set_shared(branch & b, int32_t n) {
    b.n_shared = n;
    b.parent   = n > 0 ? b.parent : nullptr;
}

// Before b gives up its cells from n_keep on: those of them that others share become the property of the
// one that shares the most, and the rest share them with that one.
void prefix_tree::hand_over(branch * b, int32_t n_keep) {
    branch * heir = nullptr;
    for (branch & c : branches) {
        if (c.parent == b && c.n_shared > n_keep && (!heir || c.n_shared > heir->n_shared)) {
            heir = &c;
        }
    }
    if (!heir) {
        return;
    }
    for (branch & c : branches) {
        if (c.parent == b && c.n_shared > n_keep && &c != heir) {
            c.parent = heir;
        }
    }
    if (n_keep > b->n_shared) {
        heir->n_shared = n_keep; // b stays the owner of what it keeps
    } else {
        heir->parent = b->parent;
        set_shared(*heir, std::min(heir->n_shared, b->n_shared));
    }
}

void prefix_tree::truncate(branch * b, int32_t n_keep) {
    if (n_keep >= b->n_past()) {
        return;
    }
    hand_over(b, n_keep);
    llama_memory_seq_rm(memory, b->seq_id, n_keep, -1);
    b->tokens.resize(n_keep);
    set_shared(*b, std::min(b->n_shared, n_keep));
    b->n_decoded = std::min(b->n_decoded, n_keep);
}

bool prefix_tree::follows(const branch & b, const branch & leader) const {
    const bool shares = b.parent == &leader || (b.parent == leader.parent && leader.n_shared >= b.n_past());
    return b.n_own() == 0 && b.n_past() + 1 == leader.n_past() && b.parent && shares;
}

void prefix_tree::share_last(branch * b, branch * leader) {
    b->tokens.push_back(leader->tokens.back());
    b->parent   = leader;
    b->n_shared = b->n_past();
}

void prefix_tree::undo_last(branch * b) {
    b->tokens.pop_back();
    set_shared(*b, std::min(b->n_shared, b->n_past()));
}

void prefix_tree::remove(branch * b) {
    hand_over(b, 0);
    llama_memory_seq_rm(memory, b->seq_id, -1, -1);
    free_ids.push_back(b->seq_id);
    branches.remove_if([b](const branch & c) { return &c == b; });
}

void prefix_tree::release(branch * b) {
    b->live    = false;
    b->used_at = ++clock;
}

void prefix_tree::trim(bool at_leisure) {
    const int32_t n = n_idle();
    if (at_leisure ? n > n_idle_max : n / 2 > n_idle_max) {
        evict_one(for_cells);
    } else if (at_leisure && lacks_ids()) {
        evict_one(for_id);
    }
}

// A prompt goes after its candidates: the snapshot of one has the prompt, too, and then one is enough. Of
// whom live ones share all cells nothing is lost, and nothing is won but the id.
bool prefix_tree::evict_one(evict_why why, const branch * except) {
    note_pinned();
    std::unordered_set<const branch *> shared; // for the most part, by idle ones
    for (const branch & b : branches) {
        if (b.parent && !b.live && b.n_shared * 2 >= b.parent->n_past()) {
            shared.insert(b.parent);
        }
    }
    const auto place  = [&](const branch & b) { return std::make_pair(shared.count(&b), b.used_at); };
    branch *   oldest = nullptr;
    for (branch & b : branches) {
        const bool may_go = !b.live && &b != except && (why == for_id || b.n_freeable() > 0);
        if (may_go && (!oldest || place(b) < place(*oldest))) {
            oldest = &b;
        }
    }
    if (!oldest) {
        return false;
    }
    if (oldest->n_freeable() > 0) {
        keep_snapshot(*oldest, false);
    }
    remove(oldest);
    return true;
}

int32_t prefix_tree::make_room(int32_t n) {
    while (n_free() < n && evict_one(for_cells)) {
    }
    return std::min(n, n_free());
}

void prefix_tree::clear() {
    for (const branch & b : branches) {
        free_ids.push_back(b.seq_id);
    }
    branches.clear();
    llama_memory_clear(memory, false);
}
