// Snapshots of cells, and their form as files. A file holds the cells of one whole text, with checksums. Only regular
// files of the server's own user are read. Nothing here knows where files are, or what cells are for.
#pragma once

#include "llama.h"

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// The bytes of llama_state_seq_get_data for consecutive cells.
struct snapshot_part {
    snapshot_part(uint64_t n_tokens, uint64_t n_bytes)
        : n_tokens(n_tokens), n_bytes(n_bytes), data(new uint8_t[n_bytes]) {}

    const uint64_t                   n_tokens;
    const uint64_t                   n_bytes;
    const std::unique_ptr<uint8_t[]> data;            // not zeroed: new pages are most of the cost
    int32_t                          n_snapshots = 0; // in memory that have this part
};

using snapshot_parts = std::vector<std::shared_ptr<snapshot_part>>;

uint64_t bytes_of(const snapshot_parts & parts);

struct part_header {
    uint64_t n_tokens;
    uint64_t n_bytes;
};

// A file's content before its parts.
struct snapshot_head {
    uint64_t                 fingerprint = 0; // of everything that the cells depend on
    uint64_t                 adapters    = 0; // cells_key of its request
    std::vector<llama_token> tokens;
    std::vector<part_header> sizes;
    uint64_t                 parts_checksum = 0;
};

struct file_closer {
    void operator()(FILE * f) const { fclose(f); }
};
using file_ptr = std::unique_ptr<FILE, file_closer>;

// nullptr: `why` says what is wrong with the file, or is nullptr where there is no such file (any more).
file_ptr open_snapshot(const std::string & path, uint64_t fingerprint, snapshot_head & head,
                       const char *& why);
// The parts, read from where open_snapshot has stopped; `pulse` is called after each MiB. None: `why` says why they
// cannot be read now, or is nullptr where the file is damaged.
snapshot_parts read_parts(FILE * file, const snapshot_head & head, const std::function<void()> & pulse,
                          const char *& why);
// Writes a new file; there must be none of that name. Returns 0, or an errno: then the file is removed again.
int write_snapshot(const std::string & path, uint64_t fingerprint, uint64_t adapters,
                   const std::vector<llama_token> & tokens, const snapshot_parts & parts,
                   const std::function<void()> & pulse);
