#include "sampling/marks.h"

#include <algorithm>
#include <numeric>

static std::vector<mark_arrival>::const_iterator place_of(const std::vector<mark_arrival> & arrived,
                                                          const mark_arrival &              one) {
    return std::lower_bound(arrived.begin(), arrived.end(), one,
                            [](const mark_arrival & a, const mark_arrival & b) { return a.is_before(b); });
}

mark_arrival mark_list::arrive(size_t mark, double score) {
    marks.resize(std::max(marks.size(), mark + 1));
    auto &             arrived = marks[mark].arrived;
    const mark_arrival one     = {score, marks[mark].n_arrived++};
    arrived.insert(place_of(arrived, one), one);
    return one;
}

void mark_list::leave(size_t mark, const mark_arrival & one) {
    auto & arrived = marks[mark].arrived;
    arrived.erase(place_of(arrived, one));
}

void mark_list::end(size_t n_marks) {
    n_ended.resize(std::max(n_ended.size(), n_marks + 1));
    n_ended[n_marks]++;
}

bool mark_list::is_beaten(const prune_settings & settings, size_t mark, const mark_arrival & one) const {
    const auto    last     = n_ended.begin() + (std::ptrdiff_t) std::min(n_ended.size(), mark + 1);
    const int32_t n_placed = std::accumulate(n_ended.begin(), last, 0); // they ended before this mark
    const auto &  arrived  = marks[mark].arrived;
    return n_placed + (place_of(arrived, one) - arrived.begin()) >= settings.keep;
}
