#include "schedule/planner.h"

#include "schedule/prompt_planner.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

static const int64_t t_prefill_us = 100000;     // of prefill in a step in which sequences decode, too
static const size_t  n_row_bytes  = 128u << 20; // of logits, of the texts that are scored in one step

// The youngest sequence that waits at a prune point gives up its slot; its cells stay as an idle branch while there is room.
// False: none waits there.
static bool park_waiting(request_lists & requests, prefix_tree & tree, int32_t last_priority) {
    for (auto it = requests.active.rbegin(); it != requests.active.rend(); ++it) {
        request & r = **it;
        if (r.priority() > last_priority || r.pruning.n_at_points == r.pruning.n_parked) {
            continue;
        }
        const auto s = std::find_if(r.sequences.rbegin(), r.sequences.rend(),
                                    [](const sequence & s) { return s.cells && s.pruning.waits; });
        free_sequence(tree, r, *s, true);
        return true;
    }
    return false;
}

bool make_slot(request_lists & requests, prefix_tree & tree, int32_t last_priority, int32_t n_parallel) {
    while (!may_start(tree, requests.n_live(last_priority), n_parallel)) {
        if (!park_waiting(requests, tree, last_priority)) {
            return false;
        }
    }
    return true;
}

namespace {

// Plans sequences, of the requests that the plan serves.
class sequence_planner {
  public:
    sequence_planner(const planner_params & params, request_lists & requests, prefix_tree & tree,
                     planner_turns & turns, step_plan & plan)
        : params(params), requests(requests), tree(tree), turns(turns), plan(plan) {}

    void plan_late_starts();
    void plan_running();
    void plan_background();

  private:
    bool     share_row(request & r, sequence & s, size_t i_first);
    void     add_tokens(request & r, sequence & s, int32_t n_max);
    int32_t  n_missing(const request & r, const sequence & s) const;
    int32_t  n_needed() const;
    branch * open_late(const request & r, const sequence & s);

    request *              next_to_start() const;
    std::vector<request *> in_background() const;

