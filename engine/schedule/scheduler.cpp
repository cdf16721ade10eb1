#include "schedule/scheduler.h"

#include "protocol/events.h"
#include "util/freed_memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdlib>
#include <numeric>
#include <thread>

static const int32_t n_reserve      = 32;     // cells a live sequence should find beyond what it holds
static const int64_t t_progress_us  = 250000; // between two progress events of one prompt
static const int32_t n_chunk        = 64;     // tokens that are planned for: of a prompt, of who resumes
static const int64_t t_beside_us    = 100000; // of prefill in a step in which sequences decode too, and
static const int32_t n_beside_min   = 32;     // tokens of it at least
static const int32_t n_worth_saving = 64;     // tokens computed anew: such a prompt goes to disk
static const int32_t n_max_again    = 8; // times that a text which another sequence has said is made anew
static const size_t  n_row_bytes    = 128u << 20; // of logits, of the texts that are scored in one step

static void append_logprob(std::string & out, const token_logprob & t, const llama_vocab * vocab) {
    char number[32];
    snprintf(number, sizeof(number), "%.6g", t.logprob);
    std::string bytes = common_token_to_piece(vocab, t.token, true);
    std::string text  = take_utf8(bytes);
    out += "\"id\":" + std::to_string(t.token) + ",\"text\":";
    append_json_string(out, bytes.empty() ? text : text + "\xEF\xBF\xBD");
    out += std::string(",\"logprob\":") + number;
}

static std::string unknown_logprob_json(llama_token token, const llama_vocab * vocab) {
    std::string bytes = common_token_to_piece(vocab, token, true);
    std::string json  = "{\"id\":" + std::to_string(token) + ",\"text\":";
    append_json_string(json, take_utf8(bytes));
    return json + ",\"logprob\":null,\"top\":[]}";
}

// Steps that are shorter than this share a write: each wakes the reader, who needs one of the cores
static const int64_t t_write_us = 2000;
// Idle prefixes leave, each in milliseconds, when nobody has asked for so long: many a request follows at once
static const int64_t t_quiet_us  = 50000;
static const int64_t t_return_us = 1000000;    // without work, before freed memory is returned
static const int64_t t_sleep_us  = 3600000000; // with nothing to do
static const int64_t t_disk_us   = 100;        // between two looks for what the disk was asked for

// LLAMA_BATCHED_FAIL_STEP=20 or =20:1: the 20th decode fails, with -3 or that code of llama_decode's.
static step_fault fault_for_tests() {
    step_fault   fault;
    const char * text = getenv("LLAMA_BATCHED_FAIL_STEP");
    if (text) {
        sscanf(text, "%" SCNd64 ":%d", &fault.step, &fault.code);
    }
    return fault;
}

scheduler::scheduler(const model_facts & facts, llama_context * ctx, const scheduler_params & params,
                     embedder & vectors)
    : facts(facts), ctx(ctx), params(params), fault(fault_for_tests()),
      tree(ctx, params.cache_cells, params.n_parallel, params.store), vectors(vectors),
      batch(llama_batch_init(params.n_batch, 0, params.n_parallel)),
      stops_short(llama_model_is_recurrent(facts.model) || llama_model_is_hybrid(facts.model) ||
                  llama_model_n_swa(facts.model) > 0) {}

scheduler::~scheduler() {
    llama_batch_free(batch);
}

void scheduler::run(command_reader & reader) {
    while (!input_ended || !idle()) {
        for (command & c : reader.take(patience_us())) {
            n_commands += c.what != command::status;
            t_busy = c.what != command::status ? ggml_time_us() : t_busy;
            take(std::move(c));
        }
        const bool    works   = !idle();
        const int64_t t_begin = ggml_time_us();
        sweep(); // what was cancelled takes no part in this step
        admit();
        plan();
        tell_who_waits();
        const bool steady = batch.n_tokens == n_last_tokens && batch.n_tokens > 0 && n_prefill == 0;
        if (!steady && batch.n_tokens > 0) {
            write_out(true);
        }
        n_last_tokens = batch.n_tokens;
        if (batch.n_tokens > 0 ? decode() : !prompt_rows.empty()) {
            n_step_tokens += batch.n_tokens;
            draw();
        }
        n_steps += batch.n_tokens > 0 || vectors.busy();
        if (vectors.busy()) {
            if (batch.n_tokens == 0) {
                write_out(true);
            }
            append_embeddings(out, vectors.step(batch.n_tokens > 0 ? n_chunk : params.n_batch));
        }
        sweep();
        if (!steady || idle() || ggml_time_us() - t_written >= t_write_us) {
            write_out(!steady);
        }
        t_worked = works ? ggml_time_us() : t_worked;
        t_busy   = std::max(t_busy, t_worked);
        if (idle()) {
            tree.end_searches();
        }
        tree.trim(idle() && patience_us() == 0);
        if (is_quiet()) {
            return_freed_memory();
            t_returned = ggml_time_us();
        }
        if (batch.n_tokens > 0) {
            t_steps += ggml_time_us() - t_begin;
        }
    }
}

bool scheduler::idle() const {
    return active.empty() && queue.empty() && !vectors.busy();
}

// Whether the last step had nothing to do, and somebody's prefix is being looked for on disk.
bool scheduler::waits_for_disk() const {
    const auto waits = [this](const auto & r) { return !r->prompt && tree.is_open(r->recall); };
    return batch.n_tokens == 0 && prompt_rows.empty() && !vectors.busy() &&
           std::any_of(active.begin(), active.end(), waits);
}

// Whether nothing has run for a while, and what was freed before that is still to be returned.
bool scheduler::is_quiet() const {
    return idle() && t_returned < t_busy && ggml_time_us() >= t_busy + t_return_us;
}

// How long the loop may block for commands.
int64_t scheduler::patience_us() const {
    if (!idle()) {
        return waits_for_disk() ? t_disk_us : 0;
    }
    if (!tree.is_over() && t_returned >= t_busy) {
        return t_sleep_us;
    }
    const int64_t until = tree.is_over() ? t_worked + t_quiet_us : t_busy + t_return_us;
    return std::max(until - ggml_time_us(), (int64_t) 0);
}

// A reader on a core that decodes waits until the system takes that from us, milliseconds later; first tokens
// and ends give it away.
void scheduler::write_out(bool yield) {
    const bool written = !out.empty();
    write_lines(params.fd_out, out);
    t_written = ggml_time_us();
    if (written && yield) {
        std::this_thread::yield();
    }
}

//
// commands
//

void scheduler::take(command && c) {
    switch (c.what) {
        case command::generate:     submit(std::move(c)); break;
        case command::embed:        embed(std::move(c)); break;
        case command::cancel:       cancel(c.id, c.index); break;
        case command::extend:       extend(c); break;
        case command::status:       report_status(c.id); break;
        case command::answer:       out += c.line; break;
        case command::end_of_input: input_ended = true; break;
    }
}

