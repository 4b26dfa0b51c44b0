/* Stand-in for the cmocka library on machines that lack it: the part of its interface that the
 * tests of this project use, with the same names and meanings.  A machine rented for its GPU often
 * has a toolkit and CMake and nothing more.
 *
 * Differences: NaN equals nothing; a crash ends the program (with a signal, so that it counts as
 * failed) instead of the test; there are no mocks and no checks of allocations. */
#ifndef MOEPERF_TESTS_GPU_CMOCKA_CMOCKA_H
#define MOEPERF_TESTS_GPU_CMOCKA_CMOCKA_H

#include <float.h>
#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uintmax_t LargestIntegralType;
typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state); /* not 0: failed */

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func;
    CMFixtureFunction teardown_func;
    void *initial_state; /* the test's *state, unless NULL: then what the group's setup left */
};

#define cmocka_unit_test(test)                                                                     \
    { #test, test, NULL, NULL, NULL }
#define cmocka_unit_test_setup(test, setup)                                                        \
    { #test, test, setup, NULL, NULL }
#define cmocka_unit_test_teardown(test, teardown)                                                  \
    { #test, test, NULL, teardown, NULL }
#define cmocka_unit_test_setup_teardown(test, setup, teardown)                                     \
    { #test, test, setup, teardown, NULL }
#define cmocka_unit_test_prestate(test, state)                                                     \
    { #test, test, NULL, NULL, state }
#define cmocka_unit_test_prestate_setup_teardown(test, setup, teardown, state)                     \
    { #test, test, setup, teardown, state }

#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    _cmocka_run_group_tests(#tests, tests, sizeof tests / sizeof *tests, setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    _cmocka_run_group_tests(name, tests, sizeof tests / sizeof *tests, setup, teardown)

/* Where a failing assertion of the running test goes to.  Weak: one for all files of a program. */
enum cmocka_end { CMOCKA_RUNNING, CMOCKA_SKIPPED, CMOCKA_FAILED };
__attribute__((weak)) struct {
    jmp_buf out;
    bool running;
    const char *filter; /* NULL: all tests */
} cmocka_test;

/* Only tests whose name matches this pattern (as of file names) are run from now on. */
static inline void cmocka_set_test_filter(const char *pattern) {
    cmocka_test.filter = pattern;
}

static inline void print_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline void print_message(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
}

static inline void print_error(const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

__attribute__((noreturn)) static inline void cmocka_leave(enum cmocka_end end) {
    if (!cmocka_test.running) {
        print_error("[  ERROR   ] an assertion outside a test\n");
        abort();
    }
    longjmp(cmocka_test.out, end);
}

__attribute__((noreturn)) static inline void _fail(const char *file, int line) {
    print_error("[   LINE   ] --- %s:%d: error: Failure!\n", file, line);
    cmocka_leave(CMOCKA_FAILED);
}

__attribute__((noreturn)) static inline void _skip(const char *file, int line) {
    (void)file;
    (void)line;
    cmocka_leave(CMOCKA_SKIPPED);
}

#define fail() _fail(__FILE__, __LINE__)
#define skip() _skip(__FILE__, __LINE__)
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        print_error("ERROR: " __VA_ARGS__);                                                        \
        print_error("\n");                                                                         \
        fail();                                                                                    \
    } while (0)

/* ---- Assertions ---- */

static inline void cmocka_assert_true(bool holds, const char *text, const char *file, int line) {
    if (holds)
        return;
    print_error("%s\n", text);
    _fail(file, line);
}

static inline void cmocka_assert_integers(bool equal, uintmax_t a, uintmax_t b, const char *file,
                                          int line) {
    if ((a == b) == equal)
        return;
    print_error("%#jx %s %#jx\n", a, equal ? "!=" : "==", b);
    _fail(file, line);
}

static inline void cmocka_assert_range(uintmax_t value, uintmax_t least, uintmax_t most,
                                       const char *file, int line) {
    if (value >= least && value <= most)
        return;
    print_error("%ju is not within the range %ju-%ju\n", value, least, most);
    _fail(file, line);
}

static inline void cmocka_assert_strings(bool equal, const char *a, const char *b, const char *file,
                                         int line) {
    if ((a && b && !strcmp(a, b)) == equal && a && b)
        return;
    print_error("\"%s\" %s \"%s\"\n", a ? a : "(null)", equal ? "!=" : "==", b ? b : "(null)");
    _fail(file, line);
}

static inline void cmocka_assert_memories(bool equal, const void *a, const void *b, size_t size,
                                          const char *file, int line) {
    const unsigned char *bytes[] = {a, b};
    size_t differences = 0;
    for (size_t i = 0; i < size; i++) {
        if (bytes[0][i] == bytes[1][i])
            continue;
        if (equal && differences < 16)
            print_error("difference at offset %zu 0x%02x 0x%02x\n", i, bytes[0][i], bytes[1][i]);
        differences++;
    }
    if ((differences == 0) == equal)
        return;
    if (equal)
        print_error("%zu bytes of %p and %p differ\n", differences, a, b);
    else
        print_error("%zu bytes of %p and %p are the same\n", size, a, b);
    _fail(file, line);
}

/* Within epsilon, or within the rounding of the larger one. */
static inline void cmocka_assert_floats(bool equal, float a, float b, float epsilon,
                                        const char *file, int line) {
    float difference = fabsf(a - b), larger = fmaxf(fabsf(a), fabsf(b));
    bool close = a == b || difference <= epsilon || difference <= larger * FLT_EPSILON;
    if (close == equal)
        return;
    print_error("%.9g %s %.9g\n", (double)a, equal ? "!=" : "==", (double)b);
    _fail(file, line);
}

#define assert_true(c) cmocka_assert_true(!!(c), #c, __FILE__, __LINE__)
#define assert_false(c) cmocka_assert_true(!(c), "!(" #c ")", __FILE__, __LINE__)
#define assert_non_null(c) cmocka_assert_true((c) != NULL, #c " != NULL", __FILE__, __LINE__)
#define assert_null(c) cmocka_assert_true((c) == NULL, #c " == NULL", __FILE__, __LINE__)
#define assert_int_equal(a, b)                                                                     \
    cmocka_assert_integers(true, (uintmax_t)(a), (uintmax_t)(b), __FILE__, __LINE__)
#define assert_int_not_equal(a, b)                                                                 \
    cmocka_assert_integers(false, (uintmax_t)(a), (uintmax_t)(b), __FILE__, __LINE__)
#define assert_ptr_equal(a, b)                                                                     \
    cmocka_assert_integers(true, (uintptr_t)(a), (uintptr_t)(b), __FILE__, __LINE__)
#define assert_ptr_not_equal(a, b)                                                                 \
    cmocka_assert_integers(false, (uintptr_t)(a), (uintptr_t)(b), __FILE__, __LINE__)
#define assert_in_range(value, least, most)                                                        \
    cmocka_assert_range((uintmax_t)(value), (uintmax_t)(least), (uintmax_t)(most), __FILE__,       \
                        __LINE__)
#define assert_string_equal(a, b) cmocka_assert_strings(true, a, b, __FILE__, __LINE__)
#define assert_string_not_equal(a, b) cmocka_assert_strings(false, a, b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, size) cmocka_assert_memories(true, a, b, size, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, size)                                                        \
    cmocka_assert_memories(false, a, b, size, __FILE__, __LINE__)
#define assert_float_equal(a, b, epsilon)                                                          \
    cmocka_assert_floats(true, (float)(a), (float)(b), (float)(epsilon), __FILE__, __LINE__)
#define assert_float_not_equal(a, b, epsilon)                                                      \
    cmocka_assert_floats(false, (float)(a), (float)(b), (float)(epsilon), __FILE__, __LINE__)

/* ---- Running ---- */

/* One of the three functions of a test; assertions may fail in any of them. */
static inline enum cmocka_end cmocka_call(CMUnitTestFunction test, CMFixtureFunction fixture,
                                          void **state) {
    cmocka_test.running = true;
    int end = setjmp(cmocka_test.out);
    if (end == CMOCKA_RUNNING) {
        if (test)
            test(state);
        else if (fixture && fixture(state))
            longjmp(cmocka_test.out, CMOCKA_FAILED);
    }
    cmocka_test.running = false;
    return (enum cmocka_end)end;
}

static inline enum cmocka_end cmocka_run_test(const struct CMUnitTest *test, void *group_state) {
    void *state = test->initial_state ? test->initial_state : group_state;
    print_message("[ RUN      ] %s\n", test->name);
    enum cmocka_end end = cmocka_call(NULL, test->setup_func, &state);
    if (end == CMOCKA_RUNNING) {
        end = cmocka_call(test->test_func, NULL, &state);
        if (cmocka_call(NULL, test->teardown_func, &state) == CMOCKA_FAILED)
            end = CMOCKA_FAILED;
    }
    if (end == CMOCKA_FAILED)
        print_error("[  FAILED  ] %s\n", test->name);
    else
        print_message("[  %s ] %s\n", end == CMOCKA_SKIPPED ? "SKIPPED" : "     OK", test->name);
    return end;
}

/* How many failed: of the group's own setup and teardown, too. */
static inline int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests,
                                          size_t count, CMFixtureFunction setup,
                                          CMFixtureFunction teardown) {
    int ended[CMOCKA_FAILED + 1] = {0};
    void *state = NULL;
    print_message("[==========] %s: Running %zu test(s).\n", name, count);
    if (cmocka_call(NULL, setup, &state) != CMOCKA_RUNNING) {
        print_error("[  FAILED  ] GROUP SETUP\n");
        return count > 0 ? (int)count : 1;
    }
    for (size_t i = 0; i < count; i++)
        if (!cmocka_test.filter || fnmatch(cmocka_test.filter, tests[i].name, 0) == 0)
            ended[cmocka_run_test(&tests[i], state)]++;
    if (cmocka_call(NULL, teardown, &state) != CMOCKA_RUNNING) {
        print_error("[  FAILED  ] GROUP TEARDOWN\n");
        ended[CMOCKA_FAILED]++;
    }
    print_message("[==========] %s: %zu test(s) run.\n", name, count);
    print_message("[  PASSED  ] %d test(s).\n", ended[CMOCKA_RUNNING]);
    if (ended[CMOCKA_SKIPPED])
        print_message("[  SKIPPED ] %d test(s).\n", ended[CMOCKA_SKIPPED]);
    if (ended[CMOCKA_FAILED])
        print_error("[  FAILED  ] %d test(s).\n", ended[CMOCKA_FAILED]);
    return ended[CMOCKA_FAILED];
}

#endif
