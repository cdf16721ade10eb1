#include "schedule/scheduler.h"

#include "protocol/event_line.h"
#include "protocol/events.h"
#include "schedule/intake.h"
#include "util/freed_memory.h"

#include <algorithm>
#include <thread>

// Steps that are shorter than this share a write, since each write wakes the reader of our events, which takes a core
static const int64_t t_write_us = 2000;
// Time without a request, before idle prefixes are evicted: that takes milliseconds, and requests often follow at once
static const int64_t t_quiet_us   = 50000;
static const int64_t t_piece_us   = 2000;       // of copying idle prefixes, while nothing runs
static const int64_t t_return_us  = 1000000;    // without work, before freed memory is returned
static const int64_t t_sleep_us   = 3600000000; // with nothing to do
static const int64_t t_outside_us = 1000000;    // with rows outside only, whose return wakes
static const int64_t t_disk_us    = 100;        // between two looks for an answer of the disk

scheduler::scheduler(const model_facts & facts, llama_context * ctx, const scheduler_params & params,
                     embedder & vectors)
    : model{facts, model_vocabulary(facts.vocab), ctx}, params(params), vectors(vectors), cells(model.ctx),
      prefixes(cells, model.vocab, params.cache_cells, params.n_parallel, params.store),
      admits(params.n_parallel), plans({params.n_parallel, params.n_batch, llama_vocab_n_tokens(facts.vocab),
                                        cells.facts.exact, params.drafts},
                                       model.vocab),
      decodes(ctx, params.n_batch, params.n_parallel), updates{model.vocab, prefixes.tree, out} {}

// Whether the logits processor has rows, and has given none back whose sequence can go on.
static bool waits_outside(const request_lists & requests) {
    bool is_out = false;
    for (const auto & r : requests.active) {
        for (const sequence & s : r->sequences) {
            if (s.outside && s.outside->is_back && s.cells) {
                return false;
            }
            is_out = is_out || (s.outside && !s.outside->is_back);
        }
    }
    return is_out;
}

void scheduler::run(command_reader & reader) {
    if (params.processor) {
        params.processor->when_back([&reader] { reader.wake(); });
    }
    while (!input_ended || !idle()) {
        for (command & c : reader.take(patience_us())) {
            n_commands += c.what != command::status;
            t_last_busy = c.what != command::status ? ggml_time_us() : t_last_busy;
            take(std::move(c));
        }
        const bool works = !idle();
        step();
        t_last_worked = works ? ggml_time_us() : t_last_worked;
        t_last_busy   = std::max(t_last_busy, t_last_worked);
        if (idle()) {
            prefixes.end_searches();
        }
        // copies of idle prefixes take at most a twentieth of the time between two steps
        const bool busy = !idle() || patience_us() > 0;
        prefixes.tree.trim_to_budget({busy, idle() ? t_piece_us : t_last_step / 20, plans.token_us()});
        if (is_quiet()) {
            return_freed_memory();
            t_last_returned = ggml_time_us();
        }
    }
}

void scheduler::step() {
    const int64_t t_begin = ggml_time_us();
    for (auto & r : requests.active) {
        end_full(*r, updates);
        pass_prune_points(*r, params.n_parallel, updates);
    }
    take_from_outside();
    sweep(); // cancelled requests take no part in this step
    admits.preempt_later(requests, prefixes);
    admits.admit(requests, prefixes.tree);
    const step_plan plan = plans.plan(requests, prefixes, rows);
    if (plan.empty() && !waits_outside(requests)) {
        end_stuck(requests, updates);
    }
    for (const request * r : plan.begun) {
        begin_request(*r, updates);
    }
    report_waiting();
    const int32_t n_tokens = plan.n_tokens();
    const size_t  n_rows   = plan.rows.size(); // guesses are none
    const bool    steady   = n_rows == n_last_rows && n_rows > 0 && plan.n_prefill == 0;
    if (!steady && n_tokens > 0) {
        write_out(true);
    }
    n_last_rows = n_rows;
    rested      = plan.empty() && !vectors.busy();
    n_steps += n_tokens > 0 || vectors.busy();
    if (n_tokens > 0 ? decode(plan) : !plan.empty()) {
        n_step_tokens += n_tokens;
        sample_and_update(plan);
    }
    step_vectors(plan);
    sweep();
    if (!steady || idle() || ggml_time_us() - t_last_written >= t_write_us) {
        write_out(!steady);
    }
    t_last_step = n_tokens > 0 ? ggml_time_us() - t_begin : 0;
    plans.measured(plan, t_last_step - plan.t_guessing);
    t_steps += t_last_step;
}

