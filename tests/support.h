/* What tests share: cmocka with what it needs, random inputs with a printed seed, comparison of
 * doubles (cmocka 1.1.5 compares float only). */
#ifndef MOEPERF_TESTS_SUPPORT_H
#define MOEPERF_TESTS_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h> /* after the four headers that it relies on */

/* A fresh seed, printed; MOEPERF_SEED in the environment repeats a run. */
static inline uint64_t test_seed(void) {
    const char *given = getenv("MOEPERF_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = given ? strtoull(given, NULL, 0)
                          : (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    print_message("seed: MOEPERF_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* The next of a sequence of uniform 64-bit numbers (SplitMix64; any state is a good one). */
static inline uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in least .. most, both included. */
static inline int test_random_int(uint64_t *state, int least, int most) {
    uint64_t values = (uint64_t)((int64_t)most - least) + 1;
    return (int)(least + (int64_t)(test_random(state) % values));
}

/* Uniform in 0 <= x < 1. */
static inline double test_random_double(uint64_t *state) {
    return (double)(test_random(state) >> 11) * 0x1p-53;
}

/* |actual - expected| <= tolerance * max(1, |expected|); NaN is close to NaN only. */
#define assert_close(actual, expected, tolerance)                                                  \
    test_assert_close((actual), (expected), (tolerance), #actual, __FILE__, __LINE__)

static inline void test_assert_close(double actual, double expected, double tolerance,
                                     const char *text, const char *file, int line) {
    if (actual == expected || (isnan(actual) && isnan(expected))) /* infinities too */
        return;
    if (fabs(actual - expected) <= tolerance * fmax(1, fabs(expected)))
        return;
    print_error("%s is %.17g, expected %.17g within %.3g\n", text, actual, expected, tolerance);
    _fail(file, line);
}

#endif
