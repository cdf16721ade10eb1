// Between branches and snapshots: the cells of a branch become parts of a snapshot, and parts become cells again.
#pragma once

#include "cache/branch.h"
#include "cache/cells.h"
#include "cache/copy_policy.h"
#include "cache/snapshot_job.h"
#include "store/store.h"

#include <optional>
#include <vector>

class branch_snapshots {
  public:
    branch_snapshots(cell_memory & memory, prefix_store & store)
        : memory(memory), store(store), costs{memory.facts.on_device, memory.facts.n_cell_bytes} {}

    // Stores a snapshot of a branch that is decoded, if that saves enough. All of it is copied at once.
    void keep(branch & b, bool to_disk);
    // The same, on disk; nothing without a disk.
    void save(branch & b);

    // Begins to copy branches that are idle, as many as there is memory for; advance() stores their snapshots. False: none
    // of them needs a copy. There is one such job at a time.
    bool begin(const std::vector<branch *> & group);
    bool is_copying() const { return job.has_value(); }
    // Copies for about t_us.
    void advance(int64_t t_us);
    // This branch, or all, lose their cells: nothing of them is kept that was not copied yet.
    void forget(const branch & b);
    void forget_all() { job.reset(); }

    // Puts the cells of a part behind those that the branch has. False, after a line on stderr: llama.cpp refuses it.
    bool restore(const snapshot_part & part, const branch & b);

    bool is_active() const { return store.active(); }
    bool is_worth_copying(const branch & b) { return costs.is_worth_copying(b.copying.n_rivals); }
    // Computing one token of a prompt takes so long.
    void note_token_us(double t_us) { costs.token_us = t_us; }

  private:
    void store_made(const snapshot_job & done, bool to_disk);

    cell_memory &               memory;
    prefix_store &              store;
    copy_costs                  costs;
    std::optional<snapshot_job> job;
};
