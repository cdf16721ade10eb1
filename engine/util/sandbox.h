// Untrusted work in a subprocess with limits of time, memory and output: only a process can be stopped.
#pragma once

#include <functional>
#include <string>

const int t_sandbox_ms = 2000; // of CPU time

// Runs `work` in a forked process with a single thread. `out` becomes what `work` wrote to stderr, \0, and what it
// returned. False: it took too long, made more than n_max bytes, or crashed.
bool run_in_sandbox(const std::function<std::string()> & work, size_t n_max, std::string & out);
