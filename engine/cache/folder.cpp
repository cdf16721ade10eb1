#include "cache/folder.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

namespace fs = std::filesystem;

static const char *   extension     = ".kv";
static const size_t   n_name        = 32;      // hexadecimal digits before it
static const size_t   n_waiting_max = 64;      // files that wait to be written
static const int64_t  t_opening_us  = 1000000; // that requests wait for the model's hash, once it is loaded
static const int64_t  t_hangs_us    = 5000000; // without a MiB or a file: the disk hangs
static const uint64_t t_unfinished_ns =
    300000000000;                            // an unfinished file that has rested so long is nobody's
static const uint64_t t_tick_ns = 100000000; // a folder may change twice within a file system's tick

static int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static uint64_t wall_ns() {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static uint64_t changed_ns(const struct stat & s) {
#if defined(__APPLE__)
    return (uint64_t) s.st_mtimespec.tv_sec * 1000000000u + (uint64_t) s.st_mtimespec.tv_nsec;
#else
    return (uint64_t) s.st_mtim.tv_sec * 1000000000u + (uint64_t) s.st_mtim.tv_nsec;
#endif
}

static file_identity identity_of(const struct stat & s) {
    return {(uint64_t) s.st_dev, (uint64_t) s.st_ino, (uint64_t) s.st_size, changed_ns(s)};
}

static bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// A name may hold anything, and the log is read line by line.
static std::string printable(const std::string & name) {
    std::string text;
    for (const unsigned char c : name.substr(0, 100)) {
        char code[8];
        snprintf(code, sizeof(code), c < ' ' || c > '~' || c == '\\' ? "\\x%02x" : "%c", c);
        text += code;
    }
    return text;
}

static void name_thread() {
#if defined(__APPLE__)
    pthread_setname_np("prefix-cache");
#elif defined(__linux__)
    pthread_setname_np(pthread_self(), "prefix-cache");
#endif
}

//
// life
//

prefix_folder::prefix_folder(folder_params p)
    : params(std::move(p)), weights(weight_files::of_model(params.model)) {
    umask(S_IRWXG | S_IRWXO); // what the files hold is people's prompts
    std::error_code failed;
    fs::create_directories(params.path, failed);
    if (failed) {
        complain_once(last_list_error, failed.message());
    }
    thread = std::thread([this] { run(); });
}

prefix_folder::~prefix_folder() {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        closing = dropped = true;
    }
    changed.notify_one();
    if (thread.joinable()) {
        thread.join();
    }
}

void prefix_folder::open(uint64_t s) {
    const bool same = weights.unchanged(); // else another file was loaded than is hashed
    const std::lock_guard<std::mutex> lock(mutex);
    loaded   = true;
    settings = s;
    dropped  = !same;
    t_loaded = t_alive = now_us();
    changed.notify_one();
}

// A thread that hangs in the system is left behind.
void prefix_folder::finish() {
    std::unique_lock<std::mutex> lock(mutex);
    closing = true;
    t_alive = now_us();
    changed.notify_one();
    while (!is_over && now_us() - t_alive < t_hangs_us) {
        ended.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (!is_over) {
        fprintf(stderr, "llama-batched: prefix cache: %zu prefixes are not written: %s takes too long\n",
                jobs.size(), printable(params.path).c_str());
        thread.detach();
    }
}

// False: give up.
bool prefix_folder::pulse(bool progress) {
    const std::lock_guard<std::mutex> lock(mutex);
    t_alive = progress ? now_us() : t_alive;
    return !dropped && !(closing && jobs.empty());
}

void prefix_folder::run() {
    name_thread();
    if (hash_model()) {
        look(); // before the first question
        while (true) {
            serve_questions();
            touch_files();
            if (!write_next()) {
                std::unique_lock<std::mutex> lock(mutex);
                if (closing) {
                    break;
                }
                changed.wait(lock, [this] {
                    return closing || !questions.empty() || !touched.empty() || !jobs.empty();
                });
            }
        }
    }
    const std::lock_guard<std::mutex> lock(mutex);
    is_over = true;
    ended.notify_one();
}

bool prefix_folder::hash_model() {
    const auto contents = weights.hash(params.path, true, [this](bool reads) { return pulse(reads); });
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return loaded || closing; });
        if (contents && loaded && !dropped) {
            fingerprint = XXH64(&settings, sizeof(settings), *contents);
            now         = usable;
            return true;
        }
    }
    give_up("not used: the model's files cannot be read, or were replaced while they were loaded");
    return false;
}

