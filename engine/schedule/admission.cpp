#include "schedule/admission.h"

#include <algorithm>
#include <tuple>

#include "ggml.h"

void admission::admit(request_lists & requests, const prefix_tree & tree) {
    if (requests.queue.empty()) {
        last_admitted.clear();
    }
    while (!requests.queue.empty()) {
        const auto next = requests.queue.begin() + (std::ptrdiff_t) next_in_queue(requests);
        if (!fits(**next, requests, tree)) {
            break;
        }
        last_admitted[(*next)->command->client] = ++n_admitted;
        (*next)->times.admitted                 = ggml_time_us();
        requests.admit(std::move(*next));
        requests.queue.erase(next);
    }
}

// Of the first priority, the oldest request of the client that has the fewest sequences here, and among such clients of
// the one whose last request was admitted first: a client with many requests does not keep others out.
size_t admission::next_in_queue(const request_lists & requests) const {
    std::map<std::string, size_t> held;
    for (const auto & r : requests.active) {
        held[r->command->client] += r->sequences.size() - r->n_over;
    }
    const auto place = [&](const auto & r) {
        const auto last = last_admitted.find(r->command->client);
        return std::make_tuple(r->priority(), held[r->command->client],
                               last == last_admitted.end() ? 0 : last->second);
    };
    const auto before = [&](const auto & a, const auto & b) { return place(a) < place(b); };
    return std::min_element(requests.queue.begin(), requests.queue.end(), before) - requests.queue.begin();
}

// There must be cells for the prompt and for some decoding; if none is active, a request always fits. Requests of a later
// priority do not count: they have no cells while this one waits (preempt_later).
bool admission::fits(const request & r, const request_lists & requests, const prefix_tree & tree) const {
    const auto counts   = [&](const auto & other) { return other->priority() <= r.priority(); };
    const auto n_active = std::count_if(requests.active.begin(), requests.active.end(), counts);
    if (n_active == 0) {
        return true;
    }
    if (n_active >= n_parallel) {
        return false;
    }
    const int32_t n_live = requests.n_live();
    const int32_t n_new  = std::min((int32_t) r.sequences.size(), std::max(n_parallel - n_live, 1));
    const int32_t n_room = tree.counts().n_room() - n_reserved(n_live + n_new);
    if (n_room < 0) {
        return false; // whatever cells the prompt shares
    }
    const auto    match  = tree.find(r.command->prompt, r.n_prompt() - 1, by_tokens, r.command->adapters.key);
    const int32_t n_held = match.from ? tree.n_held(*match.from, match.length) : 0;
    return r.n_prompt() - n_held <= n_room;
}
