#include "prefix.h"

#include <algorithm>

prefix_tree::prefix_tree(llama_context * ctx, int32_t n_idle_max)
    : memory(llama_get_memory(ctx)), n_cells_((int32_t) llama_n_ctx(ctx)), n_idle_max(n_idle_max) {
    for (llama_seq_id id = (llama_seq_id) llama_n_seq_max(ctx) - 1; id >= 0; id--) {
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
    int32_t n = 0;
    for (const branch & b : branches) {
        n += b.live ? 0 : b.n_own();
    }
    return n;
}

//
// finding
//

static int32_t common_length(const std::vector<llama_token> & a, const std::vector<llama_token> & b,
                             int32_t n_max) {
    const int32_t n = std::min({(int32_t) a.size(), (int32_t) b.size(), n_max});
    return (int32_t) (std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

prefix_tree::match prefix_tree::find(const std::vector<llama_token> & tokens, int32_t n_max) const {
    match best;
    for (const branch & b : branches) {
        const int32_t length = common_length(b.tokens, tokens, std::min(b.n_decoded, n_max));
        if (length > best.length) {
            best = {const_cast<branch *>(&b), length};
        }
    }
    return best;
}

//
// changing
//

branch * prefix_tree::open(branch * from, int32_t n_shared) {
    while (free_ids.empty()) {
        if (!evict_one(from)) {
            return nullptr;
        }
    }
    if (from) {
        from->used_at = ++clock;
    }
    branch & b = branches.emplace_back();
    b.seq_id   = free_ids.back();
    b.used_at  = ++clock;
    free_ids.pop_back();
    if (from && n_shared > 0) {
        llama_memory_seq_cp(memory, from->seq_id, b.seq_id, 0, n_shared);
        b.parent   = from;
        b.n_shared = b.n_decoded = n_shared;
        b.tokens.assign(from->tokens.begin(), from->tokens.begin() + n_shared);
    }
    return &b;
}

// Before b gives up its cells from n_keep on: those of them that others share become the property of the one
// that shares the most, and the rest share them with that one.
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
        heir->n_shared = std::min(heir->n_shared, b->n_shared);
        heir->parent   = b->parent;
    }
}

void prefix_tree::truncate(branch * b, int32_t n_keep) {
    if (n_keep >= b->n_past()) {
        return;
    }
    hand_over(b, n_keep);
    llama_memory_seq_rm(memory, b->seq_id, n_keep, -1);
    b->tokens.resize(n_keep);
    b->n_shared  = std::min(b->n_shared, n_keep);
    b->n_decoded = std::min(b->n_decoded, n_keep);
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
    while (n_idle() > n_idle_max && evict_one()) {
    }
}

bool prefix_tree::evict_one(const branch * except) {
    branch * oldest = nullptr;
    for (branch & b : branches) {
        if (!b.live && &b != except && (!oldest || b.used_at < oldest->used_at)) {
            oldest = &b;
        }
    }
    if (!oldest) {
        return false;
    }
    remove(oldest);
    return true;
}

bool prefix_tree::make_room(int32_t n) {
    while (n_free() < n) {
        if (!evict_one()) {
            return false;
        }
    }
    return true;
}

void prefix_tree::clear() {
    for (const branch & b : branches) {
        free_ids.push_back(b.seq_id);
    }
    branches.clear();
    llama_memory_clear(memory, false);
}
