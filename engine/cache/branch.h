// A branch: tokens whose cells belong to one of llama.cpp's sequence ids. What branches hold together is counted here,
// and here is decided which idle one is evicted next; nothing here changes a cell.
#pragma once

#include "cache/cells.h"

#include <algorithm>
#include <cstdint>
#include <list>
#include <vector>

// What is known of a copy of an idle branch in host memory (copy_policy.h).
struct copy_state {
    int32_t n_rivals = 1;     // texts of which at most one is likely to be asked for again, this one included
    bool    settled  = false; // it was made, or is not worth its time
};

struct branch {
    llama_seq_id             seq_id = -1;
    std::vector<llama_token> tokens;              // cell i belongs to tokens[i]
    branch *                 parent    = nullptr; // whose cells it shares; nullptr: it shares none
    int32_t                  n_shared  = 0;       // the first n_shared cells are the parent's
    int32_t                  n_decoded = 0; // the first n_decoded tokens are computed; the rest is in a batch
    bool                     live      = true;
    bool                     pinned    = false; // live, although no request needs it
    bool                     hidden = false; // of a request with cache: false: no other request may share it
    copy_state               copying;
    uint64_t                 adapters =
        0; // cells_key of its request: of the adapters that its cells are computed with, and its salt
    uint64_t        used_at = 0;
    mutable int32_t n_held  = 0; // its first cells that live branches have, too (note_held)

    int32_t n_past() const { return (int32_t) tokens.size(); }
    int32_t n_own() const { return n_past() - n_shared; }
    // Cells that are free after it was evicted.
    int32_t n_freeable() const { return n_past() - std::max(n_shared, n_held); }
};

using branch_list = std::list<branch>;

struct cell_counts {
    int32_t n_cells  = 0;
    int32_t n_used   = 0;
    int32_t n_idle   = 0; // that only idle branches use
    int32_t n_pinned = 0; // of pins, each once
    int32_t n_pins   = 0;
    int32_t n_shared = 0; // that would be used besides if each branch had cells of its own
    int32_t n_ids    = 0; // for new branches, after all idle ones were evicted

    int32_t n_free() const { return n_cells - n_used; }
    int32_t n_room() const { return n_free() + n_idle; } // after all idle branches were evicted
};

int32_t n_used(const branch_list & branches);
// `replaced` does not count as a pin.
cell_counts count_cells(const branch_list & branches, const cell_facts & facts,
                        const branch * replaced = nullptr);

// Of the branch's first `length` cells, those that a live branch has, too: evicting does not free them. by_pins: those
// that a pin has.
int32_t n_held(const branch_list & branches, const branch & b, int32_t length, bool by_pins = false);

// What is short: cells, or sequence ids.
enum evict_for { for_cells, for_id };

// The idle branch that is evicted next: the least recently used one, but a prompt after its candidates. nullptr: there
// is none that would free what is short. `except` is not evicted.
branch * next_to_evict(branch_list & branches, evict_for what, const branch * except = nullptr);
