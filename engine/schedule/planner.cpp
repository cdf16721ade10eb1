#include "schedule/planner.h"

#include <algorithm>

static const int64_t t_prefill_us  = 100000;     // of prefill in a step in which sequences decode too, and
static const int32_t n_prefill_min = 32;         // tokens of it at least
static const size_t  n_row_bytes   = 128u << 20; // of logits, of the texts that are scored in one step

namespace {

// Makes the plan of one step, of requests with one set of adapters.
class step_planner {
  public:
    step_planner(const planner_params & params, const planner & preempts, int32_t n_prefill_budget,
                 uint64_t adapters, request_lists & requests, prefix_tree & tree, row_list & rows)
        : params(params), preempts(preempts), n_prefill_budget(n_prefill_budget), adapters(adapters),
          requests(requests), tree(tree), rows(rows) {}

    step_plan make() {
        plan_late_starts();
        plan_sequences();
        plan_prompts();
        plan_scores();
        return std::move(plan);
    }

  private:
    void     plan_late_starts();
    void     plan_sequences();
    void     plan_prompts();
    void     plan_scores();
    bool     in_turn(const request & r) const { return r.has_adapters(adapters); }
    void     add(branch * cells, llama_token token, bool wants_row);
    bool     share_row(request & r, sequence & s, size_t i_first);
    void     add_todo(request & r, sequence & s, int32_t n_max, size_t i_first);
    int32_t  n_needed() const;
    branch * reopen(const request & r, const sequence & s);
    bool     waits_for_another(const request & r) const;
    void     begin_prompt(request & r);
    int32_t  add_prompt(request & r, int32_t n_max);

