// Reads commands from stdin in a thread of its own, so that the decode loop finds them ready. No other file reads
// from there.
#pragma once

#include "protocol/commands.h"
#include "protocol/workers.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

class command_reader {
  public:
    // `fd_out` is watched too: when nobody reads the events any more the process ends at once.
    command_reader(int fd_in, int fd_out, command_facts facts);

    // What has come in since the last call; waits for something, so many microseconds at most.
    std::vector<command> take(int64_t t_us);

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
    std::mutex              mutex; // of what has come in
    std::condition_variable arrived;
    std::vector<command>    commands;
    command_workers         workers; // last: they push when they have begun
};
