// Prefixes that left the KV cache: snapshots of their cells in host memory, and on disk in a folder that
// processes may share.
//
// A snapshot has one or more parts, each what llama_state_seq_get_data gives for some cells in a row; snapshots of
// texts that begin alike share parts. It is taken and put back on the engine's thread; files are written by a
// thread of our own. A file that is damaged, foreign or half written is a line in the log and a miss, and so is a
// full disk. Nothing here knows what the cells are for.
#pragma once

#include "llama.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

struct store_params {
    uint64_t    ram_bytes = 0; // 0: nothing is kept in memory
    std::string directory;     // empty: nothing is kept on disk
    uint64_t    disk_bytes  = 0;
    bool        exact       = false; // a snapshot stands for nothing shorter
    uint64_t    fingerprint = 0;     // of everything that the meaning of a snapshot depends on
};

struct snapshot_part {
    snapshot_part(uint64_t n_tokens, uint64_t n_bytes)
        : n_tokens(n_tokens), n_bytes(n_bytes), data(new uint8_t[n_bytes]) {}

    const uint64_t                   n_tokens;
    const uint64_t                   n_bytes;
    const std::unique_ptr<uint8_t[]> data;            // not zeroed: taking new pages is most of the cost
    int32_t                          n_snapshots = 0; // in memory, that have it
};

using snapshot_parts = std::vector<std::shared_ptr<snapshot_part>>;

struct snapshot {
    std::vector<llama_token> tokens;
    uint64_t                 adapters = 0; // key of the set that the cells were computed with
    snapshot_parts           parts;        // of all tokens; none: only on disk
    std::filesystem::path    file;         // empty: not on disk
};

// Of how many of their first tokens two lists are the same; at most n_max.
int32_t common_length(const std::vector<llama_token> & a, const std::vector<llama_token> & b,
                      int32_t n_max = INT32_MAX);

class prefix_store {
  public:
    explicit prefix_store(store_params params);
    ~prefix_store(); // waits for what is still to be written

    bool active() const { return params.ram_bytes > 0 || !params.directory.empty(); }
    bool has_disk() const { return !params.directory.empty(); }
    bool may_take(size_t n_bytes) const { return n_bytes <= params.ram_bytes || has_disk(); }

    // How many of these tokens, from the first on, a snapshot stands for; or one with a file.
    int32_t n_held(const std::vector<llama_token> & tokens, uint64_t adapters, bool on_disk = false) const;
    // The parts of a snapshot in memory that are of these tokens' beginning: of the one that has the most.
    // None where snapshots are exact.
    snapshot_parts parts_of(const std::vector<llama_token> & tokens, uint64_t adapters) const;
    // Keeps a snapshot in memory, in a file, or both, as far as there is room.
    void put(const std::vector<llama_token> & tokens, uint64_t adapters, const snapshot_parts & parts,
             bool to_disk);

    // The snapshots, for a search; those of other processes are found by looking at the folder again.
    std::list<snapshot> & all();
    // The parts of one, read from disk if need be; it is now the one used last. None when that fails: it is gone.
    snapshot_parts load(snapshot & s);

  private:
    struct job {
        std::vector<llama_token> tokens;
        uint64_t                 adapters;
        snapshot_parts           parts;
        std::filesystem::path    file;
    };

    bool covers(const std::vector<llama_token> & longer, const std::vector<llama_token> & shorter) const;
    bool worth_a_file(const std::vector<llama_token> & tokens, uint64_t adapters) const;
    void hold(snapshot & s, const snapshot_parts & parts);
    void let_go(snapshot & s);
    void limit_memory();
    void scan_folder();
    void enqueue(snapshot & s, const snapshot_parts & parts);
    void write_files();
    bool write_file(const job & j) const;
    void limit_folder() const;

    std::filesystem::path path_of(const snapshot & s) const;

    const store_params              params;
    std::list<snapshot>             snapshots;       // used last first
    uint64_t                        n_ram_bytes = 0; // of their parts
    std::unordered_set<std::string> known_files;
    std::filesystem::file_time_type scanned;

    std::mutex              mutex; // of what follows, which the writer shares
    std::condition_variable changed;
    std::deque<job>         jobs; // the first one is being written
    bool                    closing = false;
    std::thread             writer;
};
