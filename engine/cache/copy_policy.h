// Whether an idle branch is copied to host memory before it is evicted, or computed again when it is asked for. Nothing
// here copies.
//
//   in host memory   a copy takes a hundredth of the time of computing: each branch is copied, also while a request waits
//                    for its cells
//   on a device      computing is fast and copies are slow: nothing is copied while a request waits for the cells, only
//                    between steps and while nothing runs; and only what takes longer to compute than to copy. Of n texts
//                    of one request a reader goes on with one at most, so each of them counts for an nth.
#pragma once

#include <cstddef>
#include <cstdint>

struct copy_costs {
    bool   on_device    = false;
    size_t n_cell_bytes = 0;
    double token_us     = 0;           // of computing one token of a prompt; 0: not known yet
    double byte_us      = 1.0 / 16384; // of copying one byte: a fast bus, until it was measured

    // n_bytes were copied in t_us.
    void note_copy(size_t n_bytes, int64_t t_us);
    // Whether a text that is one of n_rivals is worth a copy. Each no makes the next yes a little likelier, since the speed
    // is measured by copies only, and one slow copy must not be the last.
    bool is_worth_copying(int32_t n_rivals);
};
