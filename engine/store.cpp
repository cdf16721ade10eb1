#include "store.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

static const char     magic[8]     = {'s', 'r', 'b', '-', 'k', 'v', '3', '\n'};
static const char *   extension    = ".kv";
static const uint64_t n_max_tokens = 1u << 28;

// A file: this header, the tokens, a part_header for each part, the parts. What comes before the parts, the head,
// has a checksum of its own: it is read without them.
struct file_header {
    char     magic[8];
    uint64_t fingerprint;
    uint64_t adapters;
    uint64_t n_tokens;
    uint64_t n_parts;
    uint64_t parts_checksum;
    uint64_t head_checksum; // of everything else in the head
};

struct part_header {
    uint64_t n_tokens;
    uint64_t n_bytes;
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

static uint64_t bytes_of(const snapshot_parts & parts) {
    uint64_t n = 0;
    for (const auto & part : parts) {
        n += part->n_bytes;
    }
    return n;
}

static void log_miss(const fs::path & file, const char * why) {
    fprintf(stderr, "llama-batched: prefix cache: %s: %s\n", file.filename().c_str(), why);
}

namespace {

struct closer {
    void operator()(FILE * f) const { fclose(f); }
};
using file_ptr = std::unique_ptr<FILE, closer>;

} // namespace

prefix_store::prefix_store(store_params p) : params(std::move(p)) {
    if (has_disk()) {
        umask(S_IRWXG | S_IRWXO); // what the files hold is people's prompts
        std::error_code failed;
        fs::create_directories(params.directory, failed);
        if (failed) {
            fprintf(stderr, "llama-batched: prefix cache: %s: %s\n", params.directory.c_str(),
                    failed.message().c_str());
        }
        scan_folder();
        writer = std::thread([this] { write_files(); });
    }
}

prefix_store::~prefix_store() {
    if (writer.joinable()) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            closing = true;
        }
        changed.notify_one();
        writer.join();
    }
}

//
// in memory
//

void prefix_store::hold(snapshot & s, const snapshot_parts & parts) {
    for (const auto & part : parts) {
        n_ram_bytes += part->n_snapshots++ == 0 ? part->n_bytes : 0;
    }
    s.parts = parts;
}

void prefix_store::let_go(snapshot & s) {
    for (const auto & part : s.parts) {
        n_ram_bytes -= --part->n_snapshots == 0 ? part->n_bytes : 0;
    }
    s.parts.clear();
}

