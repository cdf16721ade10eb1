// Between branches and snapshots: the cells of a branch become parts of a snapshot, and parts become cells again.
#pragma once

#include "cache/branch.h"
#include "cache/cells.h"
#include "cache/store.h"

const int32_t n_worthwhile = 32; // tokens: it takes less time to compute fewer than to restore them

class branch_snapshots {
  public:
    branch_snapshots(cell_memory & memory, prefix_store & store) : memory(memory), store(store) {}

    // Stores a snapshot of a branch that is decoded, if that saves enough.
    void keep(const branch & b, bool to_disk);
    // The same, on disk; nothing without a disk.
    void save(const branch & b);
    // Puts the cells of a part behind those that the branch has. False, after a line on stderr: llama.cpp refuses it.
    bool restore(const snapshot_part & part, const branch & b);

  private:
    bool take_part(const branch & b, int32_t from, int32_t to, snapshot_parts & parts);
    // llama.cpp reads and writes all cells of an id; a part of a branch goes through the id that no branch has.
    llama_seq_id id_for_parts(const branch & b) const;

    cell_memory &  memory;
    prefix_store & store;
};
