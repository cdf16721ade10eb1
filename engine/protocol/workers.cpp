#include "protocol/workers.h"

#include "protocol/event_line.h"
#include "util/pauses.h"
#include "util/process.h"

#include <algorithm>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#if defined(__linux__)
#include <ctime>
#include <pthread.h>
#endif

using namespace std::chrono_literals;

static const auto t_quick = 20ms; // of CPU time; a command that takes more continues at a lower priority
// A tenth of a core beside steps that keep it busy. With 19 it would be a hundredth: on a server that is never idle,
// half a second of work would take most of a minute.
static const int nice_long = 10;

static const size_t n_client_bytes = 64u
                                     << 20; // of one client's lines, from their arrival until they are read
static const size_t n_all_bytes    = 256u << 20; // of all clients' lines
static const size_t n_job_bytes =
    16 << 10; // that a job counts beside its line; this bounds the number of jobs
static const int n_threads_max = 4;
static const int n_short = 4; // turns of a job that takes little, and goes before longer ones of its client
static const int n_paused_max = 12; // jobs that have begun and let others run first; each has memory

command_workers::command_workers(const command_facts & facts, std::function<void(command &&)> push)
    : facts(facts), push(std::move(push)),
      n_threads(std::clamp((int) std::thread::hardware_concurrency() / 2, 2, n_threads_max)) {
    for (int i = 0; i < n_threads; i++) {
        begin_thread();
    }
    std::thread([this] { look_after(); }).detach(); // it runs until the process ends
}

void command_workers::begin_thread() {
    std::thread([this] { run(); }).detach();
}

void command_workers::submit(long_command && job) {
    const std::lock_guard<std::mutex> lock(mutex);
    size_t                            n_own = 0, n_all = 0;
    for (const long_command & one : jobs) {
        n_all += n_job_bytes + one.line.size();
        n_own += one.head.client == job.head.client ? n_job_bytes + one.line.size() : 0;
    }
    const size_t n = n_job_bytes + job.line.size();
    if ((n_own > 0 && n_own + n > n_client_bytes) || (n_all > 0 && n_all + n > n_all_bytes)) {
        throw command_error("busy", "long requests wait to be read, " + std::to_string(n_own) +
                                        " bytes of this client and " + std::to_string(n_all) +
                                        " in all; try again when they are done");
    }
    jobs.push_back(std::move(job));
    changed.notify_all();
}

bool command_workers::defer(command && c) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto                        job = find(c.id);
    if (job == jobs.end()) {
        return false;
    }
    job->then.push_back(std::move(c));
    return true;
}

bool command_workers::cancel(const std::string & id) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto                        job = find(id);
    if (job == jobs.end()) {
        return false;
    }
    job->cancelled = true;
    if (job->n_turns == 0) {
        jobs.erase(job);
        changed.notify_all();
    }
    return true;
}

void command_workers::finish() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return jobs.empty(); });
}

command_workers::jobs_list::iterator command_workers::find(const std::string & id) {
    return std::find_if(jobs.begin(), jobs.end(),
                        [&](const long_command & job) { return job.head.id == id && !job.cancelled; });
}

int command_workers::count_running() const {
    return (int) std::count_if(jobs.begin(), jobs.end(),
                               [](const long_command & job) { return job.running; });
}

// A job of the client with the fewest running jobs; of several, the client whose last turn was first. Of its jobs the
// oldest of those with the fewest turns; after some turns all are alike.
command_workers::jobs_list::iterator command_workers::next() {
    std::map<std::string, int> running;
    for (const long_command & job : jobs) {
        running[job.head.client] += job.running;
    }
    auto best = jobs.end();
    if (count_running() >= n_threads) {
        return best;
    }
    for (auto job = jobs.begin(); job != jobs.end(); ++job) {
        const auto rank = [&](const long_command & one) {
            return std::make_tuple(running[one.head.client], turns.last_of(one.head.client),
                                   std::min(one.n_turns, n_short));
        };
        const bool may_run = !job->running && running[job->head.client] < n_threads - 1;
        if (may_run && (best == jobs.end() || rank(*job) < rank(*best))) {
            best = job;
        }
    }
    return best;
}

// The calling thread, by numbers with which other threads can measure it and lower its priority.
static worker_thread this_thread() {
    worker_thread thread;
    thread.id = this_thread_id();
#if defined(__linux__)
    pthread_getcpuclockid(pthread_self(), &thread.clock);
#endif
    return thread;
}

static std::chrono::nanoseconds cpu_time(const worker_thread & thread) {
    timespec time = {};
#if defined(__linux__)
    clock_gettime(thread.clock, &time);
#else
    (void) thread;
#endif
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void command_workers::look_after() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
        for (; n_missing > 0; n_missing--) {
            begin_thread(); // here, because a new thread inherits the priority of its creator
        }
        bool looks = false; // whether a running job may still have to be lowered
        for (long_command & job : jobs) {
            if (job.running && !job.lowered && cpu_time(job.thread) >= job.began + t_quick) {
                lower_priority(job.thread.id, nice_long);
                job.lowered = true;
            }
            looks |= job.running && !job.lowered;
        }
        if (looks) {
            changed.wait_for(lock, t_quick);
        } else {
            changed.wait(lock);
        }
    }
}

void command_workers::start(jobs_list::iterator job) {
    job->running = true;
    job->n_turns++;
    turns.take(job->head.client);
    changed.notify_all();
}

// Called by the job's own thread in the midst of its work.
void command_workers::pause(jobs_list::iterator job) {
    std::unique_lock<std::mutex> lock(mutex);
    if (job->cancelled) {
        throw command_error("cancelled", "nobody waits for it any more");
    }
    job->running = false;
    if (n_paused >= n_paused_max || next() == job) {
        job->running = true;
        return;
    }
    n_paused++;
    if (n_spare > 0) {
        n_spare--; // such a thread takes the other job
    } else {
        n_missing++;
    }
    changed.notify_all();
    changed.wait(lock, [&] { return next() == job; });
    n_paused--;
    if (n_missing > 0) {
        n_missing--;
    } else {
        n_spare++;
    }
    start(job);
}

void command_workers::run() {
    std::unique_lock<std::mutex> lock(mutex);
    bool                         lowered = false;
    while (!lowered) { // a thread cannot raise its priority again, so a new one replaces it
        auto job = jobs.end();
        changed.wait(lock,
                     [&] { return n_spare > 0 || ((job = next()) != jobs.end() && job->n_turns == 0); });
        if (n_spare > 0) {
            n_spare--;
            return;
        }
        job->thread = this_thread();
        job->began  = cpu_time(job->thread);
        start(job);
        lock.unlock();
        const pauses here([this, job] { pause(job); });
        command      c = parse_command(job->line, job->number, facts);
        if (c.request && c.request->common.settings && c.request->common.settings->structure) {
            c.request->common.settings->structure->prepare(); // otherwise the first draw would wait for it
        }
        lock.lock();
        lowered = job->lowered;
        take(job, std::move(c));
    }
    n_missing++;
    changed.notify_all();
}

// Pushes with the lock held, so that a cancel comes either before, and finds the job, or after.
void command_workers::take(jobs_list::iterator job, command && c) {
    if (!job->cancelled) {
        push(std::move(c));
        for (command & later : job->then) {
            push(std::move(later));
        }
    }
    jobs.erase(job);
    if (jobs.empty()) {
        turns.forget();
    }
    changed.notify_all();
}