request * scheduler::find_request(const std::string & id) const {
    for (const auto & r : active) {
        if (r->id == id) {
            return r.get();
        }
    }
    for (const auto & r : queue) {
        if (r->id == id) {
            return r.get();
        }
    }
    return nullptr;
}

bool scheduler::is_taken(const command & c) {
    if (!find_request(c.id) && !vectors.has(c.id)) {
        return false;
    }
    const std::string message = "the id \"" + c.id + "\" belongs to a request that is not done";
    out += error_line("", command_error("invalid_request", message, "id"), c.number);
    return true;
}

void scheduler::embed(command && c) {
    if (!is_taken(c)) {
        vectors.submit(c.id, std::move(c.texts));
    }
}

void scheduler::submit(command && c) {
    if (is_taken(c)) {
        return;
    }
    try {
        resolve_continue(*c.request);
    } catch (const command_error & e) {
        out += error_line(c.id, e, c.number);
        return;
    }
    auto r       = std::make_unique<request>();
    r->id        = std::move(c.id);
    r->number    = c.number;
    r->command   = std::move(c.request);
    r->t_arrived = ggml_time_us();
    for (const sequence_plan & plan : std::exchange(r->command->sequences, {})) {
        add_sequence(*r, plan);
    }
    for (const scored_text & text : r->command->texts) {
        add_scored(*r, text);
    }
    if (r->prefix_only()) {
        supersede_prefix_of(r->command->client);
    }
    queue.push_back(std::move(r));
}

void scheduler::add_sequence(request & r, const sequence_plan & plan) {
    sequence & s = r.sequences.emplace_back(plan);
    s.index      = (int32_t) r.sequences.size() - 1;
    begin_text(r, s);
}

// A fork's text begins behind the tokens that it has: what was held back there is held back here too, and
// comes with this one's own text.
void scheduler::begin_text(const request & r, sequence & s) const {
    std::string told;
    s.text  = text_stream(s.settings->stop_finder);
    s.guard = phrase_guard(s.settings->banned_finder);
    for (size_t k = 0; k < s.generated.size(); k++) {
        std::string bytes = piece_of(r, s.generated[k]);
        if (s.guard.active()) {
            s.guard.feed(bytes);
            bytes = s.guard.take_clear();
        }
        told += s.text.feed(bytes, (int32_t) k >= s.settings->n_min);
    }
    if (r.command->chat) {
        s.message = std::make_unique<chat_message>(r.command->chat, r.id + " " + std::to_string(s.index));
        s.message->feed(told, false);
    }
}

// What stands before the scored tokens counts as generated; nothing predicts the first token of all.
void scheduler::add_scored(request & r, const scored_text & text) {
    add_sequence(r, r.command->common);
    sequence & s  = r.sequences.back();
    s.scored      = &text;
    const auto at = text.tokens.begin();
    s.generated.assign(at, at + std::max(text.n_given, r.n_prompt() == 0 ? 1 : 0));
    if (text.n_given == 0 && !s.generated.empty()) {
        s.logprobs.push_back(unknown_logprob_json(s.generated[0], facts.vocab));
    }
}

// The prompt of a request that goes on from a sequence: all tokens of that, then its own.
void scheduler::resolve_continue(generate_command & command) const {
    const sequence_name & named = command.go_on;
    if (named.index < 0) {
        return;
    }
    std::vector<llama_token> tokens, generated;
    if (const request * r = find_request(named.id); r && named.index < (int32_t) r->sequences.size()) {
        tokens        = r->command->prompt;
        command.n_bos = r->command->n_bos;
        generated     = seen_tokens(*r, r->sequences[named.index]);
    } else {
        const record * known = records.find(named.id);
        if (!known || named.index + 1 >= (int32_t) known->ends.size()) {
            invalid("continue", "continue names sequence " + std::to_string(named.index) + " of request " +
                                    named.id +
                                    ", which is not known here (any more); send its text as the prompt");
        }
        tokens        = known->list(0);
        command.n_bos = known->n_bos;
        generated     = known->list(1 + named.index);
    }
    if (named.at >= 0) {
        generated.resize(std::min(generated.size(), (size_t) named.at));
    }
    tokens.insert(tokens.end(), generated.begin(), generated.end());
    tokens.insert(tokens.end(), command.prompt.begin(), command.prompt.end());
    check_prompt_length((int64_t) tokens.size(), facts);
    command.prompt = std::move(tokens);
    command.exact  = true;
}

// Of a client only the latest prefix is wanted: the writer has typed on since the other one was asked for.
void scheduler::supersede_prefix_of(const std::string & client) {
    const auto end = [&](std::unique_ptr<request> & r) {
        if (r->prefix_only() && r->command->client == client) {
            cancel(r->id, -1);
        }
    };
    std::for_each(active.begin(), active.end(), end);
    std::for_each(queue.begin(), queue.end(), end);
    sweep();
}

void scheduler::cancel(const std::string & id, int32_t index) {
    append_embeddings(out, vectors.cancel(id));
    request * r = find_request(id);
    if (!r) {
        return; // it is done: the two have crossed
    }
    r->cancelled = r->cancelled || r->prefix_only();
    for (sequence & s : r->sequences) {
        if (!s.over && (index < 0 || s.index == index)) {
            end_sequence(*r, s, "cancelled");
        }
    }
}

// Admitted, and its prompt waits for another one that is being computed, or for the disk: whoever asked knows
// that it has come.
void scheduler::tell_who_waits() {
    for (auto & r : active) {
        if (r->n_cached < 0 && !r->announced) {
            event_line(out, "accepted", r->id).whole("line", r->number);
            r->announced = true;
        }
    }
}

