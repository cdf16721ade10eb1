// A hash of all bytes of files of weights: two models may differ anywhere.
//
// It takes a while to read a large model, so the hash of each file is remembered in a list in the prefix cache's folder,
// by device, inode, size and time of change. One process at a time computes hashes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

struct file_identity {
    uint64_t device = 0, inode = 0, n_bytes = 0, changed_ns = 0;

    bool operator==(const file_identity & other) const {
        return device == other.device && inode == other.inode && n_bytes == other.n_bytes &&
               changed_ns == other.changed_ns;
    }
};

// Called for each MiB that was read (true), and every few ms while another process reads (false). Returns whether to
// continue.
using goes_on = std::function<bool(bool reads)>;

// Files with their current identities, to be hashed later.
class weight_files {
  public:
    // All parts of a split model, as llama.cpp finds them.
    static weight_files of_model(const std::string & path);
    static weight_files of_one(const std::string & path);

    // nullopt: a file cannot be read or has changed, or the caller does not want to continue. folder: of the list.
    // in_turn: waits while another process computes hashes, because it adds them to the list.
    std::optional<uint64_t> hash(const std::string & folder, bool in_turn, const goes_on & pulse) const;
    // Whether the files have the same identities as at the beginning.
    bool unchanged() const;

  private:
    struct entry {
        std::string                  path;
        std::optional<file_identity> identity; // nullopt: there is no such file
    };

    std::vector<entry> files;
};
