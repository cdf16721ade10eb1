#include "schedule/request.h"

#include <algorithm>
#include <numeric>
#include <string_view>

static const int32_t n_reserve      = 32; // free cells for each running sequence
static const int32_t n_worth_saving = 64; // tokens that were computed: such a prompt is written to disk

llama_token request::token_at(const sequence & s, int32_t i) const {
    return i < n_prompt() ? command->prompt[(size_t) i] : s.kind->token_at(s, (size_t) (i - n_prompt()));
}

request * request_lists::find(const std::string & id) const {
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

int32_t request_lists::n_live(int32_t last_priority) const {
    int32_t n = 0;
    for (const auto & r : active) {
        n += r->priority() <= last_priority ? r->n_live : 0;
    }
    return n;
}

void request_lists::admit(std::unique_ptr<request> r) {
    const auto is_later = [&](const auto & other) { return other->priority() > r->priority(); };
    active.insert(std::find_if(active.begin(), active.end(), is_later), std::move(r));
}

int32_t n_reserved(int32_t n_live) {
    return n_reserve * n_live;
}

int32_t n_ctx_beside_pins(const generate_command & c, const prefix_tree & tree, int32_t n_ctx_seq) {
    const int32_t n_pinned = c.pin.empty() ? tree.counts().n_pinned : 0; // pins have a limit of their own
    if (n_pinned == 0) {
        return n_ctx_seq;
    }
    const bool    shares = c.cache && !c.scores_prompt();
    const int32_t n      = shares ? (int32_t) c.prompt.size() - 1 : 0;
    const auto    match  = tree.find(c.prompt, n, by_tokens, c.adapters.cells_key, true);
    return std::min(n_ctx_seq, tree.counts().n_cells - n_pinned + match.length);
}

bool may_start(const prefix_tree & tree, int32_t n_live, int32_t n_parallel) {
    return n_live == 0 || (n_live < n_parallel && tree.counts().n_room() >= n_reserved(n_live + 1));
}

void free_sequence(prefix_tree & tree, request & r, sequence & s, bool keep) {
    if (keep && r.command->cache && s.cells->n_own() > 0) {
        tree.release(s.cells);
    } else {
        tree.remove(s.cells);
    }
    s.cells = nullptr;
    r.n_live--;
    r.pruning.n_parked += s.pruning.waits;
}

void close_sequence(prefix_tree & tree, request & r, sequence & s, bool keep) {
    if (s.pruning.waits) {
        r.pruning.points.leave(s.pruning.n_points - 1, s.pruning.arrival);
    }
    release_from_prune_point(r, s);
    if (s.cells) {
        free_sequence(tree, r, s, keep);
    }
    s.sampling.sampler.reset();
    s.over = true;
    r.n_over++;
}

void save_prompt(prefix_tree & tree, const request & r) {
    if (r.prompt.ready && r.n_prompt() - r.prompt.n_cached >= n_worth_saving) {
        tree.save(*r.prompt.cells);
    }
}

void drop_prompt(prefix_tree & tree, request & r) {
    prompt_state & prompt = r.prompt;
    if (r.command->cache && prompt.cells->n_past() > 0) {
        save_prompt(tree, r);
        tree.release(prompt.cells);
    } else {
        tree.remove(prompt.cells);
    }
    prompt.cells = nullptr;
}

//
// finish and prune
//

double sum_of(const std::vector<token_score> & scores, float token_score::* which) {
    return std::accumulate(scores.begin(), scores.end(), 0.0,
                           [&](double sum, const token_score & s) { return sum + s.*which; });
}

double mean_of(const std::vector<token_score> & scores, float token_score::* which) {
    return scores.empty() ? 0.0 : sum_of(scores, which) / (double) scores.size();
}

void reach_prune_point(request & r, sequence & s) {
    const prune_settings & prune = r.command->prune;
    const size_t           point = s.pruning.n_points;
    if (point >= prune.at.size() || s.answer.n_before > 0 || (int32_t) s.generated.size() < prune.at[point]) {
        return;
    }
    const auto   by    = prune.by_certainty ? &token_score::certainty : &token_score::logprob;
    const double score = mean_of(s.sampling.scores, by);
    s.pruning          = {point + 1, true, r.pruning.points.arrive(point, score)};
    r.pruning.n_at_points++;
}

bool ends_by_itself(const char * reason) {
    const std::string_view is = reason;
    return is == "stop" || is == "length" || is == "repetition";
}

// Tokens that the answer could still have had.
static int64_t n_left_of(const request & r, const sequence & s) {
    const int64_t n_room = r.prompt.n_ctx - r.n_prompt() - (int64_t) s.generated.size();
    const int64_t n_own  = (int64_t) (s.generated.size() - s.answer.n_before);
    return std::max(std::min(s.plan.n_predict < 0 ? n_room : s.plan.n_predict - n_own, n_room), (int64_t) 0);
}

void count_end(request & r, const sequence & s, const char * reason) {
    const bool whole = ends_by_itself(reason);
    r.pruning.n_ended += whole;
    if (whole && s.answer.n_before == 0) {
        r.pruning.points.end(s.pruning.n_points);
    }
    if (!whole && std::string_view(reason) != "cancelled") {
        r.pruning.n_saved += n_left_of(r, s);
    }
}

void release_from_prune_point(request & r, sequence & s) {
    r.pruning.n_at_points -= s.pruning.waits;
    r.pruning.n_parked -= s.pruning.waits && !s.cells;
    s.pruning.waits = false;
}
