/* The store's parts by themselves: clock fits, the table by key. */
#include "results/store/clock_fit.h"
#include "results/store/keyed.h"
#include "tests/support.h"

/* ---- clocks ---- */

/* Any clock that runs at its own speed from its own start is undone by two of its samples. */
TEST_RANDOM(two_samples_undo_any_steady_clock) {
    for (int round = 0; round < 1000; round++) {
        int64_t start = (int64_t)(test_random(random) >> 8), length = 60000000000;
        int64_t offset = (int64_t)(test_random(random) >> 8) - ((int64_t)1 << 55);
        double drift = (test_random_double(random) - 0.5) * 1e-3;
        struct clock_sample samples[2];
        for (int i = 0; i < 2; i++) {
            int64_t own_offset = offset + (int64_t)llround(drift * (double)(i * length));
            samples[i] = (struct clock_sample){start + i * length + own_offset, own_offset, 100};
        }
        struct clock_fit fit = clock_fit_samples(samples, 2);
        int64_t after = (int64_t)(test_random_double(random) * (double)length);
        int64_t own = start + after + offset + (int64_t)llround(drift * (double)after);
        assert_true(llabs(clock_fit_apply(&fit, own) - (start + after)) <= 8);
    }
}

TEST(fewer_or_equal_samples_are_a_constant) {
    struct clock_sample samples[] = {{1000, 500, 1}, {1000, 502, 1}};
    struct clock_fit none = clock_fit_samples(samples, 0);
    struct clock_fit one = clock_fit_samples(samples, 1);
    struct clock_fit same_time = clock_fit_samples(samples, 2);
    assert_int_equal(clock_fit_apply(&none, 1234), 1234);
    assert_int_equal(clock_fit_apply(&one, 1234), 734);
    assert_int_equal(clock_fit_apply(&same_time, 1234), 733);
}

/* Doubles have 53 bits, such offsets more. */
TEST(large_offsets_are_exact) {
    const int64_t offset = ((int64_t)1 << 60) + 1;
    struct clock_sample samples[] = {{offset + 1000, offset, 1}, {offset + 2000, offset + 2, 1}};
    struct clock_fit one = clock_fit_samples(samples, 1), both = clock_fit_samples(samples, 2);
    assert_int_equal(clock_fit_apply(&one, offset + 77), 77);
    assert_int_equal(clock_fit_apply(&both, offset + 1536), 1535); /* 1 about the middle */
}

TEST(samples_that_make_no_sense_change_nothing) {
    struct clock_sample samples[] = {{0, INT64_MIN, 1}, {1, INT64_MAX, 1}};
    struct clock_fit fit = clock_fit_samples(samples, 2);
    assert_int_equal(clock_fit_apply(&fit, INT64_MAX - 5), INT64_MAX - 5);
}

/* ---- values by key ---- */

TEST_RANDOM(values_are_found_again_and_in_order) {
    struct keyed keyed;
    enum { KEYS = 5000 };
    static int64_t expected[50][20][5];
    memset(expected, 0, sizeof expected);
    keyed_init(&keyed, sizeof(int64_t));
    assert_null(keyed_find(&keyed, keyed_key(1, -1, 0)));
    for (int i = 0; i < KEYS; i++) {
        int iteration = test_random_int(random, 0, 49);
        int layer = test_random_int(random, -1, 18), phase = test_random_int(random, 0, 4);
        int64_t *value = keyed_add(&keyed, keyed_key(iteration * 1000003, layer, phase));
        assert_non_null(value);
        *value += i + 1;
        expected[iteration][layer + 1][phase] += i + 1;
    }
    assert_int_equal(keyed_sort(&keyed, NULL), MP_OK);
    size_t position = 0;
    for (int iteration = 0; iteration < 50; iteration++) {
        for (int layer = -1; layer < 19; layer++) {
            for (int phase = 0; phase < 5; phase++) {
                uint64_t key = keyed_key(iteration * 1000003, layer, phase), nth;
                int64_t *value = keyed_find(&keyed, key);
                if (expected[iteration][layer + 1][phase] == 0) {
                    assert_null(value);
                    continue;
                }
                assert_int_equal(*value, expected[iteration][layer + 1][phase]);
                assert_ptr_equal(keyed_nth(&keyed, position, &nth), value);
                assert_int_equal(nth, key);
                assert_int_equal(keyed_iteration(key), iteration * 1000003);
                assert_int_equal(keyed_layer(key), layer);
                assert_int_equal(keyed_phase(key), phase);
                position++;
            }
        }
    }
    assert_int_equal(position, keyed.count);
    keyed_free(&keyed);
}