// More sequences for a request that is not done, as its others or as a fork of one of them; a later limit.
void scheduler::extend(const command & c) {
    const extend_command & extension = c.extension;
    request *              r         = find_request(c.id);
    if (!r || r->prefix_only() || !r->command->texts.empty()) {
        const std::string message = "extend: there is no request \"" + c.id + "\" that is not done";
        out += error_line("", command_error("invalid_request", message, "id"), c.number);
        return;
    }
    const sequence_name & fork = extension.fork;
    if (fork.index >= (int32_t) r->sequences.size()) {
        const std::string message = "fork.index is " + std::to_string(fork.index) + "; the request has " +
                                    std::to_string(r->sequences.size()) + " sequences";
        out += error_line("", command_error("invalid_request", message, "fork"), c.number);
        return;
    }
    const int64_t n_all = (int64_t) r->sequences.size() + extension.n_add;
    if (n_all > n_max_sequences) {
        const std::string message = "add is " + std::to_string(extension.n_add) + "; a request may have " +
                                    std::to_string(n_max_sequences) + " sequences, and this one would have " +
                                    std::to_string(n_all);
        out += error_line("", command_error("invalid_request", message, "add"), c.number);
        return;
    }
    if (extension.n_predict >= -1) {
        r->command->common.n_predict = extension.n_predict;
        for (sequence & s : r->sequences) {
            s.n_predict = s.over ? s.n_predict : extension.n_predict;
        }
    }
    const size_t first = r->sequences.size();
    for (int32_t i = 0; i < extension.n_add; i++) {
        sequence_plan own = fork.index < 0 ? r->command->common : r->sequences[fork.index];
        own.seed          = sequence_seed(r->command->common.seed, (int64_t) r->sequences.size());
        own.n_predict     = extension.n_predict >= -1 ? extension.n_predict : own.n_predict;
        own.coupled.group = fork.index < 0 ? 0 : (int32_t) first;
        own.coupled.index = (int32_t) r->sequences.size() - own.coupled.group;
        add_sequence(*r, own);
        if (fork.index >= 0) {
            sequence & s = r->sequences.back();
            s.generated  = seen_tokens(*r, r->sequences[fork.index]);
            s.generated.resize(fork.at < 0 ? s.generated.size()
                                           : std::min(s.generated.size(), (size_t) fork.at));
            begin_text(*r, s);
            s.n_begun        = s.generated.size();
            s.drawn_logprobs = r->sequences[fork.index].drawn_logprobs;
            s.drawn_logprobs.resize(std::min(s.drawn_logprobs.size(), s.generated.size()));
        }
    }
    event_line(out, "extend", r->id)
        .whole("first", (int64_t) first)
        .whole("count", (int64_t) r->sequences.size());
}

void scheduler::report_status(const std::string & id) {
    int64_t n_waiting = 0;
    for (const auto & r : active) {
        n_waiting += r->n_waiting();
    }
    event_line(out, "result", id)
        .whole("cells", tree.n_cells())
        .whole("cells_used", tree.n_used())
        .whole("cells_idle", tree.n_idle())
        .whole("cells_shared", tree.n_shared())
        .whole("requests", (int64_t) active.size())
        .whole("queued", (int64_t) queue.size())
        .whole("sequences", n_live())
        .whole("sequences_waiting", n_waiting)
        .whole("commands", n_commands)
        .whole("steps", n_steps)
        .whole("step_tokens", n_step_tokens)
        .whole("step_us", t_steps)
        .whole("model_us", t_model);
}

// In turn: the one that is next holds up the rest when it does not fit, so that none waits for ever.
void scheduler::admit() {
    if (queue.empty()) {
        turns.clear();
    }
    while (!queue.empty()) {
        const auto next = queue.begin() + next_in_queue();
        if (!fits(**next)) {
            break;
        }
        turns[(*next)->command->client] = ++n_turns;
        active.push_back(std::move(*next));
        queue.erase(next);
        active.back()->t_admitted = ggml_time_us();
    }
    announce_queue();
}

// The oldest request of the client that has the fewest sequences here, and of those the one who was served
// longest ago: who sends many keeps nobody out.
size_t scheduler::next_in_queue() const {
    std::map<std::string, size_t> held;
    for (const auto & r : active) {
        held[r->command->client] += r->sequences.size() - r->n_over;
    }
    const auto place = [&](const auto & r) {
        const auto turn = turns.find(r->command->client);
        return std::make_pair(held[r->command->client], turn == turns.end() ? 0 : turn->second);
    };
    const auto before = [&](const auto & a, const auto & b) { return place(a) < place(b); };
    return std::min_element(queue.begin(), queue.end(), before) - queue.begin();
}

void scheduler::announce_queue() {
    int64_t position = 0;
    for (auto & r : queue) {
        position++;
        if (!r->announced && !r->prefix_only()) {
            r->announced = true;
            event_line(out, "queued", r->id).whole("position", position);
        }
    }
}

// Room for the prompt and for a while of decoding; alone, a request always fits.
bool scheduler::fits(const request & r) const {
    if (active.empty()) {
        return true;
    }
    if ((int32_t) active.size() >= params.n_parallel) {
        return false;
    }
    const int32_t n_new  = std::min((int32_t) r.sequences.size(), std::max(params.n_parallel - n_live(), 1));
    const int32_t n_room = tree.n_room() - n_reserve * (n_live() + n_new);
    if (n_room < 0) {
        return false; // whatever the prompt shares
    }
    const auto match =
        tree.find(r.command->prompt, r.n_prompt() - 1, prefix_tree::by_tokens, r.command->adapters.key);
    const int32_t n_held = match.from ? tree.n_pinned(*match.from, match.length) : 0;
    return r.n_prompt() - n_held <= n_room;
}

int32_t scheduler::n_live() const {
    int32_t n = 0;
    for (const auto & r : active) {
        n += r->n_live;
    }
    return n;
}

//
// plan
//

// A context has one set of adapters at a time, so a step is of requests with the same; the sets take turns.
void scheduler::plan() {
    batch.n_tokens = 0;
    owners.clear();
    prompt_rows.clear();
    echo_rows.clear();
    std::vector<const adapter_set *> sets;
    for (const auto & r : active) {
        const auto is_it = [&](const adapter_set * set) { return in_turn(*r, set->key); };
        if (std::none_of(sets.begin(), sets.end(), is_it)) {
            sets.push_back(&r->command->adapters);
        }
    }
    const auto last =
        std::find_if(sets.begin(), sets.end(), [&](const adapter_set * set) { return set->key == turn; });
    if (last != sets.end()) {
        std::rotate(sets.begin(), last + 1, sets.end());
    }
    for (size_t i = 0; i < sets.size() && batch.n_tokens == 0 && prompt_rows.empty(); i++) {
        turn = sets[i]->key;
        plan_step();
        facts.adapters.apply(ctx, *sets[i]);
    }
}

void scheduler::plan_step() {
    plan_late_starts();
    plan_sequences();
    plan_prompts();
    plan_scores();
}

void scheduler::add(branch * cells, llama_token token, bool want_logits) {
    const int32_t i    = batch.n_tokens++;
    batch.token[i]     = token;
    batch.pos[i]       = cells->n_past();
    batch.n_seq_id[i]  = 1;
    batch.seq_id[i][0] = cells->seq_id;
    batch.logits[i]    = want_logits;
    owners.push_back(cells);
    cells->tokens.push_back(token); // llama_decode makes it true
}

llama_token scheduler::token_at(const request & r, const sequence & s, int32_t i) const {
    const auto & tokens = s.scored ? s.scored->tokens : s.generated;
    return i < r.n_prompt() ? r.command->prompt[i] : tokens[i - r.n_prompt()];
}

