// A subprocess with limits for untrusted work, which may take unbounded time, memory and stack. Only a process can be
// stopped.
#pragma once

#include <functional>
#include <string>

const int t_apart_ms = 2000; // of CPU time; then it is killed

// out: the text that `work` wrote to stderr, a \0, and the text that it returned. False when it took too long, wrote
// more than n_max bytes or crashed. The process is a copy of this one with a single thread.
bool run_apart(const std::function<std::string()> & work, size_t n_max, std::string & out);