    const planner_params & params;
    const planner &        preempts;
    const int32_t          n_prefill_budget;
    const uint64_t         adapters;
    request_lists &        requests;
    prefix_tree &          tree;
    row_list &             rows;
    step_plan              plan;
};

void step_planner::add(branch * cells, llama_token token, bool wants_row) {
    plan.tokens.push_back({cells, token, cells->n_past(), wants_row});
    cells->tokens.push_back(token); // llama_decode makes it true
}

// Sequences whose texts are still equal are decoded once: one token with several sequence ids, one row. Looked for
// among the rows of this request, from i_first on.
bool step_planner::share_row(request & r, sequence & s, size_t i_first) {
    if (params.stops_short || s.cells->n_own() > 0) {
        return false;
    }
    const llama_token token = r.token_at(s, s.cells->n_past());
    for (size_t i = i_first; i < plan.rows.size(); i++) {
        branch * const leader = plan.rows[i].s->cells;
        if (leader->tokens.back() == token && tree.follows(*s.cells, *leader)) {
            plan.rows.push_back({&r, &s, plan.rows[i].i_row, 1});
            plan.sharing.push_back({plan.rows[i].i_row, s.cells});
            tree.share_last(s.cells, leader);
            return true;
        }
    }
    return false;
}

// The tokens of a running sequence that are not in cells yet: one, or more when it resumes or is scored. Rows
// are wanted from the last of those on that were sampled or looked at.
void step_planner::add_todo(request & r, sequence & s, int32_t n_max, size_t i_first) {
    const int32_t n_known = r.n_prompt() + (int32_t) s.generated.size();
    const int32_t n_todo  = std::min(r.n_wanted(s) - s.cells->n_past(), n_max);
    if (n_todo == 1 && !s.scored && share_row(r, s, i_first)) {
        return;
    }
    planned_rows own = {&r, &s, -1, 0};
    for (int32_t k = 0; k < n_todo && plan.n_tokens() < params.n_batch; k++) {
        const int32_t i   = s.cells->n_past();
        const bool    row = i + 1 >= n_known;
        if (row && own.n_rows++ == 0) {
            own.i_row = plan.n_tokens();
        }
        add(s.cells, r.token_at(s, i), row);
    }
    if (own.n_rows > 0) {
        plan.rows.push_back(own);
    }
}

// The cells that running sequences, and the oldest request's prompt, want in this step.
int32_t step_planner::n_needed() const {
    int32_t n = 0;
    for (const auto & r : requests.active) {
        for (const sequence & s : r->sequences) {
            n += s.cells && in_turn(*r) ? std::min(r->n_wanted(s) - s.cells->n_past(), s.scored ? 1 : n_chunk)
                                        : 0;
        }
    }
    if (!requests.active.empty()) {
        const request & oldest = *requests.active.front();
        n += oldest.prompt && !oldest.ready && in_turn(oldest)
                 ? std::min(oldest.n_prompt() - oldest.prompt->n_past(), n_chunk)
                 : 0;
    }
    return std::min(n, params.n_batch);
}

// Running sequences first, with cells for all of them and for the oldest request's prompt; who is too young
// for that is preempted.
void step_planner::plan_sequences() {
    while (n_needed() > tree.n_room() && preempts.preempt_youngest(requests, tree)) {
    }
    tree.make_room(n_needed());
    for (auto & r : requests.active) {
        const size_t i_first = plan.rows.size();
        for (sequence & s : r->sequences) {
            if (s.cells && !s.scored && in_turn(*r)) {
                add_todo(*r, s, n_chunk, i_first);
            }
        }
    }
}

// Texts that are scored go in chunks as prompts do, the oldest request's first.
void step_planner::plan_scores() {
    const size_t  row_bytes = (size_t) params.n_vocab * sizeof(float);
    const int32_t n_rows    = (int32_t) std::max(n_row_bytes / row_bytes, (size_t) 1);
    int32_t       n_budget  = std::min(n_rows, plan.n_tokens() > 0 ? n_chunk : params.n_batch);
    for (auto & r : requests.active) {
        for (sequence & s : r->sequences) {
            if (s.cells && s.scored && n_budget > 0 && in_turn(*r)) {
                const int32_t n_before = plan.n_tokens();
                const int32_t n_todo   = std::min(r->n_wanted(s) - s.cells->n_past(), n_budget);
                add_todo(*r, s, tree.make_room(n_todo), 0);
                n_budget -= plan.n_tokens() - n_before;
            }
        }
    }
}

// Sequences that could not start with their prompt: n above the free slots, preempted ones, or a recurrent
// model. They share the prompt but for its last token, decode that again, and have a row of logits of their
// own. Requests with the fewest running sequences come first, so that a large n does not keep others out.
void step_planner::plan_late_starts() {
    while (may_start(tree, requests.n_live(), params.n_parallel)) {
        request * next = nullptr;
        for (auto & r : requests.active) {
            if (r->prompt && r->ready && r->n_waiting() > 0 && (!next || r->n_live < next->n_live)) {
                next = r.get();
            }
        }
        if (!next) {
            return;
        }
        const auto s = std::find_if(next->sequences.begin(), next->sequences.end(),
                                    [](const sequence & s) { return !s.over && !s.cells; });
        s->cells     = s->generated.empty()
                           ? tree.open(next->command->adapters.key, next->prompt, next->n_prompt() - 1)
                           : reopen(*next, *s);
        if (!s->cells) {
            return;
        }
        next->n_live++;
        if (next->n_waiting() == 0) {
            drop_prompt(tree, *next);
        }
    }
}

// The cells that a sequence left when it was preempted, or those of the one that it is forked from, or the
// prompt's.
branch * step_planner::reopen(const request & r, const sequence & s) {
    std::vector<llama_token> tokens = r.command->prompt;
    tokens.insert(tokens.end(), s.generated.begin(), s.generated.end());
    const uint64_t key   = r.command->adapters.key;
    const auto     match = tree.find(tokens, (int32_t) tokens.size() - 1, prefix_tree::by_tokens, key);
    return tree.open(key, match.from, match.length);
}

// The rest of the step goes to the prompts, the oldest first.
void step_planner::plan_prompts() {
    const int32_t n_others = plan.n_tokens();
    int32_t       n_budget = params.n_batch - n_others;
    if (n_others > 0) {
        n_budget = std::min(n_budget, std::max(n_prefill_budget, n_prefill_min));
    }
    bool real_ones = false; // whose prompts are not complete; a prefix yields to them
    for (auto & r : requests.active) {
        const bool first  = r->n_cached < 0;
        const bool starts = r->n_waiting() > 0 && may_start(tree, requests.n_live(), params.n_parallel);
        const bool wanted = first || r->prefix_only() || starts;
        if (!r->prompt && wanted && !tree.is_open(r->recall) && !waits_for_another(*r)) {
            begin_prompt(*r); // or anew: it had to give its cells back
        }
        if (!r->prompt || r->ready || (r->prefix_only() && real_ones)) {
            continue;
        }
        real_ones = real_ones || !r->prefix_only();
        if (!in_turn(*r)) {
            continue;
        }
        if (r->first_row && r->prompt->n_past() == r->n_prompt()) {
            plan.prompts.push_back({r.get(), -1});
            continue;
        }
        n_budget -= add_prompt(*r, n_budget);
    }
    plan.n_prefill = plan.n_tokens() - n_others;
}

// The next tokens of a prompt, at most n_max; returns how many. A recurrent state, or one behind a sliding window,
// cannot step back: it stops one token early, and each sequence decodes that token.
int32_t step_planner::add_prompt(request & r, int32_t n_max) {
    const int32_t n_target = std::max(r.n_prompt() - (params.stops_short ? 1 : 0), 0);
    const int32_t n        = tree.make_room(std::min(n_target - r.prompt->n_past(), n_max));
    for (int32_t k = 0; k < n; k++) {
        const int32_t i    = r.prompt->n_past();
        const bool    last = i + 1 == r.n_prompt();
        if (last) {
            plan.prompts.push_back({&r, plan.n_tokens()});
        }
        const bool echo = r.command->scores_prompt() && !last && i + 1 > r.n_echoed;
        if (echo) {
            plan.echoes.push_back({&r, plan.n_tokens(), i + 1});
        }
        add(r.prompt, r.command->prompt[i], last || echo);
    }
    if ((params.stops_short || n_target == 0) && r.prompt->n_past() == n_target) {
        r.ready = r.computed = true;
    }
    return n;
}

// A prompt that is being computed for another request and has at least a chunk more in common with this one
// than it has computed by now: waiting costs nothing, and computes it once.
bool step_planner::waits_for_another(const request & r) const {
    if (r.command->scores_prompt()) {
        return false; // it shares nothing
    }
    for (const auto & other : requests.active) {
        if (other.get() == &r || !other->has_adapters(r.command->adapters.key) || !other->prompt ||
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
void step_planner::begin_prompt(request & r) {
    generate_command & c     = *r.command;
    const uint64_t     key   = c.adapters.key;
    const bool         first = r.n_cached < 0;
    const auto         by    = first && !c.exact ? prefix_tree::by_text : prefix_tree::by_tokens;
    prefix_tree::match match;
    if (c.cache && !c.scores_prompt()) {
        match = tree.recall(c.prompt, r.n_prompt() - (params.stops_short ? 1 : 0), by, key, r.recall);
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
        plan.begun.push_back(&r);
    }
}

} // namespace

// A context has one set of adapters at a time, so a step is of requests with the same; the sets take turns.
step_plan planner::plan(request_lists & requests, prefix_tree & tree, row_list & rows) {
    std::vector<const adapter_set *> sets;
    for (const auto & r : requests.active) {
        const auto is_it = [&](const adapter_set * set) { return r->has_adapters(set->key); };
        if (std::none_of(sets.begin(), sets.end(), is_it)) {
            sets.push_back(&r->command->adapters);
        }
    }
    const auto last =
        std::find_if(sets.begin(), sets.end(), [&](const adapter_set * set) { return set->key == turn; });
    if (last != sets.end()) {
        std::rotate(sets.begin(), last + 1, sets.end());
    }
    step_plan made;
    for (size_t i = 0; i < sets.size() && made.empty(); i++) {
        turn                         = sets[i]->key;
        std::vector<request *> begun = std::move(made.begun); // for another set
        made = step_planner(params, *this, n_prefill_budget, turn, requests, tree, rows).make();
        made.begun.insert(made.begun.begin(), begun.begin(), begun.end());
        made.adapters = sets[i];
    }
    return made;
}

void planner::decoded(const step_plan & plan, int64_t t_us) {
    if (plan.n_prefill >= n_prefill_min) {
        n_prefill_budget = (int32_t) (t_prefill_us * plan.n_tokens() / (t_us + 1));
    }
    for (const planned_token & t : plan.tokens) {
        t.cells->n_decoded = t.cells->n_past();
    }
    for (const sharing_sequence & s : plan.sharing) {
        s.cells->n_decoded = s.cells->n_past();
    }
}

void planner::undo(const step_plan & plan, request_lists & requests, prefix_tree & tree) const {
    for (const planned_token & t : plan.tokens) {
        tree.undo_last(t.cells);
    }
    for (const sharing_sequence & s : plan.sharing) {
        tree.undo_last(s.cells);
    }
    for (auto & r : requests.active) {
        const bool ready = r->ready && r->prompt && r->prompt->n_past() >= r->n_prompt() - 1;
        if (r->ready && r->prompt && !ready) { // this step would have completed it
            r->computed = false;
        }
        r->ready = ready;
    }
}

// The oldest request keeps one sequence, or its prompt, so that something progresses.
bool planner::preempt_youngest(request_lists & requests, prefix_tree & tree) const {
    for (auto it = requests.active.rbegin(); it != requests.active.rend(); ++it) {
        request &  r      = **it;
        const bool oldest = &r == requests.active.front().get();
        for (auto s = r.sequences.rbegin(); s != r.sequences.rend(); ++s) {
            if (s->cells && !(oldest && r.n_live == 1)) {
                free_sequence(tree, r, *s, true);
                return true;
            }
        }
        if (r.prompt && (!oldest || r.n_live == 1)) {
            drop_prompt(tree, r);
            return true;
        }
    }
    return false;
}

std::vector<planned_rows> planner::start_sequences(const planned_prompt & prompt,
                                                   const request_lists & requests, prefix_tree & tree) const {
    request &                 r = *prompt.r;
    std::vector<planned_rows> started;
    r.ready = r.computed = true;
    for (sequence & s : r.sequences) {
        if (s.over || s.cells || !s.generated.empty() || r.is_full(s, params.n_ctx_seq)) {
            continue;
        }
        if (!may_start(tree, requests.n_live(), params.n_parallel) ||
            !(s.cells = tree.open(r.command->adapters.key, r.prompt, r.n_prompt()))) {
            continue;
        }
        started.push_back({&r, &s, prompt.i_row, 1});
        r.n_live++;
    }
    if (r.n_waiting() == 0 && r.prompt) {
        drop_prompt(tree, r);
    }
    return started;
}
