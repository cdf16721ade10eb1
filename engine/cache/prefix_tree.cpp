#include "cache/prefix_tree.h"

#include <algorithm>

// Ids for two requests, each with a branch for its prompt; but idle branches may hold as many ids as one request has.
static int32_t n_spare(int32_t n_ids, int32_t n_parallel) {
    const int32_t n_two = 2 * (n_parallel + 1);
    return std::max(std::min(n_parallel, n_ids), std::min(n_two, n_ids - n_parallel - 1));
}

prefix_tree::prefix_tree(cell_memory & memory, const vocabulary & vocab, branch_snapshots & snapshots,
                         int32_t n_idle_max, int32_t n_parallel)
    : memory(memory), vocab(vocab), snapshots(snapshots), n_idle_max(n_idle_max),
      n_spare_ids(n_spare(memory.facts.n_ids - 1, n_parallel)) {
    for (llama_seq_id id = memory.facts.n_ids - 2; id >= 0; id--) {
        free_ids.push_back(id);
    }
}

//
// finding
//

bool prefix_tree::can_cut(const branch & b, int32_t length) const {
    return !memory.facts.exact || length == b.n_past();
}

branch_match prefix_tree::find(const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                               uint64_t adapters, bool of_pins) const {
    branch_match best;
    for (const branch & b : branches) {
        if (b.adapters != adapters || (of_pins && !b.pinned)) {
            continue;
        }
        const token_match m = match_tokens(b.tokens, b.n_decoded, tokens, n_max, by, vocab);
        if (m.n_matched > best.n_matched && !b.hidden && can_cut(b, m.length)) {
            best = {m, const_cast<branch *>(&b)};
        }
    }
    return best;
}

//
// changing
//

// A text that another one goes on from is no longer one of many. Its snapshot may have left the store since it was taken.
static void note_choice(branch & b, int32_t n_shared) {
    b.copying.n_rivals = n_shared > b.n_shared ? 1 : b.copying.n_rivals;
    b.copying.settled  = false;
}

branch * prefix_tree::open(uint64_t adapters, branch * from, int32_t n_shared) {
    while (free_ids.empty()) {
        if (!evict_one(for_id, from)) {
            return nullptr;
        }
    }
    if (from) {
        from->used_at = ++clock;
        note_choice(*from, n_shared);
    }
    branch & b = branches.emplace_back();
    b.seq_id   = free_ids.back();
    b.used_at  = ++clock;
    b.adapters = adapters;
    free_ids.pop_back();
    if (from && n_shared > 0) {
        memory.copy(from->seq_id, b.seq_id, 0, n_shared);
        b.parent   = from;
        b.n_shared = b.n_decoded = n_shared;
        b.tokens.assign(from->tokens.begin(), from->tokens.begin() + n_shared);
        b.hidden = from->hidden;
    }
    return &b;
}

// A branch that shares no cells has no parent: the removal of a parent updates only branches that share its cells, so the
// pointer of this one would dangle.
static void set_shared(branch & b, int32_t n) {
    b.n_shared = n;
    b.parent   = n > 0 ? b.parent : nullptr;
}

// Before b loses its cells from n_keep on: of the branches that share them, the one that shares the most becomes their
// owner, and the others share them with that one.
static void hand_over(branch_list & branches, branch * b, int32_t n_keep) {
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
        heir->n_shared = n_keep; // b stays the owner of its first n_keep cells
    } else {
        heir->parent = b->parent;
        set_shared(*heir, std::min(heir->n_shared, b->n_shared));
    }
}

void prefix_tree::truncate(branch * b, int32_t n_keep) {
    if (n_keep >= b->n_past()) {
        return;
    }
    snapshots.forget(*b);
    hand_over(branches, b, n_keep);
    memory.remove(b->seq_id, n_keep);
    b->tokens.resize((size_t) n_keep);
    set_shared(*b, std::min(b->n_shared, n_keep));
    b->n_decoded = std::min(b->n_decoded, n_keep);
}

