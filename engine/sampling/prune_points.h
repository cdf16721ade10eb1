// Which sequences of a request go on (`finish`, `prune`). Prune points are lengths at which they are compared, and
// only the best go on. Knows neither tokens nor cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// When a request ends with sequences that still run.
struct finish_settings {
    bool    given = false; // the client waits for the first texts only, which the server may decide itself
    int32_t first = 0;     // sequences that end by themselves; 0: all
};

struct prune_settings {
    std::vector<int32_t> at;                  // lengths in tokens, rising
    int32_t              keep         = 0;    // sequences that go on; 0: nothing is pruned
    bool                 by_certainty = true; // else by logprob
};

// A sequence at a point: its score, and how many had arrived there before it.
struct arrival_at_point {
    double  score  = 0.0;
    int32_t number = 0;

    bool is_before(const arrival_at_point & other) const {
        return score != other.score ? score > other.score : number < other.number;
    }
};

class prune_points {
  public:
    // A sequence has arrived at a point. Of equal scores the earlier one is better.
    arrival_at_point arrive(size_t point, double score);
    // It has ended while it waited there for others, who have its place now.
    void leave(size_t point, const arrival_at_point & one);
    // A sequence that has arrived at the first n_points points has ended by itself: it has a place at all others.
    void end(size_t n_points);
    // Whether so many have a better place at the point that this one must not go on.
    bool is_beaten(const prune_settings & settings, size_t point, const arrival_at_point & one) const;

  private:
    struct point {
        std::vector<arrival_at_point> arrived; // the best first
        int32_t                       n_arrived = 0;
    };
    std::vector<point>   points;
    std::vector<int32_t> n_ended; // by the number of points at which they had arrived
};