// All that was asked for or waits comes to nothing, and so will what comes.
void prefix_folder::give_up(const char * why) {
    std::unique_lock<std::mutex> lock(mutex);
    const bool                   silent = closing && jobs.empty(); // nobody misses anything
    now                                 = useless;
    n_answered                          = n_asked;
    for (const job & j : jobs) {
        news.push_back({folder_news::gone, j.file, {}, 0, {}});
    }
    jobs.clear();
    questions.clear();
    n_job_bytes = 0;
    if (!silent) {
        lock.unlock();
        complain("", why);
    }
}

//
// the engine's side
//

uint64_t prefix_folder::write(const std::vector<llama_token> & tokens, uint64_t adapters,
                              const snapshot_parts & parts) {
    const uint64_t                    n_bytes = bytes_of(parts);
    const std::lock_guard<std::mutex> lock(mutex);
    const bool                        full =
        !jobs.empty() && (jobs.size() >= n_waiting_max || n_job_bytes + n_bytes > params.n_bytes_waiting_max);
    if (now == useless || full) {
        n_refused += full;
        return 0;
    }
    jobs.push_back({tokens, adapters, parts, ++last_file});
    n_job_bytes += n_bytes;
    changed.notify_one();
    return last_file;
}

void prefix_folder::touch(uint64_t file) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (now == usable) {
        touched.insert(file);
        changed.notify_one();
    }
}

bool prefix_folder::hangs() const {
    return now == opening ? now_us() - t_loaded > t_opening_us
                          : n_answered < n_asked && now_us() - t_alive > t_hangs_us;
}

bool prefix_folder::answers() const {
    const std::lock_guard<std::mutex> lock(mutex);
    return now != useless && !hangs();
}

uint64_t prefix_folder::ask_for_list() {
    return ask_for(0);
}

uint64_t prefix_folder::ask_for(uint64_t file) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (now == useless) {
        return n_answered;
    }
    t_alive = n_answered == n_asked ? now_us() : t_alive;
    questions.push_back(file);
    changed.notify_one();
    return ++n_asked;
}

bool prefix_folder::is_open(uint64_t question) const {
    const std::lock_guard<std::mutex> lock(mutex);
    return n_answered < question && now != useless && !hangs();
}

std::vector<folder_news> prefix_folder::take_news() {
    const std::lock_guard<std::mutex> lock(mutex);
    return std::exchange(news, {});
}

void prefix_folder::tell(folder_news && n) {
    const std::lock_guard<std::mutex> lock(mutex);
    news.push_back(std::move(n));
}

//
// what was asked for
//

// Between two MiB of a file that is written, too.
void prefix_folder::serve_questions() {
    while (true) {
        uint64_t file;
        {
            const std::lock_guard<std::mutex> lock(mutex);
            t_alive = now_us();
            if (questions.empty()) {
                return;
            }
            file = questions.front();
            questions.pop_front();
        }
        if (file == 0) {
            look();
        } else {
            read_file(file);
        }
        const std::lock_guard<std::mutex> lock(mutex);
        n_answered++;
    }
}

// Other processes write and remove files, too; a folder that has not changed is not listed again.
void prefix_folder::look() {
    struct stat s;
    const int   error = stat(params.path.c_str(), &s) != 0 ? errno : S_ISDIR(s.st_mode) ? 0 : ENOTDIR;
    if (error != 0) {
        if (error != ENOENT) { // a deleted one is made again
            complain_once(last_list_error, strerror(error));
        }
        listed_ns = 0;
        while (!known.empty()) {
            forget(known.begin()->first);
        }
        return;
    }
    if (changed_ns(s) != listed_ns) {
        listed_ns = changed_ns(s) + t_tick_ns < wall_ns() ? changed_ns(s) : 0;
        list();
    }
}

void prefix_folder::list() {
    DIR * folder = opendir(params.path.c_str());
    if (!folder) {
        complain_once(last_list_error, strerror(errno));
        listed_ns = 0;
        return;
    }
    last_list_error.clear();
    for (auto & [name, k] : known) {
        k.seen = false;
    }
    while (const dirent * entry = readdir(folder)) {
        const std::string name = entry->d_name;
        if (ends_with(name, extension)) {
            look_at(name);
            pulse(true);
        }
    }
    closedir(folder);
    for (auto k = known.begin(); k != known.end();) {
        const auto next = std::next(k);
        if (!k->second.seen) {
            forget(k->first);
        }
        k = next;
    }
}

