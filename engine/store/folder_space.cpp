#include "store/folder_space.h"

#include "weights/fingerprint.h"

#include <algorithm>
#include <cstring>
#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char * const prefix_extension = ".kv";

static const size_t   n_digits = 32; // of a name
static const uint64_t t_unfinished_ns =
    300000000000u; // after this time without a change, the writer has ended

// A finished file, or an unfinished one, whose name ends with "." and a process's number.
static bool is_prefix_file(const std::string & name, bool & unfinished) {
    const size_t n_found = strspn(name.c_str(), "0123456789abcdef");
    const size_t n       = n_digits + strlen(prefix_extension);
    unfinished           = name.size() > n;
    return n_found == n_digits && name.compare(n_digits, strlen(prefix_extension), prefix_extension) == 0 &&
           (!unfinished ||
            (name[n] == '.' && strspn(name.c_str() + n + 1, "0123456789") == name.size() - n - 1));
}

std::vector<own_file> own_files(const std::string & folder) {
    std::vector<own_file> files;
    DIR *                 listing = opendir(folder.c_str());
    while (const dirent * entry = listing ? readdir(listing) : nullptr) {
        const std::string name = entry->d_name;
        bool              unfinished;
        struct stat       s;
        if (is_prefix_file(name, unfinished) && lstat((folder + "/" + name).c_str(), &s) == 0 &&
            S_ISREG(s.st_mode) && s.st_uid == geteuid()) {
            files.push_back({name, identity_of(s).changed_ns, (uint64_t) s.st_size, unfinished});
        }
    }
    if (listing) {
        closedir(listing);
    }
    std::sort(files.begin(), files.end(),
              [](const own_file & a, const own_file & b) { return a.used_ns < b.used_ns; });
    return files;
}

static uint64_t total_bytes(const std::vector<own_file> & files) {
    uint64_t n_bytes = 0;
    for (const own_file & f : files) {
        n_bytes += f.n_bytes;
    }
    return n_bytes;
}

std::vector<std::string> limit_files(const std::string & folder, uint64_t n_bytes_max) {
    const std::vector<own_file> files   = own_files(folder);
    uint64_t                    n_bytes = total_bytes(files);
    std::vector<std::string>    removed;
    for (const own_file & f : files) {
        const bool abandoned = f.unfinished && f.used_ns + t_unfinished_ns < wall_ns();
        if ((n_bytes > n_bytes_max || abandoned) && unlink((folder + "/" + f.name).c_str()) == 0) {
            n_bytes -= f.n_bytes;
            removed.push_back(f.name);
        }
    }
    return removed;
}

bool make_room(const std::string & folder, uint64_t n_bytes, std::vector<std::string> & removed) {
    const uint64_t n_own = total_bytes(own_files(folder));
    struct statvfs disk;
    const uint64_t n_free =
        statvfs(folder.c_str(), &disk) == 0 ? (uint64_t) disk.f_bavail * disk.f_frsize : 0;
    const uint64_t n_wanted = n_bytes + n_bytes / 16 + (64u << 10); // file systems need some for themselves
    if (n_own + n_free < n_wanted) {
        return false;
    }
    removed = limit_files(folder, n_own - std::min(n_own, n_wanted - std::min(n_wanted, n_free)));
    return true;
}