// Sequences whose texts are still equal are decoded once: one token with several sequence ids, one row.
bool scheduler::share_row(const request & r, sequence & s) {
    if (stops_short || s.cells->n_own() > 0) {
        return false;
    }
    const llama_token token = token_at(r, s, s.cells->n_past());
    for (const sequence * other : with_rows) {
        if (other->cells->tokens.back() == token && tree.follows(*s.cells, *other->cells)) {
            s.i_row                                          = other->i_row;
            s.n_rows                                         = 1;
            batch.seq_id[s.i_row][batch.n_seq_id[s.i_row]++] = s.cells->seq_id;
            owners.push_back(s.cells);
            tree.share_last(s.cells, other->cells);
            return true;
        }
    }
    return false;
}

// The cells that a sequence wants: of all its tokens, but for the last one of a text that is scored.
int32_t scheduler::n_wanted(const request & r, const sequence & s) const {
    return r.n_prompt() + (int32_t) (s.scored ? s.scored->tokens.size() - 1 : s.generated.size());
}

// The tokens of a live sequence that are not in cells yet: one, or more when it resumes or is scored. Rows
// are wanted from the last of those on that were drawn or looked at.
void scheduler::add_todo(request & r, sequence & s, int32_t n_max) {
    const int32_t n_known = r.n_prompt() + (int32_t) s.generated.size();
    const int32_t n_todo  = std::min(n_wanted(r, s) - s.cells->n_past(), n_max);
    if (n_todo == 1 && !s.scored && share_row(r, s)) {
        return;
    }
    for (int32_t k = 0; k < n_todo && batch.n_tokens < params.n_batch; k++) {
        const int32_t i   = s.cells->n_past();
        const bool    row = i + 1 >= n_known;
        if (row && s.n_rows++ == 0) {
            s.i_row = batch.n_tokens;
        }
        add(s.cells, token_at(r, s, i), row);
    }
    if (s.i_row >= 0 && !s.scored) {
        with_rows.push_back(&s);
    }
}

// Live sequences first, with cells for all of them and for the oldest request's prompt; who is too young
// for that gives its cells back.
void scheduler::plan_sequences() {
    const auto n_needed = [this] {
        int32_t n = 0;
        for (const auto & r : active) {
            for (const sequence & s : r->sequences) {
                n += s.cells && in_turn(*r, turn)
                         ? std::min(n_wanted(*r, s) - s.cells->n_past(), s.scored ? 1 : n_chunk)
                         : 0;
            }
        }
        if (!active.empty() && active.front()->prompt && !active.front()->ready &&
            in_turn(*active.front(), turn)) {
            n += std::min(active.front()->n_prompt() - active.front()->prompt->n_past(), n_chunk);
        }
        return std::min(n, params.n_batch);
    };
    while (n_needed() > tree.n_room() && put_back_youngest()) {
    }
    tree.make_room(n_needed());
    for (auto & r : active) {
        with_rows.clear();
        for (sequence & s : r->sequences) {
            if (s.cells && !s.scored && in_turn(*r, turn)) {
                add_todo(*r, s, n_chunk);
            }
        }
    }
}

// Texts that are scored go in chunks as prompts do, the oldest request's first.
void scheduler::plan_scores() {
    const size_t  row_bytes = (size_t) llama_vocab_n_tokens(facts.vocab) * sizeof(float);
    const int32_t n_rows    = (int32_t) std::max(n_row_bytes / row_bytes, (size_t) 1);
    int32_t       n_budget  = std::min(n_rows, batch.n_tokens > 0 ? n_chunk : params.n_batch);
    for (auto & r : active) {
        for (sequence & s : r->sequences) {
            if (s.cells && s.scored && n_budget > 0 && in_turn(*r, turn)) {
                const int32_t n_before = batch.n_tokens;
                const int32_t n_todo   = std::min(n_wanted(*r, s) - s.cells->n_past(), n_budget);
                add_todo(*r, s, tree.make_room(n_todo));
                n_budget -= batch.n_tokens - n_before;
            }
        }
    }
}

// The oldest request keeps one sequence, or its prompt, so that something progresses.
bool scheduler::put_back_youngest() {
    for (auto it = active.rbegin(); it != active.rend(); ++it) {
        request &  r      = **it;
        const bool oldest = &r == active.front().get();
        for (auto s = r.sequences.rbegin(); s != r.sequences.rend(); ++s) {
            if (s->cells && !(oldest && r.n_live == 1)) {
                free_sequence(r, *s, true);
                return true;
            }
        }
        if (r.prompt && (!oldest || r.n_live == 1)) {
            drop_prompt(r);
            return true;
        }
    }
    return false;
}

// A place and, beyond what live sequences will want soon, cells. One sequence may always run.
bool scheduler::may_start() const {
    const int32_t n = n_live();
    return n == 0 || (n < params.n_parallel && tree.n_room() >= n_reserve * (n + 1));
}

// Sequences that could not start with their prompt: n above the free places, put back, or a recurrent
// model. They share the prompt but for its last token, decode that again, and have a row of logits of their
// own. Requests with the fewest live sequences come first, so that a large n does not keep others out.
void scheduler::plan_late_starts() {
    while (may_start()) {
        request * next = nullptr;
        for (auto & r : active) {
            if (r->prompt && r->ready && r->n_waiting() > 0 && (!next || r->n_live < next->n_live)) {
                next = r.get();
            }
        }
        if (!next) {
            return;
        }
        const auto s = std::find_if(next->sequences.begin(), next->sequences.end(),
                                    [](const sequence & s) { return !s.over && !s.cells; });
        if (is_full(*next, *s)) {
            end_sequence(*next, *s, "length");
            continue;
        }
        s->cells = s->generated.empty()
                       ? tree.open(next->command->adapters.key, next->prompt, next->n_prompt() - 1)
                       : reopen(*next, *s);
        if (!s->cells) {
            return;
        }
        next->n_live++;
        if (next->n_waiting() == 0) {
            drop_prompt(*next);
        }
    }
}

// The cells that a sequence left when it was put back, or those of the one that it is forked from, or the
// prompt's.
branch * scheduler::reopen(const request & r, const sequence & s) {
    std::vector<llama_token> tokens = r.command->prompt;
    tokens.insert(tokens.end(), s.generated.begin(), s.generated.end());
    const uint64_t key   = r.command->adapters.key;
    const auto     match = tree.find(tokens, (int32_t) tokens.size() - 1, prefix_tree::by_tokens, key);
    return tree.open(key, match.from, match.length);
}

