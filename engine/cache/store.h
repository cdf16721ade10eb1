// Prefixes that left the KV cache: snapshots of their cells in host memory, and in a folder (folder.h).
//
// A snapshot has one or more parts, each of some cells in a row; snapshots of texts that begin alike share
// parts. All of this happens on the engine's thread, which never waits for the folder: what is asked of it
// comes later. Nothing here knows what the cells are for.
#pragma once

#include "cache/folder.h"
#include "cache/snapshot.h"

#include "llama.h"

#include <cstdint>
#include <list>
#include <vector>

struct store_params {
    uint64_t        ram_bytes = 0;       // 0: nothing is kept in memory
    prefix_folder * folder    = nullptr; // nullptr: nothing is kept on disk
    bool            exact     = false;   // a snapshot stands for nothing shorter
};

struct snapshot {
    std::vector<llama_token> tokens;
    uint64_t                 adapters = 0; // key of the set that the cells were computed with
    snapshot_parts           parts;        // of all tokens; none: only on disk
    uint64_t                 file = 0;     // 0: not on disk
};

// Of how many of their first tokens two lists are the same; at most n_max.
int32_t common_length(const std::vector<llama_token> & a, const std::vector<llama_token> & b,
                      int32_t n_max = INT32_MAX);

class prefix_store {
  public:
    explicit prefix_store(store_params params) : params(params) {}

    bool active() const { return params.ram_bytes > 0 || params.folder; }
    bool has_disk() const { return params.folder; }
    bool may_take(size_t n_bytes) const { return n_bytes <= params.ram_bytes || has_disk(); }

    // How many of these tokens, from the first on, a snapshot stands for; or one with a file.
    int32_t n_held(const std::vector<llama_token> & tokens, uint64_t adapters, bool on_disk = false) const;
    // The parts of a snapshot in memory that are of these tokens' beginning: of the one that has the most.
    // None where snapshots are exact.
    snapshot_parts parts_of(const std::vector<llama_token> & tokens, uint64_t adapters) const;
    // Keeps a snapshot in memory, in a file, or both, as far as there is room.
    void put(const std::vector<llama_token> & tokens, uint64_t adapters, const snapshot_parts & parts,
             bool to_disk);

    // The snapshots, for a search, with what the folder has told by now.
    std::list<snapshot> & all();
    // Whether load() gives its parts now. Else they may be asked for.
    bool is_loaded(const snapshot & s) const { return !s.parts.empty() || is_arrived(s); }
    // The parts of one that is loaded; it is now the one used last.
    snapshot_parts load(snapshot & s);

    // Questions to the folder; their answers come with all().
    bool     may_ask() const { return params.folder && params.folder->answers(); }
    uint64_t ask_for_list() { return params.folder->ask_for_list(); }
    uint64_t ask_for(const snapshot & s) { return params.folder->ask_for(s.file); }
    bool     is_open(uint64_t question) const { return params.folder && params.folder->is_open(question); }
    // Whoever has asked for parts does not want them any more.
    void forget_arrived() { arrived = {}; }

  private:
    bool covers(const std::vector<llama_token> & longer, const std::vector<llama_token> & shorter) const;
    bool worth_a_file(const std::vector<llama_token> & tokens, uint64_t adapters) const;
    bool is_arrived(const snapshot & s) const { return arrived.file != 0 && arrived.file == s.file; }
    void hold(snapshot & s, const snapshot_parts & parts);
    void let_go(snapshot & s);
    void limit_memory();
    void enqueue(snapshot & s, const snapshot_parts & parts);
    void take_news();
    void take_read(folder_news && n);

    const store_params  params;
    std::list<snapshot> snapshots;       // used last first
    uint64_t            n_ram_bytes = 0; // of their parts
    folder_news         arrived;         // read last, if memory has no room for it
};
