#include "schedule/scheduler.h"

#include "protocol/events.h"
#include "protocol/reports.h"
#include "schedule/intake.h"
#include "util/freed_memory.h"

#include <algorithm>
#include <thread>

// Steps that are shorter than this share a write: each wakes the reader, who needs one of the cores
static const int64_t t_write_us = 2000;
// Idle prefixes are evicted, each in milliseconds, when nobody has asked for so long: many a request follows at once
static const int64_t t_quiet_us  = 50000;
static const int64_t t_return_us = 1000000;    // without work, before freed memory is returned
static const int64_t t_sleep_us  = 3600000000; // with nothing to do
static const int64_t t_disk_us   = 100;        // between two looks for what the disk was asked for

static bool stops_short(const llama_model * model) {
    return llama_model_is_recurrent(model) || llama_model_is_hybrid(model) || llama_model_n_swa(model) > 0;
}

scheduler::scheduler(const model_facts & facts, llama_context * ctx, const scheduler_params & params,
                     embedder & vectors)
    : facts(facts), ctx(ctx), params(params), vectors(vectors),
      tree(ctx, params.cache_cells, params.n_parallel, params.store), admits(params.n_parallel),
      plans({params.n_parallel, params.n_ctx_seq, params.n_batch, llama_vocab_n_tokens(facts.vocab),
             stops_short(facts.model)}),
      decodes(ctx, facts.adapters, params.n_batch, params.n_parallel), updates(facts) {}

void scheduler::run(command_reader & reader) {
    while (!input_ended || !idle()) {
        for (command & c : reader.take(patience_us())) {
            counted.n_commands += c.what != command::status;
            last.busy = c.what != command::status ? ggml_time_us() : last.busy;
            take(std::move(c));
        }
        const bool works = !idle();
        step();
        last.worked = works ? ggml_time_us() : last.worked;
        last.busy   = std::max(last.busy, last.worked);
        if (idle()) {
            tree.end_searches();
        }
        tree.trim(idle() && patience_us() == 0);
        if (is_quiet()) {
            return_freed_memory();
            last.returned = ggml_time_us();
        }
    }
}

void scheduler::step() {
    const int64_t t_begin = ggml_time_us();
    for (auto & r : requests.active) {
        updates.end_full(*r, tree, out);
    }
    sweep(); // what was cancelled takes no part in this step
    admits.admit(requests, tree);
    const step_plan plan = plans.plan(requests, tree, rows);
    for (const request * r : plan.begun) {
        updates.begin_request(*r, out);
    }
    report_waiting();
    const int32_t n_tokens = plan.n_tokens();
    const bool    steady   = n_tokens == counted.n_last_tokens && n_tokens > 0 && plan.n_prefill == 0;
    if (!steady && n_tokens > 0) {
        write_out(true);
    }
    counted.n_last_tokens = n_tokens;
    counted.rested        = plan.empty() && !vectors.busy();
    counted.n_steps += n_tokens > 0 || vectors.busy();
    if (n_tokens > 0 ? decode(plan) : !plan.empty()) {
        counted.n_step_tokens += n_tokens;
        sample_and_update(plan);
    }
    step_vectors(plan);
    sweep();
    if (!steady || idle() || ggml_time_us() - last.written >= t_write_us) {
        write_out(!steady);
    }
    counted.t_steps += n_tokens > 0 ? ggml_time_us() - t_begin : 0;
}

bool scheduler::decode(const step_plan & plan) {
    const int32_t code = decodes.decode(plan);
    if (code == 0) {
        plans.decoded(plan, decodes.t_last_us());
        return true;
    }
    plans.undo(plan, requests, tree);
    // code 1: no cells, and nothing has changed. Cells are counted before, so this is a precaution.
    if (code != 1 || !plans.preempt_youngest(requests, tree)) {
        fail_all("llama_decode failed with code " + std::to_string(code));
    }
    return false;
}

// Rows of logits are read before the next decode overwrites them.
void scheduler::sample_and_update(const step_plan & plan) {
    const int32_t       n_vocab = llama_vocab_n_tokens(facts.vocab);
    std::vector<sample> samples = echo_samples(plan, ctx);
    sample_all(samples, facts, params.n_threads);
    updates.take_echo(plan, samples, out);

    std::vector<planned_rows> started;
    for (const planned_prompt & p : plan.prompts) {
        if (p.i_row >= 0 && p.r->command->cache) {
            rows.add(p.r->command->prompt, p.r->command->adapters.key, llama_get_logits_ith(ctx, p.i_row),
                     n_vocab);
        }
        for (const planned_rows & row : plans.start_sequences(p, requests, tree)) {
            started.push_back(row);
        }
    }
    samples = samples_of(plan, started, ctx, n_vocab);
    sample_all(samples, facts, params.n_threads);
    updates.take_samples(samples, tree, out);
    for (auto & r : requests.active) {
        updates.report_progress(*r, out);
    }
}

