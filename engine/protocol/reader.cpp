#include "protocol/reader.h"

#include "protocol/event_line.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <poll.h>
#include <thread>
#include <unistd.h>
#include <utility>

static const size_t n_max_line = 256u << 20; // bytes

command_reader::command_reader(int fd_in, int fd_out, command_facts facts)
    : fd_in(fd_in), fd_out(fd_out), facts(facts),
      workers(this->facts, [this](command && c) { push(std::move(c)); }) {
    std::thread([this] { run(); }).detach(); // it runs until the process ends
}

void command_reader::push(command && c) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        commands.push_back(std::move(c));
    }
    arrived.notify_one();
}

void command_reader::wake() {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        is_woken = true;
    }
    arrived.notify_one();
}

std::vector<command> command_reader::take(int64_t t_us) {
    std::unique_lock<std::mutex> lock(mutex);
    if (t_us > 0) { // even a wait of 0 yields the core
        arrived.wait_for(lock, std::chrono::microseconds(t_us),
                         [this] { return is_woken || !commands.empty(); });
    }
    is_woken = false;
    return std::exchange(commands, {});
}

// Tells the sender that the command was received, since its answer may take a while.
static command accepted(const command_head & head, int64_t number) {
    std::string line;
    event_line(line, "accepted", head.id).integer("line", number);
    return answer_of(std::move(line));
}

void command_reader::read_line(std::string && line) {
    n_lines++;
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
        return;
    }
    command_head head = read_head(line);
    if (takes_long(head, line)) {
        long_command job;
        job.head   = std::move(head);
        job.number = n_lines;
        job.line   = std::move(line);
        read_long(std::move(job));
    } else {
        read_at_once(head, line);
    }
}

void command_reader::read_long(long_command && job) {
    const command_head head = job.head;
    try {
        push(accepted(head, n_lines));
        workers.submit(std::move(job));
    } catch (const command_error & e) {
        push(refusal(head, n_lines, e));
    }
}

// A command that names a waiting long command is deferred until that is read; a cancel ends it at once.
void command_reader::read_at_once(const command_head & head, const std::string & line) {
    command c = parse_command(line, n_lines, facts);
    if (c.what == command::cancel && c.cancelled.index < 0 && workers.cancel(c.id)) {
        std::string done;
        event_line(done, "done", c.id)
            .integer("count", 0)
            .integer("prompt_tokens", 0)
            .integer("cached_tokens", 0)
            .integer("completion_tokens", 0);
        c = answer_of(std::move(done));
    } else if ((head.op == "prefix" || head.op == "pin") && c.request) {
        push(accepted(head, n_lines)); // other requests have priority, so it may wait long
    } else if (c.what != command::answer && workers.defer(std::move(c))) {
        push(accepted(head, n_lines));
        return;
    }
    push(std::move(c));
}

void command_reader::run() {
    std::string       pending;
    std::vector<char> chunk(1 << 16);
    pollfd            fds[2] = {{fd_in, POLLIN, 0}, {fd_out, 0, 0}};
    while (true) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            _exit(1);
        }
        if (fds[1].revents & (POLLERR | POLLNVAL)) {
            _exit(0); // the reader of the events has closed the pipe
        }
        if (!(fds[0].revents & (POLLIN | POLLHUP | POLLERR))) {
            continue;
        }
        const ssize_t n = read(fd_in, chunk.data(), chunk.size());
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            read_line(std::move(pending)); // the last line may lack its newline
            workers.finish();
            command c;
            c.what = command::end_of_input;
            push(std::move(c));
            fds[0].fd = -1; // from now on only stdout is watched
            continue;
        }
        size_t begin = 0;
        size_t from  = pending.size(); // the bytes before it hold no newline
        pending.append(chunk.data(), n);
        for (size_t end; (end = pending.find('\n', from)) != std::string::npos; begin = from = end + 1) {
            read_line(pending.substr(begin, end - begin));
        }
        pending.erase(0, begin);
        if (pending.size() > n_max_line) {
            fprintf(stderr, "llama-batched: a command is longer than %zu bytes\n", n_max_line);
            _exit(1);
        }
    }
}
