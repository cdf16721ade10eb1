#include "apart.h"

#include "ggml.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

[[noreturn]] static void work_and_write(const std::function<std::string()> & work, int fd) {
    alarm(2 * t_apart_ms / 1000); // should the parent be killed
    dup2(fd, STDERR_FILENO);      // its warnings
    const std::string made = '\0' + work();
    size_t            n    = 0;
    for (ssize_t k = 1; k > 0 && n < made.size(); n += (size_t) std::max(k, ssize_t(0))) {
        k = write(fd, made.data() + n, made.size() - n);
    }
    _exit(0);
}

// True at the end of what comes from fd.
static bool read_all(int fd, size_t n_max, std::string & out) {
    const int64_t deadline = ggml_time_ms() + t_apart_ms;
    char          chunk[1 << 14];
    ssize_t       n = -1;
    while (n != 0 && out.size() <= n_max) {
        pollfd    in     = {fd, POLLIN, 0};
        const int t_left = (int) std::max(deadline - ggml_time_ms(), (int64_t) 0);
        if (poll(&in, 1, t_left) == 0) {
            break;
        }
        n = read(fd, chunk, sizeof(chunk));
        out.append(chunk, (size_t) std::max(n, ssize_t(0)));
    }
    return n == 0;
}

bool run_apart(const std::function<std::string()> & work, size_t n_max, std::string & out) {
    int fds[2];
    if (pipe(fds) != 0) {
        return false;
    }
    const pid_t child = fork();
    if (child == 0) {
        work_and_write(work, fds[1]);
    }
    close(fds[1]);
    const bool done = child > 0 && read_all(fds[0], n_max, out);
    close(fds[0]);
    if (child > 0) {
        kill(child, SIGKILL);
        while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    return done;
}
