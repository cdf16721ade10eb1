// What this process asks of its libraries and of the system.
#pragma once

#include <cstdint>

// Sets environment variables that libraries read before main(), by starting the program again. Variables that the user
// has set stay.
void restart_with_environment(char ** argv);

// Lets all threads but the main one share one arena of malloc: each arena keeps the memory that its threads once had,
// and commands are made in one thread and freed in another.
void limit_arenas();

// Binds each thread that decodes to a core, where they have all cores.
void bind_threads(int32_t n_threads, int32_t n_threads_batch);