bool scheduler::decode(const step_plan & plan) {
    const int32_t code = decodes.decode(plan);
    if (code == 0) {
        plans.decoded(plan, decodes.t_last_us());
        return true;
    }
    plans.undo(plan, requests, prefixes.tree);
    // code 1: there were no cells, and nothing has changed. The planner counts cells, so this is a precaution.
    if (code != 1 || !preempt_youngest(requests, prefixes.tree)) {
        fail_all("llama_decode failed with code " + std::to_string(code));
    }
    return false;
}

// Rows of logits are read before the next decode overwrites them.
void scheduler::sample_and_update(const step_plan & plan) {
    const int32_t       n_vocab = llama_vocab_n_tokens(model.facts.vocab);
    std::vector<sample> samples = echo_samples(plan, model.ctx);
    sample_all(samples, model.facts, params.n_threads);
    take_echo(plan, samples, updates);

    std::vector<planned_rows> started;
    for (const planned_prompt & p : plan.prompts) {
        if (p.i_row >= 0 && p.r->command->cache) {
            rows.add(p.r->command->prompt, p.r->cells_key(), llama_get_logits_ith(model.ctx, p.i_row),
                     n_vocab);
        }
        for (const planned_rows & row : plans.start_sequences(p, requests, prefixes.tree)) {
            started.push_back(row);
        }
    }
    samples = samples_of(plan, started, model.ctx, n_vocab);
    if (params.processor) {
        send_outside(samples, n_vocab, *params.processor);
    }
    sample_all(samples, model.facts, params.n_threads);
    take_samples(samples, updates);
    for (int32_t k = 1; !(samples = samples_of_drafts(plan, k, model.ctx)).empty(); k++) {
        sample_all(samples, model.facts, params.n_threads);
        take_samples(samples, updates);
    }
    plans.count_guesses(plan);
    for (auto & r : requests.active) {
        report_progress(*r, updates);
    }
}

// Tokens of rows that the logits processor has given back: their sequences take part in steps again.
void scheduler::take_from_outside() {
    if (!params.processor) {
        return;
    }
    std::vector<sample>                       samples = samples_from_outside(requests, *params.processor);
    std::vector<std::shared_ptr<outside_row>> rows;
    for (const sample & d : samples) {
        rows.push_back(std::move(d.s->outside));
    }
    sample_all(samples, model.facts, params.n_threads);
    take_samples(samples, updates);
}

// Texts that become vectors yield to sequences: in a step with sequences only a chunk of them is computed, and nothing if
// their priority is later.
void scheduler::step_vectors(const step_plan & plan) {
    if (!vectors.busy() || (plan.n_tokens() > 0 && vectors.priority() > plan.whose.priority)) {
        return;
    }
    if (plan.n_tokens() == 0) {
        write_out(true);
    }
    append_embeddings(out, vectors.step(plan.n_tokens() > 0 ? n_chunk : params.n_batch));
}

// The content of all cells is unknown, so all are cleared before a snapshot could be taken of them: the next request
// finds a sound state.
void scheduler::fail_all(const std::string & message) {
    prefixes.tree.clear();
    for (auto & r : requests.active) {
        for (sequence & s : r->sequences) {
            s.cells = s.negative = nullptr;
        }
        r->prompt.cells = r->prompt.negative = nullptr;
        r->n_live                            = 0;
        fail_request(*r, command_error("engine_error", message), updates);
    }
    pin_again(requests, model.facts.n_ctx_seq);
}

