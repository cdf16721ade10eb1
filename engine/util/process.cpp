#include "util/process.h"

#include <cstdlib>
#include <unistd.h>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__linux__) && defined(_OPENMP)
#include <omp.h>
#include <sched.h>
#endif
#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

// GOMP_SPINCOUNT: how often a thread of libgomp polls a barrier before it sleeps. The default (milliseconds) wastes a
// core's time slice at every barrier as soon as another process wants to run; with too few polls threads sleep at
// barriers that all others have nearly reached, and wake late.
// GLIBC_TUNABLES: malloc asks for huge pages, because a step reads all weights and cells: it looks up fewer pages.
// benchmarks/README.md has the figures behind both.
void restart_with_environment(char ** argv) {
#if defined(__linux__)
    const bool spins = getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY");
    const bool pages = getenv("GLIBC_TUNABLES");
    if (spins && pages) {
        return;
    }
    if (!spins) {
        setenv("GOMP_SPINCOUNT", "6000", 1);
    }
    if (!pages) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1);
    }
    execv("/proc/self/exe", argv); // if it fails, the process continues without them
#else
    (void) argv;
#endif
}

void limit_arenas() {
#if defined(__GLIBC__)
    mallopt(M_ARENA_MAX, 2);
#endif
}

long this_thread_id() {
#if defined(__linux__)
    return syscall(SYS_gettid);
#else
    return 0;
#endif
}

void lower_priority(long thread_id, int nice) {
#if defined(__linux__)
    setpriority(PRIO_PROCESS, (id_t) thread_id, nice);
#else
    (void) thread_id;
    (void) nice;
#endif
}

// Otherwise the system puts two of them on one core whenever another process runs for a moment on the other core, such
// as the reader of the events. Each barrier then waits for both until the system notices, milliseconds later. Threads
// that are started later inherit the core of the calling thread.
void bind_threads(int32_t n_threads, int32_t n_threads_batch) {
#if defined(__linux__) && defined(_OPENMP)
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) != 0 || n_threads != CPU_COUNT(&all) ||
        n_threads_batch != CPU_COUNT(&all)) {
        return;
    }
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &all)) {
            cores.push_back(core);
        }
    }
#pragma omp parallel num_threads((int) cores.size()) // llama.cpp's own team: libgomp keeps it
    {
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(cores[(size_t) omp_get_thread_num()], &own);
        sched_setaffinity(0, sizeof(own), &own); // if it fails, the thread stays unbound
    }
#else
    (void) n_threads;
    (void) n_threads_batch;
#endif
}