int32_t common_length(const std::vector<llama_token> & a, const std::vector<llama_token> & b, int32_t n_max) {
    const int32_t n = std::max(std::min({(int32_t) a.size(), (int32_t) b.size(), n_max}), 0);
    return (int32_t) (std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

// Whether a snapshot of `longer` serves wherever one of `shorter` would.
bool prefix_store::covers(const std::vector<llama_token> & longer,
                          const std::vector<llama_token> & shorter) const {
    return (params.exact ? longer.size() == shorter.size() : longer.size() >= shorter.size()) &&
           std::equal(shorter.begin(), shorter.end(), longer.begin());
}

int32_t prefix_store::n_held(const std::vector<llama_token> & tokens, uint64_t adapters, bool on_disk) const {
    int32_t most = 0;
    for (const snapshot & s : snapshots) {
        const bool    out = s.adapters != adapters || (on_disk && s.file.empty());
        const int32_t n   = out ? 0 : common_length(s.tokens, tokens);
        if (!params.exact || n == (int32_t) s.tokens.size()) {
            most = std::max(most, n);
        }
    }
    return most;
}

snapshot_parts prefix_store::parts_of(const std::vector<llama_token> & tokens, uint64_t adapters) const {
    snapshot_parts best;
    int32_t        most = 0;
    for (const snapshot & s : snapshots) {
        const bool    out    = params.exact || s.adapters != adapters;
        const int32_t n_same = out ? 0 : common_length(s.tokens, tokens);
        int32_t       n      = 0;
        auto          part   = s.parts.begin();
        for (; part != s.parts.end() && n + (int32_t) (*part)->n_tokens <= n_same; part++) {
            n += (int32_t) (*part)->n_tokens;
        }
        if (n > most) {
            most = n;
            best.assign(s.parts.begin(), part);
        }
    }
    return best;
}

// Files share nothing: one is of a whole text.
bool prefix_store::worth_a_file(const std::vector<llama_token> & tokens, uint64_t adapters) const {
    return has_disk() && (tokens.size() - (size_t) n_held(tokens, adapters, true)) * 4 >= tokens.size();
}

void prefix_store::put(const std::vector<llama_token> & tokens, uint64_t adapters,
                       const snapshot_parts & parts, bool to_disk) {
    const bool fits    = bytes_of(parts) <= params.ram_bytes;
    const bool in_file = (to_disk || !fits) && worth_a_file(tokens, adapters);
    if (!fits && !in_file) {
        return;
    }
    // one that it begins with says nothing that the new one does not
    snapshots.remove_if([&](snapshot & s) {
        const bool needless = s.file.empty() && s.adapters == adapters && covers(tokens, s.tokens);
        if (needless) {
            let_go(s);
        }
        return needless;
    });
    snapshot & s = snapshots.emplace_front();
    s.tokens     = tokens;
    s.adapters   = adapters;
    if (in_file) {
        enqueue(s, parts);
    }
    if (fits) {
        hold(s, parts);
        limit_memory();
    }
}

// What was used longest ago goes, to disk if there is one.
void prefix_store::limit_memory() {
    for (auto s = snapshots.end(); n_ram_bytes > params.ram_bytes && s != snapshots.begin();) {
        --s;
        if (s->parts.empty()) {
            continue;
        }
        if (s->file.empty() && worth_a_file(s->tokens, s->adapters)) {
            enqueue(*s, s->parts);
        }
        let_go(*s);
        if (s->file.empty()) {
            s = snapshots.erase(s);
        }
    }
}

//
// on disk
//

fs::path prefix_store::path_of(const snapshot & s) const {
    const size_t   n_bytes = s.tokens.size() * sizeof(llama_token);
    const uint64_t seed    = params.fingerprint ^ s.adapters;
    const uint64_t a       = XXH64(s.tokens.data(), n_bytes, seed);
    const uint64_t b       = XXH64(s.tokens.data(), n_bytes, ~seed);
    char           name[48];
    snprintf(name, sizeof(name), "%016llx%016llx%s", (unsigned long long) a, (unsigned long long) b,
             extension);
    return fs::path(params.directory) / name;
}

template <typename T> static bool read_all(FILE * file, std::vector<T> & values, uint64_t n) {
    values.resize(n);
    return fread(values.data(), sizeof(T), n, file) == n;
}

// Reads what a file says of itself, without its parts. nullptr: it is of no use to us.
static file_ptr open_snapshot(const fs::path & path, uint64_t fingerprint, file_header & h,
                              std::vector<llama_token> & tokens, std::vector<part_header> & sizes) {
    file_ptr        file(fopen(path.c_str(), "rb"));
    std::error_code failed;
    const uint64_t  n_bytes = fs::file_size(path, failed);
    if (!file || failed || fread(&h, sizeof(h), 1, file.get()) != 1 ||
        memcmp(h.magic, magic, sizeof(magic)) != 0) {
        log_miss(path, "not a prefix of this version");
        return nullptr;
    }
    if (h.fingerprint != fingerprint) {
        log_miss(path, "of another model or other settings");
        return nullptr;
    }
    bool     whole = h.n_tokens <= n_max_tokens && h.n_parts <= h.n_tokens;
    uint64_t at    = sizeof(h);
    at += whole ? h.n_tokens * sizeof(llama_token) + h.n_parts * sizeof(part_header) : 0;
    whole = whole && at <= n_bytes && read_all(file.get(), tokens, h.n_tokens) &&
            read_all(file.get(), sizes, h.n_parts) && checksum_of(h, tokens, sizes) == h.head_checksum;
    uint64_t n_tokens = 0;
    for (size_t i = 0; whole && i < sizes.size(); i++) {
        whole = sizes[i].n_bytes <= n_bytes - at && sizes[i].n_tokens <= h.n_tokens - n_tokens;
        at += sizes[i].n_bytes;
        n_tokens += sizes[i].n_tokens;
    }
    if (!whole || at != n_bytes || n_tokens != h.n_tokens) {
        log_miss(path, "incomplete or damaged");
        return nullptr;
    }
    return file;
}

std::list<snapshot> & prefix_store::all() {
    if (has_disk()) {
        scan_folder();
    }
    return snapshots;
}

// Other processes write files too; a folder that has not changed is not read again.
void prefix_store::scan_folder() {
    std::error_code failed;
    const auto      now = fs::last_write_time(params.directory, failed);
    if (failed || now == scanned) {
        return;
    }
    scanned = now;
    for (const fs::directory_entry & entry : fs::directory_iterator(params.directory, failed)) {
        const fs::path & path = entry.path();
        if (path.extension() != extension || !known_files.insert(path.filename().string()).second) {
            continue;
        }
        file_header              h;
        std::vector<part_header> sizes;
        snapshot                 s;
        if (open_snapshot(path, params.fingerprint, h, s.tokens, sizes)) {
            s.file     = path;
            s.adapters = h.adapters;
            snapshots.push_back(std::move(s));
        }
    }
}

snapshot_parts prefix_store::load(snapshot & s) {
    const auto at =
        std::find_if(snapshots.begin(), snapshots.end(), [&](const snapshot & x) { return &x == &s; });
    snapshots.splice(snapshots.begin(), snapshots, at); // s is the first now
    std::error_code ignored;
    if (!s.parts.empty()) {
        if (!s.file.empty()) {
            fs::last_write_time(s.file, fs::file_time_type::clock::now(), ignored);
        }
        return s.parts;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        for (const job & j : jobs) {
            if (j.file == s.file) {
                return j.parts;
            }
        }
    }
    if (!fs::exists(s.file, ignored)) { // somebody has made room
        known_files.erase(s.file.filename().string());
        snapshots.pop_front();
        return {};
    }
    file_header              h;
    std::vector<llama_token> tokens;
    std::vector<part_header> sizes;
    const file_ptr           file = open_snapshot(s.file, params.fingerprint, h, tokens, sizes);
    snapshot_parts           parts;
    bool                     whole = file && tokens == s.tokens && h.adapters == s.adapters;
    for (size_t i = 0; i < sizes.size() && whole; i++) {
        parts.push_back(std::make_shared<snapshot_part>(sizes[i].n_tokens, sizes[i].n_bytes));
        whole = fread(parts[i]->data.get(), 1, parts[i]->n_bytes, file.get()) == parts[i]->n_bytes;
    }
    if (whole && checksum_of(parts) != h.parts_checksum) {
        log_miss(s.file, "damaged");
        fs::remove(s.file, ignored);
        known_files.erase(s.file.filename().string());
        whole = false;
    }
    if (!whole) {
        snapshots.pop_front();
        return {};
    }
    fs::last_write_time(s.file, fs::file_time_type::clock::now(), ignored); // used last
    if (bytes_of(parts) <= params.ram_bytes) {
        hold(s, parts);
        limit_memory();
    }
    return parts;
}

void prefix_store::enqueue(snapshot & s, const snapshot_parts & parts) {
    s.file = path_of(s);
    known_files.insert(s.file.filename().string());
    {
        const std::lock_guard<std::mutex> lock(mutex);
        jobs.push_back({s.tokens, s.adapters, parts, s.file});
    }
    changed.notify_one();
}

void prefix_store::write_files() {
    while (true) {
        const job * next = nullptr; // stays where it is while others are appended
        {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [this] { return closing || !jobs.empty(); });
            if (jobs.empty()) {
                return;
            }
            next = &jobs.front();
        }
        const bool written = write_file(*next);
        {
            const std::lock_guard<std::mutex> lock(mutex);
            jobs.pop_front();
        }
        if (written) {
            limit_folder();
        }
    }
}

// Under a temporary name of this process first: a reader sees a whole file or none.
bool prefix_store::write_file(const job & j) const {
    file_header h = {};
    memcpy(h.magic, magic, sizeof(magic));
    h.fingerprint = params.fingerprint;
    h.adapters    = j.adapters;
    h.n_tokens    = j.tokens.size();
    h.n_parts     = j.parts.size();
    std::vector<part_header> sizes;
    for (const auto & part : j.parts) {
        sizes.push_back({part->n_tokens, part->n_bytes});
    }
    h.parts_checksum = checksum_of(j.parts);
    h.head_checksum  = checksum_of(h, j.tokens, sizes);

    const fs::path temporary = j.file.string() + "." + std::to_string(getpid());
    FILE *         file      = fopen(temporary.c_str(), "wb");
    bool           written   = file && fwrite(&h, sizeof(h), 1, file) == 1 &&
                               fwrite(j.tokens.data(), sizeof(llama_token), h.n_tokens, file) == h.n_tokens &&
                               fwrite(sizes.data(), sizeof(part_header), h.n_parts, file) == h.n_parts;
    for (const auto & part : j.parts) {
        written = written && fwrite(part->data.get(), 1, part->n_bytes, file) == part->n_bytes;
    }
    written = file && fclose(file) == 0 && written;
    std::error_code failed;
    if (written) {
        fs::rename(temporary, j.file, failed);
        written = !failed;
    }
    if (!written) {
        log_miss(j.file, failed ? failed.message().c_str() : strerror(errno));
        fs::remove(temporary, failed);
    }
    return written;
}

// The files used longest ago go, whoever wrote them, and what a killed writer left behind.
void prefix_store::limit_folder() const {
    struct entry {
        fs::file_time_type used;
        uint64_t           n_bytes;
        fs::path           path;
    };
    std::vector<entry> files;
    uint64_t           n_bytes = 0;
    std::error_code    failed;
    for (const fs::directory_entry & f : fs::directory_iterator(params.directory, failed)) {
        const uint64_t size = f.file_size(failed);
        if (!failed && f.path().filename().string().find(extension) != std::string::npos) {
            files.push_back({f.last_write_time(failed), size, f.path()});
            n_bytes += size;
        }
    }
    std::sort(files.begin(), files.end(), [](const entry & a, const entry & b) { return a.used < b.used; });
    for (const entry & f : files) {
        if (n_bytes <= params.disk_bytes) {
            return;
        }
        fs::remove(f.path, failed);
        n_bytes -= f.n_bytes;
    }
}
