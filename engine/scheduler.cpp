#include "scheduler.h"

#include <algorithm>
#include <numeric>

static const int32_t n_reserve      = 32;      // cells a live sequence should find beyond what it holds
static const int64_t t_progress_us  = 250000;  // between two progress events of one prompt
static const int32_t n_chunk        = 64;      // tokens that are planned for: of a prompt, of who resumes
static const int64_t t_beside_us    = 100000;  // of prefill in a step in which sequences decode too, and
static const int32_t n_beside_min   = 32;      // tokens of it at least
static const int32_t n_worth_saving = 64;      // tokens computed anew: such a prompt goes to disk
static const size_t  n_records      = 4 << 20; // tokens of finished requests that are remembered
static const int32_t n_max_again    = 8; // times that a text which another sequence has said is made anew

scheduler::scheduler(const model_facts & facts, llama_context * ctx, const scheduler_params & params)
    : facts(facts), ctx(ctx), params(params), tree(ctx, params.cache_cells, params.store),
      batch(llama_batch_init(params.n_batch, 0, params.n_parallel)),
      stops_short(llama_model_is_recurrent(facts.model) || llama_model_is_hybrid(facts.model) ||
                  llama_model_n_swa(facts.model) > 0) {
    for (llama_token token = 0; token < llama_vocab_n_tokens(facts.vocab); token++) {
        if (llama_vocab_is_eog(facts.vocab, token)) {
            end_tokens.push_back(token);
        }
    }
}

scheduler::~scheduler() {
    llama_batch_free(batch);
}

void scheduler::run(command_reader & reader) {
    while (!input_ended || !active.empty() || !queue.empty()) {
        for (command & c : reader.take(active.empty() && queue.empty())) {
            take(std::move(c));
        }
        sweep(); // what was cancelled takes no part in this step
        admit();
        plan();
        if (batch.n_tokens > 0 && decode()) {
            draw();
        }
        sweep();
        write_lines(params.fd_out, out);
    }
}

//
// commands
//

