/* How uneven counts are: worked out by hand (60 20 20 0 is the example of the literature), and what
 * holds of any. */
#include "reference/base/imbalance.h"
#include "tests/support.h"

static const struct imbalance_case {
    const char *name;
    int64_t counts[4];
    struct mp_imbalance expected;
} cases[] = {
    {"all equal", {25, 25, 25, 25}, {1, 4, 0}},
    {"one expert has all", {100, 0, 0, 0}, {4, 1, 0.75}},
    {"two share, two dead", {50, 50, 0, 0}, {2, 2, 0.5}},
    {"60 20 20 0", {60, 20, 20, 0}, {2.4, 2.5864090, 0.25}},
    {"more than 32 bits", {3000000000000, 1000000000000, 0, 0}, {3, 1.7547654, 0.5}},
};

TEST_EACH(imbalance_matches, cases, c) {
    struct mp_imbalance found = mp_imbalance_of(c->counts, 4);
    assert_close(found.max_over_mean, c->expected.max_over_mean, 1e-12);
    assert_close(found.effective, c->expected.effective, 2e-7);
    assert_close(found.dead_fraction, c->expected.dead_fraction, 1e-12);
}

TEST(nothing_has_no_imbalance) {
    const int64_t counts[4] = {0};
    struct mp_imbalance found = mp_imbalance_of(counts, 4);
    assert_true(isnan(found.max_over_mean) && isnan(found.effective));
    assert_true(isnan(found.dead_fraction));
}

/* Another order and another unit change nothing, and the bounds hold. */
TEST_RANDOM(neither_order_nor_unit_matters) {
    enum { COUNTS = 64 };
    for (int round = 0; round < 1000; round++) {
        int64_t counts[COUNTS] = {0}, other[COUNTS] = {0};
        int count = test_random_int(random, 1, COUNTS), from = test_random_int(random, 0, 63);
        int64_t unit = test_random_int(random, 1, 1000);
        for (int i = 0; i < count; i++) {
            counts[i] = test_random_int(random, 0, 3) ? test_random_int(random, 0, 1000000) : 0;
            other[(i + from) % count] = counts[i] * unit;
        }
        counts[0] += 1;
        other[from % count] += unit;
        struct mp_imbalance found = mp_imbalance_of(counts, count),
                            again = mp_imbalance_of(other, count);
        assert_close(again.max_over_mean, found.max_over_mean, 1e-12);
        assert_close(again.effective, found.effective, 1e-12);
        assert_close(again.dead_fraction, found.dead_fraction, 0);
        double alive = count * (1 - found.dead_fraction);
        assert_true(found.max_over_mean >= 1 && found.max_over_mean <= count);
        assert_true(found.effective >= 1 - 1e-12 && found.effective <= alive * (1 + 1e-12));
    }
}
