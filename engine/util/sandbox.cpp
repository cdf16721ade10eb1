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

static const int n_tries      = 3;
static const int t_poll_ms    = 50;
static const int t_longest_ms = 5 * t_sandbox_ms; // of real time, on a busy machine
static const int t_quick_ms   = 20;               // of CPU time; after that it runs at a lower priority
static const int nice_long = 5; // a fourth of a core that is busy: t_sandbox_ms of CPU fit into t_longest_ms
static const rlim_t n_max_memory = (rlim_t) 1 << 30; // bytes beyond what there is at the fork

// A text that doubles could use all memory within the time limit. The process's own size is read from /proc, so this
// limit exists on Linux only. Work that needs more ends at once: if it caught bad_alloc and continued, its result
// would differ from the result without a limit.
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

// A forked process inherits the pipes of processes that other threads fork at the same time. If it kept them open,
// their readers would wait for its end, too.
static void close_all_but(int fd) {
    for (int other = STDERR_FILENO; other < 1024; other++) {
        if (other != fd) {
            close(other);
        }
    }
}

[[noreturn]] static void work_and_write(const std::function<std::string()> & work, int fd) {
    close_all_but(fd);
    alarm(2 * t_longest_ms / 1000); // if the parent is killed
    signal(SIGVTALRM, [](int) { setpriority(PRIO_PROCESS, 0, nice_long); });
    const itimerval quick = {{0, 0}, {0, t_quick_ms * 1000}};
    setitimer(ITIMER_VIRTUAL, &quick, nullptr);
    limit_memory();
    dup2(fd, STDERR_FILENO); // for warnings
    const std::string made = '\0' + work();
    size_t            n    = 0;
    for (ssize_t k = 1; k > 0 && n < made.size(); n += (size_t) std::max(k, ssize_t(0))) {
        k = write(fd, made.data() + n, made.size() - n);
    }
    _exit(0);
}

// The CPU time of a process in ms; 0 where the system does not say.
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

// Whether to continue to wait for a process: it is within its limits and makes progress.
class deadline {
  public:
    explicit deadline(pid_t process) : process(process) {}

    bool is_ahead() {
        const int64_t now = ggml_time_ms(), used = cpu_ms(process);
        t_moved = used > n_used ? now : t_moved;
        n_used  = used;
        return used < t_sandbox_ms && now - t_moved < t_sandbox_ms && now - t_begun < t_longest_ms;
    }

  private:
    const pid_t   process;
    const int64_t t_begun = ggml_time_ms();
    int64_t       t_moved = t_begun;
    int64_t       n_used  = 0;
};

// True: all was read to the end of fd.
static bool read_all(int fd, size_t n_max, pid_t process, std::string & out) {
    deadline limit(process);
    char     chunk[1 << 14];
    ssize_t  n = -1;
    while (n != 0 && out.size() <= n_max) {
        pollfd in = {fd, POLLIN, 0};
        if (poll(&in, 1, t_poll_ms) == 0) {
            if (!limit.is_ahead()) {
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

// `idle`: it exceeded the limit of real time, but used little CPU time.
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
    idle = child > 0 && end_process(child) < t_sandbox_ms / 4 && !done && out.size() <= n_max;
    return done;
}

// A lock that another thread holds during the fork is never released in the child: the lock of a log, or with
// AddressSanitizer that of the allocator. A child that waits for such a lock is ended, and another one is forked.
bool run_in_sandbox(const std::function<std::string()> & work, size_t n_max, std::string & out) {
    bool done = false, idle = true;
    for (int i = 0; i < n_tries && idle; i++) {
        out.clear();
        idle = false;
        done = run_once(work, n_max, out, idle);
    }
    return done;
}
