// Threads that read long commands: tokens of a long text, a grammar, a template. The reader's own thread stays free, so
// a cancel or another client's short command does not wait for them.
#pragma once

#include "protocol/commands.h"
#include "util/client_turns.h"

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

struct worker_thread {
    long      id    = 0;
    clockid_t clock = 0; // measures its CPU time
};

struct long_command {
    command_head         head;
    int64_t              number = 0;
    std::string          line;
    bool                 running   = false;
    int                  n_turns   = 0; // starts, and times when it went on
    bool                 cancelled = false;
    bool                 lowered   = false; // its thread has a lower priority
    std::vector<command> then;              // later commands that name it

    worker_thread            thread; // that reads it, if it is running
    std::chrono::nanoseconds began;  // the thread's CPU time when it started
};

// Schedules the commands fairly between clients; no client gets all threads. A command that takes long lets others go
// first again and again, where its work has a point for it: other clients' in turn, and of its own client those that
// have had few turns. The bytes of waiting commands are bounded, for each client and in total.
class command_workers {
  public:
    // push: gets each command that was read, from any thread; it must not call this object.
    command_workers(const command_facts & facts, std::function<void(command &&)> push);

    // Throws command_error (busy) when too many bytes wait.
    void submit(long_command && job);

    // Defers a command until the waiting command with its id is read; false if there is none.
    bool defer(command && c);
    // Drops the waiting command with this id; false if there is none.
    bool cancel(const std::string & id);

    // Waits until all commands are read.
    void finish();

  private:
    using jobs_list = std::list<long_command>;

    void                begin_thread();
    void                run();
    [[noreturn]] void   look_after();
    jobs_list::iterator next();
    void                start(jobs_list::iterator job);
    void                pause(jobs_list::iterator job);
    int                 count_running() const;
    jobs_list::iterator find(const std::string & id);
    void                take(jobs_list::iterator job, command && c);

    const command_facts                   facts;
    const std::function<void(command &&)> push;
    const int                             n_threads;
    std::mutex                            mutex; // of the members below
    std::condition_variable               changed;
    jobs_list                             jobs; // in order of arrival, those that run included
    int          n_missing = 0;                 // threads that have ended, or whose job lets others run first
    int          n_spare   = 0;                 // threads above n_threads, since such jobs have gone on
    int          n_paused  = 0;
    client_turns turns; // by client: starts
};
