// Work that may take time, memory and stack without bound, done by a process of its own: the only worker that
// can be stopped.
#pragma once

#include <functional>
#include <string>

const int t_apart_ms = 2000; // then it is stopped

// What `work` returns, behind what it wrote to stderr and \0. False when it took too long, made more than
// n_max bytes or crashed. The process is a copy of this one with a single thread.
bool run_apart(const std::function<std::string()> & work, size_t n_max, std::string & out);