void prefix_folder::look_at(const std::string & name) {
    const auto at = known.find(name);
    if (at != known.end() && at->second.file != 0) {
        at->second.seen = true;
        return;
    }
    struct stat s;
    if (lstat(path_of(name).c_str(), &s) != 0) {
        return;
    }
    if (at != known.end() && at->second.identity == identity_of(s)) {
        at->second.seen = true;
        return;
    }
    snapshot_head  head;
    const char *   why   = nullptr;
    const file_ptr file  = open_snapshot(path_of(name), fingerprint, head, why);
    known_file &   entry = known[name];
    entry                = {0, identity_of(s), true};
    if (!file) {
        if (why) {
            complain(name, why);
        }
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        entry.file = ++last_file;
    }
    names[entry.file] = name;
    tell({folder_news::found, entry.file, std::move(head.tokens), head.adapters, {}});
}

void prefix_folder::read_file(uint64_t file) {
    snapshot_parts parts;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        for (const job & j : jobs) {
            parts = j.file == file ? j.parts : parts;
        }
    }
    const auto at = names.find(file);
    if (parts.empty() && at != names.end()) {
        const std::string name = at->second;
        snapshot_head     head;
        const char *      why = nullptr;
        if (const file_ptr opened = open_snapshot(path_of(name), fingerprint, head, why)) {
            parts = read_parts(opened.get(), head, [this] { pulse(true); });
            if (parts.empty()) {
                complain(name, "damaged");
                unlink(path_of(name).c_str());
            }
        } else if (why) {
            complain(name, why);
        }
        if (parts.empty()) {
            forget(name);
            return;
        }
        utimensat(AT_FDCWD, path_of(name).c_str(), nullptr, AT_SYMLINK_NOFOLLOW); // used last
    }
    tell({parts.empty() ? folder_news::gone : folder_news::read, file, {}, 0, parts});
}

void prefix_folder::touch_files() {
    std::unordered_set<uint64_t> files;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        files.swap(touched);
    }
    for (const uint64_t file : files) {
        const auto at = names.find(file);
        if (at != names.end()) {
            utimensat(AT_FDCWD, path_of(at->second).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
        }
    }
}

void prefix_folder::forget(const std::string & name) {
    const auto at = known.find(name);
    if (at == known.end()) {
        return;
    }
    if (const uint64_t file = at->second.file) {
        names.erase(file);
        tell({folder_news::gone, file, {}, 0, {}});
    }
    known.erase(at);
}

//
// writing
//

std::string prefix_folder::name_of(const job & j) const {
    const size_t   n_bytes = j.tokens.size() * sizeof(llama_token);
    const uint64_t seed    = fingerprint ^ j.adapters;
    const uint64_t a       = XXH64(j.tokens.data(), n_bytes, seed);
    const uint64_t b       = XXH64(j.tokens.data(), n_bytes, ~seed);
    char           name[48];
    snprintf(name, sizeof(name), "%016llx%016llx%s", (unsigned long long) a, (unsigned long long) b,
             extension);
    return name;
}

// False: nothing waits.
bool prefix_folder::write_next() {
    const job * next      = nullptr; // stays where it is while others are appended
    uint64_t    n_dropped = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (jobs.empty() || dropped) {
            return false;
        }
        next      = &jobs.front();
        n_dropped = std::exchange(n_refused, 0);
    }
    if (n_dropped > 0) {
        complain("", std::to_string(n_dropped) + " prefixes are not written: too many wait for the disk");
    }
    look(); // what others have removed is written again
    const std::string name = name_of(*next);
    const auto        at   = known.find(name);
    if (at != known.end() && at->second.file != 0) { // another process was faster
        tell({folder_news::gone, next->file, {}, 0, {}});
    } else if (write_as(*next, name) == 0) {
        known[name]       = {next->file, {}, true};
        names[next->file] = name;
        limit(params.n_bytes_max);
    } else {
        tell({folder_news::gone, next->file, {}, 0, {}});
    }
    const std::lock_guard<std::mutex> lock(mutex);
    n_job_bytes -= bytes_of(next->parts);
    jobs.pop_front();
    return true;
}

