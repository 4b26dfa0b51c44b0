/* The loss that ends a run: the mean over a full window, whatever comes. */
#include "reference/trainer/target.h"
#include "tests/errors.h"

TEST_END(target, struct mp_target, mp_target_destroy(it))

static struct mp_target create(double loss, int window) {
    struct mp_job job = {.target_loss = loss, .target_window = window};
    struct mp_target target;
    assert_works(mp_target_create(&job, &target, &error));
    return target;
}

/* The iteration after which a target is reached, counted from 1; 0: never. */
static int iterations(struct mp_target *target, const double loss[], int count) {
    for (int index = 0; index < count; index++)
        if (mp_target_reached(target, loss[index]))
            return index + 1;
    return 0;
}

static const struct {
    double target;
    int window, expected;
} windows[] = {{3, 1, 1}, {3, 2, 2},     {2.9, 2, 7}, {3, 3, 7}, {4, 3, 3},
               {2, 3, 0}, {3.125, 8, 8}, {3.1, 8, 0}, {9, 9, 0}, {0, 1, 0}};

TEST_ROWS(the_mean_of_a_full_window_decides, windows, c) {
    static const double loss[] = {1, 5, 5, 4, 3, 3, 2, 2};
    AUTO(target) struct mp_target target = create(c->target, c->window);
    assert_int_equal(iterations(&target, loss, 8), c->expected);
}

TEST(a_loss_that_is_no_number_counts_while_it_is_in_the_window) {
    static const double loss[] = {1, NAN, 1, 1, 1};
    AUTO(target) struct mp_target target = create(2, 3);
    assert_int_equal(iterations(&target, loss, 5), 5);
}

TEST_RANDOM(any_losses_agree_with_a_mean_taken_anew) {
    for (int round = 0; round < 200; round++) {
        double loss[60], bound = 2 + test_random_double(random);
        int window = test_random_int(random, 1, 20), expected = 0;
        AUTO(target) struct mp_target target = create(bound, window);
        for (int index = 0; index < 60; index++)
            loss[index] = 4 - 0.04 * index + test_random_double(random);
        for (int end = window; end <= 60 && !expected; end++) {
            double sum = 0;
            for (int index = end - window; index < end; index++)
                sum += loss[index];
            expected = sum / window <= bound ? end : 0;
        }
        assert_int_equal(iterations(&target, loss, 60), expected);
    }
}
