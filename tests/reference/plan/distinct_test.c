/* Distinct tokens from counts: formulas, and designs that are enumerated. */
#include "reference/plan/distinct.h"

#include <string.h>

#include "tests/reference/plan/plan_support.h"

enum { SMALL = 6 };

/* V-HIER-1: Table II of HierMoE, arXiv 2508.09591, which is for 256 experts; and the formula that
 * it is made by, K of E experts drawn evenly, for 64. */
static const struct {
    int top_k, groups;
    double printed, of_64; /* of K rows, how many per cent a token's rows in groups save */
} table[] = {
    {8, 32, 9, 5.56}, {8, 16, 18, 15.61}, {8, 8, 34, 32.09}, {8, 4, 55, 54.26},
    {2, 16, 3, 2.38}, {2, 8, 6, 5.56},    {2, 4, 12, 11.90},
};

static double duplicates(int experts, int top_k, int groups) {
    struct mp_distinct_model model;
    struct mp_error error = {0};
    uint32_t count[256];
    int32_t order[256];
    double distinct = 0;
    int each = experts / groups;
    assert_ok(mp_distinct_model_create(groups, experts, top_k, &model, &error), &error);
    for (int e = 0; e < experts; e++) {
        count[e] = (uint32_t)(top_k * 1000);
        order[e] = experts - 1 - e;
    }
    assert_true(mp_distinct_model_fit(&model, count));
    assert_false(mp_distinct_model_fit(&model, count));
    mp_distinct_model_arrange(&model, order, experts);
    for (int g = 0; g < groups; g++)
        distinct += mp_distinct_model_meets(&model, g * each, (g + 1) * each, NULL);
    mp_distinct_model_destroy(&model);
    return 100 * (1 - distinct / top_k);
}

static void even_counts_give_the_printed_rates(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_within(duplicates(256, table[i].top_k, table[i].groups), table[i].printed, 0.5);
        assert_within(duplicates(64, table[i].top_k, table[i].groups), table[i].of_64, 0.005);
    }
}

/* Of all sets of three of six experts with the products of weights as probabilities. */
static void enumerate(const double weight[SMALL], double probability[SMALL], double *meets) {
    double all = 0;
    *meets = 0;
    memset(probability, 0, SMALL * sizeof *probability);
    for (int set = 0; set < 1 << SMALL; set++) {
        double product = 1;
        if (__builtin_popcount((unsigned)set) != 3)
            continue;
        for (int e = 0; e < SMALL; e++)
            product *= set >> e & 1 ? weight[e] : 1;
        all += product;
        *meets += set & 3 ? product : 0; /* experts 0 and 1 */
        for (int e = 0; e < SMALL; e++)
            probability[e] += set >> e & 1 ? product : 0;
    }
    for (int e = 0; e < SMALL; e++)
        probability[e] /= all;
    *meets /= all;
}

/* The group of experts 0 and 1, of which all routes, or as many as shares say, go to it. */
static void uneven_counts_are_those_of_their_design(void **state) {
    static const double weight[SMALL] = {9, 0.25, 1, 2, 0.5, 4};
    static const double group[SMALL] = {1, 1};
    static const int32_t order[SMALL] = {5, 0, 1, 3, 2, 4}, parted[SMALL] = {0, 1, 2, 3, 4, 5};
    struct mp_distinct_model model;
    struct mp_error error = {0};
    double probability[SMALL], meets;
    uint32_t count[SMALL];
    (void)state;
    enumerate(weight, probability, &meets);
    for (int e = 0; e < SMALL; e++)
        count[e] = (uint32_t)(probability[e] * 1e8 + 0.5);
    assert_ok(mp_distinct_model_create(2, SMALL, 3, &model, &error), &error);
    mp_distinct_model_fit(&model, count);
    mp_distinct_model_arrange(&model, order, SMALL);
    assert_within(mp_distinct_model_meets(&model, 1, 3, NULL), meets, 1e-7);
    mp_distinct_model_arrange(&model, parted, 0);
    assert_within(mp_distinct_model_meets(&model, 0, 0, group), meets, 1e-7);
    mp_distinct_model_arrange(&model, parted, 1);
    assert_within(mp_distinct_model_meets(&model, 0, 1, group + 1), meets, 1e-7);
    mp_distinct_model_destroy(&model);
}

/* Wherever probabilities come close to 1, they are reached: an expert alone is met as often as it
 * has tokens. */
