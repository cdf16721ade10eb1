// Ends the program with one line if this CPU lacks instructions that the program uses; otherwise it would end by an
// illegal instruction.
// It runs before everything else, static constructors included, and is compiled for the first x86-64 CPUs: see
// CMakeLists.txt, which omits it where it cannot work (not Linux, not x86-64).
#include "util/cpu_features.h"

#include <cpuid.h>
#include <cstring>
#include <unistd.h>

static unsigned saved_states() { // XCR0; 0 if the CPU has none
    unsigned r[4] = {0, 0, 0, 0};
    __get_cpuid(1, &r[0], &r[1], &r[2], &r[3]);
    if (!(r[2] & (1u << 27))) { // OSXSAVE
        return 0;
    }
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(const cpu_feature & feature, unsigned states) {
    unsigned r[4] = {0, 0, 0, 0};
    if (!__get_cpuid_count(feature.leaf, feature.subleaf, &r[0], &r[1], &r[2], &r[3])) {
        return false;
    }
    return (r[feature.reg] & (1u << feature.bit)) && (states & feature.states) == feature.states;
}

static void say(const char * text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        _exit(1);
    }
}

static void check_cpu() {
    const unsigned states    = saved_states();
    int            n_missing = 0;
    for (int i = 0; i < n_cpu_features; i++) {
        if (cpu_features[i].is_used && !has(cpu_features[i], states)) {
            say(n_missing++ == 0 ? "llama-batched: this CPU lacks " : ", ");
            say(cpu_features[i].name);
        }
    }
    if (n_missing > 0) {
        say(": this program was compiled for another CPU; run ./build.sh here, or ./build.sh --portable "
            "for a program that runs on all CPUs\n");
        _exit(1);
    }
}

__attribute__((used, section(".preinit_array"))) static void (*const check_first)() = check_cpu;
