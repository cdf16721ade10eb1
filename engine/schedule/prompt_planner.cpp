#include "schedule/prompt_planner.h"

#include <algorithm>

// The requests of the plan's priority: clients take turns at being the first of a step, and each one's are in the order
// of their age. So one's many or long prompts keep another's short one waiting for a step.
std::vector<request *> prompt_planner::in_turn() const {
    std::vector<request *> found;
    for (auto & r : requests.active) {
        if (r->priority() == plan.whose.priority) {
            found.push_back(r.get());
        }
    }
    std::stable_sort(found.begin(), found.end(), [this](const request * a, const request * b) {
        return turns.last_of(a->command->client) < turns.last_of(b->command->client);
    });
    return found;
}

// The rest of the step is for prompts.
void prompt_planner::plan_prompts(int32_t n_prefill_budget) {
    const int32_t n_others = plan.n_tokens();
    int32_t       n_budget = params.n_batch - n_others;
    if (n_others > 0) {
        n_budget = std::min(n_budget, std::max(n_prefill_budget, n_prefill_min));
    }
    bool sequences_wait = false; // for a prompt that is not complete: prefix requests let it go first
    for (request * r : in_turn()) {
        prompt_state & prompt = r->prompt;
        oldest_is_planned     = oldest_is_planned || r == requests.active.front().get();
        if (!prompt.cells && may_begin(*r)) {
            begin(*r);
        }
        if (!prompt.cells || prompt.ready || (r->prefix_only() && sequences_wait)) {
            continue;
        }
        sequences_wait = sequences_wait || !r->prefix_only();
        if (!plan.whose.serves(*r)) {
            continue;
        }
        if (prompt.first_row && prompt.cells->n_past() == r->n_prompt()) {
            plan.prompts.push_back({r, -1});
            continue;
        }
        const int32_t n = add_tokens(*r, n_budget);
        n_budget -= n;
        if (n > 0) {
            turns.take(r->command->client);
        }
    }
    plan.n_prefill = plan.n_tokens() - n_others;
}

// A prompt begins, or begins again after it was preempted, if the client or a sequence that may start needs it.
bool prompt_planner::may_begin(const request & r) const {
    const int32_t n_oldest = n_for_oldest(r);
    if (n_oldest > 0 && cache.tree.counts().n_room() < n_oldest + r.n_prompt() + r.n_negative()) {
        return false;
    }
    const bool first  = r.prompt.n_cached < 0;
    const auto starts = [&] {
        return r.n_waiting() > 0 && make_slot(requests, cache.tree, r, params.n_parallel);
    };
    return (first || r.prefix_only() || starts()) && !cache.is_open(r.prompt.search) && !waits_for_another(r);
}

// Cells that this prompt leaves to the oldest request: to its scored texts, which are planned behind prompts, and to its
// prompt, if that has not had its turn in this step. They could wait for ever while younger prompts are preempted and
// begin again.
int32_t prompt_planner::n_for_oldest(const request & r) const {
    const request & oldest = *requests.active.front();
    if (!oldest_is_planned && oldest.prompt.cells && !oldest.prompt.ready && plan.whose.serves(oldest)) {
        return std::min(oldest.n_prompt_missing(), n_chunk);
    }
    for (const sequence & s : oldest.sequences) {
        if (&r != &oldest && s.cells && s.kind->is_background()) {
            return std::min(oldest.n_wanted(s) - s.cells->n_past(), n_chunk);
        }
    }
    return 0;
}

// The next tokens of a negative prompt but for its last one, at most n_max; returns how many.
int32_t prompt_planner::add_negative(request & r, int32_t n_max) {
    branch * const cells = r.prompt.negative;
    if (!cells) {
        return 0;
    }
    const int32_t n_kept   = n_for_oldest(r);
    const int32_t n_wanted = std::min(r.n_negative() - 1 - cells->n_past(), n_max);
    const int32_t n        = std::max(cache.tree.make_room(n_wanted + n_kept) - n_kept, 0);
    for (int32_t k = 0; k < n; k++) {
        plan.add(cells, r.command->negative[(size_t) cells->n_past()], false);
    }
    return n;
}

// The next tokens of a prompt, at most n_max; returns how many. A prompt whose cells cannot be truncated stops one
// token early, and each sequence decodes that token; so do both prompts of guided sequences, whose rows are then of one
// step.
int32_t prompt_planner::add_tokens(request & r, int32_t n_max) {
    prompt_state & prompt     = r.prompt;
    const int32_t  n_negative = add_negative(r, n_max);
    const int32_t  n_target   = std::max(r.n_prompt() - (stops_short(r) ? 1 : 0), 0);
    const int32_t  n_kept     = n_for_oldest(r);
    const int32_t  n_wanted   = std::min(n_target - prompt.cells->n_past(), n_max - n_negative);
    const int32_t  n          = std::max(cache.tree.make_room(n_wanted + n_kept) - n_kept, 0);
    for (int32_t k = 0; k < n; k++) {
        const int32_t i    = prompt.cells->n_past();
        const bool    last = i + 1 == r.n_prompt();
        if (last) {
            plan.prompts.push_back({&r, plan.n_tokens()});
        }
        const bool echo = r.command->scores_prompt() && !last && i + 1 > prompt.n_echoed;
        if (echo) {
            plan.echoes.push_back({&r, plan.n_tokens(), i + 1});
        }
        plan.add(prompt.cells, r.command->prompt[(size_t) i], last || echo);
    }
    const bool has_negative = !prompt.negative || prompt.negative->n_past() == r.n_negative() - 1;
    if ((stops_short(r) || n_target == 0) && prompt.cells->n_past() == n_target && has_negative) {
        prompt.ready = prompt.computed = true;
    }
    return n + n_negative;
}