// 0, or an errno.
int prefix_folder::write_as(const job & j, const std::string & name) {
    int error = try_to_write(j, name);
    if (error == ENOENT) { // somebody has deleted the folder
        std::error_code failed;
        fs::create_directories(params.path, failed);
        error = try_to_write(j, name);
    }
    if ((error == ENOSPC || error == EDQUOT) && make_room(bytes_of(j.parts))) {
        error = try_to_write(j, name);
    }
    if (error == 0) {
        last_write_error.clear();
    } else {
        complain_once(last_write_error, strerror(error));
    }
    return error;
}

// Under a temporary name of this process first: a reader sees a whole file or none.
int prefix_folder::try_to_write(const job & j, const std::string & name) {
    const std::string path      = path_of(name);
    const std::string temporary = path + "." + std::to_string(getpid());
    const auto        write     = [&] {
        return write_snapshot(temporary, fingerprint, j.adapters, j.tokens, j.parts,
                              [this] { serve_questions(); });
    };
    int error = write();
    if (error == EEXIST && unlink(temporary.c_str()) == 0) { // of an ended process that had our number
        error = write();
    }
    if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) {
        error = errno;
        unlink(temporary.c_str());
    }
    return error;
}

//
// room
//

// A name that write_as gives, or with a process's number behind it one that is unfinished.
static bool is_ours(const std::string & name, bool & unfinished) {
    const size_t n_digits = strspn(name.c_str(), "0123456789abcdef");
    const size_t n        = n_name + strlen(extension);
    unfinished            = name.size() > n;
    return n_digits == n_name && name.compare(n_name, strlen(extension), extension) == 0 &&
           (!unfinished ||
            (name[n] == '.' && strspn(name.c_str() + n + 1, "0123456789") == name.size() - n - 1));
}

// Prefixes of our own user, whatever process wrote them; nothing else is ever removed.
std::vector<prefix_folder::own_file> prefix_folder::own_files() const {
    std::vector<own_file> files;
    DIR *                 folder = opendir(params.path.c_str());
    while (const dirent * entry = folder ? readdir(folder) : nullptr) {
        const std::string name = entry->d_name;
        bool              unfinished;
        struct stat       s;
        if (is_ours(name, unfinished) && lstat(path_of(name).c_str(), &s) == 0 && S_ISREG(s.st_mode) &&
            s.st_uid == geteuid()) {
            files.push_back({name, changed_ns(s), (uint64_t) s.st_size, unfinished});
        }
    }
    if (folder) {
        closedir(folder);
    }
    std::sort(files.begin(), files.end(),
              [](const own_file & a, const own_file & b) { return a.used_ns < b.used_ns; });
    return files;
}

// The files used longest ago go, and what a killed writer has left behind.
void prefix_folder::limit(uint64_t n_bytes_max) {
    uint64_t              n_bytes = 0;
    std::vector<own_file> files   = own_files();
    for (const own_file & f : files) {
        n_bytes += f.n_bytes;
    }
    for (const own_file & f : files) {
        const bool abandoned = f.unfinished && f.used_ns + t_unfinished_ns < wall_ns();
        if ((n_bytes > n_bytes_max || abandoned) && unlink(path_of(f.name).c_str()) == 0) {
            n_bytes -= f.n_bytes;
            forget(f.name);
        }
    }
}

// On a full disk; false where all that we have would not be enough.
bool prefix_folder::make_room(uint64_t n_bytes) {
    uint64_t n_own = 0;
    for (const own_file & f : own_files()) {
        n_own += f.n_bytes;
    }
    struct statvfs disk;
    const uint64_t n_free =
        statvfs(params.path.c_str(), &disk) == 0 ? (uint64_t) disk.f_bavail * disk.f_frsize : 0;
    const uint64_t n_wanted = n_bytes + n_bytes / 16 + (64u << 10); // file systems need some for themselves
    if (n_own + n_free < n_wanted) {
        return false;
    }
    limit(n_own - std::min(n_own, n_wanted - std::min(n_wanted, n_free)));
    return true;
}

//
// the log
//

void prefix_folder::complain(const std::string & name, const std::string & why) {
    fprintf(stderr, "llama-batched: prefix cache: %s: %s\n",
            printable(name.empty() ? params.path : name).c_str(), why.c_str());
}

// The same fault again is not told.
void prefix_folder::complain_once(std::string & last, const std::string & why) {
    if (last != why) {
        complain("", why);
        last = why;
    }
}
