// The machine's peaks with all threads, a line each: NAME VALUE, in 10^9 operations or bytes per second.
//
// Products are loops of the widest instructions on registers alone; a multiplication and an addition are two
// operations. Bytes are a plain read of 1 GB. Compiled by run.py with -march=native.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <immintrin.h>
#include <thread>
#include <vector>

#if defined(__AMX_INT8__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const int n_chains = 16; // independent sums, so that no instruction waits for the one before
static const int n_turns  = 4'000'000;
static const int n_rounds = 5;

static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of some rounds; work(i) is what thread i does.
template <typename work_t> static void report(const char * name, double each, const work_t & work) {
    const int n_threads = (int) std::max(1u, std::thread::hardware_concurrency());
    double    best      = 0;
    for (int round = 0; round < n_rounds; round++) {
        const double             start = seconds();
        std::vector<std::thread> threads;
        for (int i = 0; i < n_threads; i++) {
            threads.emplace_back(work, i, n_threads);
        }
        for (std::thread & one : threads) {
            one.join();
        }
        best = std::max(best, n_threads * each / (seconds() - start) / 1e9);
    }
    printf("%s %.1f\n", name, best);
    fflush(stdout);
}

template <typename value_t> static void keep(const value_t & value) {
    asm volatile("" : : "m"(value) : "memory");
}

#if defined(__AVX512F__)
using floats              = __m512;
static const int n_floats = 16;
static floats    zeros() {
    return _mm512_setzero_ps();
}
static floats add_product(floats a, floats b, floats c) {
    return _mm512_fmadd_ps(a, b, c);
}
#else
using floats              = __m256;
static const int n_floats = 8;
static floats    zeros() {
    return _mm256_setzero_ps();
}
static floats add_product(floats a, floats b, floats c) {
    return _mm256_fmadd_ps(a, b, c);
}
#endif

// n_turns times n_chains sums, each by one instruction.
template <typename vector_t, typename add_t> static void repeat(vector_t zero, const add_t & add) {
    vector_t sums[n_chains], a = zero, b = zero;
    for (vector_t & sum : sums) {
        sum = zero;
    }
    for (int turn = 0; turn < n_turns; turn++) {
        asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
        for (vector_t & sum : sums) {
            sum = add(sum, a, b);
        }
    }
    keep(sums);
}

static void multiply_floats(int, int) {
    repeat(zeros(), [](floats sum, floats a, floats b) { return add_product(a, b, sum); });
}

#if defined(__AVX512VNNI__)
static void multiply_bytes(int, int) {
    repeat(_mm512_setzero_si512(),
           [](__m512i sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); });
}
#elif defined(__AVXVNNI__)
static void multiply_bytes(int, int) {
    repeat(_mm256_setzero_si256(),
           [](__m256i sum, __m256i a, __m256i b) { return _mm256_dpbusd_avx_epi32(sum, a, b); });
}
#endif

#if defined(__AMX_INT8__) && defined(__linux__)
static void multiply_tiles(int, int) {
    struct alignas(64) {
        uint8_t  palette = 1, start = 0, reserved[14] = {};
        uint16_t widths[16]  = {};
        uint8_t  heights[16] = {};
    } config;
    for (int i = 0; i < 8; i++) {
        config.widths[i]  = 64;
        config.heights[i] = 16;
    }
    _tile_loadconfig(&config);
    for (int turn = 0; turn < n_turns / 64; turn++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 6);
        _tile_dpbssd(2, 7, 5);
        _tile_dpbssd(3, 7, 6);
    }
    _tile_release();
}

static bool tiles_are_allowed() {
    return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0;
}
#endif

int main() {
    report("f32", 2.0 * n_floats * n_chains * n_turns, multiply_floats);
#if defined(__AVX512VNNI__)
    report("int8", 2.0 * 64 * n_chains * n_turns, multiply_bytes);
#elif defined(__AVXVNNI__)
    report("int8", 2.0 * 32 * n_chains * n_turns, multiply_bytes);
#endif
#if defined(__AMX_INT8__) && defined(__linux__)
    if (tiles_are_allowed()) {
        report("int8, AMX", 2.0 * 16 * 16 * 64 * 4 * (n_turns / 64), multiply_tiles);
    }
#endif
    const size_t          n = (size_t) 1 << 27; // 1 GB
    std::vector<uint64_t> memory(n, 1);
    const int             n_threads = (int) std::max(1u, std::thread::hardware_concurrency());
    report("bytes", 8.0 * (double) n / n_threads, [&](int i, int of) {
        uint64_t sum[8] = {};
        for (size_t at = n / of * i; at + 8 <= n / of * (i + 1); at += 8) {
            for (int k = 0; k < 8; k++) {
                sum[k] += memory[at + k];
            }
        }
        keep(sum);
    });
}
