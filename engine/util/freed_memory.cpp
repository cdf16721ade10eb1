#include "util/freed_memory.h"

#include <cstddef>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
static const size_t n_much =
    64u << 20; // bytes: far more than usual requests free, and the next request needs those again

void return_freed_memory() {
    if (mallinfo2().fordblks > n_much) {
        malloc_trim(0);
    }
}
#else
void return_freed_memory() {}
#endif