// The rest of the batch goes to the prompts, the oldest first.
void scheduler::plan_prompts() {
    const int32_t n_others = batch.n_tokens;
    int32_t       n_budget = params.n_batch - n_others;
    if (n_others > 0) {
        n_budget = std::min(n_budget, std::max(n_beside, n_beside_min));
    }
    bool real_ones = false; // whose prompts are not complete; a prefix yields to them
    for (auto & r : active) {
        const bool first  = r->n_cached < 0;
        const bool wanted = first || r->prefix_only() || (r->n_waiting() > 0 && may_start());
        if (!r->prompt && wanted && !tree.is_open(r->recall) && !waits_for_another(*r)) {
            begin_prompt(*r); // or anew: it had to give its cells back
        }
        if (!r->prompt || r->ready || (r->prefix_only() && real_ones)) {
            continue;
        }
        real_ones = real_ones || !r->prefix_only();
        if (!in_turn(*r, turn)) {
            continue;
        }
        if (r->first_row && r->prompt->n_past() == r->n_prompt()) {
            prompt_rows.emplace_back(r.get(), -1);
            continue;
        }
        // a recurrent state, or one behind a sliding window, cannot step back: it stops one token early, and
        // each sequence decodes that token
        const int32_t n_target = std::max(r->n_prompt() - (stops_short ? 1 : 0), 0);
        const int32_t n        = tree.make_room(std::min(n_target - r->prompt->n_past(), n_budget));
        for (int32_t k = 0; k < n; k++) {
            const int32_t i    = r->prompt->n_past();
            const bool    last = i + 1 == r->n_prompt();
            if (last) {
                prompt_rows.emplace_back(r.get(), batch.n_tokens);
            }
            const bool echo = r->command->scores_prompt() && !last && i + 1 > r->n_echoed;
            if (echo) {
                echo_rows.push_back({r.get(), {batch.n_tokens, i + 1}});
            }
            add(r->prompt, r->command->prompt[i], last || echo);
        }
        n_budget -= n;
        if ((stops_short || n_target == 0) && r->prompt->n_past() == n_target) {
            r->ready = r->computed = true;
        }
    }
    n_prefill = batch.n_tokens - n_others;
}

// A prompt that is being computed for another request and has at least a chunk more in common with this one
// than it has computed by now: waiting costs nothing, and computes it once.
bool scheduler::waits_for_another(const request & r) const {
    if (r.command->scores_prompt()) {
        return false; // it shares nothing
    }
    for (const auto & other : active) {
        if (other.get() == &r || !in_turn(*other, r.command->adapters.key) || !other->prompt ||
            other->ready || !other->command->cache || !r.command->cache) {
            continue;
        }
        const int32_t n_shared = common_length(r.command->prompt, other->command->prompt, r.n_prompt() - 1);
        if (n_shared - other->prompt->n_decoded >= n_chunk) {
            return true;
        }
    }
    return false;
}

// The longest known beginning is shared; the last token is computed for its logits, unless these are known, too.
// The first time a known text may stand for the prompt's own split of it into tokens; later the sequences depend
// on that.
void scheduler::begin_prompt(request & r) {
    generate_command & c     = *r.command;
    const uint64_t     key   = c.adapters.key;
    const bool         first = r.n_cached < 0;
    const auto         by    = first && !c.exact ? prefix_tree::by_text : prefix_tree::by_tokens;
    prefix_tree::match match;
    if (c.cache && !c.scores_prompt()) {
        match = tree.recall(c.prompt, r.n_prompt() - (stops_short ? 1 : 0), by, key, r.recall);
    }
    if (match.pending) {
        return;
    }
    r.recall                = {};
    branch * const restored = match.restored ? match.from : nullptr;
    if (match.length - match.n_matched + r.n_prompt() + 1 > params.n_ctx_seq) { // it is split finer
        match = {};
    }
    std::vector<llama_token> tokens = c.prompt;
    logits_row               row    = r.first_row;
    if (match.from) {
        const auto held = match.from->tokens.begin();
        tokens.erase(tokens.begin(), tokens.begin() + match.n_matched);
        tokens.insert(tokens.begin(), held, held + match.length);
    }
    if (match.from && match.length == (int32_t) tokens.size()) {
        row = row ? row : rows.find(tokens, key);
        match.length -= row ? 0 : 1;
    }
    branch * const opened = tree.open(key, match.from, match.length);
    if (restored) {
        tree.release(restored);
    }
    if (!opened) {
        return;
    }
    c.prompt         = std::move(tokens);
    r.first_row      = row;
    r.prompt         = opened;
    r.prompt->hidden = !c.cache;
    r.ready          = false;
    if (first) {
        r.n_cached = match.length;
        report_start(r);
    }
}

void scheduler::report_start(const request & r) {
    if (r.prefix_only()) {
        return;
    }
    event_line(out, "start", r.id)
        .whole("count", (int64_t) r.sequences.size())
        .whole("prompt_tokens", r.n_prompt())
        .whole("cached_tokens", r.n_cached)
        .whole("seed", r.command->common.seed);
    report_prompt(r);
}

void scheduler::drop_prompt(request & r) {
    if (r.command->cache && r.prompt->n_past() > 0) {
        if (r.ready && r.n_prompt() - r.n_cached >= n_worth_saving) {
            tree.save(*r.prompt);
        }
        tree.release(r.prompt);
    } else {
        tree.remove(r.prompt);
    }
    r.prompt = nullptr;
}

//
// decode
//

bool scheduler::decode() {
    const int64_t t_begin = ggml_time_us();
    const int32_t code    = ++n_decodes == fault.step ? fail_step() : llama_decode(ctx, batch);
    if (code == 0) {
        llama_synchronize(ctx);
        const int64_t t_taken = ggml_time_us() - t_begin;
        t_model += t_taken;
        if (n_prefill >= n_beside_min) {
            n_beside = (int32_t) (t_beside_us * batch.n_tokens / (t_taken + 1));
        }
        for (branch * cells : owners) {
            cells->n_decoded = cells->n_past();
        }
        return true;
    }
    undo_batch();
    // code 1: no cells, and nothing has changed. Cells are counted before, so this is a precaution.
    if (code != 1 || !put_back_youngest()) {
        fail_all("llama_decode failed with code " + std::to_string(code));
    }
    return false;
}

// For tests: of a step that fails nobody knows what the cells hold, unless the code is 1.
int32_t scheduler::fail_step() {
    if (fault.code != 1) {
        std::fill_n(batch.token, batch.n_tokens, 0);
        llama_decode(ctx, batch);
    }
    return fault.code;
}

void scheduler::undo_batch() {
    for (branch * cells : owners) {
        tree.undo_last(cells);
    }
    for (auto & r : active) {
        const bool ready = r->ready && r->prompt && r->prompt->n_past() >= r->n_prompt() - 1;
        if (r->ready && r->prompt && !ready) { // this step would have completed it
            r->computed = false;
        }
        r->ready = ready;
        for (sequence & s : r->sequences) {
            s.i_row  = -1;
            s.n_rows = 0;
        }
    }
}

void scheduler::fail(request & r, const std::string & message, const std::string & code) {
    out += error_line(r.id, command_error(code, message));
    for (sequence & s : r.sequences) {
        if (s.cells) {
            free_sequence(r, s, false);
        }
    }
    if (r.prompt) {
        drop_prompt(r);
    }
    r.failed = true;
}

