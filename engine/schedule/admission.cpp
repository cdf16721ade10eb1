#include "schedule/admission.h"

#include "schedule/planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "ggml.h"

void admission::admit(request_lists & requests, const prefix_tree & tree) {
    if (requests.queue.empty()) {
        turns.forget();
    }
    while (!requests.queue.empty()) {
        const auto next = requests.queue.begin() + (std::ptrdiff_t) next_in_queue(requests);
        if (!fits(**next, requests, tree)) {
            break;
        }
        turns.take((*next)->command->client);
        (*next)->times.admitted = ggml_time_us();
        requests.admit(std::move(*next));
        requests.queue.erase(next);
    }
}

// Of the first priority, the oldest request of the client that has the fewest sequences here, and among such clients of
// the one whose last request was admitted first: a client with many requests does not keep others out.
size_t admission::next_in_queue(const request_lists & requests) const {
    std::map<std::string, size_t> held;
    for (const auto & r : requests.active) {
        held[r->command->client] += (r->sequences.size() - r->n_over) * (size_t) r->n_sets();
    }
    const auto place = [&](const auto & r) {
        const std::string & client = r->command->client;
        return std::make_tuple(r->priority(), held[client], turns.last_of(client));
    };
    const auto before = [&](const auto & a, const auto & b) { return place(a) < place(b); };
    return std::min_element(requests.queue.begin(), requests.queue.end(), before) - requests.queue.begin();
}

// Of these tokens those that a live branch has.
static int32_t n_held(const std::vector<llama_token> & tokens, uint64_t key, const prefix_tree & tree) {
    const auto match = tree.find(tokens, (int32_t) tokens.size() - 1, by_tokens, key);
    return match.from ? tree.n_held(*match.from, match.length) : 0;
}

// Tokens of the prompts that no live branch has.
static int32_t n_missing(const request & r, const prefix_tree & tree) {
    if (r.prompt.ready) {
        return 0;
    }
    if (r.prompt.cells) {
        return r.n_prompt_missing();
    }
    const int32_t n_negative = r.is_guided() ? n_held(r.command->negative, r.cells_key(), tree) : 0;
    return r.n_prompt_missing() - n_held(r.command->prompt, r.cells_key(), tree) - n_negative;
}

// There must be cells for the prompt and for some decoding; if none is active, a request always fits. Requests of a later
// priority do not count: they are paused while this one runs (preempt_later).
bool admission::fits(const request & r, const request_lists & requests, const prefix_tree & tree) const {
    const auto counts   = [&](const auto & other) { return other->priority() <= r.priority(); };
    const auto n_active = std::count_if(requests.active.begin(), requests.active.end(), counts);
    if (n_active == 0) {
        return true;
    }
    if (n_active >= n_parallel) {
        return false;
    }
    const int32_t n_taken = requests.n_slots(r.priority());
    const int32_t n_new =
        std::min((int32_t) r.sequences.size() * r.n_sets(), std::max(n_parallel - n_taken, r.n_sets()));
    const int32_t n_room = tree.counts().n_room() - n_reserved(n_taken + n_new);
    return n_room >= 0 && n_missing(r, tree) <= n_room; // below 0: whatever cells the prompt shares
}

// The first priority of a request that does not wait for the disk; none: all of them wait.
static int32_t first_priority(const request_lists & requests, const prefix_cache & cache) {
    int32_t    first = std::numeric_limits<int32_t>::max();
    const auto look  = [&](const std::unique_ptr<request> & r) {
        const bool waits = !r->prompt.cells && cache.is_open(r->prompt.search);
        first            = waits ? first : std::min(first, r->priority());
    };
    std::for_each(requests.active.begin(), requests.active.end(), look);
    std::for_each(requests.queue.begin(), requests.queue.end(), look);
    return first;
}

// Whether the requests up to this priority, as many as may run together, have cells for their prompts and for some
// decoding, and ids for their prompts and sequences.
bool admission::has_room(int32_t priority, const request_lists & requests, const prefix_tree & tree) const {
    int32_t    n_slots = 0, n_ids = 0, n_cells = 0;
    const auto count = [&](const std::unique_ptr<request> & r) {
        if (r->priority() > priority || n_slots >= n_parallel) {
            return;
        }
        const int32_t n_left = ((int32_t) r->sequences.size() - r->n_over) * r->n_sets();
        const int32_t n      = std::min(n_left, n_parallel - n_slots);
        n_slots += n;
        n_ids += std::max(n - r->n_live * r->n_sets(), 0) + (r->prompt.cells ? 0 : r->n_sets());
        n_cells += n_missing(*r, tree) + n_reserved(n);
    };
    std::for_each(requests.active.begin(), requests.active.end(), count);
    std::for_each(requests.queue.begin(), requests.queue.end(), count);
    const cell_counts counts = tree.counts();
    return n_cells <= counts.n_room() && n_ids <= counts.n_ids;
}

void admission::preempt_later(request_lists & requests, prefix_cache & cache) const {
    if (requests.active.empty()) {
        return;
    }
    const int32_t first = first_priority(requests, cache);
    while (requests.active.back()->priority() > first && !has_room(first, requests, cache.tree) &&
           preempt_youngest(requests, cache.tree, first)) {
    }
}
