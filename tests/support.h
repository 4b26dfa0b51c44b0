/* What tests share: cases, reasons for skipped cases, random inputs with a
 * printed seed, comparison of floating-point numbers. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/cases.h"

/* skip("no %s", what): this case can't run here, and why; ci/test knows which may be skipped.  The
 * line before cmocka's own is where it finds the reason. */
#undef skip
#define skip(...)                                                                                  \
    (print_message("skipped: " __VA_ARGS__), print_message("\n"), _skip(__FILE__, __LINE__))

/* Public data lies beside the sources and is not part of them. */
static inline void need_file(const char *path) {
    if (access(path, R_OK))
        skip("there is no %s", path);
}

/* Comparisons of cmocka's that would cut a floating-point number down to a whole one, or let NaN
 * pass, do not compile. */
struct test_not_whole {
    char unused;
};
#undef cast_to_largest_integral_type
/* clang-format off */
#define cast_to_largest_integral_type(value)                                                       \
    ((LargestIntegralType)_Generic((value), float: (struct test_not_whole){0},                     \
                                   double: (struct test_not_whole){0}, default: (value)))
/* clang-format on */
#undef assert_float_equal
#undef assert_float_not_equal

/* What is AUTO(name) is ended with its block, as TEST_END says of the name; the call takes `it`. */
#define AUTO(name) __attribute__((cleanup(auto_end_##name)))
#define TEST_END(name, type, call)                                                                 \
    static inline void auto_end_##name(type *it) {                                                 \
        call;                                                                                      \
    }

TEST_END(text, char *, free(*it))

/* Whatever type the pointer has. */
TEST_END(allocated, void, {
    void *memory;
    memcpy(&memory, it, sizeof memory);
    free(memory);
})

/* What a test works out on arrays of its own, element by element: without optimisation, and with
 * each access looked at, it would take most of a test's time. */
#ifdef __clang__
#define UNCHECKED
#else
#define UNCHECKED __attribute__((no_sanitize("address", "undefined"), optimize("O2")))
#endif

/* A text that is good until the next one is made. */
__attribute__((format(printf, 1, 2))) static inline const char *formatted(const char *format, ...) {
    static char text[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text;
}

/* All of the texts given are in it. */
#define assert_contains(text, ...)                                                                 \
    test_assert_contains(text, (const char *const[]){__VA_ARGS__, NULL}, __FILE__, __LINE__)
static inline void test_assert_contains(const char *text, const char *const wanted[],
                                        const char *file, int line) {
    for (; *wanted; wanted++)
        if (!text || !strstr(text, *wanted)) {
            print_error("no \"%s\" in\n%s\n", *wanted, text ? text : "nothing");
            _fail(file, line);
        }
}

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

/* Brings `count` items of so many bytes, at most 64, into any order. */
static inline void test_shuffle(uint64_t *state, void *items, size_t count, size_t bytes) {
    char kept[64], *item = items;
    for (size_t i = count; i > 1; i--) {
        char *last = item + (i - 1) * bytes, *other = item + test_random(state) % i * bytes;
        memcpy(kept, last, bytes);
        memmove(last, other, bytes);
        memcpy(other, kept, bytes);
    }
}

/* For qsort: ascending. */
static inline int test_compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* |actual - expected| <= relative * |expected|, so an expected 0 is met exactly or not at all. */
#define assert_close(actual, expected, relative)                                                   \
    test_assert_close((actual), (expected), (relative), true, #actual, __FILE__, __LINE__)

/* |actual - expected| <= absolute, for what should be 0 or a difference of larger numbers. */
#define assert_within(actual, expected, absolute)                                                  \
    test_assert_close((actual), (expected), (absolute), false, #actual, __FILE__, __LINE__)

/* Pairs of a number and what it must be, exactly: assert_numbers(plan->layer, 0, plan->copies, 3).
 * Whole ones up to 2^53; a larger one fails. */
#define assert_numbers(...)                                                                        \
    test_assert_numbers((const double[]){__VA_ARGS__},                                             \
                        sizeof((const double[]){__VA_ARGS__}) / sizeof(double), #__VA_ARGS__,      \
                        __FILE__, __LINE__)
static inline void test_assert_numbers(const double number[], size_t count, const char *text,
                                       const char *file, int line) {
    for (size_t i = 0; i < count; i += 2) {
        if (i + 1 < count && number[i] == number[i + 1] && fabs(number[i]) <= 0x1p53)
            continue;
        print_error("pair %zu of (%s): %.17g, expected %.17g\n", i / 2 + 1, text, number[i],
                    i + 1 < count ? number[i + 1] : NAN);
        _fail(file, line);
    }
}

/* NaN is close to nothing, not even to NaN; an infinity to itself. */
static inline void test_assert_close(double actual, double expected, double tolerance,
                                     bool relative, const char *text, const char *file, int line) {
    double distance = relative ? tolerance * fabs(expected) : tolerance;
    if (actual == expected || fabs(actual - expected) <= distance)
        return;
    print_error("%s is %.17g, expected %.17g within %.3g%s\n", text, actual, expected, tolerance,
                relative ? " of it" : "");
    _fail(file, line);
}

/* The same of pairs: assert_all_close(1e-12, waits.own, 4.5, waits.waiting, 3). */
#define assert_all_close(relative, ...)                                                            \
    test_assert_all_close((relative), (const double[]){__VA_ARGS__},                               \
                          sizeof((const double[]){__VA_ARGS__}) / sizeof(double), #__VA_ARGS__,    \
                          __FILE__, __LINE__)
static inline void test_assert_all_close(double relative, const double number[], size_t count,
                                         const char *text, const char *file, int line) {
    for (size_t i = 0; i < count; i += 2)
        test_assert_close(number[i], i + 1 < count ? number[i + 1] : (double)NAN, relative, true,
                          text, file, line);
}
