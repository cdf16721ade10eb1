// Which of the waiting requests runs next, and when there is room for it.
#pragma once

#include "schedule/request.h"

#include <map>
#include <string>

class admission {
  public:
    // n_parallel: sequences that may run at the same time.
    explicit admission(int32_t n_parallel) : n_parallel(n_parallel) {}

    // Moves requests from the queue to the active ones as long as the next one fits. In turn: it holds up the rest
    // when it does not, so that none waits for ever.
    void admit(request_lists & requests, const prefix_tree & tree);

  private:
    size_t next_in_queue(const request_lists & requests) const;
    bool   fits(const request & r, const request_lists & requests, const prefix_tree & tree) const;

    const int32_t                  n_parallel;
    std::map<std::string, int64_t> turns; // when each client's last request was admitted, while others wait
    int64_t                        n_turns = 0;
};