static void weights_give_the_counts(void **state) {
    enum { EXPERTS = 8, CASES = 5 };
    static const struct {
        int top_k;
        uint32_t count[EXPERTS]; /* of 10000 tokens */
    } test[CASES] = {
        {3, {9990, 9000, 6000, 3000, 1000, 1000, 10, 0}},
        {3, {9999, 9900, 5000, 3000, 1000, 1000, 100, 1}},
        {2, {9000, 9000, 500, 500, 500, 300, 100, 100}},
        {5, {9995, 9990, 9980, 9900, 9000, 900, 200, 35}},
        {1, {7000, 2000, 400, 300, 200, 99, 1, 0}},
    };
    static const int32_t order[EXPERTS] = {7, 6, 5, 4, 3, 2, 1, 0};
    struct mp_distinct_model model;
    struct mp_error error = {0};
    (void)state;
    for (int i = 0; i < CASES; i++) {
        assert_ok(mp_distinct_model_create(2, EXPERTS, test[i].top_k, &model, &error), &error);
        mp_distinct_model_fit(&model, test[i].count);
        mp_distinct_model_arrange(&model, order, EXPERTS);
        for (int e = 0; e < EXPERTS; e++)
            assert_within(mp_distinct_model_meets(&model, 7 - e, 8 - e, NULL),
                          test[i].count[e] / 1e4, 1e-7);
        mp_distinct_model_destroy(&model);
    }
}

/* What every token takes, and what none takes, leaves the rest to draw from. */
static void certain_choices_leave_fewer_to_draw(void **state) {
    static const uint32_t count[SMALL] = {100, 0, 50, 50, 50, 50};
    static const int32_t order[SMALL] = {1, 2, 3, 0, 4, 5}, parted[SMALL] = {1, 2, 3, 4, 5, 0};
    static const double half_of_one = 0.5;
    struct mp_distinct_model model;
    struct mp_error error = {0};
    (void)state;
    assert_ok(mp_distinct_model_create(2, SMALL, 3, &model, &error), &error);
    mp_distinct_model_fit(&model, count);
    mp_distinct_model_arrange(&model, order, SMALL);
    assert_within(mp_distinct_model_meets(&model, 3, 4, NULL), 1, 1e-9);
    assert_within(mp_distinct_model_meets(&model, 0, 1, NULL), 0, 1e-9);
    assert_within(mp_distinct_model_meets(&model, 1, 3, NULL), 5.0 / 6, 1e-9); /* not both others */
    mp_distinct_model_arrange(&model, parted, SMALL - 1);
    assert_within(mp_distinct_model_meets(&model, 0, 0, &half_of_one), 0.5, 1e-9);
    mp_distinct_model_destroy(&model);
}

/* As often as they should, K different experts of each token, and the same ones again. */
static void drawn_tokens_have_the_counts(void **state) {
    enum { TOKENS = 20000 };
    static const uint32_t count[SMALL] = {100, 0, 90, 60, 30, 20};
    struct mp_distinct_model model;
    struct mp_error error = {0};
    int drawn[SMALL] = {0};
    (void)state;
    assert_ok(mp_distinct_model_create(2, SMALL, 3, &model, &error), &error);
    mp_distinct_model_fit(&model, count);
    for (uint64_t t = 0; t < TOKENS; t++) {
        int32_t expert[3], again[3];
        mp_distinct_model_draw(&model, 7, t, expert);
        mp_distinct_model_draw(&model, 7, t, again);
        assert_memory_equal(expert, again, sizeof expert);
        assert_true(expert[0] > expert[1] && expert[1] > expert[2]);
        for (int j = 0; j < 3; j++)
            drawn[expert[j]]++;
    }
    for (int e = 0; e < SMALL; e++) /* three standard deviations are 0.011 */
        assert_within((double)drawn[e] / TOKENS, count[e] / 100.0, 0.015);
    mp_distinct_model_destroy(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_counts_give_the_printed_rates),
        cmocka_unit_test(uneven_counts_are_those_of_their_design),
        cmocka_unit_test(weights_give_the_counts),
        cmocka_unit_test(certain_choices_leave_fewer_to_draw),
        cmocka_unit_test(drawn_tokens_have_the_counts),
    };
    return cmocka_run_group_tests_name("reference/plan/distinct", tests, NULL, NULL);
}
