/* Change points: series with known steps and flat ones, against a plain search over all splits. */
#include "results/compare/history.h"

#include "tests/errors.h"

/* Four standard deviations of how many of the series would be found were it 19 of 20. */
enum { POINTS = 20, SERIES = 400, SAMPLING = 17 };

static double normal(uint64_t *random) {
    double u = 1 - test_random_double(random);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * test_random_double(random));
}

static int find(const double value[], int count, struct mp_change **change) {
    int changes = 0;
    assert_works(mp_changes_find(value, count, change, &changes, &error));
    return changes;
}

/* Noise of 2 %; from `step` on 5 % more.  How many of the series have a change, and how many have
 * exactly one within a point of the right one. */
static void count_found(uint64_t *random, bool has_step, int *any, int *right) {
    *any = *right = 0;
    for (int s = 0; s < SERIES; s++) {
        double value[POINTS];
        int step = test_random_int(random, 6, POINTS - 6);
        for (int i = 0; i < POINTS; i++)
            value[i] = (has_step && i >= step ? 1.05 : 1) * (1 + .02 * normal(random));
        AUTO(allocated) struct mp_change *change = NULL;
        int changes = find(value, POINTS, &change);
        *any += changes > 0;
        for (int i = 0; i < changes; i++)
            if (abs(change[i].index - step) <= 2 &&
                fabs(change[i].after / change[i].before - 1.05) < .03) {
                ++*right;
                break;
            }
    }
}

TEST_RANDOM(steps_are_found_and_flat_series_are_flat) {
    int any, right;
    count_found(random, true, &any, &right);
    print_message("5 %% steps: %d of %d found, %d where they are\n", any, SERIES, right);
    assert_true(any >= SERIES * 19 / 20 - SAMPLING);
    assert_true(right >= SERIES * 8 / 10);
    count_found(random, false, &any, &right);
    print_message("flat: %d of %d\n", any, SERIES);
    assert_true(any <= SERIES / 20 + SAMPLING);
}

/* Worked out by hand: of 0 0 0 0 4 4 4 4 the sides of the middle are 4 apart, and nothing inside:
 * 4 * 4 / 8 * 2 * 4 = 16; every other split is less. */
TEST(a_step_without_noise) {
    const double value[] = {0, 0, 0, 0, 4, 4, 4, 4};
    AUTO(allocated) struct mp_change *change = NULL;
    assert_int_equal(find(value, 8, &change),
                     0); /* 2 of C(8, 4) = 70 orders are as far: p = .029 */
    free(change);
    const double longer[] = {7, 7, 7, 7, 7, 7, 3, 3, 3, 3, 3, 3};
    assert_int_equal(find(longer, 12, &change), 1);
    assert_int_equal(change[0].index, 6);
    assert_true(fabs(change[0].before - 7) <= 0);
    assert_true(fabs(change[0].after - 3) <= 0);
    assert_true(change[0].p <= .01); /* 2 of 924 */
}

/* Energy distance of the sides, from all pairs. */
static double energy_of(const double value[], int count, int split) {
    double sum[2][2] = {{0}}; /* by sides of two values */
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            sum[i >= split][j >= split] += fabs(value[i] - value[j]);
    const double m = split, n = count - split;
    return m * n / (m + n) *
           (2 * sum[0][1] / (m * n) - sum[0][0] / (m * (m - 1)) - sum[1][1] / (n * (n - 1)));
}

TEST_RANDOM(a_single_change_is_the_farthest_split) {
    int singles = 0;
    for (int s = 0; s < SERIES; s++) {
        double value[POINTS];
        AUTO(allocated) struct mp_change *change = NULL;
        int best = MP_CHANGES_LEAST, step = test_random_int(random, 2, POINTS - 2);
        for (int i = 0; i < POINTS; i++)
            value[i] = (i >= step ? 2.5 : 0) + (i >= step ? 2 : .5) * normal(random);
        for (int i = MP_CHANGES_LEAST + 1; i <= POINTS - MP_CHANGES_LEAST; i++)
            best = energy_of(value, POINTS, i) > energy_of(value, POINTS, best) ? i : best;
        if (find(value, POINTS, &change) == 1) {
            singles++;
            assert_int_equal(change[0].index, best);
        }
    }
    assert_true(singles > SERIES / 8);
}

/* One that is there, in their order, from a level to another, as far as noise of half goes. */
static bool has_change(const struct mp_change change[], int changes, int index, double before,
                       double after) {
    bool found = false;
    for (int i = 0; i < changes; i++) {
        assert_true(i == 0 || change[i].index > change[i - 1].index);
        found = found || (change[i].index == index && fabs(change[i].before - before) <= .5 &&
                          fabs(change[i].after - after) <= .5);
    }
    return found;
}

/* Three levels up, and the same backwards: changes on either side of the first that is found. */
TEST_RANDOM(stairs) {
    double value[60], mirrored[60];
    struct mp_change *up, *down;
    for (int i = 0; i < 60; i++)
        mirrored[59 - i] = value[i] = (i < 15   ? 0
                                       : i < 25 ? 10
                                                : 12) +
                                      test_random_double(random) / 2;
    int ups = find(value, 60, &up), downs = find(mirrored, 60, &down);
    assert_true(has_change(up, ups, 15, 0, 10) && has_change(up, ups, 25, 10, 12));
    assert_true(has_change(down, downs, 35, 12, 10) && has_change(down, downs, 45, 10, 0));
    free(up);
    free(down);
}

/* Twice the values, or another level, is the same question; so is the series backwards. */
TEST_RANDOM(scale_and_level_do_not_matter) {
    for (int s = 0; s < 50; s++) {
        double value[POINTS], other[POINTS];
        struct mp_change *one, *two;
        for (int i = 0; i < POINTS; i++) {
            value[i] = test_random_int(random, 0, 1000) + (i >= 8 ? 700 : 0);
            other[i] = 4 * value[i] - 512;
        }
        int changes = find(value, POINTS, &one);
        assert_int_equal(find(other, POINTS, &two), changes);
        for (int i = 0; i < changes; i++) {
            assert_int_equal(one[i].index, two[i].index);
            assert_true(fabs(one[i].p - (two[i].p)) <= 0);
            assert_true(fabs(4 * one[i].after - 512 - (two[i].after)) <= 1e-9);
        }
        free(one);
        free(two);
    }
}

TEST(what_is_too_short_or_no_number) {
    double value[] = {1, 2, 1, NAN};
    AUTO(allocated) struct mp_change *change = NULL;
    int changes;
    for (int count = 0; count < 4; count++) {
        assert_int_equal(find(value, count, &change), 0);
        free(change);
    }
    assert_fails(mp_changes_find(value, 4, &change, &changes, &error), MP_EINVAL,
                 "value 3 of a series is no number");
    assert_fails(mp_changes_find(value, MP_CHANGES_VALUES + 1, &change, &changes, &error),
                 MP_ELIMIT, "");
    const double same[] = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5};
    assert_int_equal(find(same, 10, &change), 0);
}

/* Allocations until one has no room; -1: all have. */
static int allocations = -1;
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size) {
    return allocations >= 0 && allocations-- == 0 ? NULL : __real_calloc(count, size);
}

TEST(each_lack_of_memory_is_an_error) {
    static const double value[POINTS];
    struct mp_change *change;
    for (int before = 0; before < 3; before++) {
        struct mp_error error = {0};
        int changes;
        allocations = before;
        assert_int_equal(mp_changes_find(value, POINTS, &change, &changes, &error), MP_ENOMEM);
        assert_int_equal(allocations, -1);
        assert_null(change);
    }
}
