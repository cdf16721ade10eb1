#include "cache/snapshot_job.h"

#include "ggml.h"

#include <algorithm>
#include <iterator>

static const size_t n_max_parts = 16; // of one snapshot; with more of them it becomes a single new part
static const size_t n_piece     = 512u << 10; // bytes of one copy

llama_seq_id id_for_parts(const cell_memory & memory, const branch & b) {
    return memory.facts.exact ? b.seq_id : memory.facts.n_ids - 1;
}

// Where the parts of a branch end: at each branch that it has forked from, and at its own end.
static std::vector<int32_t> ends_of_parts(const branch & b, bool exact) {
    std::vector<int32_t> ends = {b.n_past()};
    for (const branch * a = &b; !exact && a->parent; a = a->parent) {
        ends.push_back(std::min(ends.back(), a->n_shared));
    }
    return {ends.rbegin(), ends.rend()};
}

// The parts of the branch's beginning that are stored, or planned here. None where snapshots are exact.
static snapshot_parts known_parts(const branch & b, bool exact, const std::list<snapshot> & stored,
                                  const std::list<snapshot> & planned) {
    if (exact) {
        return {};
    }
    snapshot_parts parts = parts_of(stored, b.tokens, b.adapters);
    snapshot_parts more  = parts_of(planned, b.tokens, b.adapters);
    return n_tokens_of(more) > n_tokens_of(parts) ? more : parts;
}

bool snapshot_job::has_room_for(const branch & b) const {
    const size_t n    = (size_t) b.n_own() * memory.facts.n_cell_bytes;
    const bool   fits = n_bytes_ + n <= store.n_memory() / 4 && copied.size() < n_together;
    return copied.empty() || (!memory.facts.exact && fits);
}

// The cells that b shares with each branch that it has forked from are a part of their own, and that part is taken from
// a snapshot that has it: so n candidates have one part for their prompt. A branch that extends a snapshot by only a few
// tokens is not stored.
bool snapshot_job::add(const branch & b) {
    const bool exact = memory.facts.exact;
    if (!store.active() || b.n_past() < n_worthwhile || b.n_decoded < b.n_past()) {
        return false;
    }
    const int32_t n_new = b.n_past() - std::max(n_served(store.held(), b.tokens, b.adapters, exact),
                                                n_served(snapshots, b.tokens, b.adapters, exact));
    if (n_new < n_worthwhile) {
        return false;
    }
    snapshot_parts parts = known_parts(b, exact, store.held(), snapshots);
    int32_t        n     = n_tokens_of(parts);
    if (n_new * 4 < b.n_past() - n) {
        return false;
    }
    if (parts.size() >= n_max_parts) {
        parts.clear();
        n = 0;
    }
    for (const int32_t end : ends_of_parts(b, exact)) {
        if (end == n || (end < b.n_past() && end - n < n_worthwhile)) {
            continue;
        }
        if (!add_part(b, n, end, parts)) {
            return false;
        }
        n = end;
    }
    snapshots.push_back({b.tokens, b.adapters, parts, 0});
    copied.push_back(&b);
    return true;
}

// Appends a part that will hold the tokens `from` to `to`.
bool snapshot_job::add_part(const branch & b, int32_t from, int32_t to, snapshot_parts & parts) {
    const llama_seq_id id = id_for_parts(memory, b);
    if (id != b.seq_id) {
        memory.copy(b.seq_id, id, from, to);
    }
    const size_t n     = memory.n_bytes(id);
    bool         added = false;
    if (store.may_take(n)) {
        parts.push_back(std::make_shared<snapshot_part>(to - from, n));
        parts_made.push_back(parts.back());
        added = reader->add(id, parts.back()->data.get(), n);
        n_bytes_ += n;
    }
    if (id != b.seq_id) {
        memory.remove(id, -1);
    }
    return added;
}

bool snapshot_job::advance(int64_t t_us) {
    const int64_t t_begin = ggml_time_us();
    bool          more    = true;
    do {
        more = reader->advance(n_piece) > 0;
    } while (more && ggml_time_us() - t_begin < t_us);
    t_us_ += ggml_time_us() - t_begin;
    return more;
}

bool snapshot_job::drop(const branch & b) {
    const auto at = std::find(copied.begin(), copied.end(), &b);
    if (at != copied.end()) {
        snapshots.erase(std::next(snapshots.begin(), at - copied.begin()));
        copied.erase(at);
    }
    return !copied.empty();
}
