#include "store/folder_files.h"

#include "store/folder_space.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace fs = std::filesystem;

static const uint64_t t_tick_ns = 100000000; // a folder may change twice within a file system's tick

//
// the log
//

// A name may hold any bytes, and a line in the log must stay one line.
static std::string printable(const std::string & name) {
    std::string text;
    for (const unsigned char c : name) {
        char code[8];
        snprintf(code, sizeof(code), c < ' ' || c > '~' || c == '\\' ? "\\x%02x" : "%c", c);
        text += code;
    }
    return text;
}

void complain(const std::string & path, const std::string & why) {
    fprintf(stderr, "llama-batched: prefix cache: %s: %s\n", printable(path.substr(0, 100)).c_str(),
            why.c_str());
}

// An error that repeats is logged once.
void folder_files::complain_once(std::string & last, const std::string & why) const {
    if (last != why) {
        complain(path, why);
        last = why;
    }
}

//
// which files there are
//

folder_files::folder_files(std::string p, uint64_t n_bytes_max, folder_calls calls)
    : path(std::move(p)), n_bytes_max(n_bytes_max), calls(std::move(calls)) {
    umask(S_IRWXG | S_IRWXO); // the files hold people's prompts
    std::error_code failed;
    fs::create_directories(path, failed);
    if (failed) {
        complain_once(last_list_error, failed.message());
    }
}

void folder_files::look() {
    struct stat s;
    const int   error = stat(path.c_str(), &s) != 0 ? errno : S_ISDIR(s.st_mode) ? 0 : ENOTDIR;
    if (error != 0) {
        if (error != ENOENT) { // a folder that was removed is created again
            complain_once(last_list_error, strerror(error));
        }
        listed_ns = 0;
        while (!known.empty()) {
            forget(known.begin()->first);
        }
        return;
    }
    const uint64_t changed_ns = identity_of(s).changed_ns;
    if (changed_ns != listed_ns) {
        listed_ns = changed_ns + t_tick_ns < wall_ns() ? changed_ns : 0;
        list();
    }
}

static bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void folder_files::list() {
    DIR * listing = opendir(path.c_str());
    if (!listing) {
        complain_once(last_list_error, strerror(errno));
        listed_ns = 0;
        return;
    }
    last_list_error.clear();
    for (auto & [name, k] : known) {
        k.seen = false;
    }
    while (const dirent * entry = readdir(listing)) {
        const std::string name = entry->d_name;
        if (ends_with(name, prefix_extension)) {
            look_at(name);
            calls.progress();
        }
    }
    closedir(listing);
    for (auto k = known.begin(); k != known.end();) {
        const auto next = std::next(k);
        if (!k->second.seen) {
            forget(k->first);
        }
        k = next;
    }
}

void folder_files::look_at(const std::string & name) {
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
    entry.file        = calls.next_number();
    names[entry.file] = name;
    calls.report({folder_news::found, entry.file, std::move(head.tokens), head.adapters, {}});
}

void folder_files::forget(const std::string & name) {
    const auto at = known.find(name);
    if (at == known.end()) {
        return;
    }
    if (const uint64_t file = at->second.file) {
        names.erase(file);
        calls.report({folder_news::gone, file, {}, 0, {}});
    }
    known.erase(at);
}

//
// reading
//

snapshot_parts folder_files::read(uint64_t file) {
    const auto at = names.find(file);
    if (at == names.end()) {
        calls.report({folder_news::gone, file, {}, 0, {}});
        return {};
    }
    const std::string name = at->second;
    snapshot_head     head;
    snapshot_parts    parts;
    const char *      why = nullptr;
    if (const file_ptr opened = open_snapshot(path_of(name), fingerprint, head, why)) {
        parts = read_parts(opened.get(), head, calls.progress, why);
        if (parts.empty()) {
            complain(name, why ? why : "damaged");
            if (!why) {
                unlink(path_of(name).c_str());
            }
        }
    } else if (why) {
        complain(name, why);
    }
    if (parts.empty()) {
        forget(name);
    } else {
        touch(file);
    }
    return parts;
}

// A file's time of change is the time of its last use.
void folder_files::touch(uint64_t file) {
    const auto at = names.find(file);
    if (at != names.end()) {
        utimensat(AT_FDCWD, path_of(at->second).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    }
}

//
// writing
//

std::string folder_files::name_of(const file_job & job) const {
    const size_t   n_bytes = job.tokens.size() * sizeof(llama_token);
    const uint64_t seed    = fingerprint ^ job.adapters;
    const uint64_t a       = XXH64(job.tokens.data(), n_bytes, seed);
    const uint64_t b       = XXH64(job.tokens.data(), n_bytes, ~seed);
    char           name[48];
    snprintf(name, sizeof(name), "%016llx%016llx%s", (unsigned long long) a, (unsigned long long) b,
             prefix_extension);
    return name;
}

bool folder_files::write(const file_job & job) {
    look(); // a file that another process has removed is written again
    const std::string name = name_of(job);
    const auto        at   = known.find(name);
    if ((at != known.end() && at->second.file != 0) || write_as(job, name) != 0) {
        return false;
    }
    known[name]     = {job.file, {}, true};
    names[job.file] = name;
    for (const std::string & removed : limit_files(path, n_bytes_max)) {
        forget(removed);
    }
    return true;
}

// 0, or an errno.
int folder_files::write_as(const file_job & job, const std::string & name) {
    int error = try_to_write(job, name);
    if (error == ENOENT) { // the folder was removed
        std::error_code failed;
        fs::create_directories(path, failed);
        error = try_to_write(job, name);
    }
    std::vector<std::string> removed;
    if ((error == ENOSPC || error == EDQUOT) && make_room(path, bytes_of(job.parts), removed)) {
        for (const std::string & file : removed) {
            forget(file);
        }
        error = try_to_write(job, name);
    }
    if (error == 0) {
        last_write_error.clear();
    } else {
        complain_once(last_write_error, strerror(error));
    }
    return error;
}

// Under a temporary name of this process first, so that a reader sees a complete file or none.
int folder_files::try_to_write(const file_job & job, const std::string & name) {
    const std::string final_path = path_of(name);
    const std::string temporary  = final_path + "." + std::to_string(getpid());
    const auto        write_once = [&] {
        return write_snapshot(temporary, fingerprint, job.adapters, job.tokens, job.parts, calls.while_write);
    };
    int error = write_once();
    if (error == EEXIST && unlink(temporary.c_str()) == 0) { // of an ended process with the same number
        error = write_once();
    }
    if (error == 0 && rename(temporary.c_str(), final_path.c_str()) != 0) {
        error = errno;
        unlink(temporary.c_str());
    }
    return error;
}
