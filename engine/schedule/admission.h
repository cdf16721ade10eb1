// Which request of the queue is admitted next, and when there is room for it.
#pragma once

#include "schedule/request.h"
#include "util/client_turns.h"

class admission {
  public:
    // n_parallel: sequences that may run at the same time.
    explicit admission(int32_t n_parallel) : n_parallel(n_parallel) {}

    // Moves requests from the queue to the active ones as long as the next one fits. A next one that does not fit holds
    // up the others, so that none waits for ever.
    void admit(request_lists & requests, const prefix_tree & tree);
    // Preempts requests of later priorities, the youngest first, until those of the first one have the cells and the ids
    // that they will want. The others are paused where they are.
    void preempt_later(request_lists & requests, prefix_cache & cache) const;

  private:
    size_t next_in_queue(const request_lists & requests) const;
    bool   fits(const request & r, const request_lists & requests, const prefix_tree & tree) const;
    bool   has_room(int32_t priority, const request_lists & requests, const prefix_tree & tree) const;

    const int32_t n_parallel;
    client_turns  turns; // of the requests that were admitted
};
