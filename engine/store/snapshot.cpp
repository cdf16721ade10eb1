#include "store/snapshot.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>

static const char     magic[8]     = {'s', 'r', 'b', '-', 'k', 'v', '3', '\n'};
static const uint64_t n_max_tokens = 1u << 28;
static const uint64_t n_piece      = 1u << 20; // bytes of one read or write

// A file: this header, the tokens, a part_header for each part, the parts. Everything before the parts is the head. It
// has a checksum of its own, because it is read without the parts.
struct file_header {
    char     magic[8];
    uint64_t fingerprint;
    uint64_t adapters;
    uint64_t n_tokens;
    uint64_t n_parts;
    uint64_t parts_checksum;
    uint64_t head_checksum; // of everything else in the head
};

static uint64_t checksum_of(const file_header & h, const std::vector<llama_token> & tokens,
                            const std::vector<part_header> & sizes) {
    uint64_t sum = XXH64(&h, offsetof(file_header, head_checksum), 0);
    sum          = XXH64(tokens.data(), tokens.size() * sizeof(llama_token), sum);
    return XXH64(sizes.data(), sizes.size() * sizeof(part_header), sum);
}

static uint64_t checksum_of(const snapshot_parts & parts) {
    uint64_t sum = 0;
    for (const auto & part : parts) {
        sum = XXH64(part->data.get(), part->n_bytes, sum);
    }
    return sum;
}

uint64_t bytes_of(const snapshot_parts & parts) {
    uint64_t n = 0;
    for (const auto & part : parts) {
        n += part->n_bytes;
    }
    return n;
}

//
// reading
//

// Neither waits for the other end of a FIFO nor follows a link.
static file_ptr open_regular(const std::string & path, struct stat & s, const char *& why) {
    const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        why = errno == ENOENT ? nullptr : errno == ELOOP || errno == ENXIO ? "not a file" : strerror(errno);
        return nullptr;
    }
    file_ptr file(fdopen(fd, "rb"));
    if (!file) {
        close(fd);
    }
    if (!file || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
        why = "not a file";
        return nullptr;
    }
    if (s.st_uid != geteuid()) {
        why = "of another user";
        return nullptr;
    }
    return file;
}

template <typename T> static bool read_all(FILE * file, std::vector<T> & values, uint64_t n) {
    values.resize(n);
    return fread(values.data(), sizeof(T), n, file) == n;
}

file_ptr open_snapshot(const std::string & path, uint64_t fingerprint, snapshot_head & head,
                       const char *& why) {
    struct stat s;
    file_ptr    file = open_regular(path, s, why);
    if (!file) {
        return nullptr;
    }
    const uint64_t n_bytes = (uint64_t) s.st_size;
    file_header    h;
    if (fread(&h, sizeof(h), 1, file.get()) != 1 || memcmp(h.magic, magic, sizeof(magic)) != 0) {
        why = "not a prefix of this version";
        return nullptr;
    }
    if (h.fingerprint != fingerprint) {
        why = "of another model or other settings";
        return nullptr;
    }
    bool     whole = h.n_tokens <= n_max_tokens && h.n_parts <= h.n_tokens;
    uint64_t at    = sizeof(h);
    at += whole ? h.n_tokens * sizeof(llama_token) + h.n_parts * sizeof(part_header) : 0;
    whole             = whole && at <= n_bytes && read_all(file.get(), head.tokens, h.n_tokens) &&
                        read_all(file.get(), head.sizes, h.n_parts) &&
                        checksum_of(h, head.tokens, head.sizes) == h.head_checksum;
    uint64_t n_tokens = 0;
    for (size_t i = 0; whole && i < head.sizes.size(); i++) {
        whole = head.sizes[i].n_bytes <= n_bytes - at && head.sizes[i].n_tokens <= h.n_tokens - n_tokens;
        at += head.sizes[i].n_bytes;
        n_tokens += head.sizes[i].n_tokens;
    }
    if (!whole || at != n_bytes || n_tokens != h.n_tokens) {
        why = "incomplete or damaged";
        return nullptr;
    }
    head.fingerprint    = h.fingerprint;
    head.adapters       = h.adapters;
    head.parts_checksum = h.parts_checksum;
    return file;
}

snapshot_parts read_parts(FILE * file, const snapshot_head & head, const std::function<void()> & pulse,
                          const char *& why) {
    snapshot_parts parts;
    try {
        for (const part_header & size : head.sizes) {
            parts.push_back(std::make_shared<snapshot_part>(size.n_tokens, size.n_bytes));
            for (uint64_t at = 0; at < size.n_bytes; at += n_piece) {
                const uint64_t n = std::min(n_piece, size.n_bytes - at);
                if (fread(parts.back()->data.get() + at, 1, n, file) != n) {
                    why = ferror(file) ? strerror(errno) : nullptr;
                    return {};
                }
                pulse();
            }
        }
    } catch (const std::bad_alloc &) {
        why = strerror(ENOMEM);
        return {};
    }
    return checksum_of(parts) == head.parts_checksum ? parts : snapshot_parts();
}

//
// writing
//

static bool write_parts(FILE * file, const snapshot_parts & parts, const std::function<void()> & pulse) {
    for (const auto & part : parts) {
        for (uint64_t at = 0; at < part->n_bytes; at += n_piece) {
            const uint64_t n = std::min(n_piece, part->n_bytes - at);
            if (fwrite(part->data.get() + at, 1, n, file) != n) {
                return false;
            }
            pulse();
        }
    }
    return true;
}

int write_snapshot(const std::string & path, uint64_t fingerprint, uint64_t adapters,
                   const std::vector<llama_token> & tokens, const snapshot_parts & parts,
                   const std::function<void()> & pulse) {
    const int fd   = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *    file = fd < 0 ? nullptr : fdopen(fd, "wb");
    if (!file) {
        return errno;
    }
    file_header h = {};
    memcpy(h.magic, magic, sizeof(magic));
    h.fingerprint = fingerprint;
    h.adapters    = adapters;
    h.n_tokens    = tokens.size();
    h.n_parts     = parts.size();
    std::vector<part_header> sizes;
    for (const auto & part : parts) {
        sizes.push_back({part->n_tokens, part->n_bytes});
    }
    h.parts_checksum = checksum_of(parts);
    h.head_checksum  = checksum_of(h, tokens, sizes);

    const bool written = fwrite(&h, sizeof(h), 1, file) == 1 &&
                         fwrite(tokens.data(), sizeof(llama_token), h.n_tokens, file) == h.n_tokens &&
                         fwrite(sizes.data(), sizeof(part_header), h.n_parts, file) == h.n_parts &&
                         write_parts(file, parts, pulse);
    int        error   = written ? 0 : errno;
    if (fclose(file) != 0 && error == 0) {
        error = errno;
    }
    if (error != 0) {
        unlink(path.c_str());
    }
    return error;
}
