#include "store/folder.h"

#include "hash/xxhash/xxhash.h" // vendored by llama.cpp

#include <chrono>
#include <pthread.h>
#include <utility>

static const size_t  n_waiting_max = 64;      // prefixes that wait to be written
static const int64_t t_opening_us  = 1000000; // how long requests wait for the model's hash after loading
static const int64_t t_hangs_us    = 5000000; // without a MiB or a file of progress, the disk hangs

static int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static void name_thread() {
#if defined(__APPLE__)
    pthread_setname_np("prefix-cache");
#elif defined(__linux__)
    pthread_setname_np(pthread_self(), "prefix-cache");
#endif
}

//
// queues
//

bool write_queue::push(file_job && job) {
    const uint64_t n = bytes_of(job.parts);
    if (!jobs.empty() && (jobs.size() >= n_waiting_max || n_bytes + n > n_bytes_max)) {
        n_refused++;
        return false;
    }
    n_bytes += n;
    jobs.push_back(std::move(job));
    return true;
}

void write_queue::pop() {
    n_bytes -= bytes_of(jobs.front().parts);
    jobs.pop_front();
}

snapshot_parts write_queue::parts_of(uint64_t file) const {
    snapshot_parts parts;
    for (const file_job & job : jobs) {
        parts = job.file == file ? job.parts : parts;
    }
    return parts;
}

std::deque<file_job> write_queue::take_all() {
    n_bytes = 0;
    return std::exchange(jobs, {});
}

uint64_t write_queue::take_refused() {
    return std::exchange(n_refused, 0);
}

uint64_t question_queue::push(uint64_t file) {
    files.push_back(file);
    return ++n_asked;
}

std::optional<uint64_t> question_queue::pop() {
    if (files.empty()) {
        return std::nullopt;
    }
    const uint64_t file = files.front();
    files.pop_front();
    return file;
}

uint64_t question_queue::answer_all() {
    files.clear();
    return n_answered = n_asked;
}

//
// the engine's thread
//

prefix_folder::prefix_folder(folder_params p)
    : params(std::move(p)), weights(weight_files::of_model(params.model)),
      files(params.path, params.n_bytes_max,
            {[this] {
                 const std::lock_guard<std::mutex> lock(mutex);
                 return ++last_file;
             },
             [this](folder_news && n) { report(std::move(n)); }, [this] { continues(true); },
             [this] { serve_questions(); }}),
      writes(params.n_bytes_waiting_max) {
    thread = std::thread([this] { run(); });
}

prefix_folder::~prefix_folder() {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        stage.closing = stage.dropped = true;
    }
    changed.notify_all();
    if (thread.joinable()) {
        thread.join();
    }
}

void prefix_folder::open(uint64_t settings) {
    const bool same = weights.unchanged(); // else the files that were loaded are not those that are hashed
    const std::lock_guard<std::mutex> lock(mutex);
    stage.loaded   = true;
    stage.settings = settings;
    stage.dropped  = !same;
    stage.t_loaded = stage.t_progress = now_us();
    changed.notify_all();
}

// If the thread hangs in a system call, it is detached.
void prefix_folder::finish() {
    std::unique_lock<std::mutex> lock(mutex);
    stage.closing    = true;
    stage.t_progress = now_us();
    changed.notify_all();
    while (!stage.ended && now_us() - stage.t_progress < t_hangs_us) {
        changed.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (!stage.ended) {
        complain(params.path, std::to_string(writes.size()) +
                                  " prefixes are not written: the disk has made no progress for " +
                                  std::to_string(t_hangs_us / 1000000) + " s");
        thread.detach();
    }
}

uint64_t prefix_folder::write(const std::vector<llama_token> & tokens, uint64_t adapters,
                              const snapshot_parts & parts) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (stage.now == life::useless || !writes.push({tokens, adapters, parts, last_file + 1})) {
        return 0;
    }
    changed.notify_all();
    return ++last_file;
}

void prefix_folder::touch(uint64_t file) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (stage.now == life::usable) {
        touched.insert(file);
        changed.notify_all();
    }
}

bool prefix_folder::life::hangs(bool asked) const {
    return now == opening ? now_us() - t_loaded > t_opening_us : asked && now_us() - t_progress > t_hangs_us;
}

