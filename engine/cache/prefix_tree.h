// Which cells of the KV cache hold which text.
//
// A branch that begins with the tokens of another one shares that one's first cells, so branches form a tree. Live
// branches (a prompt in use, a running sequence) stay; idle ones remain because their text may be asked for again, and
// are evicted least recently used first, with a snapshot (branch_snapshots.h). This class alone gives sequence ids to
// branches; branch.h counts their cells, since llama.cpp's public interface does not.
#pragma once

#include "cache/branch.h"
#include "cache/branch_snapshots.h"
#include "cache/cells.h"
#include "model/vocabulary.h"

#include <cstdint>
#include <vector>

// The branch that begins with the most of the tokens that were looked for.
struct branch_match : token_match {
    branch * from = nullptr; // nullptr: there is none
};

// What a trim may cost.
struct trim_terms {
    bool    busy = false; // sequences run: idle branches may hold twice as many cells, and any number of ids
    int64_t t_max_us = 0; // for copies; at least one piece is copied
    double  token_us = 0; // of computing one token of a prompt; 0: not known
};

class prefix_tree {
  public:
    // n_idle_max: cells that idle branches may hold together; twice as many while sequences run. n_parallel: sequences
    // of the largest request. Idle branches leave ids for two of those: one request may follow another before
    // trim_to_budget is called.
    prefix_tree(cell_memory & memory, const vocabulary & vocab, branch_snapshots & snapshots,
                int32_t n_idle_max, int32_t n_parallel);

    // The branch that begins with the most of `tokens`, at most n_max of them, all of them computed. Only branches
    // with the same key (cells_key of a request) count; of_pins: only pinned ones.
    branch_match find(const std::vector<llama_token> & tokens, int32_t n_max, match_by by, uint64_t adapters,
                      bool of_pins = false) const;
    // Whether a branch can be continued from its first `length` tokens.
    bool can_cut(const branch & b, int32_t length) const;

    // A new live branch with the first n_shared cells of `from`, which has the same adapters; an idle branch may be
    // evicted for its id. nullptr: live branches have all ids.
    branch * open(uint64_t adapters, branch * from = nullptr, int32_t n_shared = 0);
    // Keeps only the first n_keep cells. Other branches that share the rest keep it.
    void truncate(branch * b, int32_t n_keep);
    // Whether b has exactly the cells of `leader` without its last one, and none of its own.
    bool follows(const branch & b, const branch & leader) const;
    // The last token of `leader`, and its cell, are b's as well.
    void share_last(branch * b, branch * leader);
    // The last token was not decoded: the branch loses it.
    void undo_last(branch * b);
    // Stores a snapshot of a branch on disk, if there is one.
    void save(branch & b) { snapshots.save(b); }
    // The branch becomes idle.
    void release(branch * b);
    void remove(branch * b);
    void clear();
    // Removes the idle branches of this set of adapters, without snapshots.
    void drop_idle(uint64_t adapters);

    // Evicts idle branches until n cells are free, for a request that waits; returns n, or fewer if there is no more room.
    int32_t make_room(int32_t n);
    // Whether idle branches hold more cells or ids than they may, or wait for a copy.
    bool needs_trim() const;
    // Copies idle branches in pieces, and evicts the next one that is copied if they hold too much. On a device they are
    // copied before they hold too much, so that a request that needs their cells need not wait.
    void trim_to_budget(const trim_terms & terms);

    // `replaced` does not count as a pin.
    cell_counts counts(const branch * replaced = nullptr) const {
        return count_cells(branches, memory.facts, replaced);
    }
    // Of the branch's first `length` cells, those that a live branch, or a pin, has, too.
    int32_t n_held(const branch & b, int32_t length, bool by_pins = false) const {
        return ::n_held(branches, b, length, by_pins);
    }

  private:
    bool evict_one(evict_for what, const branch * except = nullptr);
    // The ids of pins are not missed.
    bool lacks_ids() const { return (int32_t) free_ids.size() + counts().n_pins < n_spare_ids; }

    cell_memory &             memory;
    const vocabulary &        vocab;
    branch_snapshots &        snapshots;
    const int32_t             n_idle_max;
    const int32_t             n_spare_ids;
    uint64_t                  clock = 0; // of used_at
    branch_list               branches;
    std::vector<llama_seq_id> free_ids;
};
