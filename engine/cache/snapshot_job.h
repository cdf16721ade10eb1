// Snapshots of some branches that are being copied: planned together, then copied in pieces. Branches whose cells lie
// interleaved, as those of the n texts of one request, are copied together.
#pragma once

#include "cache/branch.h"
#include "cache/cells.h"
#include "store/store.h"

#include <list>
#include <memory>
#include <vector>

const size_t  n_together   = 16; // branches of one job: to plan them takes up to a millisecond each
const int32_t n_worthwhile = 32; // tokens: it takes less time to compute fewer than to restore them

class snapshot_job {
  public:
    snapshot_job(cell_memory & memory, const prefix_store & store)
        : memory(memory), store(store), reader(memory.reader()) {}

    // Whether a branch may be copied together with the others.
    bool has_room_for(const branch & b) const;
    // Plans a snapshot of a branch that is decoded, if that saves enough. False: there is none.
    bool add(const branch & b);
    // Copies for about t_us; false: nothing is left.
    bool advance(int64_t t_us);

    // The branch loses its cells: its snapshot is not made. The others go on, since they have all cells of theirs. False:
    // none is left.
    bool drop(const branch & b);
    // Complete after the last advance().
    const std::list<snapshot> & made() const { return snapshots; }
    size_t                      n_bytes() const { return n_bytes_; } // of the parts that are new
    int64_t                     t_us() const { return t_us_; }       // spent in advance()

  private:
    bool add_part(const branch & b, int32_t from, int32_t to, snapshot_parts & parts);

    cell_memory &                      memory;
    const prefix_store &               store;
    const std::unique_ptr<cell_reader> reader;
    snapshot_parts
        parts_made; // the reader writes to them, also to those of a branch that was refused or dropped
    std::list<snapshot>         snapshots;
    std::vector<const branch *> copied; // a branch for each snapshot
    size_t                      n_bytes_ = 0;
    int64_t                     t_us_    = 0;
};

// llama.cpp reads and writes all cells of an id; a part of a branch goes through the id that no branch has.
llama_seq_id id_for_parts(const cell_memory & memory, const branch & b);
