#include "protocol/events.h"

#include "protocol/event_line.h"

#include <algorithm>
#include <cstdio>

static std::string list_of(const std::vector<std::string> & tokens, size_t n_tokens) {
    std::string list = "[";
    for (size_t i = 0; i < n_tokens; i++) {
        list += (i ? "," : "") + tokens[i];
    }
    return list + "]";
}

template <typename T> static std::string numbers(const std::vector<T> & values, const char * format) {
    std::string list = "[";
    char        number[32];
    for (const T value : values) {
        snprintf(number, sizeof(number), format, value);
        list += (list.size() > 1 ? "," : "") + std::string(number);
    }
    return list + "]";
}

void append_queued(std::string & out, const std::string & id, int64_t position) {
    event_line(out, "queued", id).integer("position", position);
}

void append_accepted(std::string & out, const std::string & id, int64_t line) {
    event_line(out, "accepted", id).integer("line", line);
}

void append_extended(std::string & out, const std::string & id, int64_t first, int64_t count) {
    event_line(out, "extend", id).integer("first", first).integer("count", count);
}

void append_retry(std::string & out, const std::string & id, int32_t index) {
    event_line(out, "again", id).integer("index", index);
}

void append_start(std::string & out, const std::string & id, const start_report & report) {
    event_line event(out, "start", id);
    event.integer("count", report.count)
        .integer("prompt_tokens", report.n_prompt)
        .integer("cached_tokens", report.n_cached)
        .integer("seed", report.seed);
    if (report.n_cut > 0) {
        event.integer("cut_tokens", report.n_cut);
    }
    if (report.prompt) {
        event.raw("prompt_token_ids", numbers(*report.prompt, "%d"));
    }
    if (report.warnings && !report.warnings->empty()) {
        std::vector<std::string> texts;
        for (const std::string & warning : *report.warnings) {
            texts.emplace_back();
            append_json_string(texts.back(), warning);
        }
        event.raw("warnings", list_of(texts, texts.size()));
    }
}

void append_prompt(std::string & out, const std::string & id, const std::string & text,
                   const std::vector<std::string> & tokens) {
    event_line event(out, "prompt", id);
    event.text("text", text);
    if (!tokens.empty()) {
        event.raw("tokens", list_of(tokens, tokens.size()));
    }
}

void append_prompt_logprobs(std::string & out, const std::string & id,
                            const std::vector<std::string> & tokens) {
    event_line(out, "prompt_logprobs", id).raw("tokens", list_of(tokens, tokens.size()));
}

void append_progress(std::string & out, const std::string & id, int32_t n_processed, int32_t n_all) {
    event_line(out, "progress", id).integer("processed", n_processed).integer("total", n_all);
}

void append_stream(std::string & out, const std::string & id, int32_t index, const chat_delta & delta,
                   const stream_report & report) {
    event_line event(out, "stream", id);
    event.integer("index", index).text("text", delta.content);
    if (!delta.reasoning.empty()) {
        event.text("reasoning", delta.reasoning);
    }
    if (!delta.tool_calls.empty()) {
        event.raw("tool_calls", delta.tool_calls);
    }
    if (report.n_tokens > 0) {
        event.raw("tokens", list_of(report.tokens, report.n_tokens));
    }
    if (!report.ids.empty()) {
        event.raw("token_ids", numbers(report.ids, "%d"));
    }
    if (!report.entropies.empty()) {
        event.raw("entropies", numbers(report.entropies, "%.6g"));
    }
}

void append_then(std::string & out, const std::string & id, const then_report & report) {
    event_line event(out, "then", id);
    event.integer("index", report.index)
        .integer("length", report.length)
        .integer("stop", std::string_view(report.reason) == "stop")
        .text("finish_reason", report.reason);
    if (report.stop_text) {
        event.text("stop_text", *report.stop_text);
    }
    if (report.passage) {
        event.text("end", report.passage);
    }
}

void append_stop(std::string & out, const std::string & id, const stop_report & report) {
    event_line event(out, "stop", id);
    event.integer("index", report.index)
        .integer("length", report.length)
        .integer("stop", std::string_view(report.reason) == "stop")
        .text("finish_reason", report.reason);
    if (report.stop_text) {
        event.text("stop_text", *report.stop_text);
    }
    if (report.passage) {
        event.text("end", report.passage);
    }
    if (report.logprob) {
        event.number("logprob", *report.logprob);
    }
    if (report.certainty) {
        event.number("certainty", *report.certainty);
    }
    if (report.duplicate_of) {
        event.integer("duplicate_of", *report.duplicate_of);
    }
    if (report.n_free) {
        event.integer("free_length", *report.n_free);
    }
    if (report.stop_token) {
        event.integer("stop_token", *report.stop_token);
    }
}

void append_score(std::string & out, const std::string & id, const score_report & report,
                  const std::vector<std::string> & tokens) {
    event_line event(out, "score", id);
    event.integer("index", report.index)
        .integer("count", report.count)
        .number("logprob", report.sum)
        .raw("greedy", report.greedy ? "true" : "false");
    if (report.certainty) {
        event.number("certainty", *report.certainty);
    }
    event.raw("tokens", list_of(tokens, tokens.size()));
}

void append_done(std::string & out, const std::string & id, const done_report & report) {
    char timings[128];
    snprintf(timings, sizeof(timings), "{\"queued_ms\":%.3f,\"prompt_ms\":%.3f,\"decode_ms\":%.3f",
             report.queued_ms, report.prompt_ms, report.decode_ms);
    std::string counts =
        report.n_saved ? ",\"saved_tokens\":" + std::to_string(*report.n_saved) : std::string();
    if (report.n_guessed > 0) {
        counts += ",\"draft_n\":" + std::to_string(report.n_guessed) +
                  ",\"draft_n_accepted\":" + std::to_string(report.n_right);
    }
    if (report.processor_ms > 0.0) {
        char text[64];
        snprintf(text, sizeof(text), ",\"logits_processor_ms\":%.3f", report.processor_ms);
        counts += text;
    }
    event_line event(out, "done", id);
    event.integer("count", report.count)
        .integer("prompt_tokens", report.n_prompt)
        .integer("cached_tokens", report.n_cached)
        .integer("completion_tokens", report.n_tokens)
        .raw("timings", timings + counts + "}");
    for (const auto & [name, n] : {std::pair<const char *, int64_t>{"reasoning_tokens", report.n_reasoning},
                                   {"negative_tokens", report.n_negative}}) {
        if (n > 0) {
            event.integer(name, n);
        }
    }
}

void append_status(std::string & out, const std::string & id, const status_report & report) {
    event_line event(out, "result", id);
    event.integer("cells", report.n_cells)
        .integer("cells_used", report.n_used)
        .integer("cells_idle", report.n_idle)
        .integer("cells_pinned", report.n_pinned)
        .integer("cells_shared", report.n_shared)
        .integer("requests", report.n_requests)
        .integer("queued", report.n_queued)
        .integer("sequences", report.n_live)
        .integer("sequences_waiting", report.n_waiting)
        .integer("commands", report.n_commands)
        .integer("steps", report.n_steps)
        .integer("step_tokens", report.n_step_tokens)
        .integer("step_us", report.t_steps)
        .integer("model_us", report.t_model);
    for (const auto & [name, count] : report.guesses) {
        event.integer(name.c_str(), count);
    }
}
