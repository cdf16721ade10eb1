#include "protocol/event_line.h"

#include "util/utf8.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <unistd.h>

event_line::event_line(std::string & out, const char * event) : out(out) {
    out += "{\"event\":\"";
    out += event;
    out += '"';
}

event_line::event_line(std::string & out, const char * event, const std::string & id)
    : event_line(out, event) {
    text("id", id);
}

event_line::~event_line() {
    out += "}\n";
}

void event_line::key(const char * name) {
    out += ",\"";
    out += name;
    out += "\":";
}

event_line & event_line::text(const char * name, std::string_view value) {
    key(name);
    append_json_string(out, value);
    return *this;
}

event_line & event_line::integer(const char * name, int64_t value) {
    key(name);
    out += std::to_string(value);
    return *this;
}

event_line & event_line::number(const char * name, double value) {
    char number[32];
    snprintf(number, sizeof(number), "%.6g",
             std::isfinite(value) ? value : 0.0); // JSON has no infinity
    return raw(name, number);
}

event_line & event_line::raw(const char * name, std::string_view json_text) {
    key(name);
    out += json_text;
    return *this;
}

std::string error_line(const std::string & id, const command_error & e, int64_t number) {
    // messages of parsers and of the system may not be UTF-8
    std::string bytes = e.what();
    std::string line;
    {
        event_line event(line, "error", id);
        event.text("code", e.code).text("message", take_utf8(bytes));
        if (!e.param.empty()) {
            event.text("param", e.param);
        }
        if (e.n_ctx > 0) {
            event.integer("n_prompt_tokens", e.n_prompt).integer("n_ctx", e.n_ctx);
        }
        if (number > 0) {
            event.integer("line", number);
        }
    }
    return line;
}

void append_embeddings(std::string & out, const embedding_results & results) {
    for (const text_vector & v : results.vectors) {
        std::string numbers;
        char        number[32];
        for (const double x : v.numbers) {
            snprintf(number, sizeof(number), "%.8g", x);
            numbers += (numbers.empty() ? "[" : ",") + std::string(number);
        }
        event_line(out, "embedding", v.id)
            .integer("index", v.index)
            .integer("count", v.n_tokens)
            .raw("embedding", numbers + "]");
    }
    for (const embedding_end & e : results.ended) {
        if (!e.error.empty()) {
            out += error_line(e.id, command_error("engine_error", e.error));
            continue;
        }
        event_line(out, "done", e.id)
            .integer("count", e.count)
            .integer("prompt_tokens", e.n_tokens)
            .integer("cached_tokens", 0)
            .integer("completion_tokens", 0)
            .raw("timings", "{}");
    }
}

void write_lines(int fd, std::string & out) {
    for (size_t n_written = 0; n_written < out.size();) {
        const ssize_t n = write(fd, out.data() + n_written, out.size() - n_written);
        if (n < 0 && errno != EINTR) {
            _exit(errno == EPIPE ? 0 : 1);
        }
        n_written += n > 0 ? (size_t) n : 0;
    }
    out.clear();
}

int take_stdout() {
    fflush(stdout);
    const int fd = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    return fd;
}
