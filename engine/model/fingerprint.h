// What files of weights hold, as one number of all their bytes: two models may differ anywhere.
//
// Reading a large model takes a while, so the number of each file is remembered in a list in the prefix
// cache's folder, by device, inode, size and time of change, and one process at a time reads. Nothing here
// knows what the number is for.
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

// Asked for each MiB that was read (true), and every few ms while another process reads (false). False: give
// up.
using goes_on = std::function<bool(bool reads)>;

// Files as they are now, to be hashed later.
class weight_files {
  public:
    // All parts of a model that is split, as llama.cpp finds them.
    static weight_files of_model(const std::string & path);
    static weight_files of_one(const std::string & path);

    // nullopt: a file cannot be read, or is not the one of the beginning any more, or we are to give up.
    // `folder`: where the list of numbers is. `in_turn`: not while another process reads; it leaves the
    // number in the list.
    std::optional<uint64_t> hash(const std::string & folder, bool in_turn, const goes_on & pulse) const;
    // Whether they are still the same files.
    bool unchanged() const;

  private:
    struct entry {
        std::string                  path;
        std::optional<file_identity> identity; // nullopt: there is no such file
    };

    std::vector<entry> files;
};
