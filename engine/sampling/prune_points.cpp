#include "sampling/prune_points.h"

#include <algorithm>
#include <numeric>

static std::vector<arrival_at_point>::const_iterator place_of(const std::vector<arrival_at_point> & arrived,
                                                              const arrival_at_point &              one) {
    return std::lower_bound(
        arrived.begin(), arrived.end(), one,
        [](const arrival_at_point & a, const arrival_at_point & b) { return a.is_before(b); });
}

arrival_at_point prune_points::arrive(size_t point, double score) {
    points.resize(std::max(points.size(), point + 1));
    auto &                 arrived = points[point].arrived;
    const arrival_at_point one     = {score, points[point].n_arrived++};
    arrived.insert(place_of(arrived, one), one);
    return one;
}

void prune_points::leave(size_t point, const arrival_at_point & one) {
    auto & arrived = points[point].arrived;
    arrived.erase(place_of(arrived, one));
}

void prune_points::end(size_t n_points) {
    n_ended.resize(std::max(n_ended.size(), n_points + 1));
    n_ended[n_points]++;
}

bool prune_points::is_beaten(const prune_settings & settings, size_t point,
                             const arrival_at_point & one) const {
    const auto    last     = n_ended.begin() + (std::ptrdiff_t) std::min(n_ended.size(), point + 1);
    const int32_t n_placed = std::accumulate(n_ended.begin(), last, 0); // they ended before this point
    const auto &  arrived  = points[point].arrived;
    return n_placed + (place_of(arrived, one) - arrived.begin()) >= settings.keep;
}
