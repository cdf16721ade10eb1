#include "schedule/request.h"

#include <algorithm>
#include <numeric>
#include <string_view>

static const int32_t n_reserve      = 32; // free cells for each running sequence
static const int32_t n_worth_saving = 64; // tokens that were computed: such a prompt is written to disk

llama_token request::token_at(const sequence & s, int32_t i) const {
    return i < n_prompt() ? command->prompt[(size_t) i] : s.kind->token_at(s, (size_t) (i - n_prompt()));
}

llama_token request::negative_at(const sequence & s, int32_t i) const {
    return i < n_negative() ? command->negative[(size_t) i]
                            : s.kind->token_at(s, (size_t) (i - n_negative()));
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

int32_t request_lists::n_live() const {
    return std::accumulate(active.begin(), active.end(), 0,
                           [](int32_t n, const auto & r) { return n + r->n_live; });
}

int32_t request_lists::n_slots(int32_t last_priority) const {
    int32_t n = 0;
    for (const auto & r : active) {
        n += r->priority() <= last_priority ? r->n_live * r->n_sets() : 0;
    }
    return n;
}

void request_lists::admit(std::unique_ptr<request> r) {
    const auto is_later = [&](const auto & other) { return other->priority() > r->priority(); };
    active.insert(std::find_if(active.begin(), active.end(), is_later), std::move(r));
}

int32_t n_reserved(int32_t n_slots) {
    return n_reserve * n_slots;
}

int32_t n_ctx_beside_pins(const generate_command & c, const prefix_tree & tree, int32_t n_ctx_seq) {
    const cell_counts counts   = tree.counts();
    const int32_t     n_pinned = c.pin.empty() ? counts.n_pinned : 0; // pins have a limit of their own
    if (n_pinned == 0 && !c.is_guided) {
        return n_ctx_seq;
    }
    const bool    shares  = c.cache && !c.scores_prompt() && n_pinned > 0;
    const int32_t n       = shares ? (int32_t) c.prompt.size() - 1 : 0;
    const auto    match   = tree.find(c.prompt, n, by_tokens, c.adapters.cells_key, true);
    const int32_t n_cells = counts.n_cells - n_pinned + match.length;
    if (!c.is_guided) {
        return std::min(n_ctx_seq, n_cells);
    }
    const int32_t n_prompt = (int32_t) c.prompt.size(), n_negative = (int32_t) c.negative.size();
    const int32_t n_answer = n_ctx_seq - std::max(n_prompt, n_negative);
    return n_prompt + std::min(n_answer, (n_cells - n_prompt - n_negative) / 2);
}

bool may_start(const prefix_tree & tree, int32_t n_taken, int32_t n_wanted, int32_t n_parallel) {
    const int32_t n = n_taken + n_wanted;
    return n_taken == 0 || (n <= n_parallel && tree.counts().n_room() >= n_reserved(n));
}

static void give_back(prefix_tree & tree, branch *& cells, bool keep) {
    if (keep && cells->n_own() > 0) {
        tree.release(cells);
    } else {
        tree.remove(cells);
    }
    cells = nullptr;
}

void drop_draft(prefix_tree & tree, sequence & s) {
    if (s.cells && !s.draft.left.empty()) {
        tree.truncate(s.cells, s.cells->n_past() - (int32_t) s.draft.left.size());
    }
    s.draft.left.clear();
}

void free_sequence(prefix_tree & tree, request & r, sequence & s, bool keep) {
    drop_draft(tree, s);
    keep = keep && r.command->cache;
    give_back(tree, s.cells, keep);
    if (s.negative) {
        give_back(tree, s.negative, keep);
    }
    r.n_live--;
    s.is_parked = s.waits();
    r.n_parked += s.is_parked;
}

void unpark(request & r, sequence & s) {
    if (s.is_parked && !s.waits()) {
        s.is_parked = false;
        r.n_parked--;
    }
}

void cut_cells(prefix_tree & tree, request & r, sequence & s, int32_t n_tokens, bool keep) {
    drop_draft(tree, s);
    const int32_t n = r.n_prompt() + n_tokens, n_negative = r.n_negative() + n_tokens;
    if (!s.cells || s.cells->n_past() <= n) {
        return;
    }
    if (!tree.can_cut(*s.cells, n) || (s.negative && !tree.can_cut(*s.negative, n_negative))) {
        free_sequence(tree, r, s, keep);
        return;
    }
    tree.truncate(s.cells, n);
    if (s.negative) {
        tree.truncate(s.negative, n_negative);
    }
}

void close_sequence(prefix_tree & tree, request & r, sequence & s, bool keep) {
    if (s.pruning.waits) {
        r.pruning.points.leave(s.pruning.n_points - 1, s.pruning.arrival);
    }
    r.n_outside -= s.outside && !s.outside->is_back;
    s.outside = nullptr;
    release_from_prune_point(r, s);
    if (s.cells) {
        free_sequence(tree, r, s, keep);
    }
    s.sampling.sampler.reset();
    s.over = true;
    r.n_over++;
}

void save_prompt(prefix_tree & tree, const request & r) {
    const bool keeps = r.command->cache && r.prompt.cells->n_past() > 0;
    if (keeps && r.prompt.ready && r.n_prompt() - r.prompt.n_cached >= n_worth_saving) {
        tree.save(*r.prompt.cells);
    }
}

void drop_prompt(prefix_tree & tree, request & r) {
    prompt_state & prompt = r.prompt;
    save_prompt(tree, r);
    for (branch ** cells : {&prompt.cells, &prompt.negative}) {
        if (*cells && r.command->cache && (*cells)->n_past() > 0) {
            tree.release(*cells);
        } else if (*cells) {
            tree.remove(*cells);
        }
        *cells = nullptr;
    }
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

int64_t n_left_of(const request & r, const sequence & s) {
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
    s.pruning.waits = false;
    unpark(r, s);
}