// Unloaded adapters whose last request has ended. Prefixes that were computed with them serve nobody any more.
static void free_adapters(adapter_list & adapters, llama_context * ctx, embedder & vectors,
                          prefix_cache & prefixes) {
    if (!adapters.has_unused()) {
        return;
    }
    apply_adapters(ctx, {}); // else llama.cpp could take another adapter at the same address for this one
    vectors.reset_adapters();
    for (const uint64_t key : adapters.free_unused()) {
        prefixes.drop(key);
    }
}

// Removes requests that have ended.
void scheduler::sweep() {
    const auto finished = [this](std::unique_ptr<request> & r) {
        if (r->is_pin()) {
            keep_pin(*r, requests, model.facts.n_ctx_seq, updates);
        }
        return finish_request(*r, history, updates);
    };
    requests.active.remove_if(finished);
    auto & queue = requests.queue;
    queue.erase(std::remove_if(queue.begin(), queue.end(), finished), queue.end());
    free_adapters(*model.facts.adapters, model.ctx, vectors, prefixes);
}

//
// commands
//

static std::string answer_to_load(const command & c, adapter_list & adapters) {
    std::string line;
    try {
        adapters.load(*c.adapter);
        event_line(line, "result", c.id).raw("adapters", adapters.to_json());
    } catch (const command_error & e) {
        line = error_line(c.id, e, c.number);
    }
    return line;
}

static std::string answer_to_unpin(const command & c, request_lists & requests, prefix_tree & tree) {
    if (unpin(requests, c.pin, tree)) {
        return c.line;
    }
    const std::string message = "no prompt is pinned under the name \"" + c.pin + "\"";
    return error_line(c.id, command_error("invalid_request", message, "name"), c.number);
}

void scheduler::take(command && c) {
    switch (c.what) {
        case command::generate: submit(std::move(c)); break;
        case command::embed:
            if (!is_taken(c)) {
                vectors.submit(c.id, c.client, std::move(c.texts), c.priority);
            }
            break;
        case command::cancel:
            append_embeddings(out, vectors.cancel(c.id));
            if (request * r = requests.find(c.id)) { // else it ended before the command came
                cancel_request(*r, c.cancelled.index, c.cancelled.surplus ? "surplus" : "cancelled", updates);
            }
            break;
        case command::extend: extend(c); break;
        case command::status: report_status(c.id); break;
        case command::limits:
            prefixes.limit_memory(c.cache_ram);
            out += c.line;
            break;
        case command::unpin:        out += answer_to_unpin(c, requests, prefixes.tree); break;
        case command::load_adapter: out += answer_to_load(c, *model.facts.adapters); break;
        case command::answer:       out += c.line; break;
        case command::end_of_input: input_ended = true; break;
    }
}

bool scheduler::is_taken(const command & c) {
    if (!requests.find(c.id) && !vectors.has(c.id)) {
        return false;
    }
    const std::string message = "the id \"" + c.id + "\" belongs to a request that is not done";
    out += error_line("", command_error("invalid_request", message, "id"), c.number);
    return true;
}

void scheduler::submit(command && c) {
    if (is_taken(c)) {
        return;
    }
    const std::string id = c.id;
    try {
        auto r = make_request(std::move(c), requests, history, model.facts, model.vocab, prefixes.tree);
        if (r->prefix_only() && !r->is_pin()) {
            supersede_prefix_of(r->command->client);
        }
        requests.queue.push_back(std::move(r));
    } catch (const command_error & e) {
        out += error_line(id, e, c.number);
    }
}

// Of a client only the latest prefix is computed, since the writer has typed on since the command for another one.
void scheduler::supersede_prefix_of(const std::string & client) {
    const auto end = [&](std::unique_ptr<request> & r) {
        if (r->prefix_only() && !r->is_pin() && r->command->client == client) {
            append_embeddings(out, vectors.cancel(r->id));
            cancel_request(*r, -1, "cancelled", updates);
        }
    };
    std::for_each(requests.active.begin(), requests.active.end(), end);
    std::for_each(requests.queue.begin(), requests.queue.end(), end);
    sweep();
}