// Whether a prompt that is being computed for another request has at least a chunk more in common with this one than it
// has computed so far. To wait costs nothing, and the chunk is computed once.
bool prompt_planner::waits_for_another(const request & r) const {
    if (r.command->scores_prompt()) {
        return false; // it shares nothing
    }
    for (const auto & other : requests.active) {
        if (other.get() == &r || other->cells_key() != r.cells_key() || !other->prompt.cells ||
            other->prompt.ready || !other->command->cache || !r.command->cache) {
            continue;
        }
        const int32_t n_shared = common_length(r.command->prompt, other->command->prompt, r.n_prompt() - 1);
        if (n_shared - other->prompt.cells->n_decoded >= n_chunk) {
            return true;
        }
    }
    return false;
}

// Where pins leave few cells, a prompt that begins with one shares its cells: another branch may have the same tokens in
// cells of its own, for which the limit of the request has no room.
prefix_cache::match prompt_planner::on_pin(const request & r, const prefix_cache::match & match) const {
    const cell_counts n = cache.tree.counts();
    if (n.n_pins == 0 || !match.from) {
        return match;
    }
    const uint64_t key      = r.cells_key();
    const auto     pin      = cache.tree.find(r.command->prompt, r.n_prompt() - 1, by_tokens, key, true);
    const bool     is_tight = r.is_guided() || r.prompt.n_ctx >= n.n_cells - n.n_pinned + pin.length;
    const bool     has_own  = cache.tree.n_held(*match.from, match.length, true) < pin.length;
    return is_tight && has_own ? prefix_cache::match{pin, false, false} : match;
}

// The longest known prefix is shared. The last token is computed for its row of logits, unless that row is known, too.
// The first time, a known text may stand for the prompt's own split of it into tokens; afterwards the prompt has these
// tokens, and the sequences depend on them.
void prompt_planner::begin(request & r) {
    generate_command &  c     = *r.command;
    const uint64_t      key   = c.adapters.cells_key;
    const bool          first = r.prompt.n_cached < 0;
    const match_by      by    = first && !c.exact ? by_text : by_tokens;
    prefix_cache::match match;
    if (c.cache && !c.scores_prompt()) {
        match = cache.find(c.prompt, r.n_prompt() - (stops_short(r) ? 1 : 0), by, key, r.prompt.search);
    }
    if (match.pending) {
        return;
    }
    r.prompt.search         = {};
    branch * const restored = match.restored ? match.from : nullptr;
    if (match.length - match.n_matched + r.n_prompt() + 1 >
        r.prompt.n_ctx) { // the known split has more tokens
        match = {cache.tree.find(c.prompt, r.n_prompt() - 1, by_tokens, key), false, false};
    }
    match                           = on_pin(r, match);
    std::vector<llama_token> tokens = c.prompt;
    logits_row               row    = r.prompt.first_row;
    if (match.from) {
        const auto held = match.from->tokens.begin();
        tokens.erase(tokens.begin(), tokens.begin() + match.n_matched);
        tokens.insert(tokens.begin(), held, held + match.length);
    }
    if (match.from && match.length == (int32_t) tokens.size()) {
        row = row ? row : rows.find(tokens, key);
        match.length -= row ? 0 : 1;
    }
    branch * const opened = cache.tree.open(key, match.from, match.length);
    if (restored) {
        cache.tree.release(restored);
    }
    if (!opened) {
        return;
    }
    if (r.is_guided() && !open_negative(r)) {
        cache.tree.remove(opened);
        return;
    }
    c.n_first += (int32_t) tokens.size() - r.n_prompt();
    c.prompt           = std::move(tokens);
    r.prompt.first_row = row;
    r.prompt.cells     = opened;
    opened->hidden     = !c.cache;
    r.prompt.ready     = false;
    if (first) {
        r.prompt.n_cached = match.length;
        plan.begun.push_back(&r);
    }
}

// What idle and running branches have of it is shared. False: live branches have all ids.
bool prompt_planner::open_negative(request & r) {
    const uint64_t key = r.cells_key();
    branch_match   match;
    if (r.command->cache) {
        match = cache.tree.find(r.command->negative, r.n_negative() - 1, by_tokens, key);
    }
    r.prompt.negative = cache.tree.open(key, match.from, match.length);
    if (r.prompt.negative) {
        r.prompt.negative->hidden = !r.command->cache;
    }
    return r.prompt.negative;
}
