// Which cells of the KV cache hold which text.
//
// A branch is a list of tokens whose cells belong to one of llama.cpp's sequence ids. A branch that begins as
// another one shares that one's first cells (metadata only, the cache is unified), so branches form a tree.
// Live branches (a prompt in use, a running sequence) are pinned; idle ones are kept because their text may
// be asked for again, least recently used first out, a prompt after its candidates (to the store). This file
// alone copies and removes sequence ids, and keeps the count of cells, which llama.cpp's public interface lacks.
#pragma once

#include "cache/store.h"

#include "llama.h"

#include <algorithm>
#include <cstdint>
#include <list>
#include <vector>

struct branch {
    llama_seq_id             seq_id = -1;
    std::vector<llama_token> tokens;              // what its cells hold: cell i belongs to tokens[i]
    branch *                 parent    = nullptr; // whose cells it shares; nullptr: nobody's
    int32_t                  n_shared  = 0;       // the first n_shared cells are the parent's
    int32_t                  n_decoded = 0; // the first n_decoded tokens are computed; the rest is in a batch
    bool                     live      = true;
    bool                     hidden    = false; // of a request with cache: false: nobody else may share it
    uint64_t                 adapters  = 0;     // key of the set that its cells are computed with
    uint64_t                 used_at   = 0;
    mutable int32_t          n_pinned  = 0; // of its first cells: live branches have them, too (note_pinned)

    int32_t n_past() const { return (int32_t) tokens.size(); }
    int32_t n_own() const { return n_past() - n_shared; }
    int32_t n_freeable() const { return n_past() - std::max(n_shared, n_pinned); } // if it goes
};

class prefix_tree {
  public:
    // `n_idle_max`: cells that idle branches may hold together; twice as many while sequences run.
    // `n_parallel`: sequences of the largest request. Idle branches leave ids for two of those: one may follow
    // another before trim() is due.
    prefix_tree(llama_context * ctx, int32_t n_idle_max, int32_t n_parallel, const store_params & store);

    // The first `length` tokens of `from` stand for the first `n_matched` tokens of what was looked for.
    // The two numbers differ where the same text is split otherwise: what a model samples is often not the
    // tokenizer's split.
    struct match {
        branch * from      = nullptr;
        int32_t  length    = 0;
        int32_t  n_matched = 0;
        bool     restored  = false; // `from` came from the store, is live, and is to be released
        bool     pending   = false; // the folder was asked: come again when the question is not open any more
    };
    // What one search has asked of the folder by now.
    struct search {
        uint64_t question = 0;
        bool     listed   = false;
        int32_t  n_read   = 0;
    };
    enum match_by { by_tokens, by_text };
    // The branch that begins with the most of `tokens`, at most n_max of them, all of them computed. By
    // text: to the last place where both have a border between tokens after the same bytes. Only branches of
    // the same adapters count.
    match find(const std::vector<llama_token> & tokens, int32_t n_max, match_by by, uint64_t adapters) const;
    // Whether a branch can go on from its first `length` tokens. A recurrent state cannot be cut back, and
    // llama.cpp gives cells that a sliding window has left to others, swa_full or not.
    bool can_cut(const branch & b, int32_t length) const;
    // The same, also in the store: what it has more is put back into cells.
    match recall(const std::vector<llama_token> & tokens, int32_t n_max, match_by by, uint64_t adapters,
                 search & asked);
    bool  is_open(const search & asked) const { return store.is_open(asked.question); }
    // Nobody searches any more.
    void end_searches() { store.forget_arrived(); }
    // Keeps a snapshot of a complete branch on disk, if there is one.
    void save(const branch & b);

    // A new live branch with the first n_shared cells of `from`, which has the same adapters; an idle branch
    // may have to go for its id. nullptr: all ids are in use by live branches.
    branch * open(uint64_t adapters, branch * from = nullptr, int32_t n_shared = 0);
    // Keeps only the first n_keep cells. Others may share the rest: it stays theirs.
    void truncate(branch * b, int32_t n_keep);
    // Whether b has no cells but those of `leader`, who has been given one more token.
    bool follows(const branch & b, const branch & leader) const;
    // That token, and its cell, are b's as well.
    void share_last(branch * b, branch * leader);
    // The token is taken back: it was not decoded.
    void undo_last(branch * b);
    // The branch is no longer in use; its cells stay until the room is needed, or until trim().
    void release(branch * b);
    // Whether idle branches hold more cells or ids than they may: trim() is due.
    bool is_over() const { return n_idle() > n_idle_max || lacks_ids(); }
    // If they do, the one used longest ago goes. Its snapshot takes milliseconds: so one goes at a time, when
    // nothing else is to be done or they hold twice as many cells as they may.
    void trim(bool at_leisure);
    void remove(branch * b);
    void clear();

    // Removes idle branches until n cells are free; returns n, or fewer if there is no more room.
    int32_t make_room(int32_t n);

    int32_t n_cells() const { return n_cells_; }
    int32_t n_used() const;
    int32_t n_idle() const;   // only of idle branches
    int32_t n_shared() const; // that would be used besides if each branch had cells of its own
    int32_t n_free() const { return n_cells_ - n_used(); }
    int32_t n_room() const { return n_free() + n_idle(); }
    // How many of the branch's first `length` cells are not room, since a live branch has them.
    int32_t n_pinned(const branch & b, int32_t length) const;

  private:
    enum evict_why { for_cells, for_id };
    bool     evict_one(evict_why why, const branch * except = nullptr);
    void     note_pinned() const;
    bool     lacks_ids() const { return (int32_t) free_ids.size() < n_spare_ids; }
    void     hand_over(branch * b, int32_t n_keep);
    void     keep_snapshot(const branch & b, bool to_disk);
    bool     put_back(const snapshot_part & part, branch * b);
    bool     take_part(const branch & b, int32_t from, int32_t to, snapshot_parts & parts);
    branch * restore(snapshot & s, const match & m, const match & in_cells);
    int32_t  n_in_cells(const snapshot & s, const match & in_cells) const;
    void match_tokens(const std::vector<llama_token> & held, int32_t n_held,
                      const std::vector<llama_token> & tokens, int32_t n_max, match_by by, match & m) const;

    llama_context *     ctx;
    llama_memory_t      memory;
    const llama_vocab * vocab;
    const bool          is_recurrent;   // a recurrent state: a branch is shared with all its tokens
                                        // or not at all
    const int32_t             n_window; // of a sliding-window model; 0: it has none
    const bool                exact;    // either: a snapshot stands for nothing shorter
    int32_t                   n_cells_;
    const int32_t             n_idle_max;
    const int32_t             n_spare_ids;
    uint64_t                  clock = 0;
    std::list<branch>         branches;
    std::vector<llama_seq_id> free_ids;
    const llama_seq_id        spare_id; // of no branch: for the cells of a part
    prefix_store              store;
};
