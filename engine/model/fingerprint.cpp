#include "model/fingerprint.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp
#include "llama.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *   list_name  = "fingerprints";
static const size_t   n_list_max = 64u << 10; // bytes; a longer list is cleared
static const uint64_t t_rested_ns =
    2000000000; // a file that has changed since may change again without a new time of change
static const size_t     n_piece   = 1u << 20; // bytes of one read
static const useconds_t t_poll_us = 20000;    // between two attempts to lock

namespace {

struct descriptor {
    explicit descriptor(int fd) : fd(fd) {}
    ~descriptor() {
        if (fd >= 0) {
            close(fd);
        }
    }
    descriptor(const descriptor &)             = delete;
    descriptor & operator=(const descriptor &) = delete;

    const int fd;
};

} // namespace

static uint64_t nanoseconds(const struct timespec & t) {
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static std::optional<file_identity> identity_of(const struct stat & s) {
    if (!S_ISREG(s.st_mode)) {
        return std::nullopt;
    }
#if defined(__APPLE__)
    const uint64_t changed_ns = nanoseconds(s.st_mtimespec);
#else
    const uint64_t changed_ns = nanoseconds(s.st_mtim);
#endif
    return file_identity{(uint64_t) s.st_dev, (uint64_t) s.st_ino, (uint64_t) s.st_size, changed_ns};
}

static std::optional<file_identity> identity_of(const std::string & path) {
    struct stat s;
    return stat(path.c_str(), &s) == 0 ? identity_of(s) : std::nullopt;
}

static std::optional<file_identity> identity_of(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 ? identity_of(s) : std::nullopt;
}

//
// files
//

// For "m-00001-of-00003.gguf" all three parts; llama.cpp accepts no other names of parts.
static std::vector<std::string> parts_of(const std::string & path) {
    static const char   example[] = "-00001-of-00003.gguf";
    static const size_t n_end     = sizeof(example) - 1;
    int                 n_parts = 0, n_read = 0;
    if (path.size() <= n_end ||
        sscanf(path.c_str() + path.size() - n_end, "-%*5d-of-%5d.gguf%n", &n_parts, &n_read) != 1 ||
        n_read != (int) n_end) {
        return {path};
    }
    std::vector<std::string> parts;
    const std::string        prefix = path.substr(0, path.size() - n_end);
    for (int i = 0; i < n_parts; i++) {
        std::vector<char> part(path.size() + 1);
        llama_split_path(part.data(), part.size(), prefix.c_str(), i, n_parts);
        parts.emplace_back(part.data());
    }
    return parts;
}

weight_files weight_files::of_model(const std::string & path) {
    weight_files found;
    for (const std::string & part : parts_of(path)) {
        found.files.push_back({part, identity_of(part)});
    }
    return found;
}

weight_files weight_files::of_one(const std::string & path) {
    weight_files found;
    found.files.push_back({path, identity_of(path)});
    return found;
}

bool weight_files::unchanged() const {
    return std::all_of(files.begin(), files.end(),
                       [](const entry & e) { return identity_of(e.path) == e.identity; });
}

//
// the list of hashes
//

// A line is five numbers and a checksum of them.
static std::string line_of(const file_identity & file, uint64_t hash) {
    char text[128];
    snprintf(text, sizeof(text),
             "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " ", file.device,
             file.inode, file.n_bytes, file.changed_ns, hash);
    const size_t n = strlen(text);
    snprintf(text + n, sizeof(text) - n, "%016" PRIx64 "\n", (uint64_t) XXH64(text, n, 0));
    return text;
}

// Opens the list; -1 if it is not a file of this user: then nothing is remembered.
static int open_list(const std::string & folder) {
    const std::string path = folder + "/" + list_name;
    const int         fd =
        open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat s;
    if (fd >= 0 && (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid())) {
        close(fd);
        return -1;
    }
    return fd;
}

static std::string read_list(int fd) {
    std::string   text(n_list_max, 0);
    const ssize_t n = pread(fd, text.data(), text.size(), 0);
    text.resize(n < 0 ? 0 : (size_t) n);
    return text;
}

static std::optional<uint64_t> find_in(const std::string & list, const file_identity & file) {
    const std::string begin = line_of(file, 0).substr(0, 4 * 17);
    for (size_t at = 0; (at = list.find(begin, at)) != std::string::npos; at++) {
        const uint64_t hash = strtoull(list.c_str() + at + begin.size(), nullptr, 16);
        if (list.compare(at, 6 * 17, line_of(file, hash)) == 0) {
            return hash;
        }
    }
    return std::nullopt;
}

// Writes one line at once, so that the lines of several processes do not mix.
static void remember(int fd, const file_identity & file, uint64_t hash) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (fd < 0 || file.changed_ns + t_rested_ns > nanoseconds(now)) {
        return;
    }
    struct stat s;
    if (fstat(fd, &s) == 0 && (size_t) s.st_size + 6 * 17 > n_list_max && ftruncate(fd, 0) != 0) {
        return;
    }
    const std::string line = line_of(file, hash);
    if (write(fd, line.data(), line.size()) != (ssize_t) line.size()) {
        return; // readers ignore an incomplete line
    }
}

//
// reading
//

static std::optional<uint64_t> read_and_hash(const std::string & path, const file_identity & file,
                                             const goes_on & pulse) {
    const descriptor in(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (in.fd < 0 || !(identity_of(in.fd) == file)) {
        return std::nullopt;
    }
    const std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t *)> state(XXH64_createState(),
                                                                                   XXH64_freeState);
    const std::unique_ptr<uint8_t[]>                                         piece(new uint8_t[n_piece]);
    XXH64_reset(state.get(), 0);
    ssize_t n;
    while ((n = read(in.fd, piece.get(), n_piece)) > 0) {
        XXH64_update(state.get(), piece.get(), (size_t) n);
        if (!pulse(true)) {
            return std::nullopt;
        }
    }
    const bool is_complete = n == 0 && identity_of(in.fd) == file;
    return is_complete ? std::optional<uint64_t>(XXH64_digest(state.get())) : std::nullopt;
}

// Waits until no other process computes hashes. False if pulse does not want to continue. On file systems without locks
// it returns at once.
static bool lock_list(int fd, const goes_on & pulse) {
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
        if (!pulse(false)) {
            return false;
        }
        usleep(t_poll_us);
    }
    return true;
}

std::optional<uint64_t> weight_files::hash(const std::string & folder, bool in_turn,
                                           const goes_on & pulse) const {
    const descriptor list(open_list(folder)); // closing it releases the lock
    uint64_t         all    = files.size();
    bool             locked = !in_turn;
    for (const entry & e : files) {
        if (!e.identity && &e != &files.front()) {
            continue; // the first file is named like a part but is a complete model; llama.cpp does not open the others
        }
        if (!e.identity) {
            return std::nullopt;
        }
        auto own = list.fd >= 0 ? find_in(read_list(list.fd), *e.identity) : std::nullopt;
        if (!own && !locked) {
            if (!lock_list(list.fd, pulse)) {
                return std::nullopt;
            }
            locked = true;
            own    = list.fd >= 0 ? find_in(read_list(list.fd), *e.identity) : std::nullopt;
        }
        if (!own) {
            own = read_and_hash(e.path, *e.identity, pulse);
            if (!own) {
                return std::nullopt;
            }
            remember(list.fd, *e.identity, *own);
        }
        all = XXH64(&*own, sizeof(*own), all);
    }
    return all;
}
