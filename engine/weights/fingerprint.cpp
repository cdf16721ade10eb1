#include "weights/fingerprint.h"

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

static const char *     list_name   = "fingerprints";
static const size_t     n_list_max  = 64u << 10;  // bytes; a longer list is cleared
static const uint64_t   t_rested_ns = 2000000000; // a later change may have the same time, within one tick
static const size_t     n_piece     = 1u << 20;   // bytes of one read
static const useconds_t t_poll_us   = 20000;      // between two tries to get a lock

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

uint64_t wall_ns() {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return nanoseconds(t);
}

file_identity identity_of(const struct stat & s) {
#if defined(__APPLE__)
    const uint64_t changed_ns = nanoseconds(s.st_mtimespec);
#else
    const uint64_t changed_ns = nanoseconds(s.st_mtim);
#endif
    return {(uint64_t) s.st_dev, (uint64_t) s.st_ino, (uint64_t) s.st_size, changed_ns};
}

// nullopt: there is no regular file.
static std::optional<file_identity> identity_of(const std::string & path) {
    struct stat s;
    const bool  is_file = stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode);
    return is_file ? std::optional(identity_of(s)) : std::nullopt;
}

static std::optional<file_identity> identity_of(int fd) {
    struct stat s;
    const bool  is_file = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
    return is_file ? std::optional(identity_of(s)) : std::nullopt;
}

//
// which files
//

// For "m-00001-of-00003.gguf" all three; llama.cpp accepts no other names of parts.
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

static bool is_rested(const file_identity & file) {
    return file.changed_ns + t_rested_ns <= wall_ns();
}

std::optional<uint64_t> weight_files::identity() const {
    uint64_t number = 0;
    for (const entry & e : files) {
        if (!e.identity || !is_rested(*e.identity)) {
            return std::nullopt;
        }
        number = XXH64(e.path.data(), e.path.size(), number);
        number = XXH64(&*e.identity, sizeof(*e.identity), number);
    }
    return number;
}

//
// the list of hashes
//

// A line has five numbers and their checksum.
static std::string line_of(const file_identity & file, uint64_t hash) {
    char text[128];
    snprintf(text, sizeof(text),
             "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " ", file.device,
             file.inode, file.n_bytes, file.changed_ns, hash);
    const size_t n = strlen(text);
    snprintf(text + n, sizeof(text) - n, "%016" PRIx64 "\n", (uint64_t) XXH64(text, n, 0));
    return text;
}

// The list; -1 if it is not a regular file of this user: then no hash is stored.
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

// In one write, so that lines of several processes do not mix.
static void add_to_list(int fd, const file_identity & file, uint64_t hash) {
    if (fd < 0 || !is_rested(file)) {
        return;
    }
    struct stat s;
    if (fstat(fd, &s) == 0 && (size_t) s.st_size + 6 * 17 > n_list_max && ftruncate(fd, 0) != 0) {
        return;
    }
    const std::string line = line_of(file, hash);
    if (write(fd, line.data(), line.size()) != (ssize_t) line.size()) {
        return; // an incomplete line has no valid checksum
    }
}

//
// reading
//

static std::optional<uint64_t> read_and_hash(const std::string & path, const file_identity & file,
                                             const continue_hook & goes_on) {
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
        if (!goes_on(true)) {
            return std::nullopt;
        }
    }
    const bool whole = n == 0 && identity_of(in.fd) == file;
    return whole ? std::optional<uint64_t>(XXH64_digest(state.get())) : std::nullopt;
}

// Waits while another process reads, which then adds the hashes to the list. False: give up. On a file system
// without locks it does not wait.
static bool lock_list(int fd, const continue_hook & goes_on) {
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
        if (!goes_on(false)) {
            return false;
        }
        usleep(t_poll_us);
    }
    return true;
}

std::optional<uint64_t> weight_files::hash(const std::string & folder, bool exclusive,
                                           const continue_hook & goes_on) const {
    const descriptor list(open_list(folder)); // closing it releases the lock
    uint64_t         all    = files.size();
    bool             locked = !exclusive;
    for (const entry & e : files) {
        if (!e.identity && &e != &files.front()) {
            continue; // the name looks like that of a part, but is not: llama.cpp does not open the others
        }
        if (!e.identity) {
            return std::nullopt;
        }
        auto own = list.fd >= 0 ? find_in(read_list(list.fd), *e.identity) : std::nullopt;
        if (!own && !locked) {
            if (!lock_list(list.fd, goes_on)) {
                return std::nullopt;
            }
            locked = true;
            own    = list.fd >= 0 ? find_in(read_list(list.fd), *e.identity) : std::nullopt;
        }
        if (!own) {
            own = read_and_hash(e.path, *e.identity, goes_on);
            if (!own) {
                return std::nullopt;
            }
            add_to_list(list.fd, *e.identity, *own);
        }
        all = XXH64(&*own, sizeof(*own), all);
    }
    return all;
}
