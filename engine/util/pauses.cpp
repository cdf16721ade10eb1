#include "util/pauses.h"

#include <utility>

static thread_local std::function<void()> of_thread;

void pause_point() {
    if (of_thread) {
        of_thread();
    }
}

pauses::pauses(std::function<void()> pause) : before(std::exchange(of_thread, std::move(pause))) {}

pauses::~pauses() {
    of_thread = std::move(before);
}
