// The files of prefixes that this user owns in a folder, and room for more of them. No other file is ever removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Ends the name of a file; before it are 32 hexadecimal digits.
extern const char * const prefix_extension;

struct own_file {
    std::string name;
    uint64_t    used_ns;
    uint64_t    n_bytes;
    bool        unfinished; // its writer has not renamed it yet
};

// Files of this user by any process, least recently used first.
std::vector<own_file> own_files(const std::string & folder);

// Removes the least recently used files until all have at most n_bytes_max, and unfinished ones whose writer has
// ended. Returns the removed names.
std::vector<std::string> limit_files(const std::string & folder, uint64_t n_bytes_max);

// Makes room for a file on a full disk, by removing as few files as are needed. `removed` gets their names. False:
// removing all of them would not be enough, and none is removed.
bool make_room(const std::string & folder, uint64_t n_bytes, std::vector<std::string> & removed);