// Texts that become vectors yield to sequences: a chunk of them beside a step.
void scheduler::step_vectors(const step_plan & plan) {
    if (!vectors.busy()) {
        return;
    }
    if (plan.n_tokens() == 0) {
        write_out(true);
    }
    append_embeddings(out, vectors.step(plan.n_tokens() > 0 ? n_chunk : params.n_batch));
}

// Nobody knows what the cells hold now, so all of them are given up before anything could be kept of them, and
// the next request finds a sound state.
void scheduler::fail_all(const std::string & message) {
    tree.clear();
    for (auto & r : requests.active) {
        for (sequence & s : r->sequences) {
            s.cells = nullptr;
        }
        r->prompt = nullptr;
        r->n_live = 0;
        updates.fail(*r, command_error("engine_error", message), tree, out);
    }
}

// Requests whose sequences are all over go.
void scheduler::sweep() {
    const auto finished = [this](std::unique_ptr<request> & r) {
        return updates.finish(*r, tree, history, out);
    };
    requests.active.remove_if(finished);
    auto & queue = requests.queue;
    queue.erase(std::remove_if(queue.begin(), queue.end(), finished), queue.end());
}

//
// commands
//

void scheduler::take(command && c) {
    switch (c.what) {
        case command::generate: submit(std::move(c)); break;
        case command::embed:
            if (!is_taken(c)) {
                vectors.submit(c.id, std::move(c.texts));
            }
            break;
        case command::cancel:
            append_embeddings(out, vectors.cancel(c.id));
            if (request * r = requests.find(c.id)) { // else it is done: the two have crossed
                updates.cancel(*r, c.index, tree, out);
            }
            break;
        case command::extend:       extend(c); break;
        case command::status:       report_status(c.id); break;
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
        auto r = make_request(std::move(c), requests, history, facts);
        if (r->prefix_only()) {
            supersede_prefix_of(r->command->client);
        }
        requests.queue.push_back(std::move(r));
    } catch (const command_error & e) {
        out += error_line(id, e, c.number);
    }
}

// Of a client only the latest prefix is wanted: the writer has typed on since the other one was asked for.
void scheduler::supersede_prefix_of(const std::string & client) {
    const auto end = [&](std::unique_ptr<request> & r) {
        if (r->prefix_only() && r->command->client == client) {
            append_embeddings(out, vectors.cancel(r->id));
            updates.cancel(*r, -1, tree, out);
        }
    };
    std::for_each(requests.active.begin(), requests.active.end(), end);
    std::for_each(requests.queue.begin(), requests.queue.end(), end);
    sweep();
}

void scheduler::extend(const command & c) {
    request * r = requests.find(c.id);
    try {
        const int64_t first = extend_request(r, c, facts);
        append_extended(out, r->id, first, (int64_t) r->sequences.size());
    } catch (const command_error & e) {
        out += error_line("", e, c.number); // the request itself goes on
    }
}

void scheduler::report_status(const std::string & id) {
    status_report report;
    report.n_cells       = tree.n_cells();
    report.n_used        = tree.n_used();
    report.n_idle        = tree.n_idle();
    report.n_shared      = tree.n_shared();
    report.n_requests    = (int64_t) requests.active.size();
    report.n_queued      = (int64_t) requests.queue.size();
    report.n_live        = requests.n_live();
    report.n_commands    = counted.n_commands;
    report.n_steps       = counted.n_steps;
    report.n_step_tokens = counted.n_step_tokens;
    report.t_steps       = counted.t_steps;
    report.t_model       = decodes.t_all_us();
    for (const auto & r : requests.active) {
        report.n_waiting += r->n_waiting();
    }
    append_status(out, id, report);
}

// Each is told once: its position in the queue, or, where its prompt waits for another one that is being computed or
// for the disk, that it was accepted.
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
        if (r->n_cached < 0 && !r->announced) {
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

// Whether the last step had nothing to do, and somebody's prefix is being looked for on disk.
bool scheduler::waits_for_disk() const {
    const auto waits = [this](const auto & r) { return !r->prompt && tree.is_open(r->recall); };
    return counted.rested && !vectors.busy() &&
           std::any_of(requests.active.begin(), requests.active.end(), waits);
}

// Whether nothing has run for a while, and what was freed before that is still to be returned.
bool scheduler::is_quiet() const {
    return idle() && last.returned < last.busy && ggml_time_us() >= last.busy + t_return_us;
}

// How long the loop may block for commands.
int64_t scheduler::patience_us() const {
    if (!idle()) {
        return waits_for_disk() ? t_disk_us : 0;
    }
    if (!tree.is_over() && last.returned >= last.busy) {
        return t_sleep_us;
    }
    const int64_t until = tree.is_over() ? last.worked + t_quiet_us : last.busy + t_return_us;
    return std::max(until - ggml_time_us(), (int64_t) 0);
}

// A reader on a core that decodes waits until the system takes that from us, milliseconds later; first tokens
// and ends give it away.
void scheduler::write_out(bool yield) {
    const bool written = !out.empty();
    write_lines(params.fd_out, out);
    last.written = ggml_time_us();
    if (written && yield) {
        std::this_thread::yield();
    }
}
