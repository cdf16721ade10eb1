// Snapshots of prefixes that were evicted from the KV cache: in host memory, and in a folder (folder.h).
//
// A snapshot has one or more parts, each of consecutive cells; snapshots of texts that begin alike share parts. All of
// this runs on the engine's thread, which never waits for the folder: its answers come later. Nothing here knows what
// the cells are for.
#pragma once

#include "model/vocabulary.h"
#include "store/folder.h"
#include "store/snapshot.h"

#include "llama.h"

#include <cstdint>
#include <list>
#include <vector>

struct store_params {
    uint64_t        ram_bytes = 0;       // 0: nothing is stored in memory
    prefix_folder * folder    = nullptr; // nullptr: nothing is stored on disk
    bool            exact     = false;   // a snapshot serves only all of its tokens, not fewer
};

struct snapshot {
    std::vector<llama_token> tokens;
    uint64_t                 adapters = 0; // cells_key of the request that they were computed for
    snapshot_parts           parts;        // of all tokens; none: it is only on disk
    uint64_t                 file = 0;     // 0: it is not on disk
};

// How many of these tokens, from the first on, a snapshot of the list serves. exact: only all tokens of a snapshot count;
// on_disk: only snapshots with a file count.
int32_t n_served(const std::list<snapshot> & list, const std::vector<llama_token> & tokens, uint64_t adapters,
                 bool exact, bool on_disk = false);
// The parts of these tokens' beginning, from the snapshot of the list that has the most of them in memory.
snapshot_parts parts_of(const std::list<snapshot> & list, const std::vector<llama_token> & tokens,
                        uint64_t adapters);
int32_t        n_tokens_of(const snapshot_parts & parts);

// The parts in memory. Several snapshots may have the same part, which is counted once.
class part_memory {
  public:
    void     hold(snapshot & s, const snapshot_parts & parts);
    void     release(snapshot & s);
    uint64_t n_bytes() const { return n_bytes_; }

  private:
    uint64_t n_bytes_ = 0;
};

class prefix_store {
  public:
    explicit prefix_store(store_params params) : has_disk(params.folder), params(params) {}

    const bool has_disk;

    bool active() const { return params.ram_bytes > 0 || params.folder; }
    bool may_take(size_t n_bytes) const { return n_bytes <= params.ram_bytes || has_disk; }

    uint64_t                    n_memory() const { return params.ram_bytes; }
    const std::list<snapshot> & held() const { return snapshots; }
    // From now on this is the memory for snapshots.
    void limit_memory(uint64_t n_bytes);
    // Stores a snapshot in memory, in a file, or both, as far as there is room.
    void put(const std::vector<llama_token> & tokens, uint64_t adapters, const snapshot_parts & parts,
             bool to_disk);

    // Removes the snapshots of this set of adapters from memory.
    void drop(uint64_t adapters);

    // All snapshots, for a search, after the folder's latest answers were read.
    std::list<snapshot> & all();
    // Whether load() has its parts now. If not, the folder may be asked for them.
    bool is_loaded(const snapshot & s) const { return !s.parts.empty() || is_arrived(s); }
    // The parts of a snapshot that is loaded; it becomes the most recently used one.
    snapshot_parts load(snapshot & s);

    // Questions to the folder; all() reads the answers.
    bool     may_ask() const { return params.folder && params.folder->answers(); }
    uint64_t ask_for_list() { return params.folder->ask_for_list(); }
    uint64_t ask_for(const snapshot & s) { return params.folder->ask_for(s.file); }
    bool     is_open(uint64_t question) const { return params.folder && params.folder->is_open(question); }
    // No search waits for parts any more.
    void forget_arrived() { arrived = {}; }

  private:
    bool worth_a_file(const std::vector<llama_token> & tokens, uint64_t adapters) const;
    bool is_arrived(const snapshot & s) const { return arrived.file != 0 && arrived.file == s.file; }
    void take_news();
    void take_read(folder_news && n);

    store_params        params;
    std::list<snapshot> snapshots; // most recently used first
    part_memory         memory;
    folder_news         arrived; // the parts that were read last, if memory has no room for them
};
