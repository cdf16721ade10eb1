#include "cache/branch_snapshots.h"

#include <limits>

void branch_snapshots::save(branch & b) {
    if (store.has_disk) {
        keep(b, true);
    }
}

void branch_snapshots::keep(branch & b, bool to_disk) {
    snapshot_job now(memory, store);
    if (now.add(b)) {
        now.advance(std::numeric_limits<int64_t>::max());
        store_made(now, to_disk);
    }
}

void branch_snapshots::store_made(const snapshot_job & done, bool to_disk) {
    for (const snapshot & s : done.made()) {
        store.put(s.tokens, s.adapters, s.parts, to_disk);
    }
    costs.note_copy(done.n_bytes(), done.t_us());
}

// A state that serves only as a whole may be moved by the next step, so it is copied at once.
bool branch_snapshots::begin(const std::vector<branch *> & group) {
    if (group.empty() || !store.active()) {
        return false;
    }
    job.emplace(memory, store);
    bool any = false;
    for (branch * b : group) {
        if (!job->has_room_for(*b)) {
            break; // it begins the next job
        }
        any                = job->add(*b) || any;
        b->copying.settled = true;
    }
    if (!any) {
        job.reset();
    } else if (memory.facts.exact) {
        advance(std::numeric_limits<int64_t>::max());
    }
    return any;
}

void branch_snapshots::advance(int64_t t_us) {
    if (!job->advance(t_us)) {
        store_made(*job, false);
        job.reset();
    }
}

void branch_snapshots::forget(const branch & b) {
    if (job && !job->drop(b)) {
        job.reset();
    }
}

bool branch_snapshots::restore(const snapshot_part & part, const branch & b) {
    const llama_seq_id id   = id_for_parts(memory, b);
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