// Nobody knows what the cells hold now, so all of them are given up before anything could be kept of them, and
// the next request finds a sound state.
void scheduler::fail_all(const std::string & message) {
    tree.clear();
    for (auto & r : active) {
        for (sequence & s : r->sequences) {
            s.cells = nullptr;
        }
        r->prompt = nullptr;
        r->n_live = 0;
        fail(*r, message);
    }
}

//
// draw
//

// Draws are independent of each other, so they are made side by side: by the threads that have just decoded
// (an OpenMP team of the same size, or else libgomp ends and starts threads), which sleep otherwise. What
// they bring is taken in order.
void scheduler::draw() {
    collect_echo();
    draw_side_by_side();
    report_prompt_logprobs();
    for (const auto & [r, i_row] : prompt_rows) {
        start_on_row(*r, i_row);
    }
    collect_rows();
    draw_side_by_side();
    for (drawing & d : drawn) {
        if (!d.error.empty() && !d.r->failed) {
            fail(*d.r, d.error, d.error_code);
        }
        if (!d.r->failed) {
            d.r->t_prefilled = d.r->t_prefilled ? d.r->t_prefilled : ggml_time_us();
            (this->*(d.known ? &scheduler::take_scored : &scheduler::take_drawn))(*d.r, *d.s, d);
        }
    }
    for (auto & r : active) {
        report_progress(*r);
    }
}

void scheduler::draw_side_by_side() {
    const size_t n_drawn = drawn.size();

#pragma omp parallel for num_threads(params.n_threads) schedule(dynamic) if (n_drawn > 1)
    for (size_t i = 0; i < n_drawn; i++) {
        draw_one(drawn[i]);
    }
}

void scheduler::collect_echo() {
    drawn.clear();
    for (const auto & [r, row] : echo_rows) {
        if (row.second >= r->command->n_bos) {
            drawing & d = drawn.emplace_back();
            d.r         = r;
            d.logits    = llama_get_logits_ith(ctx, row.first);
            d.token     = r->command->prompt[row.second];
            d.known     = true;
        }
        r->n_echoed = row.second;
    }
}

void scheduler::collect_rows() {
    drawn.clear();
    for (auto & r : active) {
        for (sequence & s : r->sequences) {
            for (int32_t k = 0; k < s.n_rows; k++) {
                drawing & d = drawn.emplace_back();
                d.r         = r.get();
                d.s         = &s;
                d.logits    = row_of(*r, s, k); // the first call sorts
                d.known     = s.scored;
                d.token     = s.scored ? s.scored->tokens[s.generated.size() + k] : -1;
            }
        }
    }
}

// Here, before the threads start, because the first call sorts the rows. First tokens are distinct among one
// row; that of a later wave is not the same to the last bit.
const float * scheduler::row_of(request & r, const sequence & s, int32_t k) {
    if (s.i_row < 0) {
        return r.first_row->data(); // from an earlier request
    }
    const float * logits = llama_get_logits_ith(ctx, s.i_row + k);
    if (s.scored || !s.coupled.distinct_first || !s.generated.empty() || s.n_rewinds > 0) {
        return logits;
    }
    if (!r.first_row) {
        r.first_row =
            std::make_shared<const std::vector<float>>(logits, logits + llama_vocab_n_tokens(facts.vocab));
    }
    return r.first_row->data();
}

// Touches nothing but the sequence's sampler and `d`.
void scheduler::draw_one(drawing & d) const {
    static thread_local std::vector<llama_token> forbidden;
    const request &                              r = *d.r;
    if (d.known) {
        look_at(d);
        return;
    }
    sequence & s = *d.s;
    try {
        if (!s.sampler) {
            const uint32_t seed = sequence_seed(s.seed, (int64_t) s.n_rewinds * 1000003);
            // one that was made anew knows what others have drawn, or what it must not: it goes on by itself
            const coupling coupled = s.n_rewinds == 0 ? s.coupled : coupling();
            s.sampler              = std::make_unique<token_sampler>(facts.model, *s.settings, seed, coupled,
                                                                     r.command->prompt, s.generated);
        }
        list_forbidden(s, forbidden);
        d.token                    = s.sampler->draw(d.logits, forbidden);
        const generate_command & c = *r.command;
        if (c.n_logprobs >= 0) {
            look_at(d);
        }
        if (c.sum_logprobs && (c.n_logprobs < 0 || c.processed)) { // the sum is of raw ones
            static thread_local std::vector<token_logprob> none;
            d.logprob = logprobs_of(d.logits, llama_vocab_n_tokens(facts.vocab), d.token, 0, none).logprob;
        }
    } catch (const command_error & e) {
        d.error      = e.what();
        d.error_code = e.code;
    } catch (const std::exception & e) {
        d.error      = e.what();
        d.error_code = "engine_error";
    }
}

void scheduler::report_progress(request & r) {
    const int64_t now = ggml_time_us();
    if (r.prompt && !r.ready && now - std::max(r.t_progress, r.t_admitted) > t_progress_us) {
        r.t_progress = now;
        event_line(out, "progress", r.id).whole("processed", r.prompt->n_past()).whole("total", r.n_prompt());
    }
}

// The prompt is complete: as many sequences as there are places begin with a draw of their own from its
// last row.
void scheduler::start_on_row(request & r, int32_t i_row) {
    r.ready = r.computed = true;
    if (i_row >= 0 && r.command->cache) {
        rows.add(r.command->prompt, r.command->adapters.key, llama_get_logits_ith(ctx, i_row),
                 llama_vocab_n_tokens(facts.vocab));
    }
    for (sequence & s : r.sequences) {
        if (s.over || s.cells || !s.generated.empty()) {
            continue;
        }
        if (is_full(r, s)) {
            end_sequence(r, s, "length");
            continue;
        }
        if (!may_start() || !(s.cells = tree.open(r.command->adapters.key, r.prompt, r.n_prompt()))) {
            continue;
        }
        s.i_row  = i_row;
        s.n_rows = 1;
        r.n_live++;
    }
    if (r.n_waiting() == 0 && r.prompt) {
        drop_prompt(r);
    }
}

void scheduler::list_forbidden(const sequence & s, std::vector<llama_token> & tokens) const {
    tokens.clear();
    if ((int32_t) s.generated.size() < s.settings->n_min) {
        tokens = end_tokens(facts.vocab);
    }
    for (const auto & [place, token] : s.forbidden) {
        if (place == s.generated.size()) {
            tokens.push_back(token);
        }
    }
}

bool scheduler::is_full(const request & r, const sequence & s) const {
    const int32_t n = (int32_t) s.generated.size();
    if (s.scored) {
        return n >= (int32_t) s.scored->tokens.size();
    }
    return (s.n_predict >= 0 && n >= s.n_predict) || r.n_prompt() + n >= params.n_ctx_seq;
}

