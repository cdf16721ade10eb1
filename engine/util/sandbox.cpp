#include "util/sandbox.h"

#include "ggml.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <new>
#include <poll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const int    n_tries      = 3;
static const int    t_look_ms    = 50;
static const int    t_longest_ms = 5 * t_apart_ms;   // of real time, on a busy machine
static const int    t_quick_ms   = 20;               // of CPU time; then it continues at the lowest priority
static const rlim_t n_max_memory = (rlim_t) 1 << 30; // bytes beyond the size at the fork

// Without a limit, a text that doubles again and again would use all memory before the time is over. The current size is
// known only from /proc, so the limit is for Linux. The process exits when it needs more: if allocations failed
// instead, it might continue and return another result than without a limit.
static void limit_memory() {
    std::set_new_handler([] { _exit(1); });
    unsigned long n_pages = 0;
    FILE *        file    = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lu", &n_pages) == 1) {
        const rlim_t n_bytes = n_pages * (rlim_t) sysconf(_SC_PAGESIZE) + n_max_memory;
        const rlimit limit   = {n_bytes, n_bytes};
        setrlimit(RLIMIT_AS, &limit);
    }
    if (file) {
        fclose(file);
    }
}

// Otherwise the pipe of another sandbox, started at the same time, would stay open until this process ends, too.
static void close_all_but(int fd) {
    for (int other = STDERR_FILENO; other < 1024; other++) {
        if (other != fd) {
            close(other);
        }
    }
}

[[noreturn]] static void work_and_write(const std::function<std::string()> & work, int fd) {
    close_all_but(fd);
    alarm(2 * t_longest_ms / 1000); // in case the parent is killed
    signal(SIGVTALRM, [](int) { setpriority(PRIO_PROCESS, 0, 19); });
    const itimerval quick = {{0, 0}, {0, t_quick_ms * 1000}};
    setitimer(ITIMER_VIRTUAL, &quick, nullptr);
    limit_memory();
    dup2(fd, STDERR_FILENO); // its warnings become part of the output
    const std::string made = '\0' + work();
    size_t            n    = 0;
    for (ssize_t k = 1; k > 0 && n < made.size(); n += (size_t) std::max(k, ssize_t(0))) {
        k = write(fd, made.data() + n, made.size() - n);
    }
    _exit(0);
}

// The CPU time that a process has used, in ms; 0 where the system does not provide it.
static int64_t cpu_ms(pid_t process) {
#if defined(__linux__)
    clockid_t clock;
    timespec  time;
    if (clock_getcpuclockid(process, &clock) == 0 && clock_gettime(clock, &time) == 0) {
        return (int64_t) time.tv_sec * 1000 + time.tv_nsec / 1000000;
    }
#else
    (void) process;
#endif
    return 0;
}

// Decides how long to wait for the process: until it has used its time, or uses none.
class patience {
  public:
    explicit patience(pid_t process) : process(process) {}

    bool lasts() {
        const int64_t now = ggml_time_ms(), used = cpu_ms(process);
        t_moved = used > n_used ? now : t_moved;
        n_used  = used;
        return used < t_apart_ms && now - t_moved < t_apart_ms && now - t_begun < t_longest_ms;
    }

  private:
    const pid_t   process;
    const int64_t t_begun = ggml_time_ms();
    int64_t       t_moved = t_begun;
    int64_t       n_used  = 0;
};

// Reads fd to its end; false if the process is out of time or writes too much.
static bool read_all(int fd, size_t n_max, pid_t process, std::string & out) {
    patience left(process);
    char     chunk[1 << 14];
    ssize_t  n = -1;
    while (n != 0 && out.size() <= n_max) {
        pollfd in = {fd, POLLIN, 0};
        if (poll(&in, 1, t_look_ms) == 0) {
            if (!left.lasts()) {
                break;
            }
            continue;
        }
        n = read(fd, chunk, sizeof(chunk));
        out.append(chunk, (size_t) std::max(n, ssize_t(0)));
    }
    return n == 0;
}

// Returns the CPU time that the process has used, in ms.
static int64_t end_process(pid_t child) {
    rusage used = {};
    kill(child, SIGKILL);
    while (wait4(child, nullptr, 0, &used) < 0 && errno == EINTR) {
    }
    const auto ms = [](const timeval & t) { return (int64_t) t.tv_sec * 1000 + t.tv_usec / 1000; };
    return ms(used.ru_utime) + ms(used.ru_stime);
}

// idle: becomes true if the process was stopped although it had used little CPU time.
static bool run_once(const std::function<std::string()> & work, size_t n_max, std::string & out,
                     bool & idle) {
    int fds[2];
    if (pipe(fds) != 0) {
        return false;
    }
    const pid_t child = fork();
    if (child == 0) {
        work_and_write(work, fds[1]);
    }
    close(fds[1]);
    const bool done = child > 0 && read_all(fds[0], n_max, child, out);
    close(fds[0]);
    idle = child > 0 && end_process(child) < t_apart_ms / 4 && !done && out.size() <= n_max;
    return done;
}

// A lock that another thread holds during the fork is never released in the child (the log's, or with AddressSanitizer
// the allocator's). A child that waits for such a lock is killed, and another one is started.
bool run_apart(const std::function<std::string()> & work, size_t n_max, std::string & out) {
    bool done = false, idle = true;
    for (int i = 0; i < n_tries && idle; i++) {
        out.clear();
        idle = false;
        done = run_once(work, n_max, out, idle);
    }
    return done;
}