void scheduler::take(command && c) {
    switch (c.what) {
        case command::generate:     submit(std::move(c)); break;
        case command::cancel:       cancel(c.id, c.index); break;
        case command::extend:       extend(c.id, c.extension); break;
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

void scheduler::submit(command && c) {
    if (find_request(c.id)) {
        out += error_line("", "invalid_request",
                          "the id \"" + c.id + "\" belongs to a request that is not done", "id");
        return;
    }
    try {
        resolve_continue(*c.request);
    } catch (const command_error & e) {
        out += error_line(c.id, e.code, e.what(), e.param);
        return;
    }
    auto r       = std::make_unique<request>();
    r->id        = std::move(c.id);
    r->command   = std::move(c.request);
    r->t_arrived = ggml_time_us();
    for (sequence_settings & settings : r->command->sequences) {
        add_sequence(*r, &settings);
    }
    if (r->prefix_only()) {
        supersede_prefixes();
    }
    queue.push_back(std::move(r));
}

void scheduler::add_sequence(request & r, sequence_settings * settings) {
    sequence & s = r.sequences.emplace_back();
    s.index      = (int32_t) r.sequences.size() - 1;
    s.settings   = settings;
    begin_text(r, s);
}

// A fork's text begins behind the tokens that it has: what was held back there is held back here too, and
// comes with this one's own text.
void scheduler::begin_text(const request & r, sequence & s) const {
    std::string told;
    s.text  = text_stream(s.settings->stop);
    s.guard = phrase_guard(s.settings->banned);
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
        const auto known =
            std::find_if(records.begin(), records.end(), [&](const record & x) { return x.id == named.id; });
        if (known == records.end() || named.index >= (int32_t) known->generated.size()) {
            invalid("continue", "continue names sequence " + std::to_string(named.index) + " of request " +
                                    named.id +
                                    ", which is not known here (any more); send its text as the prompt");
        }
        tokens        = known->prompt;
        command.n_bos = known->n_bos;
        generated     = known->generated[named.index];
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

// Only the latest prefix is wanted: the writer has typed on since the others were asked for.
void scheduler::supersede_prefixes() {
    const auto end = [this](std::unique_ptr<request> & r) {
        if (r->prefix_only()) {
            cancel(r->id, -1);
        }
    };
    std::for_each(active.begin(), active.end(), end);
    std::for_each(queue.begin(), queue.end(), end);
    sweep();
}

void scheduler::cancel(const std::string & id, int32_t index) {
    request * r = find_request(id);
    if (!r) {
        return; // it is done: the two have crossed
    }
    r->computed = true; // all that a prefix waits for
    for (sequence & s : r->sequences) {
        if (!s.over && (index < 0 || s.index == index)) {
            end_sequence(*r, s, "cancelled");
        }
    }
}

// More sequences for a request that is not done, as its others or as a fork of one of them; a later limit.
void scheduler::extend(const std::string & id, const extend_command & extension) {
    request * r = find_request(id);
    if (!r || r->prefix_only()) {
        out += error_line("", "invalid_request",
                          "extend: there is no request \"" + id + "\" that is not done", "id");
        return;
    }
    const sequence_name & fork = extension.fork;
    if (fork.index >= (int32_t) r->sequences.size()) {
        out += error_line("", "invalid_request",
                          "fork.index is " + std::to_string(fork.index) + "; the request has " +
                              std::to_string(r->sequences.size()) + " sequences",
                          "fork");
        return;
    }
    if (extension.n_predict >= -1) {
        r->command->common.n_predict = extension.n_predict;
        for (sequence & s : r->sequences) {
            s.settings->n_predict = s.over ? s.settings->n_predict : extension.n_predict;
        }
    }
    const size_t first = r->sequences.size();
    for (int32_t i = 0; i < extension.n_add; i++) {
        sequence_settings & own = r->command->sequences.emplace_back(
            fork.index < 0 ? r->command->common : *r->sequences[fork.index].settings);
        own.sampling.seed = sequence_seed(r->command->seed, (int64_t) r->sequences.size());
        own.n_predict     = extension.n_predict >= -1 ? extension.n_predict : own.n_predict;
        own.coupled.group = fork.index < 0 ? 0 : (int32_t) first;
        own.coupled.index = (int32_t) r->sequences.size() - own.coupled.group;
        add_sequence(*r, &own);
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
        .whole("requests", (int64_t) active.size())
        .whole("queued", (int64_t) queue.size())
        .whole("sequences", n_live())
        .whole("sequences_waiting", n_waiting);
}

// In order: the first one that does not fit holds up the rest, so that none waits for ever.
void scheduler::admit() {
    while (!queue.empty() && fits(*queue.front())) {
        active.push_back(std::move(queue.front()));
        queue.pop_front();
        active.back()->t_admitted = ggml_time_us();
    }
    announce_queue();
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
    const int32_t n_room = tree.n_free() + tree.n_idle() - n_reserve * (n_live() + n_new);
    if (n_room < 0) {
        return false; // whatever the prompt shares
    }
    const auto    match  = tree.find(r.command->prompt, r.n_prompt() - 1, prefix_tree::by_tokens);
    const int32_t n_held = match.from && match.from->live ? match.length : 0; // an idle prefix counts as room
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

void scheduler::plan() {
    batch.n_tokens = 0;
    owners.clear();
    prompt_rows.clear();
    echo_rows.clear();
    plan_late_starts();
    plan_sequences();
    plan_prompts();
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
    return i < r.n_prompt() ? r.command->prompt[i] : s.generated[i - r.n_prompt()];
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
            batch.seq_id[s.i_row][batch.n_seq_id[s.i_row]++] = s.cells->seq_id;
            owners.push_back(s.cells);
            tree.share_last(s.cells, other->cells);
            return true;
        }
    }
    return false;
}

// The tokens of a live sequence that are not in cells yet: one, or more when it resumes.
void scheduler::add_todo(request & r, sequence & s) {
    const int32_t n_total = r.n_prompt() + (int32_t) s.generated.size();
    const int32_t n_todo  = std::min(n_total - s.cells->n_past(), n_chunk);
    if (n_todo == 1 && share_row(r, s)) {
        return;
    }
    for (int32_t k = 0; k < n_todo && batch.n_tokens < params.n_batch; k++) {
        const int32_t i    = s.cells->n_past();
        const bool    last = i + 1 == n_total;
        s.i_row            = last ? batch.n_tokens : -1;
        add(s.cells, token_at(r, s, i), last);
    }
    if (s.i_row >= 0) {
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
                n += s.cells
                         ? std::min(r->n_prompt() + (int32_t) s.generated.size() - s.cells->n_past(), n_chunk)
                         : 0;
            }
        }
        if (!active.empty() && active.front()->prompt && !active.front()->ready) {
            n += std::min(active.front()->n_prompt() - active.front()->prompt->n_past(), n_chunk);
        }
        return std::min(n, params.n_batch);
    };
    while (!tree.make_room(n_needed()) && put_back_youngest()) {
    }
    for (auto & r : active) {
        with_rows.clear();
        for (sequence & s : r->sequences) {
            if (s.cells) {
                add_todo(*r, s);
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
    return n == 0 || (n < params.n_parallel && tree.n_free() + tree.n_idle() >= n_reserve * (n + 1));
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
        s->cells = s->generated.empty() ? tree.open(next->prompt, next->n_prompt() - 1) : reopen(*next, *s);
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
    const auto match = tree.find(tokens, (int32_t) tokens.size() - 1, prefix_tree::by_tokens);
    return tree.open(match.from, match.length);
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
        if (!r->prompt && wanted && !waits_for_another(*r)) {
            begin_prompt(*r); // or anew: it had to give its cells back
        }
        if (!r->prompt || r->ready || (r->prefix_only() && real_ones)) {
            continue;
        }
        real_ones = real_ones || !r->prefix_only();
        // a recurrent state, or one behind a sliding window, cannot step back: it stops one token early, and
        // each sequence decodes that token
        const int32_t n_target = r->n_prompt() - (stops_short ? 1 : 0);
        int32_t       n        = std::min(n_target - r->prompt->n_past(), n_budget);
        if (!tree.make_room(n)) {
            n = tree.n_free();
        }
        for (int32_t k = 0; k < n; k++) {
            const int32_t i    = r->prompt->n_past();
            const bool    last = i + 1 == r->n_prompt();
            if (last) {
                prompt_rows.emplace_back(r.get(), batch.n_tokens);
            }
            const bool echo = r->command->echo && r->command->n_logprobs >= 0 && !last;
            if (echo) {
                echo_rows.push_back({r.get(), {batch.n_tokens, i + 1}});
            }
            add(r->prompt, r->command->prompt[i], last || echo);
        }
        n_budget -= n;
        if (stops_short && r->prompt->n_past() == n_target) {
            r->ready = r->computed = true;
        }
    }
    n_prefill = batch.n_tokens - n_others;
}

// A prompt that is being computed for another request and has at least a chunk more in common with this one
// than it has computed by now: waiting costs nothing, and computes it once.
bool scheduler::waits_for_another(const request & r) const {
    const auto & mine = r.command->prompt;
    for (const auto & other : active) {
        if (other.get() == &r || !other->prompt || other->ready || !other->command->cache ||
            !r.command->cache) {
            continue;
        }
        const auto &  theirs   = other->command->prompt;
        const int32_t n        = std::min(r.n_prompt() - 1, other->n_prompt());
        const auto    part     = std::mismatch(mine.begin(), mine.begin() + n, theirs.begin()).first;
        const int32_t n_shared = (int32_t) (part - mine.begin());
        if (n_shared - other->prompt->n_decoded >= n_chunk) {
            return true;
        }
    }
    return false;
}

// The longest known beginning is shared; at least the last token is computed, for its logits. The first
// time a known text may stand for the prompt's own split of it into tokens; later the sequences depend on
// that.
void scheduler::begin_prompt(request & r) {
    generate_command & c     = *r.command;
    const bool         first = r.n_cached < 0;
    const auto         by    = first && !c.exact ? prefix_tree::by_text : prefix_tree::by_tokens;
    prefix_tree::match match;
    if (c.cache &&
        !(c.echo && c.n_logprobs >= 0)) { // for the prompt's logprobs every row of logits is wanted
        match = tree.recall(c.prompt, r.n_prompt() - 1, by);
    }
    const bool too_long = match.length - match.n_matched + r.n_prompt() + 1 > params.n_ctx_seq; // split finer
    branch *   opened   = too_long ? tree.open() : tree.open(match.from, match.length);
    if (match.restored) {
        tree.release(match.from);
    }
    if (too_long) {
        match = {};
    }
    if (!opened) {
        return;
    }
    if (match.from) {
        c.prompt.erase(c.prompt.begin(), c.prompt.begin() + match.n_matched);
        c.prompt.insert(c.prompt.begin(), opened->tokens.begin(), opened->tokens.end());
    }
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
        .whole("seed", r.command->seed);
    report_prompt(r);
}

void scheduler::drop_prompt(request & r) {
    if (r.command->cache) {
        if (r.computed && r.n_prompt() - r.n_cached >= n_worth_saving) {
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
    const int32_t code    = llama_decode(ctx, batch);
    if (code == 0) {
        llama_synchronize(ctx);
        if (n_prefill >= n_beside_min) {
            n_beside = (int32_t) (t_beside_us * batch.n_tokens / (ggml_time_us() - t_begin + 1));
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

void scheduler::undo_batch() {
    for (branch * cells : owners) {
        tree.undo_last(cells);
    }
    for (auto & r : active) {
        r->ready = r->ready && r->prompt && r->prompt->n_past() >= r->n_prompt() - 1;
        for (sequence & s : r->sequences) {
            s.i_row = -1;
        }
    }
}

void scheduler::fail(request & r, const std::string & message, const std::string & code) {
    out += error_line(r.id, code, message);
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

// Nobody knows what the cells hold now, so everything is given up, and the next request finds a sound
// state.
void scheduler::fail_all(const std::string & message) {
    for (auto & r : active) {
        fail(*r, message);
    }
    tree.clear();
}

//
// draw
//

// Draws are independent of each other, so they are made side by side: by the threads that have just decoded
// (an OpenMP team of the same size, or else libgomp ends and starts threads), which sleep otherwise. What
// they bring is taken in order.
void scheduler::draw() {
    report_prompt_logprobs();
    for (const auto & [r, i_row] : prompt_rows) {
        start_on_row(*r, i_row);
    }
    collect_rows();
#pragma omp parallel for num_threads(params.n_threads) schedule(dynamic) if (drawn.size() > 1)
    for (size_t i = 0; i < drawn.size(); i++) {
        draw_one(drawn[i]);
    }
    for (drawing & d : drawn) {
        if (!d.error.empty() && !d.r->failed) {
            fail(*d.r, d.error, d.error_code);
        }
        if (!d.r->failed) {
            take_drawn(*d.r, *d.s, d);
        }
    }
    for (auto & r : active) {
        report_progress(*r);
    }
}

void scheduler::collect_rows() {
    drawn.clear();
    for (auto & r : active) {
        for (sequence & s : r->sequences) {
            if (s.i_row >= 0) {
                drawing & d = drawn.emplace_back();
                d.r         = r.get();
                d.s         = &s;
                d.logits    = row_of(*r, s);
            }
        }
    }
}

// Here, before the threads start, because the first call sorts the rows. First tokens are distinct among one
// row; that of a later wave is not the same to the last bit.
const float * scheduler::row_of(request & r, const sequence & s) {
    const float * logits = llama_get_logits_ith(ctx, s.i_row);
    if (!s.settings->coupled.distinct_first || !s.generated.empty() || s.n_rewinds > 0) {
        return logits;
    }
    if (r.first_row.empty()) {
        r.first_row.assign(logits, logits + llama_vocab_n_tokens(facts.vocab));
    }
    return r.first_row.data();
}

// Touches nothing but the sequence's sampler and `d`.
void scheduler::draw_one(drawing & d) const {
    static thread_local std::vector<llama_token> forbidden;
    const request &                              r = *d.r;
    sequence &                                   s = *d.s;
    try {
        if (!s.sampler) {
            common_params_sampling sampling = s.settings->sampling;
            sampling.seed                   = sequence_seed(sampling.seed, (int64_t) s.n_rewinds * 1000003);
            // one that was made anew knows what others have drawn, or what it must not: it goes on by itself
            const coupling coupled = s.n_rewinds == 0 ? s.settings->coupled : coupling();
            s.sampler = std::make_unique<token_sampler>(facts.model, sampling, s.settings->structure,
                                                        s.settings->structure_start, coupled,
                                                        r.command->prompt, s.generated);
        }
        list_forbidden(s, forbidden);
        d.token = s.sampler->draw(d.logits, forbidden);
        if (r.command->n_logprobs >= 0) {
            d.logprobs = logprobs_json(r, d.logits, d.token);
        }
        if (r.command->sum_logprobs) {
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
    for (sequence & s : r.sequences) {
        if (s.over || s.cells || !s.generated.empty()) {
            continue;
        }
        if (is_full(r, s)) {
            end_sequence(r, s, "length");
            continue;
        }
        if (!may_start() || !(s.cells = tree.open(r.prompt, r.n_prompt()))) {
            continue;
        }
        s.i_row = i_row;
        r.n_live++;
    }
    if (r.n_waiting() == 0 && r.prompt) {
        drop_prompt(r);
    }
}

void scheduler::list_forbidden(const sequence & s, std::vector<llama_token> & tokens) const {
    tokens.clear();
    if ((int32_t) s.generated.size() < s.settings->n_min) {
        tokens = end_tokens;
    }
    for (const auto & [place, token] : s.forbidden) {
        if (place == s.generated.size()) {
            tokens.push_back(token);
        }
    }
}

bool scheduler::is_full(const request & r, const sequence & s) const {
    const int32_t n = (int32_t) s.generated.size();
    return (s.settings->n_predict >= 0 && n >= s.settings->n_predict) || r.n_prompt() + n >= params.n_ctx_seq;
}

// The text of a token as a client sees it: of control tokens only what a chat's parser wants.
std::string scheduler::piece_of(const request & r, llama_token token) const {
    const bool shown = r.command->chat && r.command->chat->shown.count(token) > 0;
    return common_token_to_piece(facts.vocab, token, shown);
}

void scheduler::take_drawn(request & r, sequence & s, drawing & d) {
    if (r.t_prefilled == 0) {
        r.t_prefilled = ggml_time_us();
    }
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
    s.i_row = -1;
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

static void append_logprob(std::string & out, const token_logprob & t, const llama_vocab * vocab) {
    char number[32];
    snprintf(number, sizeof(number), "%.6g", std::max(t.logprob, -9999.0f));
    std::string bytes = common_token_to_piece(vocab, t.token, true);
    std::string text  = take_utf8(bytes);
    out += "\"id\":" + std::to_string(t.token) + ",\"text\":";
    append_json_string(out, bytes.empty() ? text : text + "\xEF\xBF\xBD");
    out += std::string(",\"logprob\":") + number;
}

std::string scheduler::logprobs_json(const request & r, const float * logits, llama_token token) const {
    static thread_local std::vector<token_logprob> top;
    const auto                                     own =
        logprobs_of(logits, llama_vocab_n_tokens(facts.vocab), token, r.command->n_logprobs, top);
    std::string line = "{";
    append_logprob(line, own, facts.vocab);
    line += ",\"top\":[";
    for (size_t i = 0; i < top.size(); i++) {
        line += i ? ",{" : "{";
        append_logprob(line, top[i], facts.vocab);
        line += "}";
    }
    return line + "]}";
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
        std::string first = common_token_to_piece(facts.vocab, r.command->prompt[0], true);
        std::string token = "[{\"id\":" + std::to_string(r.command->prompt[0]) + ",\"text\":";
        append_json_string(token, take_utf8(first));
        event.raw("tokens", token + ",\"logprob\":null,\"top\":[]}]");
    }
}

void scheduler::report_prompt_logprobs() {
    for (size_t i = 0; i < echo_rows.size();) {
        request *   r = echo_rows[i].first;
        std::string tokens;
        for (; i < echo_rows.size() && echo_rows[i].first == r; i++) {
            const auto [i_row, i_token] = echo_rows[i].second;
            if (i_token >= r->command->n_bos) {
                tokens += (tokens.empty() ? "[" : ",") +
                          logprobs_json(*r, llama_get_logits_ith(ctx, i_row), r->command->prompt[i_token]);
            }
        }
        event_line(out, "prompt", r->id)
            .text("text", "")
            .raw("tokens", tokens + (tokens.empty() ? "[]" : "]"));
    }
}

void scheduler::end_sequence(request & r, sequence & s, const char * reason) {
    const std::string rest =
        s.text.stopped() ? ""
                         : s.text.feed(s.guard.finish(), (int32_t) s.generated.size() > s.settings->n_min) +
                               s.text.finish();
    emit_stream(r, s, rest, s.logprobs.size(), true);
    const bool       stopped = std::string_view(reason) == "stop";
    const sequence * twin    = std::string_view(reason) == "cancelled" ? nullptr : twin_of(r, s);
    if (twin && may_start_again(r, s)) {
        start_again(r, s);
        return;
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
    if (s.cells) {
        free_sequence(r, s, true);
    }
    s.sampler.reset();
    s.over = true;
    r.n_over++;
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
    s.cells = nullptr;
    s.i_row = -1;
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
    record known = {r.id, r.command->prompt, r.command->n_bos, {}};
    for (const sequence & s : r.sequences) {
        known.generated.push_back(seen_tokens(r, s));
    }
    records.push_front(std::move(known));
    size_t n = 0;
    for (size_t i = 0; i < records.size(); i++) {
        n += records[i].prompt.size();
        for (const auto & tokens : records[i].generated) {
            n += tokens.size();
        }
        if (n > n_records && i > 0) {
            records.resize(i);
        }
    }
}

// Requests whose sequences are all over go.
void scheduler::sweep() {
    const auto finished = [this](std::unique_ptr<request> & r) {
        if (r->failed) {
            return true;
        }
        if (r->prefix_only() ? !r->computed : r->n_over < (int32_t) r->sequences.size()) {
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
