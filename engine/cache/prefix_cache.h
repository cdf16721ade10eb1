// All prefixes that are known: branches in cells, snapshots in host memory, and files. A search looks in all three, and
// restores into cells what only a snapshot has.
#pragma once

#include "cache/prefix_tree.h"

class prefix_cache {
  public:
    // See prefix_tree for n_idle_max and n_parallel.
    prefix_cache(cell_memory & memory, const vocabulary & vocab, int32_t n_idle_max, int32_t n_parallel,
                 const store_params & params);

    struct match : branch_match {
        bool restored = false; // the branch came from the store, is live, and must be released
        bool pending  = false; // the folder was asked: search again when the question is not open any more
    };
    // What one search has asked the folder so far.
    struct search {
        uint64_t question = 0;
        bool     listed   = false;
        int32_t  n_read   = 0; // files
    };
    // As prefix_tree::find, but also in the store.
    match find(const std::vector<llama_token> & tokens, int32_t n_max, match_by by, uint64_t adapters,
               search & asked);
    bool  is_open(const search & asked) const { return store.is_open(asked.question); }
    // Forgets the idle prefixes of this set of adapters, except those on disk.
    void drop(uint64_t adapters);
    // Nobody searches any more: what was read from files is dropped.
    void end_searches() { store.forget_arrived(); }
    // Whether idle prefixes are being copied.
    bool is_copying() const { return snapshots.is_copying(); }
    // From now on snapshots have this much host memory.
    void limit_memory(uint64_t n_bytes) { store.limit_memory(n_bytes); }

  private:
    snapshot * find_snapshot(const std::vector<llama_token> & tokens, int32_t n_max, match_by by,
                             uint64_t adapters, bool may_ask, match & best);
    branch *   restore(snapshot & s, const match & m, const branch_match & in_cells);
    int32_t    n_in_cells(const snapshot & s, const branch_match & in_cells) const;

    const cell_facts   facts;
    const vocabulary & vocab;
    prefix_store       store;
    branch_snapshots   snapshots;

  public:
    prefix_tree tree; // the branches
};
