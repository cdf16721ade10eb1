#include "schedule/outside_processor.h"

#include "util/json.h"

#include <ggml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

using json = nlohmann::json;

static const double t_start_s  = 120.0;    // that the program may take to start
static const size_t n_max_said = 16 << 10; // bytes of a line of the program
// Between two looks whether the program has ended: a process that it has forked may hold the socket open.
static const int t_look_ms = 100;

static int shared_file(size_t n_bytes) {
#if defined(__linux__)
    const int fd = memfd_create("logits", MFD_CLOEXEC);
#else
    char      name[] = "/tmp/llama-srb-logits-XXXXXX";
    const int fd     = mkstemp(name);
    unlink(name);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
#endif
    if (fd < 0 || ftruncate(fd, (off_t) n_bytes) != 0) {
        throw std::runtime_error(std::string("no memory to share: ") + strerror(errno));
    }
    return fd;
}

// The bytes of all tokens, each byte as one character.
static std::string pieces_of(const vocabulary & vocab, int32_t n_vocab) {
    std::string list;
    for (llama_token token = 0; token < n_vocab; token++) {
        std::string text;
        for (const char c : vocab.piece(token, true)) {
            const auto byte = (uint8_t) c;
            if (byte < 0x80) {
                text += c;
            } else {
                text += (char) (0xc0 | byte >> 6);
                text += (char) (0x80 | (byte & 0x3f));
            }
        }
        list += list.empty() ? "" : ",";
        append_json_string(list, text);
    }
    return "[" + list + "]";
}

static std::string ends_of(const vocabulary & vocab, int32_t n_vocab) {
    std::vector<llama_token> ends;
    for (llama_token token = 0; token < n_vocab; token++) {
        if (vocab.is_end(token)) {
            ends.push_back(token);
        }
    }
    return json(ends).dump();
}

outside_processor::outside_processor(outside_params given, const vocabulary & vocab)
    : params(std::move(given)), stride(((size_t) params.n_vocab + (size_t) params.n_ctx + 15) / 16 * 64) {
    const auto number = [](const char * name, size_t n) {
        return std::string("\"") + name + "\":" + std::to_string(n) + ",";
    };
    first_line = "{" + number("n_vocab", (size_t) params.n_vocab) + number("n_ctx", (size_t) params.n_ctx) +
                 number("n_rows", (size_t) params.n_rows) + number("stride", stride) +
                 "\"pieces\":" + pieces_of(vocab, params.n_vocab) +
                 ",\"ends\":" + ends_of(vocab, params.n_vocab) + "}\n";
    const size_t n_bytes = stride * (size_t) params.n_rows;
    fd_memory            = shared_file(n_bytes);
    void * const mapped  = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_memory, 0);
    if (mapped == MAP_FAILED) {
        throw std::runtime_error(std::string("no memory to share: ") + strerror(errno));
    }
    memory = (char *) mapped;
    start();
    thread = std::thread([this] { run(); });
}

outside_processor::~outside_processor() {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        ends = true;
    }
    changed.notify_all();
    if (thread.joinable()) {
        thread.join();
    }
    end();
    munmap(memory, stride * (size_t) params.n_rows);
    close(fd_memory);
}

void outside_processor::when_back(std::function<void()> call) {
    const std::lock_guard<std::mutex> lock(mutex);
    on_back = std::move(call);
}

void outside_processor::send(const std::string & client, const std::string & id, outside_rows && rows) {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto found = std::find_if(waiting.begin(), waiting.end(), [&](const batch & b) {
            return b.id == id && b.rows.size() + rows.size() <= (size_t) params.n_rows;
        });
        batch &    b     = found != waiting.end() ? *found : waiting.emplace_back(batch{client, id, {}});
        b.rows.insert(b.rows.end(), std::make_move_iterator(rows.begin()),
                      std::make_move_iterator(rows.end()));
    }
    changed.notify_all();
}

outside_rows outside_processor::take() {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto & row : back) {
        row->is_back = true;
    }
    return std::exchange(back, {});
}

//
// its thread
//

