#include "store.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

static const char     magic[8]     = {'s', 'r', 'b', '-', 'k', 'v', '2', '\n'};
static const char *   extension    = ".kv";
static const uint64_t n_max_tokens = 1u << 28;

// A file: this header, the tokens, the state. The checksum is of both and of the header before it.
struct file_header {
    char     magic[8];
    uint64_t fingerprint;
    uint64_t adapters;
    uint64_t n_tokens;
    uint64_t n_bytes; // of the state
    uint64_t checksum;
};

static uint64_t checksum_of(const file_header & h, const llama_token * tokens, const uint8_t * state) {
    uint64_t sum = XXH64(&h, offsetof(file_header, checksum), 0);
    sum          = XXH64(tokens, h.n_tokens * sizeof(llama_token), sum);
    return XXH64(state, h.n_bytes, sum);
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

uint64_t prefix_store::n_ram_bytes() const {
    uint64_t n = 0;
    for (const snapshot & s : snapshots) {
        n += s.state ? s.n_bytes : 0;
    }
    return n;
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

int32_t prefix_store::n_held(const std::vector<llama_token> & tokens, uint64_t adapters) const {
    int32_t most = 0;
    for (const snapshot & s : snapshots) {
        const int32_t n = s.failed || s.adapters != adapters ? 0 : common_length(s.tokens, tokens);
        if (!params.exact || n == (int32_t) s.tokens.size()) {
            most = std::max(most, n);
        }
    }
    return most;
}

void prefix_store::put(const std::vector<llama_token> & tokens, uint64_t adapters,
                       std::vector<uint8_t> && state, bool to_disk) {
    // one that it begins with says nothing that the new one does not
    snapshots.remove_if([&](const snapshot & s) {
        return s.file.empty() && s.adapters == adapters && covers(tokens, s.tokens);
    });
    snapshot & s = snapshots.emplace_front();
    s.tokens     = tokens;
    s.adapters   = adapters;
    s.n_bytes    = state.size();
    s.state      = std::make_shared<std::vector<uint8_t>>(std::move(state));
    if (to_disk && has_disk()) {
        enqueue(s);
    }
    limit_memory();
}

// What was used longest ago goes, to disk if there is one.
void prefix_store::limit_memory() {
    uint64_t n_bytes = n_ram_bytes();
    for (auto s = snapshots.end(); n_bytes > params.ram_bytes && s != snapshots.begin();) {
        --s;
        if (!s->state) {
            continue;
        }
        n_bytes -= s->n_bytes;
        if (s->file.empty() && has_disk()) {
            enqueue(*s);
        }
        s->state.reset();
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

// Reads what a file says of itself, without its state. nullptr: it is of no use to us.
static file_ptr open_snapshot(const fs::path & path, uint64_t fingerprint, file_header & h,
                              std::vector<llama_token> & tokens) {
    file_ptr        file(fopen(path.c_str(), "rb"));
    std::error_code failed;
    const uint64_t  size = fs::file_size(path, failed);
    if (!file || failed || fread(&h, sizeof(h), 1, file.get()) != 1 ||
        memcmp(h.magic, magic, sizeof(magic)) != 0) {
        log_miss(path, "not a prefix of this version");
        return nullptr;
    }
    if (h.fingerprint != fingerprint) {
        log_miss(path, "of another model or other settings");
        return nullptr;
    }
    if (h.n_tokens > n_max_tokens || size != sizeof(h) + h.n_tokens * sizeof(llama_token) + h.n_bytes) {
        log_miss(path, "incomplete");
        return nullptr;
    }
    tokens.resize(h.n_tokens);
    if (fread(tokens.data(), sizeof(llama_token), h.n_tokens, file.get()) != h.n_tokens) {
        log_miss(path, "cannot be read");
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
        file_header h;
        snapshot    s;
        if (open_snapshot(path, params.fingerprint, h, s.tokens)) {
            s.file     = path;
            s.adapters = h.adapters;
            s.n_bytes  = h.n_bytes;
            snapshots.push_back(std::move(s));
        }
    }
}

std::shared_ptr<std::vector<uint8_t>> prefix_store::load(snapshot & s) {
    const auto at =
        std::find_if(snapshots.begin(), snapshots.end(), [&](const snapshot & x) { return &x == &s; });
    snapshots.splice(snapshots.begin(), snapshots, at);
    std::error_code ignored;
    if (s.state) {
        if (!s.file.empty()) {
            fs::last_write_time(s.file, fs::file_time_type::clock::now(), ignored);
        }
        return s.state;
    }
    if (!fs::exists(s.file, ignored)) {
        const std::lock_guard<std::mutex> lock(mutex);
        s.failed = unwritten.count(s.file.filename().string()) == 0; // somebody has made room
        if (s.failed) {
            known_files.erase(s.file.filename().string());
        }
        return nullptr;
    }
    file_header              h;
    std::vector<llama_token> tokens;
    const file_ptr           file  = open_snapshot(s.file, params.fingerprint, h, tokens);
    auto                     state = std::make_shared<std::vector<uint8_t>>(file ? h.n_bytes : 0);
    if (!file || tokens != s.tokens || h.adapters != s.adapters ||
        fread(state->data(), 1, h.n_bytes, file.get()) != h.n_bytes) {
        s.failed = true;
        return nullptr;
    }
    if (checksum_of(h, tokens.data(), state->data()) != h.checksum) {
        log_miss(s.file, "damaged");
        fs::remove(s.file, ignored);
        s.failed = true;
        return nullptr;
    }
    fs::last_write_time(s.file, fs::file_time_type::clock::now(), ignored); // used last
    if (h.n_bytes <= params.ram_bytes) {
        s.state = state;
        limit_memory();
    }
    return state;
}

void prefix_store::enqueue(snapshot & s) {
    s.file = path_of(s);
    known_files.insert(s.file.filename().string());
    {
        const std::lock_guard<std::mutex> lock(mutex);
        jobs.push_back({s.tokens, s.adapters, s.state, s.file});
        unwritten.insert(s.file.filename().string());
    }
    changed.notify_one();
}

void prefix_store::write_files() {
    while (true) {
        job next;
        {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [this] { return closing || !jobs.empty(); });
            if (jobs.empty()) {
                return;
            }
            next = std::move(jobs.front());
            jobs.pop_front();
        }
        const bool written = write_file(next);
        {
            const std::lock_guard<std::mutex> lock(mutex);
            unwritten.erase(next.file.filename().string());
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
    h.n_bytes     = j.state->size();
    h.checksum    = checksum_of(h, j.tokens.data(), j.state->data());

    const fs::path temporary = j.file.string() + "." + std::to_string(getpid());
    FILE *         file      = fopen(temporary.c_str(), "wb");
    bool           written   = file && fwrite(&h, sizeof(h), 1, file) == 1 &&
                               fwrite(j.tokens.data(), sizeof(llama_token), h.n_tokens, file) == h.n_tokens &&
                               fwrite(j.state->data(), 1, h.n_bytes, file) == h.n_bytes;
    written                  = file && fclose(file) == 0 && written;
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