void scheduler::extend(const command & c) {
    request * r = requests.find(c.id);
    try {
        const int64_t first = extend_request(r, c, model.vocab);
        append_extended(out, r->id, first, (int64_t) r->sequences.size());
    } catch (const command_error & e) {
        out += error_line("", e, c.number); // the request itself goes on
    }
}

void scheduler::report_status(const std::string & id) {
    const cell_counts cells = prefixes.tree.counts();
    status_report     report;
    report.n_cells       = cells.n_cells;
    report.n_used        = cells.n_used;
    report.n_idle        = cells.n_idle;
    report.n_pinned      = cells.n_pinned;
    report.n_shared      = cells.n_shared;
    report.n_requests    = (int64_t) requests.active.size();
    report.n_live        = requests.n_live();
    report.n_commands    = n_commands;
    report.n_steps       = n_steps;
    report.n_step_tokens = n_step_tokens;
    report.t_steps       = t_steps;
    report.t_model       = decodes.t_all_us();
    int64_t n_drafts     = 0;
    for (size_t i = 0; i < draft_source::n; i++) {
        const std::string   name  = std::string("draft_") + draft_source::names[i];
        const draft_count & count = plans.counts_of_guesses()[i];
        report.guesses.emplace_back(name, count.n_guessed);
        report.guesses.emplace_back(name + "_accepted", count.n_right);
        n_drafts += count.n;
    }
    report.guesses.emplace_back("drafts", n_drafts);
    // Requests of later priorities yield, so they make no server full: they do not count as waiting.
    for (const auto & r : requests.queue) {
        report.n_queued += r->priority() == 0;
    }
    for (const auto & r : requests.active) {
        report.n_waiting += r->priority() == 0 ? r->n_waiting() : 0;
    }
    append_status(out, id, report);
}

// Each waiting request has one event: its position in the queue, or, when its prompt waits for the disk or for another
// prompt that is being computed, that it was accepted.
void scheduler::report_waiting() {
    int64_t position = 0;
    for (auto & r : requests.queue) {
        position++;
        if (!r->announced && !r->prefix_only()) {
            r->announced = true;
            append_queued(out, r->id, position);
        }
    }
    for (auto & r : requests.active) {
        if (r->prompt.n_cached < 0 && !r->announced) {
            append_accepted(out, r->id, r->number);
            r->announced = true;
        }
    }
}

//
// waiting and writing
//

bool scheduler::idle() const {
    return requests.empty() && !vectors.busy();
}

// Whether the last step had nothing to do, and a request waits for an answer of the disk.
bool scheduler::waits_for_disk() const {
    const auto waits = [this](const auto & r) {
        return !r->prompt.cells && prefixes.is_open(r->prompt.search);
    };
    return rested && !vectors.busy() && std::any_of(requests.active.begin(), requests.active.end(), waits);
}

// Whether the last step had nothing to do, and the logits processor has rows.
bool scheduler::waits_for_outside() const {
    return rested && !vectors.busy() && waits_outside(requests);
}

// Whether there was no request for a while, and freed memory is still to be returned.
bool scheduler::is_quiet() const {
    return idle() && t_last_returned < t_last_busy && ggml_time_us() >= t_last_busy + t_return_us;
}

// How long the loop may block for commands.
int64_t scheduler::patience_us() const {
    if (!idle()) {
        return waits_for_disk() ? t_disk_us : waits_for_outside() ? t_outside_us : 0;
    }
    if (prefixes.is_copying()) {
        return 0;
    }
    const bool needs_trim = prefixes.tree.needs_trim();
    if (!needs_trim && t_last_returned >= t_last_busy) {
        return t_sleep_us;
    }
    const int64_t until = needs_trim ? t_last_worked + t_quiet_us : t_last_busy + t_return_us;
    return std::max(until - ggml_time_us(), (int64_t) 0);
}

// A reader that shares a core with our threads waits for milliseconds, until the system takes the core from us; yield: it
// gets the core at once. This is done for first tokens and ends.
void scheduler::write_out(bool yield) {
    const bool written = !out.empty();
    write_lines(params.fd_out, out);
    t_last_written = ggml_time_us();
    if (written && yield) {
        std::this_thread::yield();
    }
}
