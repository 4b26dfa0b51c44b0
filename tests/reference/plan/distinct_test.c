/* Distinct tokens from counts: formulas, and designs that are enumerated. */
#include "reference/plan/distinct.h"

#include "reference/plan/routes.h"
#include "tests/reference/base/memory.h"
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
    uint32_t count[256];
    int32_t order[256];
    double distinct = 0;
    int each = experts / groups;
    mp_distinct_model_create(&memory, groups, experts, top_k, &model);
    for (int e = 0; e < experts; e++) {
        count[e] = (uint32_t)(top_k * 1000);
        order[e] = experts - 1 - e;
    }
    assert_true(mp_distinct_model_fit(&model, count));
    assert_false(mp_distinct_model_fit(&model, count));
    mp_distinct_model_arrange(&model, order, experts);
    for (int g = 0; g < groups; g++)
        distinct += mp_distinct_model_meets(&model, g * each, (g + 1) * each, NULL);
    return 100 * (1 - distinct / top_k);
}

TEST_ROWS(even_counts_give_the_printed_rates, table, row) {
    assert_within(duplicates(256, row->top_k, row->groups), row->printed, 0.5);
    assert_within(duplicates(64, row->top_k, row->groups), row->of_64, 0.005);
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
TEST(uneven_counts_are_those_of_their_design) {
    static const double weight[SMALL] = {9, 0.25, 1, 2, 0.5, 4};
    static const double group[SMALL] = {1, 1};
    static const int32_t order[SMALL] = {5, 0, 1, 3, 2, 4}, parted[SMALL] = {0, 1, 2, 3, 4, 5};
    struct mp_distinct_model model;
    double probability[SMALL], meets;
    uint32_t count[SMALL];
    enumerate(weight, probability, &meets);
    for (int e = 0; e < SMALL; e++)
        count[e] = (uint32_t)(probability[e] * 1e8 + 0.5);
    mp_distinct_model_create(&memory, 2, SMALL, 3, &model);
    mp_distinct_model_fit(&model, count);
    mp_distinct_model_arrange(&model, order, SMALL);
    assert_within(mp_distinct_model_meets(&model, 1, 3, NULL), meets, 1e-7);
    mp_distinct_model_arrange(&model, parted, 0);
    assert_within(mp_distinct_model_meets(&model, 0, 0, group), meets, 1e-7);
    mp_distinct_model_arrange(&model, parted, 1);
    assert_within(mp_distinct_model_meets(&model, 0, 1, group + 1), meets, 1e-7);
}

/* Wherever probabilities come close to 1, they are reached: an expert alone is met as often as it
 * has tokens. */
TEST(weights_give_the_counts) {
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
    for (int i = 0; i < CASES; i++) {
        mp_distinct_model_create(&memory, 2, EXPERTS, test[i].top_k, &model);
        mp_distinct_model_fit(&model, test[i].count);
        mp_distinct_model_arrange(&model, order, EXPERTS);
        for (int e = 0; e < EXPERTS; e++)
            assert_within(mp_distinct_model_meets(&model, 7 - e, 8 - e, NULL),
                          test[i].count[e] / 1e4, 1e-7);
    }
}

/* What every token takes, and what none takes, leaves the rest to draw from. */
TEST(certain_choices_leave_fewer_to_draw) {
    static const uint32_t count[SMALL] = {100, 0, 50, 50, 50, 50};
    static const int32_t order[SMALL] = {1, 2, 3, 0, 4, 5}, parted[SMALL] = {1, 2, 3, 4, 5, 0};
    static const double half_of_one = 0.5;
    struct mp_distinct_model model;
    mp_distinct_model_create(&memory, 2, SMALL, 3, &model);
    mp_distinct_model_fit(&model, count);
    mp_distinct_model_arrange(&model, order, SMALL);
    assert_within(mp_distinct_model_meets(&model, 3, 4, NULL), 1, 1e-9);
    assert_within(mp_distinct_model_meets(&model, 0, 1, NULL), 0, 1e-9);
    assert_within(mp_distinct_model_meets(&model, 1, 3, NULL), 5.0 / 6, 1e-9); /* not both others */
    mp_distinct_model_arrange(&model, parted, SMALL - 1);
    assert_within(mp_distinct_model_meets(&model, 0, 0, &half_of_one), 0.5, 1e-9);
}

/* As often as they should, K different experts of each token, and the same ones again. */
TEST(drawn_tokens_have_the_counts) {
    enum { TOKENS = 20000 };
    static const uint32_t count[SMALL] = {100, 0, 90, 60, 30, 20};
    struct mp_distinct_model model;
    int drawn[SMALL] = {0};
    mp_distinct_model_create(&memory, 2, SMALL, 3, &model);
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
}

/* ---- groups inside one another ---- */

/* A plan of a deduplicated exchange over these levels, a load and what was counted for it. */
struct case_of_levels {
    struct example of;
    struct mp_distinct_model model;
    struct mp_levels levels;
    double *distinct; /* [ranks][degree][groups] */
};

static void create_case(int ranks, int experts, int top_k, const int size[3], int degree,
                        struct case_of_levels *c) {
    const struct mp_topology topology = {ranks, 1};
    int32_t owner[64];
    mp_distinct_model_create(&memory, ranks, experts, top_k, &c->model);
    for (int e = 0; e < experts; e++)
        owner[e] = e * ranks / experts;
    owned_example(topology, experts, owner, &c->of);
    c->of.plan.exchange = MP_EXCHANGE_DEDUPLICATED;
    c->of.plan.degree = degree;
    memcpy(c->of.plan.level_size, size, sizeof c->of.plan.level_size);
    c->levels = mp_plan_token_levels(&c->of.plan);
    c->distinct = malloc((size_t)(ranks * degree * mp_levels_most_groups(ranks)) * sizeof(double));
}

TEST_END(destroy_case, struct case_of_levels, {
    destroy_example(&it->of);
    free(it->distinct);
})

/* At every level V-HIER-1's rate of its groups. */
TEST(rates_are_printed_at_every_level) {
    static const struct {
        int groups;
        double of_64;
    } expected[] = {{4, 54.26}, {8, 32.09}, {16, 15.61}, {32, 5.56}};
    AUTO(destroy_case) struct case_of_levels c;
    create_case(32, 64, 8, (const int[3]){8, 4, 2}, 1, &c);
    for (int i = 0; i < 32 * 64; i++)
        c.of.load.count[i] = 1000;
    assert_works(mp_plan_dispatch_to_owner(&c.of.plan, &c.of.load, &error));
    mp_distinct_tokens(&c.model, &c.of.plan, &c.of.load, c.distinct);
    const double *distinct = c.distinct;
    for (int l = 0; l < c.levels.count; l++) {
        double sum = 0;
        assert_int_equal(mp_topology_nodes(&c.levels.groups[l]), expected[l].groups);
        for (int g = 0; g < expected[l].groups; g++)
            sum += *distinct++;
        assert_within(100 * (1 - sum / 64000), expected[l].of_64, 0.005);
    }
}

/* Half of an expert's routes go to its owner's neighbour: groups that hold both have as many. */
TEST_RANDOM(halves_are_whole_in_groups_of_both) {
    AUTO(destroy_case) struct case_of_levels whole, halves;
    create_case(8, 16, 3, (const int[3]){4, 2}, 1, &whole);
    create_case(8, 16, 3, (const int[3]){4, 2}, 1, &halves);
    for (int i = 0; i < 8 * 16; i++)
        whole.of.load.count[i] = halves.of.load.count[i] =
            2 * (uint32_t)test_random_int(random, 1, 90);
    assert_works(mp_plan_dispatch_to_owner(&whole.of.plan, &whole.of.load, &error));
    for (int e = 0; e < 16; e++)
        assert_works(
            mp_plan_add_copy(&halves.of.plan, e, (e / 2) ^ 1, MP_STAGE_BEFORE_GATE, &error));
    assert_works(mp_plan_dispatch_begin(&halves.of.plan, &error));
    for (int pair = 0; pair < 8 * 16; pair++) {
        assert_works(mp_plan_dispatch_run(&halves.of.plan, halves.of.plan.holder_begin[pair % 16],
                                          2, halves.of.load.count[pair] / 2, &error));
        mp_plan_dispatch_end_pair(&halves.of.plan);
    }
    mp_distinct_tokens(&whole.model, &whole.of.plan, &whole.of.load, whole.distinct);
    mp_distinct_tokens(&halves.model, &halves.of.plan, &halves.of.load, halves.distinct);
    for (int i = 0; i < 8 * 14; i++)
        if (i % 14 < 2 + 4)
            assert_within(halves.distinct[i], whole.distinct[i], 1e-9 * whole.distinct[i]);
        else /* on both ranks of such a group as many */
            assert_within(halves.distinct[i], halves.distinct[i ^ 1], 1e-9 * halves.distinct[i]);
}

/* Random tokens of every rank, all routes of which go to owners; and what is to be counted of them,
 * by going through every group's ranks. */
static void draw_tokens(uint64_t *random, struct case_of_levels *c, int top_k, double expected[]) {
    const int ranks = c->of.load.ranks, experts = c->of.load.experts;
    const int groups = mp_levels_groups(&c->levels);
    int32_t tokens[16];
    for (int r = 0; r < ranks; r++)
        tokens[r] = test_random_int(random, 0, 20);
    assert_works(mp_load_give_routes(&c->of.load, top_k, tokens, &error));
    for (int r = 0; r < ranks; r++)
        for (int t = 0; t < tokens[r]; t++) {
            int32_t *expert =
                c->of.load.routes->expert + (size_t)((c->of.load.routes->begin[r] + t) * top_k);
            bool on[16] = {false}, taken[64] = {false};
            int chunk = 0, group = 0;
            for (int j = 0; j < top_k; j++) {
                do
                    expert[j] = test_random_int(random, 0, experts - 1);
                while (taken[expert[j]]);
                taken[expert[j]] = true;
                on[expert[j] * ranks / experts] = true;
                c->of.load.count[r * experts + expert[j]]++;
            }
            while (t >= tokens[r] * (chunk + 1) / c->of.plan.degree)
                chunk++;
            for (int l = 0; l < c->levels.count; l++)
                for (int first = 0, size = c->levels.groups[l].ranks_per_node; first < ranks;
                     first += size, group++) {
                    bool meets = false;
                    for (int other = first; other < first + size && other < ranks; other++)
                        meets |= on[other];
                    expected[(r * c->of.plan.degree + chunk) * groups + group] += meets;
                }
        }
}

TEST_RANDOM(known_tokens_are_counted_at_every_level) {
    static const int sizes[][3] = {{0}, {12}, {4, 2}, {6, 3}, {8, 4, 2}, {12, 6, 2}};
    for (int i = 0; i < 60; i++) {
        int ranks = test_random_int(random, 12, 16), top_k = test_random_int(random, 1, 8);
        AUTO(destroy_case) struct case_of_levels c;
        double expected[16 * 3 * 34] = {0};
        create_case(ranks, 48, top_k, sizes[i % 6], test_random_int(random, 1, 3), &c);
        draw_tokens(random, &c, top_k, expected);
        assert_works(mp_load_check_routes(&c.of.load, &error));
        assert_works(mp_plan_dispatch_to_owner(&c.of.plan, &c.of.load, &error));
        mp_distinct_tokens(&c.model, &c.of.plan, &c.of.load, c.distinct);
        for (int n = 0; n < ranks * c.of.plan.degree * mp_levels_groups(&c.levels); n++)
            assert_within(c.distinct[n], expected[n], 0);
    }
}