// The oldest one of the client whose last turn is the longest ago.
outside_processor::batch outside_processor::next() {
    std::unique_lock<std::mutex> lock(mutex);
    if (waiting.empty()) {
        turns.forget();
    }
    changed.wait(lock, [this] { return ends || !waiting.empty(); });
    if (ends) {
        return {};
    }
    const auto first =
        std::min_element(waiting.begin(), waiting.end(), [this](const batch & a, const batch & b) {
            return turns.last_of(a.client) < turns.last_of(b.client);
        });
    batch b = std::move(*first);
    waiting.erase(first);
    turns.take(b.client);
    return b;
}

void outside_processor::run() {
    for (batch b = next(); !b.id.empty(); b = next()) {
        const auto dropped = [](const std::shared_ptr<outside_row> & row) { return row.use_count() == 1; };
        b.rows.erase(std::remove_if(b.rows.begin(), b.rows.end(), dropped), b.rows.end());
        if (b.rows.empty()) {
            continue;
        }
        try {
            process(b);
        } catch (const std::exception & e) {
            for (const auto & row : b.rows) {
                row->error = std::string("the logits processor: ") + e.what();
            }
        }
        std::function<void()> call;
        {
            const std::lock_guard<std::mutex> lock(mutex);
            back.insert(back.end(), b.rows.begin(), b.rows.end());
            call = on_back;
        }
        call();
    }
}

void outside_processor::process(batch & b) {
    if (pid < 0 || !how_ended(0).empty()) {
        start();
    }
    const int64_t t_begin = ggml_time_us();
    std::string   line    = "{\"id\":";
    append_json_string(line, b.id);
    line += ",\"rows\":[";
    for (size_t i = 0; i < b.rows.size(); i++) {
        const outside_row & row    = *b.rows[i];
        const size_t        n_most = std::min(row.tokens.size(), (size_t) params.n_ctx);
        std::copy(row.processed.begin(), row.processed.end(), (float *) place_of(i));
        std::copy(row.tokens.begin(), row.tokens.begin() + (std::ptrdiff_t) n_most,
                  (int32_t *) place_of(i) + params.n_vocab);
        line += (i ? "," : "") + ("{\"index\":" + std::to_string(row.index)) +
                ",\"prompt\":" + std::to_string(row.n_prompt) +
                ",\"output\":" + std::to_string((int64_t) n_most - row.n_prompt) +
                ",\"arguments\":" + *row.arguments + "}";
    }
    const std::string error = ask(line + "]}\n", params.seconds);
    if (!error.empty()) {
        throw std::runtime_error(error);
    }
    for (size_t i = 0; i < b.rows.size(); i++) {
        const float * const made = (const float *) place_of(i);
        b.rows[i]->processed.assign(made, made + params.n_vocab);
        check(*b.rows[i]);
    }
    b.rows[0]->t_us = ggml_time_us() - t_begin;
}

// A token must be left that can be drawn, and no number that spoils all others.
void outside_processor::check(outside_row & row) const {
    const auto bad = std::find_if(row.processed.begin(), row.processed.end(),
                                  [](float logit) { return std::isnan(logit) || logit == INFINITY; });
    if (bad != row.processed.end()) {
        row.error = "the logits processor made the logit of token " +
                    std::to_string(bad - row.processed.begin()) + " of sequence " +
                    std::to_string(row.index) + (std::isnan(*bad) ? " no number" : " infinite") +
                    "; it must be a number or -inf";
    } else if (std::none_of(row.processed.begin(), row.processed.end(),
                            [](float l) { return l > -INFINITY; })) {
        row.error =
            "the logits processor left no token to sequence " + std::to_string(row.index) + ": all are -inf";
    }
}

//
// its process
//