    const planner_params & params;
    request_lists &        requests;
    prefix_tree &          tree;
    planner_turns &        turns;
    step_plan &            plan;
};

// Sequences whose texts are still equal are decoded once: one token with several sequence ids, one row. The row is
// looked for among those of this request, from i_first on.
bool sequence_planner::share_row(request & r, sequence & s, size_t i_first) {
    if (params.stops_short || s.cells->n_own() > 0 || n_missing(r, s) != 1) {
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

int32_t sequence_planner::n_missing(const request & r, const sequence & s) const {
    return r.n_wanted(s) - s.cells->n_past();
}

// The tokens of a running sequence that have no cells yet: one, or more when it is resumed or scored. Rows are wanted
// from the last token on that was sampled or scored.
void sequence_planner::add_tokens(request & r, sequence & s, int32_t n_max) {
    const int32_t n_known = r.n_prompt() + (int32_t) s.generated.size();
    const int32_t n       = std::min(n_missing(r, s), n_max);
    planned_rows  own     = {&r, &s, -1, 0};
    for (int32_t k = 0; k < n && plan.n_tokens() < params.n_batch; k++) {
        const int32_t i   = s.cells->n_past();
        const bool    row = i + 1 >= n_known;
        if (row && own.n_rows++ == 0) {
            own.i_row = plan.n_tokens();
        }
        plan.add(s.cells, r.token_at(s, i), row);
    }
    if (own.n_rows > 0) {
        plan.rows.push_back(own);
    }
}

// The cells that running sequences, and the oldest request's prompt, need in this step.
int32_t sequence_planner::n_needed() const {
    int32_t n = 0;
    for (const auto & r : requests.active) {
        for (const sequence & s : r->sequences) {
            const bool runs = s.cells && !s.pruning.waits && plan.whose.serves(*r);
            n += runs ? std::min(n_missing(*r, s), s.kind->n_urgent()) : 0;
        }
    }
    if (!requests.active.empty()) {
        const request & oldest = *requests.active.front();
        n += oldest.prompt.cells && !oldest.prompt.ready && plan.whose.serves(oldest)
                 ? std::min(oldest.n_prompt() - oldest.prompt.cells->n_past(), n_chunk)
                 : 0;
    }
    return std::min(n, params.n_batch);
}

// Running sequences come first, with cells for all of them and for the oldest request's prompt; the youngest are
// preempted if there are too few cells.
void sequence_planner::plan_running() {
    while (n_needed() > tree.counts().n_room() &&
           (park_waiting(requests, tree, INT32_MAX) || preempt_youngest(requests, tree))) {
    }
    // Beside pins the last sequence may have fewer cells than it needs (end_stuck).
    const int32_t n_wanted = n_needed(), n_room = tree.make_room(n_wanted);
    for (auto & r : requests.active) {
        const size_t i_first = plan.rows.size();
        for (sequence & s : r->sequences) {
            const bool runs =
                s.cells && !s.pruning.waits && !s.kind->is_background() && plan.whose.serves(*r);
            if (runs && !share_row(*r, s, i_first)) {
                add_tokens(*r, s, n_room < n_wanted ? std::min(n_chunk, n_room - plan.n_tokens()) : n_chunk);
            }
        }
    }
}

// The requests with texts that are scored: clients take turns at being the first of a step, and each one's are in the
// order of their age.
std::vector<request *> sequence_planner::in_background() const {
    std::vector<request *> found;
    for (auto & r : requests.active) {
        if (plan.whose.serves(*r) && !r->command->texts.empty()) {
            found.push_back(r.get());
        }
    }
    std::stable_sort(found.begin(), found.end(), [this](const request * a, const request * b) {
        return turns.background.last_of(a->command->client) < turns.background.last_of(b->command->client);
    });
    return found;
}

// Texts that are scored are computed in chunks as prompts are.
void sequence_planner::plan_background() {
    const size_t  row_bytes = (size_t) params.n_vocab * sizeof(float);
    const int32_t n_rows    = (int32_t) std::max(n_row_bytes / row_bytes, (size_t) 1);
    int32_t       n_budget  = std::min(n_rows, plan.n_tokens() > 0 ? n_chunk : params.n_batch);
    for (request * r : in_background()) {
        const int32_t n_first = n_budget;
        for (sequence & s : r->sequences) {
            if (s.cells && n_budget > 0) {
                const int32_t n_before = plan.n_tokens();
                add_tokens(*r, s, tree.make_room(std::min(n_missing(*r, s), n_budget)));
                n_budget -= plan.n_tokens() - n_before;
            }
        }
        if (n_budget < n_first) {
            turns.background.take(r->command->client);
        }
    }
}

// Of the client with the fewest running sequences, and among such clients of the one whose last start is the longest ago,
// the request with the fewest running ones: neither a large n nor many requests keep others out.
request * sequence_planner::next_to_start() const {
    std::map<std::string, int32_t> n_live;
    for (const auto & r : requests.active) {
        n_live[r->command->client] += r->priority() == plan.whose.priority ? r->n_live : 0;
    }
    const auto place = [&](const request & r) {
        const std::string & client = r.command->client;
        return std::make_tuple(n_live[client], turns.starts.last_of(client), r.n_live);
    };
    request * next = nullptr;
    for (auto & r : requests.active) {
        if (r->priority() == plan.whose.priority && r->prompt.cells && r->prompt.ready &&
            r->n_waiting() > 0 && (!next || place(*r) < place(*next))) {
            next = r.get();
        }
    }
    return next;
}

// Sequences that could not start with their prompt: n exceeds the free slots, they were preempted, or the model is
// recurrent. They share the prompt but for its last token, decode that token again, and have a row of logits of their
// own.
void sequence_planner::plan_late_starts() {
    request * next = nullptr;
    while ((next = next_to_start()) && make_slot(requests, tree, plan.whose.priority, params.n_parallel)) {
        const auto s = std::find_if(next->sequences.begin(), next->sequences.end(), [](const sequence & s) {
            return !s.over && !s.cells && !s.pruning.waits;
        });
        s->cells     = open_late(*next, *s);
        if (!s->cells) {
            return;
        }
        s->cells->copying.n_rivals = (int32_t) next->sequences.size();
        next->n_live++;
        turns.starts.take(next->command->client);
        if (next->n_waiting() == 0) {
            drop_prompt(tree, *next);
        }
    }
}

// A sequence with tokens shares the cells that it had before it was preempted, or those of the sequence that it is
// forked from, or the prompt's.
branch * sequence_planner::open_late(const request & r, const sequence & s) {
    const uint64_t key = r.cells_key();
    if (s.generated.empty()) {
        return tree.open(key, r.prompt.cells, r.n_prompt() - 1);
    }
    std::vector<llama_token> tokens = r.command->prompt;
    tokens.insert(tokens.end(), s.generated.begin(), s.generated.end());
    const auto match = tree.find(tokens, (int32_t) tokens.size() - 1, by_tokens, key);
    return tree.open(key, match.from, match.length);
}

// The first priority comes first; of one priority, the set of adapters that follows the last step's.
std::vector<turn> turns_in_order(const request_lists & requests, uint64_t last_adapters) {
    std::vector<turn> turns;
    for (const auto & r : requests.active) {
        if (std::none_of(turns.begin(), turns.end(), [&](const turn & t) { return t.serves(*r); })) {
            turns.push_back({r->priority(), &r->command->adapters});
        }
    }
    for (auto first = turns.begin(); first != turns.end();) {
        const auto is_other = [&](const turn & t) { return t.priority != first->priority; };
        const auto is_last  = [&](const turn & t) { return t.adapters->key == last_adapters; };
        const auto end      = std::find_if(first, turns.end(), is_other);
        const auto last     = std::find_if(first, end, is_last);
        if (last != end) {
            std::rotate(first, last + 1, end);
        }
        first = end;
    }
    return turns;
}

} // namespace

// A context has one set of adapters at a time, so all requests of a step have the same set; the sets alternate.
step_plan planner::plan(request_lists & requests, prefix_cache & cache, row_list & rows) {
    step_plan made;
    if (requests.active.empty()) {
        turns = {};
    }
    for (const turn & t : turns_in_order(requests, last_adapters)) {
        if (!made.empty()) {
            break;
        }
        made.whose    = t;
        last_adapters = t.adapters->key;
        sequence_planner sequences(params, requests, cache.tree, turns, made);
        sequences.plan_late_starts();
        sequences.plan_running();
        prompt_planner(params, requests, cache, rows, turns.prompts, made).plan_prompts(n_prefill_budget);
        sequences.plan_background();
    }
    return made;
}

void planner::decoded(const step_plan & plan, int64_t t_us) {
    if (plan.n_prefill >= n_prefill_min) {
        n_prefill_budget = (int32_t) (t_prefill_us * plan.n_tokens() / (t_us + 1));
        t_token_us       = (double) t_us / plan.n_tokens();
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
        prompt_state & prompt = r->prompt;
        const bool     ready  = prompt.ready && prompt.cells && prompt.cells->n_past() >= r->n_prompt() - 1;
        if (prompt.ready && prompt.cells && !ready) { // this step would have completed it
            prompt.computed = false;
        }
        prompt.ready = ready;
    }
}

// The oldest request keeps one sequence, or its prompt, so that something progresses.
bool preempt_youngest(request_lists & requests, prefix_tree & tree, std::optional<int32_t> later_than) {
    for (auto it = requests.active.rbegin(); it != requests.active.rend(); ++it) {
        request &  r      = **it;
        const bool oldest = !later_than && &r == requests.active.front().get();
        if (later_than && r.priority() <= *later_than) {
            return false;
        }
        for (auto s = r.sequences.rbegin(); s != r.sequences.rend(); ++s) {
            if (s->cells && !(oldest && r.n_live == 1)) {
                free_sequence(tree, r, *s, true);
                return true;
            }
        }
        if (r.prompt.cells && (!oldest || r.n_live == 1)) {
            drop_prompt(tree, r);
            return true;
        }
    }
    return false;
}

std::vector<planned_rows> planner::start_sequences(const planned_prompt & prompt,
                                                   const request_lists & requests, prefix_tree & tree) {
    request &                 r = *prompt.r;
    std::vector<planned_rows> started;
    r.prompt.ready = r.prompt.computed = true;
    for (sequence & s : r.sequences) {
        if (s.over || s.cells || !s.generated.empty() || r.is_full(s)) {
            continue;
        }
        if (!may_start(tree, requests.n_live(r.priority()), params.n_parallel) ||
            !(s.cells = tree.open(r.cells_key(), r.prompt.cells, r.n_prompt()))) {
            continue;
        }
        s.cells->copying.n_rivals = (int32_t) r.sequences.size();
        started.push_back({&r, &s, prompt.i_row, 1});
        r.n_live++;
        turns.starts.take(r.command->client);
    }
    if (r.n_waiting() == 0 && r.prompt.cells && !r.is_pin()) {
        drop_prompt(tree, r);
    }
    return started;
}
