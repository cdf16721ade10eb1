// Threads that read long commands: tokens of a long text, a grammar, a template. The reader goes on meanwhile, so
// that a cancel, or another client's short command, does not wait for them.
#pragma once

#include "protocol/commands.h"

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct worker_thread {
    long      id    = 0;
    clockid_t clock = 0; // of its CPU time
};

struct long_command {
    command_head         head;
    int64_t              number = 0;
    std::string          line;
    bool                 running   = false;
    bool                 cancelled = false;
    bool                 lowered   = false; // its thread's priority
    std::vector<command> then;              // what has come for it meanwhile

    worker_thread            thread; // that reads it, once it runs
    std::chrono::nanoseconds began;  // the CPU time that the thread had used before
};

// Clients take turns, and none has all threads. What waits is bounded in bytes, for each client and in all.
class command_workers {
  public:
    // `push` takes what was read, from any thread; it may not call back.
    command_workers(const command_facts & facts, std::function<void(command &&)> push);

    // Throws command_error when too much waits.
    void submit(long_command && job);

    // Of a command that is here: its cancel, extend, … waits for it; false: there is none of this id.
    bool defer(command && c);
    // Nothing more comes of it; false: there is none of this id.
    bool cancel(const std::string & id);

    // Waits until all has been read.
    void finish();

  private:
    using jobs_list = std::list<long_command>;

    void                begin_thread();
    void                run();
    [[noreturn]] void   look_after();
    jobs_list::iterator next();
    jobs_list::iterator find(const std::string & id);
    void                take(jobs_list::iterator job, command && c);

    const command_facts                   facts;
    const std::function<void(command &&)> push;
    const int                             n_threads;
    std::mutex                            mutex; // of what follows
    std::condition_variable               changed;
    jobs_list                             jobs;          // in order of arrival, with those that run
    int                                   n_missing = 0; // threads that have ended
    std::map<std::string, int64_t>        turns;         // when each client's last job began
    int64_t                               n_turns = 0;
};