bool prefix_tree::follows(const branch & b, const branch & leader) const {
    const bool shares = b.parent == &leader || (b.parent == leader.parent && leader.n_shared >= b.n_past());
    const bool empty  = b.n_past() == 0;
    return b.n_own() == 0 && b.n_past() + 1 == leader.n_past() && (empty || (b.parent && shares));
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

void prefix_tree::release(branch * b) {
    b->live = b->pinned = false;
    b->used_at          = ++clock;
}

void prefix_tree::remove(branch * b) {
    snapshots.forget(*b);
    hand_over(branches, b, 0);
    memory.remove(b->seq_id, -1);
    free_ids.push_back(b->seq_id);
    branches.remove_if([b](const branch & c) { return &c == b; });
}

void prefix_tree::clear() {
    snapshots.forget_all();
    for (const branch & b : branches) {
        free_ids.push_back(b.seq_id);
    }
    branches.clear();
    memory.clear();
}

void prefix_tree::drop_idle(uint64_t adapters) {
    std::vector<branch *> idle;
    for (branch & b : branches) {
        if (!b.live && b.adapters == adapters) {
            idle.push_back(&b);
        }
    }
    std::for_each(idle.begin(), idle.end(), [this](branch * b) { remove(b); });
}

//
// evicting
//

int32_t prefix_tree::make_room(int32_t n) {
    const auto n_free = [this] { return memory.facts.n_cells - n_used(branches); };
    while (n_free() < n && evict_one(for_cells)) {
    }
    return std::min(n, n_free());
}

// The branch that all branches of this text begin with.
static const branch * root_of(const branch & b) {
    const branch * root = &b;
    while (root->parent) {
        root = root->parent;
    }
    return root;
}

// Begins to copy a branch, and together with it others that begin as it does, if they are worth a copy. False: none is
// copied.
static bool begin_copy(branch_list & branches, branch_snapshots & snapshots, branch & first) {
    std::vector<branch *> group;
    const auto            join = [&](branch & b) {
        if (snapshots.is_worth_copying(b)) {
            group.push_back(&b);
        } else {
            b.copying.settled = true;
        }
    };
    join(first);
    for (branch & b : branches) {
        if (&b != &first && !b.live && !b.copying.settled && root_of(b) == root_of(first)) {
            join(b);
        }
    }
    return snapshots.begin(group);
}

// On a device that is half full, the idle branch that is neither copied nor known to be worth no copy. nullptr: there is
// none.
static const branch * next_to_copy(const branch_list & branches, const cell_facts & facts) {
    if (!facts.on_device || n_used(branches) * 2 < facts.n_cells) {
        return nullptr;
    }
    const auto waits = std::find_if(branches.begin(), branches.end(),
                                    [](const branch & b) { return !b.live && !b.copying.settled; });
    return waits == branches.end() ? nullptr : &*waits;
}

bool prefix_tree::needs_trim() const {
    const bool early = snapshots.is_active() && next_to_copy(branches, memory.facts);
    return snapshots.is_copying() || counts().n_idle > n_idle_max || lacks_ids() || early;
}

void prefix_tree::trim_to_budget(const trim_terms & terms) {
    snapshots.note_token_us(terms.token_us);
    if (snapshots.is_copying()) {
        snapshots.advance(terms.t_max_us);
        return;
    }
    const int32_t   n_idle     = counts().n_idle;
    const bool      over_cells = (terms.busy ? n_idle / 2 : n_idle) > n_idle_max;
    const bool      over_ids   = !terms.busy && lacks_ids();
    const evict_for what       = over_cells ? for_cells : for_id;
    branch * const  next       = over_cells || over_ids ? next_to_evict(branches, what) : nullptr;
    const branch *  first      = next ? next : next_to_copy(branches, memory.facts);
    const bool      waits      = first && !first->copying.settled && (!next || next->n_freeable() > 0);
    if (waits && begin_copy(branches, snapshots, *const_cast<branch *>(first)) && snapshots.is_copying()) {
        return;
    }
    if (next) {
        evict_one(what);
    }
}

// In host memory a branch is copied now if its snapshot was not taken, or has left the store meanwhile.
bool prefix_tree::evict_one(evict_for what, const branch * except) {
    branch * const next = next_to_evict(branches, what, except);
    if (!next) {
        return false;
    }
    if (next->n_freeable() > 0 && !memory.facts.on_device) {
        snapshots.keep(*next, false);
    }
    remove(next);
    return true;
}
