// Reads commands from stdin in its own thread, so that the decode loop does not wait for them. No other file reads
// stdin.
#pragma once

#include "protocol/commands.h"
#include "protocol/workers.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

class command_reader {
  public:
    // fd_out: the process ends when the reader of the events closes it.
    command_reader(int fd_in, int fd_out, command_facts facts);

    // The commands read since the last call. If there are none, waits for one, for at most t_us microseconds.
    std::vector<command> take(int64_t t_us);
    // From any thread: `take` waits no longer.
    void wake();

  private:
    [[noreturn]] void run();
    void              read_line(std::string && line);
    void              read_long(long_command && job);
    void              read_at_once(const command_head & head, const std::string & line);
    void              push(command && c);

    const int               fd_in;
    const int               fd_out;
    const command_facts     facts;
    int64_t                 n_lines = 0;
    std::mutex              mutex; // of `commands`
    std::condition_variable arrived;
    std::vector<command>    commands;
    bool                    is_woken = false;
    command_workers         workers; // last, because their threads push to the members above
};
