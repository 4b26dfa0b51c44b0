/* Cases of a test program, which are registered by being there and run in the order of the file:
 *
 *     TEST(two_and_two_are_four) {
 *         assert_int_equal(2 + 2, 4);
 *     }
 *
 * The program's main is this folder's (main.c), unless it has one of its own that calls test_run.
 * Inside of a case `state` is cmocka's, the same pointer that fixtures get. */
#ifndef MOEPERF_TESTS_CASES_H
#define MOEPERF_TESTS_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* after the four headers that it relies on */

#define TEST_CALLED_(function)                                                                     \
    static void function(void **state);                                                            \
    __attribute__((constructor)) static void add_##function(void)
#define TEST_BODY_(function) static void function(__attribute__((unused)) void **state)

#define TEST(function)                                                                             \
    TEST_CALLED_(function) {                                                                       \
        test_add(#function, function, NULL, NULL, NULL);                                           \
    }                                                                                              \
    static void function(__attribute__((unused)) void **unused_)

/* With a fixture of its own, either half of which may be NULL. */
#define TEST_WITH(function, set_up, tear_down)                                                     \
    TEST_CALLED_(function) {                                                                       \
        test_add(#function, function, set_up, tear_down, NULL);                                    \
    }                                                                                              \
    TEST_BODY_(function)

/* Once for each of an array of structures with a `name`; *state points to one. */
#define TEST_EACH(function, cases) TEST_EACH_WITH(function, cases, NULL, NULL)
#define TEST_EACH_WITH(function, cases, set_up, tear_down)                                         \
    TEST_CALLED_(function) {                                                                       \
        for (size_t i_ = 0; i_ < sizeof(cases) / sizeof *(cases); i_++)                            \
            test_add((cases)[i_].name, function, set_up, tear_down,                                \
                     (void *)(uintptr_t) & (cases)[i_]);                                           \
    }                                                                                              \
    TEST_BODY_(function)

/* With random inputs: *state points to the state of the program's sequence (test_random). */
#define TEST_RANDOM(function)                                                                      \
    TEST_CALLED_(function) {                                                                       \
        test_add(#function, function, NULL, NULL, test_seeded(NULL));                              \
    }                                                                                              \
    TEST_BODY_(function)

/* TEST_GROUP(set_up, tear_down): before the first and after the last case; either may be NULL.
 * TEST_SEED(variable): a uint64_t that begins as a fresh seed, which is printed.  Once a file, with
 * a semicolon, for which a declaration is left open. */
#define TEST_GROUP(set_up, tear_down)                                                              \
    __attribute__((constructor)) static void set_group(void) {                                     \
        test_group(set_up, tear_down);                                                             \
    }                                                                                              \
    struct CMUnitTest
#define TEST_SEED(variable)                                                                        \
    __attribute__((constructor)) static void set_seed(void) {                                      \
        test_seeded(&(variable));                                                                  \
    }                                                                                              \
    struct CMUnitTest

void test_add(const char *name, CMUnitTestFunction function, CMFixtureFunction set_up,
              CMFixtureFunction tear_down, void *state);
void test_group(CMFixtureFunction set_up, CMFixtureFunction tear_down);
/* What test_run gives a seed, NULL for a state of the program's own; returned. */
uint64_t *test_seeded(uint64_t *state);

/* Runs all cases; returns how many failed. */
int test_run(void);

#endif