// The text of a token as a client sees it: of control tokens only what a chat's parser wants.
std::string scheduler::piece_of(const request & r, llama_token token) const {
    const bool shown = r.command->chat && r.command->chat->shown.count(token) > 0;
    return common_token_to_piece(facts.vocab, token, shown);
}

void scheduler::take_drawn(request & r, sequence & s, drawing & d) {
    const llama_token token    = d.token;
    const bool        may_stop = (int32_t) s.generated.size() >= s.settings->n_min;
    const bool        ends     = llama_vocab_is_eog(facts.vocab, token);
    const std::string piece    = ends ? "" : piece_of(r, token);
    if (r.command->n_logprobs >= 0) {
        s.logprobs.push_back(std::move(d.logprobs));
    }
    s.generated.push_back(token);
    if (r.command->sum_logprobs) {
        s.drawn_logprobs.push_back(d.logprob);
    }
    s.i_row  = -1;
    s.n_rows = 0;
    r.n_tokens++;

    const bool  over  = ends || s.sampler->complete();
    const bool  full  = is_full(r, s);
    std::string bytes = piece;
    if (s.guard.active()) {
        if (const size_t n_back = s.guard.feed(piece)) {
            step_back(r, s, n_back);
            return;
        }
        bytes = s.guard.take_clear() + (over || full ? s.guard.finish() : "");
    }
    const std::string text = s.text.feed(bytes, may_stop);
    if (s.text.stopped()) {
        s.logprobs.clear(); // of tokens that make up the stop string
    } else if (ends && !s.logprobs.empty()) {
        s.logprobs.pop_back(); // the end-of-text token is not text
    }
    emit_stream(
        r, s, text,
        s.text.decided() && s.logprobs.size() > s.guard.n_held() ? s.logprobs.size() - s.guard.n_held() : 0);
    if (over || s.text.stopped()) {
        end_sequence(r, s, "stop");
    } else if (full) {
        end_sequence(r, s, "length");
    }
}

// The last n tokens complete a banned phrase: they never were, and the first of them is forbidden at its
// place. The token before it is decoded again for its logits. The sampler is made anew, with a seed of its
// own: what it drew from its generator cannot be taken back.
void scheduler::step_back(request & r, sequence & s, size_t n) {
    const size_t      place = s.generated.size() - n;
    const llama_token first = s.generated[place];
    s.generated.resize(place);
    s.drawn_logprobs.resize(std::min(s.drawn_logprobs.size(), place));
    s.logprobs.resize(s.logprobs.size() - std::min(n, s.logprobs.size()));
    r.n_tokens -= (int64_t) n;

    const auto passed = [&](const auto & f) { return f.first > place || f.first + s.guard.n_held() < place; };
    s.forbidden.erase(std::remove_if(s.forbidden.begin(), s.forbidden.end(), passed), s.forbidden.end());
    s.forbidden.emplace_back(place, first);
    s.n_rewinds++;
    s.sampler.reset();
    const int32_t n_keep = r.n_prompt() + (int32_t) place - 1;
    if (tree.can_cut(*s.cells, n_keep)) {
        tree.truncate(s.cells, n_keep);
    } else {
        free_sequence(r, s, false); // it goes on from what is still there
    }
}

void scheduler::emit_stream(const request & r, sequence & s, const std::string & text, size_t n_logprobs,
                            bool last) {
    if (r.command->mark_twins) {
        s.said += text;
    }
    const chat_delta delta = s.message ? s.message->feed(text, last) : chat_delta{text, "", ""};
    if (delta.empty() && n_logprobs == 0) {
        return;
    }
    event_line event(out, "stream", r.id);
    event.whole("index", s.index).text("text", delta.content);
    if (!delta.reasoning.empty()) {
        event.text("reasoning", delta.reasoning);
    }
    if (!delta.tool_calls.empty()) {
        event.raw("tool_calls", delta.tool_calls);
    }
    if (n_logprobs > 0) {
        std::string tokens;
        for (size_t i = 0; i < n_logprobs; i++) {
            tokens += (i ? "," : "[") + s.logprobs[i];
        }
        event.raw("tokens", tokens + "]");
        s.logprobs.erase(s.logprobs.begin(), s.logprobs.begin() + (std::ptrdiff_t) n_logprobs);
    }
}

// The logprob of the token, and as JSON with the others that are wanted.
void scheduler::look_at(drawing & d) const {
    static thread_local std::vector<token_logprob> top;
    const generate_command &                       c = *d.r->command;
    const int32_t n_top = std::max(c.n_logprobs, d.known ? 1 : 0); // one says whether it is greedy
    const auto    own   = c.processed && !d.known
                              ? token_sampler::logprobs_of_draw(d.token, n_top, top)
                              : logprobs_of(d.logits, llama_vocab_n_tokens(facts.vocab), d.token, n_top, top);
    d.logprob           = own.logprob;
    d.greedy            = d.known && !top.empty() && own.logprob >= top[0].logprob;
    d.logprobs          = "{";
    append_logprob(d.logprobs, own, facts.vocab);
    d.logprobs += ",\"top\":[";
    for (size_t i = 0; i < std::min(top.size(), (size_t) c.n_logprobs); i++) {
        d.logprobs += i ? ",{" : "{";
        append_logprob(d.logprobs, top[i], facts.vocab);
        d.logprobs += "}";
    }
    d.logprobs += "]}";
}

void scheduler::take_scored(request & r, sequence & s, drawing & d) {
    s.logprobs.push_back(std::move(d.logprobs));
    s.sum += d.logprob;
    s.greedy = s.greedy && d.greedy;
    s.n_scored++;
    s.generated.push_back(d.token);
    s.i_row  = -1;
    s.n_rows = 0;
    r.n_tokens++;
    if (is_full(r, s)) {
        end_sequence(r, s, "length");
    }
}

void scheduler::report_score(const request & r, const sequence & s) {
    std::string tokens;
    for (const std::string & token : s.logprobs) {
        tokens += (tokens.empty() ? "[" : ",") + token;
    }
    event_line(out, "score", r.id)
        .whole("index", s.index)
        .whole("count", s.n_scored)
        .real("logprob", s.sum)
        .raw("greedy", s.greedy ? "true" : "false")
        .raw("tokens", tokens + "]");
}

// echo: the text of the prompt, and its first token, which nothing predicts, when logprobs are wanted.
void scheduler::report_prompt(const request & r) {
    if (!r.command->echo) {
        return;
    }
    std::string bytes;
    for (int32_t i = r.command->n_bos; i < r.n_prompt(); i++) {
        bytes += common_token_to_piece(facts.vocab, r.command->prompt[i], true);
    }
    event_line event(out, "prompt", r.id);
    event.text("text", take_utf8(bytes));
    if (r.command->n_logprobs >= 0 && r.command->n_bos == 0) {
        event.raw("tokens", "[" + unknown_logprob_json(r.command->prompt[0], facts.vocab) + "]");
    }
}

