// Where long work of a thread lets other work go first. What does the work knows nothing of who waits.
#pragma once

#include <functional>

// Calls the function that the thread has for it, if any. It may throw.
void pause_point();

// Gives the thread that function as long as it lives; an empty one: it does not pause, as where it holds a lock.
class pauses {
  public:
    explicit pauses(std::function<void()> pause);
    ~pauses();
    pauses(const pauses &)             = delete;
    pauses & operator=(const pauses &) = delete;

  private:
    std::function<void()> before;
};
