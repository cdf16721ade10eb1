#include "weights/packed_weights.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp
#include "util/process.h"

#include <ggml-backend.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

namespace fs = std::filesystem;

static const char * ending    = ".packed";
static const int    nice_idle = 19; // nobody waits for the file

// Of the CPU backend, which in a portable build is a module; nullptr: it has none of this name.
template <typename function> static function cpu_function(const char * name) {
    const ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    return device ? (function) ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name)
                  : nullptr;
}

static void map_from(const char * path) {
    const auto use = cpu_function<void (*)(const char *)>("ggml_backend_cpu_packed_weights_use");
    if (use) {
        use(path);
    }
}

static std::string text_of(uint64_t number) {
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, number);
    return text;
}

// The beginning of the names of all files for this path.
static std::string beginning_of(const std::string & model_path) {
    std::error_code   error;
    const std::string whole = fs::absolute(model_path, error).string();
    return text_of(XXH64(whole.data(), whole.size(), 0)) + "-";
}

packed_weights::packed_weights(const std::string & folder, const std::string & model_path)
    : files(weight_files::of_model(model_path)), folder(folder) {
    const std::optional<uint64_t> identity = files.identity();
    if (folder.empty() || !identity) {
        return;
    }
    std::error_code error;
    fs::create_directories(folder, error); // if it cannot be made, no file in it can be written
    file = beginning_of(model_path) + text_of(*identity) + ending;
    map_from((folder + "/" + file).c_str());
}

packed_weights::~packed_weights() {
    stopped = true;
    finish();
}

void packed_weights::keep() {
    if (!file.empty() && files.unchanged()) {
        worker = std::thread([this] {
            copy(); // a second for 3 GB; at a low priority it would wait for the first requests
            lower_priority(this_thread_id(), nice_idle);
            write();
        });
    }
}

void packed_weights::finish() {
    ended = true;
    if (worker.joinable()) {
        worker.join();
    }
}

using hook = bool (*)(void *);

static bool goes_on(void * stopped) {
    return !*(const std::atomic<bool> *) stopped;
}

void packed_weights::copy() {
    const auto to_huge_pages = cpu_function<size_t (*)(hook, void *)>("ggml_backend_cpu_packed_weights_copy");
    if (to_huge_pages) {
        to_huge_pages(goes_on, &ended);
    }
}

void packed_weights::write() {
    const auto store = cpu_function<bool (*)(hook, void *)>("ggml_backend_cpu_packed_weights_write");
    errno            = 0;
    if (store && store(goes_on, &stopped)) {
        remove_earlier();
    } else if (errno != 0 && !stopped) {
        fprintf(stderr, "llama-batched: the packed weights cannot be written to %s/%s (%s)\n", folder.c_str(),
                file.c_str(), strerror(errno));
    }
}

void packed_weights::remove_earlier() const {
    std::error_code   error;
    const std::string beginning = file.substr(0, file.find('-') + 1);
    for (const fs::directory_entry & one : fs::directory_iterator(folder, error)) {
        const std::string name = one.path().filename().string();
        if (name.compare(0, beginning.size(), beginning) == 0 && name.compare(0, file.size(), file) != 0) {
            fs::remove(one.path(), error); // who has mapped it keeps it
        }
    }
}