void scheduler::report_prompt_logprobs() {
    for (size_t i = 0; i < drawn.size();) {
        request *   r = drawn[i].r;
        std::string tokens;
        for (; i < drawn.size() && drawn[i].r == r; i++) {
            tokens += (tokens.empty() ? "[" : ",") + drawn[i].logprobs;
        }
        event_line(out, "prompt", r->id).text("text", "").raw("tokens", tokens + "]");
    }
}

void scheduler::end_sequence(request & r, sequence & s, const char * reason) {
    if (s.scored && is_full(r, s)) {
        report_score(r, s);
    } else if (!report_stop(r, s, reason)) {
        return;
    }
    if (s.cells) {
        free_sequence(r, s, !s.scored);
    }
    s.sampler.reset();
    s.over = true;
    r.n_over++;
}

// False: it says what another one has said, and begins anew.
bool scheduler::report_stop(request & r, sequence & s, const char * reason) {
    if (!s.scored) {
        const bool        may_stop = (int32_t) s.generated.size() > s.settings->n_min;
        const std::string rest =
            s.text.stopped() ? "" : s.text.feed(s.guard.finish(), may_stop) + s.text.finish();
        emit_stream(r, s, rest, s.logprobs.size(), true);
    }
    const bool       stopped = std::string_view(reason) == "stop";
    const sequence * twin    = std::string_view(reason) == "cancelled" ? nullptr : twin_of(r, s);
    if (twin && may_start_again(r, s)) {
        start_again(r, s);
        return false;
    }
    {
        event_line event(out, "stop", r.id);
        event.whole("index", s.index)
            .whole("length", (int64_t) s.generated.size())
            .whole("stop", stopped)
            .text("finish_reason", reason);
        if (s.text.stopped()) {
            event.text("stop_text", s.text.stop_text());
        }
        if (r.command->sum_logprobs) {
            event.real("logprob", std::accumulate(s.drawn_logprobs.begin(), s.drawn_logprobs.end(), 0.0));
        }
        if (twin) {
            event.whole("duplicate_of", twin->index);
        }
    }
    return true;
}

// One that is over and has said the same; only where the client wants to know.
const sequence * scheduler::twin_of(const request & r, const sequence & s) const {
    const auto same = [&](const sequence & other) { return other.over && other.said == s.said; };
    const auto twin = r.command->mark_twins ? std::find_if(r.sequences.begin(), r.sequences.end(), same)
                                            : r.sequences.end();
    return twin == r.sequences.end() ? nullptr : &*twin;
}

// A greedy sequence would only say the same again, and one without a token has nothing else to say.
bool scheduler::may_start_again(const request & r, const sequence & s) const {
    const common_params_sampling & sampling = s.settings->sampling;
    const bool                     greedy   = sampling.temp <= 0.0f && sampling.dynatemp_range <= 0.0f;
    return r.command->again && !greedy && s.n_again < n_max_again && s.generated.size() > s.n_begun;
}

// Another sequence has said the same: this one begins anew, and waits for a place like a late one. Its seed
// is another one then, as after banned phrases.
void scheduler::start_again(request & r, sequence & s) {
    event_line(out, "again", r.id).whole("index", s.index);
    if (s.cells) {
        free_sequence(r, s, false);
    }
    s.generated.resize(s.n_begun);
    s.drawn_logprobs.resize(std::min(s.drawn_logprobs.size(), s.generated.size()));
    s.logprobs.clear();
    s.said.clear();
    s.forbidden.clear();
    s.sampler.reset();
    s.n_rewinds++;
    s.n_again++;
    begin_text(r, s);
}

// `keep`: its text may be asked for again.
void scheduler::free_sequence(request & r, sequence & s, bool keep) {
    if (keep && r.command->cache && s.cells->n_own() > 0) {
        tree.release(s.cells);
    } else {
        tree.remove(s.cells);
    }
    s.cells  = nullptr;
    s.i_row  = -1;
    s.n_rows = 0;
    r.n_live--;
}

void scheduler::report_done(const request & r) {
    const auto ms = [](int64_t from, int64_t to) {
        return from > 0 && to > from ? 1e-3 * (double) (to - from) : 0.0;
    };
    char timings[128];
    snprintf(timings, sizeof(timings), "{\"queued_ms\":%.3f,\"prompt_ms\":%.3f,\"decode_ms\":%.3f}",
             ms(r.t_arrived, r.t_admitted), ms(r.t_admitted, r.t_prefilled),
             ms(r.t_prefilled, ggml_time_us()));
    event_line(out, "done", r.id)
        .whole("count", (int64_t) r.sequences.size())
        .whole("prompt_tokens", r.n_prompt())
        .whole("cached_tokens", std::max(r.n_cached, 0))
        .whole("completion_tokens", r.n_tokens)
        .raw("timings", timings);
}

// What a client saw of a sequence, as tokens: when it is over, without an end-of-text token, and cut where a
// stop string began.
std::vector<llama_token> scheduler::seen_tokens(const request & r, const sequence & s) const {
    std::vector<llama_token> tokens = s.generated;
    if (!tokens.empty() && llama_vocab_is_eog(facts.vocab, tokens.back())) {
        tokens.pop_back();
    }
    size_t n_bytes = 0; // of the tokens that were seen whole
    for (size_t i = 0; s.text.stopped() && i < tokens.size(); i++) {
        const std::string piece = piece_of(r, tokens[i]);
        if (n_bytes + piece.size() > s.text.n_out()) {
            tokens.resize(i);
            const auto seen =
                common_tokenize(facts.vocab, piece.substr(0, s.text.n_out() - n_bytes), false, false);
            tokens.insert(tokens.end(), seen.begin(), seen.end());
            break;
        }
        n_bytes += piece.size();
    }
    return tokens;
}

void scheduler::keep_record(const request & r) {
    record known;
    known.id    = r.id;
    known.n_bos = r.command->n_bos;
    known.add(r.command->prompt);
    for (const sequence & s : r.sequences) {
        known.add(seen_tokens(r, s));
    }
    records.add(std::move(known));
}

// Requests whose sequences are all over go.
void scheduler::sweep() {
    const auto finished = [this](std::unique_ptr<request> & r) {
        if (r->failed) {
            return true;
        }
        if (r->prefix_only() ? !r->computed && !r->cancelled : r->n_over < (int32_t) r->sequences.size()) {
            return false;
        }
        if (r->prompt) {
            drop_prompt(*r);
        }
        report_done(*r);
        if (!r->prefix_only()) {
            keep_record(*r);
        }
        return true;
    };
    active.remove_if(finished);
    queue.erase(std::remove_if(queue.begin(), queue.end(), finished), queue.end());
}
