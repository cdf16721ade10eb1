#include "protocol/reports.h"

#include "protocol/events.h"

#include <algorithm>
#include <cstdio>

static std::string list_of(const std::vector<std::string> & tokens, size_t n_tokens) {
    std::string list = "[";
    for (size_t i = 0; i < n_tokens; i++) {
        list += (i ? "," : "") + tokens[i];
    }
    return list + "]";
}

void append_queued(std::string & out, const std::string & id, int64_t position) {
    event_line(out, "queued", id).whole("position", position);
}

void append_accepted(std::string & out, const std::string & id, int64_t line) {
    event_line(out, "accepted", id).whole("line", line);
}

void append_extended(std::string & out, const std::string & id, int64_t first, int64_t count) {
    event_line(out, "extend", id).whole("first", first).whole("count", count);
}

void append_retry(std::string & out, const std::string & id, int32_t index) {
    event_line(out, "again", id).whole("index", index);
}

void append_start(std::string & out, const std::string & id, const start_report & report) {
    event_line(out, "start", id)
        .whole("count", report.count)
        .whole("prompt_tokens", report.n_prompt)
        .whole("cached_tokens", report.n_cached)
        .whole("seed", report.seed);
}

void append_prompt(std::string & out, const std::string & id, const std::string & text,
                   const std::vector<std::string> & tokens) {
    event_line event(out, "prompt", id);
    event.text("text", text);
    if (!tokens.empty()) {
        event.raw("tokens", list_of(tokens, tokens.size()));
    }
}

void append_progress(std::string & out, const std::string & id, int32_t n_processed, int32_t n_all) {
    event_line(out, "progress", id).whole("processed", n_processed).whole("total", n_all);
}

void append_stream(std::string & out, const std::string & id, int32_t index, const chat_delta & delta,
                   const std::vector<std::string> & tokens, size_t n_tokens) {
    event_line event(out, "stream", id);
    event.whole("index", index).text("text", delta.content);
    if (!delta.reasoning.empty()) {
        event.text("reasoning", delta.reasoning);
    }
    if (!delta.tool_calls.empty()) {
        event.raw("tool_calls", delta.tool_calls);
    }
    if (n_tokens > 0) {
        event.raw("tokens", list_of(tokens, n_tokens));
    }
}

void append_stop(std::string & out, const std::string & id, const stop_report & report) {
    event_line event(out, "stop", id);
    event.whole("index", report.index)
        .whole("length", report.length)
        .whole("stop", std::string_view(report.reason) == "stop")
        .text("finish_reason", report.reason);
    if (report.stop_text) {
        event.text("stop_text", *report.stop_text);
    }
    if (report.logprob) {
        event.real("logprob", *report.logprob);
    }
    if (report.duplicate_of) {
        event.whole("duplicate_of", *report.duplicate_of);
    }
}

void append_score(std::string & out, const std::string & id, const score_report & report,
                  const std::vector<std::string> & tokens) {
    event_line(out, "score", id)
        .whole("index", report.index)
        .whole("count", report.count)
        .real("logprob", report.sum)
        .raw("greedy", report.greedy ? "true" : "false")
        .raw("tokens", list_of(tokens, tokens.size()));
}

void append_done(std::string & out, const std::string & id, const done_report & report) {
    char timings[128];
    snprintf(timings, sizeof(timings), "{\"queued_ms\":%.3f,\"prompt_ms\":%.3f,\"decode_ms\":%.3f}",
             report.queued_ms, report.prompt_ms, report.decode_ms);
    event_line(out, "done", id)
        .whole("count", report.count)
        .whole("prompt_tokens", report.n_prompt)
        .whole("cached_tokens", report.n_cached)
        .whole("completion_tokens", report.n_tokens)
        .raw("timings", timings);
}

void append_status(std::string & out, const std::string & id, const status_report & report) {
    event_line(out, "result", id)
        .whole("cells", report.n_cells)
        .whole("cells_used", report.n_used)
        .whole("cells_idle", report.n_idle)
        .whole("cells_shared", report.n_shared)
        .whole("requests", report.n_requests)
        .whole("queued", report.n_queued)
        .whole("sequences", report.n_live)
        .whole("sequences_waiting", report.n_waiting)
        .whole("commands", report.n_commands)
        .whole("steps", report.n_steps)
        .whole("step_tokens", report.n_step_tokens)
        .whole("step_us", report.t_steps)
        .whole("model_us", report.t_model);
}
