#include "cache/branch.h"

#include <unordered_set>
#include <utility>

// Marks the cells of live branches in all branches that they share them with.
template <typename predicate> static void note_held_by(const branch_list & branches, predicate holds) {
    for (const branch & b : branches) {
        b.n_held = holds(b) ? b.n_past() : 0;
    }
    for (const branch & holder : branches) {
        const branch * b = holds(holder) ? &holder : nullptr;
        for (int32_t n = holder.n_past(); b && b->parent; b = b->parent) {
            n                 = std::min(n, b->n_shared);
            b->parent->n_held = std::max(b->parent->n_held, n);
        }
    }
}

static void note_held(const branch_list & branches) {
    note_held_by(branches, [](const branch & b) { return b.live; });
}

static void count_pins(cell_counts & counts, const branch_list & branches, const branch * replaced) {
    const auto is_pin = [&](const branch & b) { return b.pinned && &b != replaced; };
    counts.n_pins     = (int32_t) std::count_if(branches.begin(), branches.end(), is_pin);
    if (counts.n_pins > 0) {
        note_held_by(branches, is_pin);
        for (const branch & b : branches) {
            counts.n_pinned += std::max(b.n_held - b.n_shared, 0);
        }
    }
}

int32_t n_used(const branch_list & branches) {
    int32_t n = 0;
    for (const branch & b : branches) {
        n += b.n_own();
    }
    return n;
}

cell_counts count_cells(const branch_list & branches, const cell_facts & facts, const branch * replaced) {
    cell_counts counts;
    count_pins(counts, branches, replaced);
    note_held(branches);
    counts.n_cells = facts.n_cells;
    counts.n_ids   = facts.n_ids - 1;
    counts.n_used  = n_used(branches);
    for (const branch & b : branches) {
        counts.n_idle += b.n_freeable();
        counts.n_shared += b.n_shared;
        counts.n_ids -= b.live ? 1 : 0;
    }
    return counts;
}

int32_t n_held(const branch_list & branches, const branch & b, int32_t length, bool by_pins) {
    note_held_by(branches, [&](const branch & c) { return by_pins ? c.pinned : c.live; });
    int32_t n = 0;
    for (const branch * a = &b; a && length > n; a = a->parent) {
        n      = std::max(n, std::min(length, a->n_held));
        length = std::min(length, a->n_shared);
    }
    return n;
}

// A prompt is evicted after its candidates, since the snapshot of a candidate holds the prompt, too. A branch all of
// whose cells live branches share frees nothing but its id.
branch * next_to_evict(branch_list & branches, evict_for what, const branch * except) {
    note_held(branches);
    std::unordered_set<const branch *> prompts; // of which idle branches share at least half
    for (const branch & b : branches) {
        if (b.parent && !b.live && b.n_shared * 2 >= b.parent->n_past()) {
            prompts.insert(b.parent);
        }
    }
    const auto place = [&](const branch & b) { return std::make_pair(prompts.count(&b), b.used_at); };
    branch *   next  = nullptr;
    for (branch & b : branches) {
        const bool may_go = !b.live && &b != except && (what == for_id || b.n_freeable() > 0);
        if (may_go && (!next || place(b) < place(*next))) {
            next = &b;
        }
    }
    return next;
}