bool prefix_folder::answers() const {
    const std::lock_guard<std::mutex> lock(mutex);
    return stage.now != life::useless && !stage.hangs(questions.any_open());
}

uint64_t prefix_folder::ask_for(uint64_t file) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (stage.now == life::useless) {
        return questions.answer_all();
    }
    stage.t_progress = questions.any_open() ? stage.t_progress : now_us();
    changed.notify_all();
    return questions.push(file);
}

bool prefix_folder::is_open(uint64_t question) const {
    const std::lock_guard<std::mutex> lock(mutex);
    return questions.is_open(question) && stage.now != life::useless && !stage.hangs(questions.any_open());
}

std::vector<folder_news> prefix_folder::take_news() {
    const std::lock_guard<std::mutex> lock(mutex);
    return std::exchange(news, {});
}

//
// the folder's thread
//

void prefix_folder::run() {
    name_thread();
    if (hash_model()) {
        files.look(); // before the first question
        while (true) {
            serve_questions();
            touch_files();
            if (!write_next()) {
                std::unique_lock<std::mutex> lock(mutex);
                if (stage.closing) {
                    break;
                }
                changed.wait(lock, [this] {
                    return stage.closing || !questions.empty() || !touched.empty() || !writes.empty();
                });
            }
        }
    }
    const std::lock_guard<std::mutex> lock(mutex);
    stage.ended = true;
    changed.notify_all();
}

bool prefix_folder::hash_model() {
    const auto contents =
        weights.hash(params.path, true, [this](bool progress) { return continues(progress); });
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return stage.loaded || stage.closing; });
        if (contents && stage.loaded && !stage.dropped) {
            files.open(XXH64(&stage.settings, sizeof(stage.settings), *contents));
            stage.now = life::usable;
            return true;
        }
    }
    give_up();
    return false;
}

// All questions are answered, no prefix is written, and from now on all are refused.
void prefix_folder::give_up() {
    std::unique_lock<std::mutex> lock(mutex);
    const bool                   is_needless = stage.closing && writes.empty();
    stage.now                                = life::useless;
    questions.answer_all();
    for (const file_job & job : writes.take_all()) {
        news.push_back({folder_news::gone, job.file, {}, 0, {}});
    }
    lock.unlock();
    if (!is_needless) {
        complain(params.path,
                 "not used: the model's files cannot be read, or were replaced while they were loaded");
    }
}

// False: the thread must end soon.
bool prefix_folder::continues(bool progress) {
    const std::lock_guard<std::mutex> lock(mutex);
    stage.t_progress = progress ? now_us() : stage.t_progress;
    return !stage.dropped && !(stage.closing && writes.empty());
}

void prefix_folder::report(folder_news && n) {
    const std::lock_guard<std::mutex> lock(mutex);
    news.push_back(std::move(n));
}

// Also called after each MiB that is written.
void prefix_folder::serve_questions() {
    while (true) {
        std::optional<uint64_t> file;
        {
            const std::lock_guard<std::mutex> lock(mutex);
            stage.t_progress = now_us();
            file             = questions.pop();
        }
        if (!file) {
            return;
        }
        answer(*file);
        const std::lock_guard<std::mutex> lock(mutex);
        questions.answer_one();
    }
}

void prefix_folder::answer(uint64_t file) {
    if (file == 0) {
        files.look();
        return;
    }
    snapshot_parts parts;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        parts = writes.parts_of(file);
    }
    if (parts.empty()) {
        parts = files.read(file);
    }
    if (!parts.empty()) {
        report({folder_news::read, file, {}, 0, parts});
    }
}

void prefix_folder::touch_files() {
    std::unordered_set<uint64_t> used;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        used.swap(touched);
    }
    for (const uint64_t file : used) {
        files.touch(file);
    }
}

// False: no prefix waits.
bool prefix_folder::write_next() {
    const file_job * job       = nullptr; // keeps its address while others are added
    uint64_t         n_refused = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (writes.empty() || stage.dropped) {
            return false;
        }
        job       = &writes.front();
        n_refused = writes.take_refused();
    }
    if (n_refused > 0) {
        complain(params.path,
                 std::to_string(n_refused) + " prefixes are not written: too many wait for the disk");
    }
    if (!files.write(*job)) {
        report({folder_news::gone, job->file, {}, 0, {}});
    }
    const std::lock_guard<std::mutex> lock(mutex);
    writes.pop();
    return true;
}
