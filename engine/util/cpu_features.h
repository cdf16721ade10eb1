// The features of an x86 CPU that the compiler was told to use, and where CPUID reports them.
#pragma once

struct cpu_feature {
    const char * name; // as in Linux's /proc/cpuinfo
    bool         is_used;
    unsigned     leaf, subleaf;
    int          reg; // 0 to 3: eax, ebx, ecx, edx
    int          bit;
    unsigned     states; // of XCR0: registers that the system must save
};

extern const cpu_feature cpu_features[];
extern const int         n_cpu_features;
