/* Cases of a test program, which are registered by being there and run in the order of the file:
 *
 *     TEST(two_and_two_are_four) {
 *         assert_int_equal(2 + 2, 4);
 *     }
 *
 * The program's main is this folder's (main.c), unless it has one of its own that calls test_run.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* after the four headers that it relies on */

/* A parameter that a function is given and does not look at. */
#define UNUSED __attribute__((unused))

/* Under the address sanitizer, which looks for accesses, not for rare numbers, a quarter of so many
 * random rounds will do. */
#if defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif
#define TEST_ROUNDS(all) (TEST_SANITIZED ? ((all) + 3) / 4 : (all))

/* A case that takes what `given` points to, or what its fixture makes of it: `parameter`.  `names`:
 * for each of `count` times, with i_ from 0. */
#define TEST_TAKING(function, parameter, set_up, tear_down, count, names, given)                   \
    static void function(parameter);                                                               \
    static void call_##function(void **state) {                                                    \
        function(*state);                                                                          \
    }                                                                                              \
    __attribute__((constructor)) static void add_##function(void) {                                \
        for (size_t i_ = 0; i_ < (count); i_++)                                                    \
            test_add(names, call_##function, set_up, tear_down, given);                            \
    }                                                                                              \
    static void function(UNUSED parameter)

#define TEST(function) TEST_TAKING(function, void *unused_, NULL, NULL, 1, #function, NULL)

/* With a fixture of its own, either half of which may be NULL; what that makes is `fixture`. */
#define TEST_WITH(function, set_up, tear_down)                                                     \
    TEST_TAKING(function, void *fixture, set_up, tear_down, 1, #function, NULL)

/* A half of a fixture: an int function of the case's `state`, which it need not look at. */
#define TEST_STEP(function) static int function(UNUSED void **state)

/* With random inputs: `random` is the state of the program's sequence (test_random). */
#define TEST_RANDOM(function)                                                                      \
    TEST_TAKING(function, uint64_t *random, NULL, NULL, 1, #function, test_seeded(NULL))

/* So many times in one case; `turn` is 0, 1, ... */
#define TEST_TURNS(function, turns, turn)                                                          \
    static void function(int turn);                                                                \
    TEST_TAKING(all_##function, void *unused_, NULL, NULL, 1, #function, NULL) {                   \
        for (int turn_ = 0; turn_ < (turns); turn_++)                                              \
            function(turn_);                                                                       \
    }                                                                                              \
    static void function(UNUSED int turn)
#define TEST_RANDOM_TURNS(function, turns, turn)                                                   \
    static void function(uint64_t *random, int turn);                                              \
    TEST_TAKING(all_##function, uint64_t *random_, NULL, NULL, 1, #function, test_seeded(NULL)) {  \
        for (int turn_ = 0; turn_ < (turns); turn_++)                                              \
            function(random_, turn_);                                                              \
    }                                                                                              \
    static void function(uint64_t *random, UNUSED int turn)

/* Once for each of an array of structures with a `name`; `row` points to it. */
#define TEST_EACH(function, rows, row) TEST_EACH_WITH(function, rows, row, NULL, NULL)
#define TEST_EACH_WITH(function, rows, row, set_up, tear_down)                                     \
    TEST_TAKING(function, __typeof__(*(rows)) *row, set_up, tear_down,                             \
                sizeof(rows) / sizeof *(rows), (rows)[i_].name, (void *)(uintptr_t) & (rows)[i_])

/* The same for structures without a name: all cases have the function's. */
#define TEST_ROWS(function, rows, row)                                                             \
    TEST_TAKING(function, __typeof__(*(rows)) *row, NULL, NULL, sizeof(rows) / sizeof *(rows),     \
                #function, (void *)(uintptr_t) & (rows)[i_])

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
