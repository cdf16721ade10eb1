#include "schedule/request.h"

#include <algorithm>

static const int32_t n_reserve      = 32; // cells a running sequence should find beyond what it holds
static const int32_t n_worth_saving = 64; // tokens computed anew: such a prompt goes to disk

llama_token request::token_at(const sequence & s, int32_t i) const {
    const auto & tokens = s.scored ? s.scored->tokens : s.generated;
    return i < n_prompt() ? command->prompt[i] : tokens[i - n_prompt()];
}

int32_t request::n_wanted(const sequence & s) const {
    return n_prompt() + (int32_t) (s.scored ? s.scored->tokens.size() - 1 : s.generated.size());
}

bool request::is_full(const sequence & s, int32_t n_ctx) const {
    const int32_t n = (int32_t) s.generated.size();
    if (s.scored) {
        return n >= (int32_t) s.scored->tokens.size();
    }
    return (s.n_predict >= 0 && n >= s.n_predict) || n_prompt() + n >= n_ctx;
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
    int32_t n = 0;
    for (const auto & r : active) {
        n += r->n_live;
    }
    return n;
}

int32_t n_reserved(int32_t n_live) {
    return n_reserve * n_live;
}

bool may_start(const prefix_tree & tree, int32_t n_live, int32_t n_parallel) {
    return n_live == 0 || (n_live < n_parallel && tree.n_room() >= n_reserved(n_live + 1));
}

void free_sequence(prefix_tree & tree, request & r, sequence & s, bool keep) {
    if (keep && r.command->cache && s.cells->n_own() > 0) {
        tree.release(s.cells);
    } else {
        tree.remove(s.cells);
    }
    s.cells = nullptr;
    r.n_live--;
}

void drop_prompt(prefix_tree & tree, request & r) {
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
