#include "cache/branch_snapshots.h"

static const size_t n_max_parts = 16; // of one snapshot; with more of them it becomes a single new part

static int32_t n_tokens_of(const snapshot_parts & parts) {
    int32_t n = 0;
    for (const auto & part : parts) {
        n += (int32_t) part->n_tokens;
    }
    return n;
}

// Where the parts of a branch end: at each branch that it has forked from, and at its own end.
static std::vector<int32_t> ends_of_parts(const branch & b, bool exact) {
    std::vector<int32_t> ends = {b.n_past()};
    for (const branch * a = &b; !exact && a->parent; a = a->parent) {
        ends.push_back(std::min(ends.back(), a->n_shared));
    }
    return {ends.rbegin(), ends.rend()};
}

void branch_snapshots::save(const branch & b) {
    if (store.has_disk) {
        keep(b, true);
    }
}

// The cells that b shares with each branch that it has forked from are a part of their own, and that part is taken from
// a stored snapshot that has it: so n candidates have one part for their prompt. A branch that extends a stored
// snapshot by only a few tokens is not stored.
void branch_snapshots::keep(const branch & b, bool to_disk) {
    if (!store.active() || b.n_past() < n_worthwhile || b.n_decoded < b.n_past()) {
        return;
    }
    const int32_t n_new = b.n_past() - store.n_held(b.tokens, b.adapters);
    if (n_new < n_worthwhile) {
        return;
    }
    snapshot_parts parts = store.parts_of(b.tokens, b.adapters);
    int32_t        n     = n_tokens_of(parts);
    if (n_new * 4 < b.n_past() - n) {
        return;
    }
    if (parts.size() >= n_max_parts) {
        parts.clear();
        n = 0;
    }
    for (const int32_t end : ends_of_parts(b, memory.facts.exact)) {
        if (end == n || (end < b.n_past() && end - n < n_worthwhile)) {
            continue;
        }
        if (!take_part(b, n, end, parts)) {
            return;
        }
        n = end;
    }
    store.put(b.tokens, b.adapters, parts, to_disk);
}

llama_seq_id branch_snapshots::id_for_parts(const branch & b) const {
    return memory.facts.exact ? b.seq_id : memory.facts.n_ids - 1;
}

// Appends a part that holds the tokens `from` to `to`.
bool branch_snapshots::take_part(const branch & b, int32_t from, int32_t to, snapshot_parts & parts) {
    const llama_seq_id id = id_for_parts(b);
    if (id != b.seq_id) {
        memory.copy(b.seq_id, id, from, to);
    }
    const size_t n_bytes = memory.n_bytes(id);
    size_t       n_read  = 0;
    if (store.may_take(n_bytes)) {
        parts.push_back(std::make_shared<snapshot_part>(to - from, n_bytes));
        n_read = memory.read(id, parts.back()->data.get(), n_bytes);
    }
    if (id != b.seq_id) {
        memory.remove(id, -1);
    }
    return n_bytes > 0 && n_read == n_bytes;
}

bool branch_snapshots::restore(const snapshot_part & part, const branch & b) {
    const llama_seq_id id   = id_for_parts(b);
    const bool         done = memory.write(id, part.data.get(), part.n_bytes);
    if (!done) {
        fprintf(stderr, "llama-batched: prefix cache: llama.cpp refuses a snapshot of %d tokens\n",
                (int) part.n_tokens);
    } else if (id != b.seq_id) {
        memory.copy(id, b.seq_id, -1, -1);
    }
    if (id != b.seq_id) {
        memory.remove(id, -1);
    }
    return done;
}