// Between fork and exec nothing may be allocated: another thread may hold a lock.
[[noreturn]] static void become(char * const * argv, int fd_socket, int fd_memory) {
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    const int none   = open("/dev/null", O_RDONLY);
    const int kept[] = {fcntl(fd_socket, F_DUPFD, 10), fcntl(fd_memory, F_DUPFD, 10)};
    dup2(none, 0);
    dup2(2, 1);
    dup2(kept[0], 3);
    dup2(kept[1], 4);
    for (int fd = 5; fd < 1024; fd++) {
        close(fd);
    }
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvp(argv[0], argv);
    dprintf(3, "{\"error\":\"its program cannot be started: %s\"}\n", strerror(errno));
    _exit(127);
}

void outside_processor::start() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
        throw std::runtime_error(std::string("no socket: ") + strerror(errno));
    }
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    fcntl(fds[1], F_SETFD, FD_CLOEXEC);
    std::vector<char *> argv;
    for (const std::string & word : params.command) {
        argv.push_back(const_cast<char *>(word.c_str()));
    }
    argv.push_back(nullptr);
    pid = fork();
    if (pid == 0) {
        become(argv.data(), fds[1], fd_memory);
    }
    close(fds[1]);
    fd_socket = fds[0];
    fcntl(fd_socket, F_SETFL, O_NONBLOCK);
    const std::string error = pid > 0 ? ask(first_line, t_start_s) : strerror(errno);
    if (!error.empty()) {
        end();
        throw std::runtime_error(error);
    }
}

void outside_processor::end() {
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        pid = -1;
    }
    if (fd_socket >= 0) {
        close(fd_socket);
        fd_socket = -1;
    }
}

// How it has ended by itself, a signal or an exit status; empty: it runs. t_ms: how long it may be about to end.
std::string outside_processor::how_ended(int t_ms) {
    int   status = 0;
    pid_t ended  = waitpid(pid, &status, WNOHANG);
    for (; ended == 0 && t_ms > 0; t_ms--) {
        usleep(1000);
        ended = waitpid(pid, &status, WNOHANG);
    }
    if (ended != pid) {
        return "";
    }
    pid = -1;
    end();
    return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                               : "exit status " + std::to_string(WEXITSTATUS(status));
}

// Sends a line, and returns the error of the answer. What does not answer in time, or has ended, is started anew by the
// next line.
std::string outside_processor::ask(const std::string & line, double seconds) {
    const int64_t t_end  = ggml_time_us() + (int64_t) (seconds * 1e6);
    size_t        n_sent = 0;
    std::string   said;
    while (said.empty() || said.back() != '\n') {
        const int64_t t_left = t_end - ggml_time_us();
        if (t_left <= 0) {
            end();
            char text[80];
            snprintf(text, sizeof(text), "no answer within %g seconds; it was ended", seconds);
            return text;
        }
        const bool writes = n_sent < line.size();
        pollfd     fd     = {fd_socket, (short) (writes ? POLLIN | POLLOUT : POLLIN), 0};
        const int  n_fds  = poll(&fd, 1, (int) std::min<int64_t>(t_left / 1000 + 1, t_look_ms));
        bool       lost   = n_fds < 0 && errno != EINTR;
        if (n_fds > 0 && fd.revents & (POLLIN | POLLHUP | POLLERR)) {
            char          part[4096];
            const ssize_t n = read(fd_socket, part, sizeof(part));
            said.append(part, n > 0 ? (size_t) n : 0);
            lost = n == 0 || said.size() > n_max_said || (n < 0 && errno != EAGAIN && errno != EINTR);
        } else if (n_fds > 0) {
            const ssize_t n = write(fd_socket, line.data() + n_sent, line.size() - n_sent);
            n_sent += n > 0 ? (size_t) n : 0;
            lost = n < 0 && errno != EAGAIN && errno != EINTR;
        }
        if (said.empty() || said.back() != '\n') {
            const std::string how =
                how_ended(lost ? t_look_ms : 0); // its end of the socket closes a moment before its end
            if (lost || !how.empty()) {
                end();
                return "its process has ended (" + (how.empty() ? "it has closed the socket" : how) + ")";
            }
        }
    }
    const json answer = json::parse(said, nullptr, false);
    if (!answer.is_object()) {
        end();
        return "its answer is no JSON object; it was ended";
    }
    return answer.value("error", "");
}
