/* The stand-in for cmocka: what must fail fails, what must pass passes, and the counts say so. */
#include "tests/gpu/cmocka/cmocka.h"

static int calls[3]; /* of set-ups, tests and teardowns */

static int set_up(void **state) {
    calls[0]++;
    *state = &calls[0];
    return 0;
}

static int tear_down(void **state) {
    calls[2]++;
    return *state == &calls[0] ? 0 : -1;
}

static int refuse(void **state) {
    (void)state;
    return -1;
}

static int fail_inside(void **state) {
    (void)state;
    assert_true(false);
    return 0;
}

static void has_state(void **state) {
    calls[1]++;
    assert_ptr_equal(*state, &calls[0]);
}

static void everything_holds(void **state) {
    const char text[] = "text";
    (void)state;
    assert_true(2 > 1);
    assert_false(1 > 2);
    assert_null(NULL);
    assert_non_null(text);
    assert_int_equal(-5, -5);
    assert_int_not_equal(-5, 5);
    assert_in_range(3, 3, 3);
    assert_ptr_not_equal(text, text + 1);
    assert_string_equal(text, "text");
    assert_string_not_equal(text, "texts");
    assert_memory_equal(text, "text", sizeof text);
    assert_memory_not_equal(text, "test", sizeof text);
    assert_float_equal(1.0f, 1.05f, 0.1f);
    assert_float_equal(1e30f, 1e30f * (1 + FLT_EPSILON / 2), 0);
    assert_float_equal(INFINITY, INFINITY, 0);
    assert_float_not_equal(1.0f, 1.2f, 0.1f);
}

static void skips(void **state) {
    (void)state;
    print_message("skipped: that cases can be skipped is what is tried\n");
    skip();
}

#define MUST_FAIL(name, assertion)                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        assertion;                                                                                 \
    }
MUST_FAIL(truth, assert_true(1 > 2))
MUST_FAIL(falsehood, assert_false(2 > 1))
MUST_FAIL(null, assert_null("text"))
MUST_FAIL(non_null, assert_non_null(NULL))
MUST_FAIL(integers, assert_int_equal(1, 2))
MUST_FAIL(large_integers, assert_int_equal(1LL << 40, 0))
MUST_FAIL(same_integers, assert_int_not_equal(7, 7))
MUST_FAIL(below_range, assert_in_range(-1, 0, 5))
MUST_FAIL(above_range, assert_in_range(6, 0, 5))
MUST_FAIL(strings, assert_string_equal("a", "b"))
MUST_FAIL(no_string, assert_string_equal(NULL, "b"))
MUST_FAIL(same_strings, assert_string_not_equal("a", "a"))
MUST_FAIL(memory, assert_memory_equal("abc", "abd", 3))
MUST_FAIL(same_memory, assert_memory_not_equal("abc", "abd", 2))
MUST_FAIL(floats, assert_float_equal(1, 1.2, 0.1))
MUST_FAIL(not_a_number, assert_float_equal(NAN, 1, 0.1))
MUST_FAIL(same_floats, assert_float_not_equal(1, 1.01, 0.1))
MUST_FAIL(message, fail_msg("%s", "as it should"))
MUST_FAIL(nothing, fail())

static const struct CMUnitTest failing[] = {
    cmocka_unit_test(truth),
    cmocka_unit_test(falsehood),
    cmocka_unit_test(null),
    cmocka_unit_test(non_null),
    cmocka_unit_test(integers),
    cmocka_unit_test(large_integers),
    cmocka_unit_test(same_integers),
    cmocka_unit_test(below_range),
    cmocka_unit_test(above_range),
    cmocka_unit_test(strings),
    cmocka_unit_test(no_string),
    cmocka_unit_test(same_strings),
    cmocka_unit_test(memory),
    cmocka_unit_test(same_memory),
    cmocka_unit_test(floats),
    cmocka_unit_test(not_a_number),
    cmocka_unit_test(same_floats),
    cmocka_unit_test(message),
    cmocka_unit_test(nothing),
    cmocka_unit_test_setup(everything_holds, refuse),
    cmocka_unit_test_setup(everything_holds, fail_inside),
    cmocka_unit_test_teardown(everything_holds, refuse),
};

static const struct CMUnitTest passing[] = {
    cmocka_unit_test(everything_holds),
    cmocka_unit_test(skips),
    cmocka_unit_test_setup_teardown(has_state, set_up, tear_down),
    cmocka_unit_test_prestate(has_state, &calls[0]),
};

static const struct CMUnitTest with_group_state[] = {cmocka_unit_test(has_state)};

static int expect(const char *what, int actual, int expected) {
    if (actual == expected)
        return 0;
    fprintf(stderr, "%s: %d instead of %d\n", what, actual, expected);
    return 1;
}

int main(void) {
    int failing_count = (int)(sizeof failing / sizeof *failing), wrong = 0;
    wrong += expect("tests that must fail",
                    cmocka_run_group_tests_name("must fail", failing, NULL, NULL), failing_count);
    wrong += expect("tests that must pass", cmocka_run_group_tests(passing, NULL, NULL), 0);
    wrong += expect("a test with the group's state",
                    cmocka_run_group_tests(with_group_state, set_up, tear_down), 0);
    wrong += expect("a group whose set-up fails",
                    cmocka_run_group_tests(with_group_state, refuse, NULL), 1);
    wrong += expect("a group whose teardown fails",
                    cmocka_run_group_tests(with_group_state, set_up, refuse), 1);
    cmocka_set_test_filter("*_integers");
    wrong += expect("tests that a filter lets pass",
                    cmocka_run_group_tests_name("filtered", failing, NULL, NULL), 2);
    wrong += expect("set-ups called", calls[0], 3);
    wrong += expect("tests called", calls[1], 4);
    wrong += expect("teardowns called", calls[2], 2);
    return wrong != 0;
}
