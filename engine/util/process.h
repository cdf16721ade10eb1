// What this process asks of its libraries and of the system.
#pragma once

#include <cstdint>

// Sets environment variables that libraries read before main(), by starting the program again. Variables that the user
// has set stay.
void restart_with_environment(char ** argv);

// Lets all threads but the main one share one arena of malloc: each arena keeps the memory that its threads once had,
// and commands are made in one thread and freed in another.
void limit_arenas();

// The number by which the system knows the calling thread; 0 where it has none.
long this_thread_id();

// Each decode step waits for all threads that compute it, so a thread of lesser work on the core of one of them would
// delay the step. `nice` as setpriority(2) has it: 0, as all threads begin, to 19, the lowest priority.
void lower_priority(long thread_id, int nice);

// Binds each thread that decodes to a core, where they have all cores.
void bind_threads(int32_t n_threads, int32_t n_threads_batch);
