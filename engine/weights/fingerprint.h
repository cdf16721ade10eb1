// One hash of all bytes of the files of weights, since two models may differ anywhere.
//
// Reading a large model takes a while. So the hash of each file is stored in a list in the prefix cache's folder, by
// device, inode, size and time of change, and one process at a time reads. Nothing here knows what the hash is for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

struct file_identity {
    uint64_t device = 0, inode = 0, n_bytes = 0, changed_ns = 0;

    bool operator==(const file_identity & other) const {
        return device == other.device && inode == other.inode && n_bytes == other.n_bytes &&
               changed_ns == other.changed_ns;
    }
};

file_identity identity_of(const struct stat & s);
uint64_t      wall_ns(); // the clock of changed_ns

// Called after each MiB (progress), and every few ms while another process reads (no progress). False: give up.
using continue_hook = std::function<bool(bool progress)>;

// Files in their present state, which are hashed later.
class weight_files {
  public:
    // All parts of a split model; llama.cpp finds the same ones.
    static weight_files of_model(const std::string & path);
    static weight_files of_one(const std::string & path);

    // nullopt: a file cannot be read, or has been replaced since the beginning, or `goes_on` was false.
    // folder: where the list of hashes is. exclusive: waits while another process reads, which then adds the hash to
    // the list.
    std::optional<uint64_t> hash(const std::string & folder, bool exclusive,
                                 const continue_hook & goes_on) const;
    // Whether no file was replaced.
    bool unchanged() const;
    // A number of their paths, sizes and times. nullopt: a file is missing, or has changed so recently that a later
    // change may have the same time.
    std::optional<uint64_t> identity() const;

  private:
    struct entry {
        std::string                  path;
        std::optional<file_identity> identity; // nullopt: there is no such file
    };

    std::vector<entry> files;
};
