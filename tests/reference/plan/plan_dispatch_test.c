/* Dispatch: both shared rules, and the rows that hold their result. */
#include "tests/reference/plan/plan_support.h"

#include <string.h>

static uint64_t random_state;

struct placement_case {
    const char *name;
    struct mp_copy_of {
        int expert, rank;
    } copy[6];
    int copies;
    int64_t computed[4], sent[4], received[4], between_nodes;
};

/* V-FSSDP-6: counts of GOLDEN_COUNT. */
static const struct placement_case GOLDEN[] = {
    {"EP", {{0}}, 0, {46, 32, 14, 28}, {18, 22, 27, 21}, {32, 23, 11, 22}, 59},
    {"A",
     {{0, 1}, {0, 2}, {0, 3}, {2, 0}, {2, 2}, {2, 3}},
     6,
     {26, 19, 32, 43},
     {11, 13, 9, 6},
     {5, 1, 11, 22},
     26},
    {"B",
     {{0, 2}, {0, 1}, {2, 3}, {6, 0}},
     4,
     {30, 26, 32, 32},
     {13, 13, 17, 14},
     {11, 8, 19, 19},
     15},
};

static void plan_golden(const struct placement_case *row, struct mp_plan *plan,
                        struct mp_load *load) {
    struct mp_error error = {0};
    golden_load(load);
    assert_ok(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 100, plan, &error), &error);
    mp_plan_begin(plan, 3, 1, GOLDEN_OWNER);
    for (int index = 0; index < row->copies; index++)
        assert_ok(mp_plan_add_copy(plan, row->copy[index].expert, row->copy[index].rank,
                                   MP_STAGE_BEFORE_GATE, &error),
                  &error);
    assert_ok(mp_plan_dispatch_nearest(plan, load, &error), &error);
}

static void nearest_gives_the_golden_loads(void **state) {
    (void)state;
    for (size_t index = 0; index < sizeof GOLDEN / sizeof GOLDEN[0]; index++) {
        const struct placement_case *row = &GOLDEN[index];
        struct mp_plan plan;
        struct mp_load load;
        struct mp_plan_facts facts;
        int64_t computed[4], sent[4], received[4];
        plan_golden(row, &plan, &load);
        mp_plan_rank_routes(&plan, computed, sent, received);
        mp_plan_facts(&plan, &load, &facts);
        assert_memory_equal(computed, row->computed, sizeof computed);
        assert_memory_equal(sent, row->sent, sizeof sent);
        assert_memory_equal(received, row->received, sizeof received);
        assert_int_equal(facts.routes_between_nodes, row->between_nodes);
        assert_int_equal(facts.routes, 120);
        assert_int_equal(facts.routes_dropped, 0);
        assert_int_equal(facts.copies, row->copies);
        mp_plan_destroy(&plan);
        mp_load_destroy(&load);
    }
}

static void nearest_gives_the_golden_matrix(void **state) {
    (void)state;
    static const int64_t matrix[4][4] = {
        {19, 7, 4, 2}, {8, 18, 3, 2}, {1, 1, 13, 15}, {2, 0, 12, 13}};
    static const int expert0[4] = {0, 1, 2, 2}, expert6[4] = {0, 0, 3, 3};
    int64_t routes[4][4] = {{0}};
    struct mp_plan plan;
    struct mp_load load;
    int count;

    plan_golden(&GOLDEN[2], &plan, &load);
    for (int source = 0; source < 4; source++)
        for (int expert = 0; expert < 8; expert++) {
            const struct mp_dispatch_part *part = mp_plan_parts(&plan, source, expert, &count);
            for (int index = 0; index < count; index++)
                routes[source][part[index].holder] += part[index].count;
            if (expert == 0 || expert == 6) {
                assert_int_equal(count, 1);
                assert_int_equal(part->holder, expert == 0 ? expert0[source] : expert6[source]);
            }
        }
    assert_memory_equal(routes, matrix, sizeof matrix);
    mp_plan_destroy(&plan);
    mp_load_destroy(&load);
}

/* One expert; `routes` of `source` are split over `holder` as `share`. */
struct split_case {
    struct mp_topology topology;
    int holder[3], holders, source;
    uint32_t routes, share[3];
};

static const struct split_case SPLIT[] = {
    {{4, 2}, {0, 1}, 2, 2, 9, {5, 4}},       {{4, 2}, {2, 3}, 2, 0, 5, {3, 2}},
    {{4, 2}, {2, 3}, 2, 1, 5, {2, 3}},       {{4, 2}, {2, 3}, 2, 2, 5, {5, 0}},
    {{4, 2}, {2, 3}, 2, 3, 5, {0, 5}},       {{6, 2}, {0, 2, 5}, 3, 0, 7, {7, 0, 0}},
    {{6, 2}, {0, 2, 5}, 3, 1, 7, {7, 0, 0}}, {{6, 2}, {0, 2, 5}, 3, 2, 7, {0, 7, 0}},
    {{6, 2}, {0, 2, 5}, 3, 3, 7, {0, 7, 0}}, {{6, 2}, {0, 2, 5}, 3, 4, 7, {0, 0, 7}},
    {{6, 2}, {0, 2, 5}, 3, 5, 7, {0, 0, 7}}, {{8, 2}, {0, 2, 5}, 3, 7, 8, {2, 3, 3}},
    {{8, 2}, {0, 2, 5}, 3, 7, 1, {0, 1, 0}},
};

static void nearest_splits_by_rule(void **state) {
    (void)state;
    for (size_t index = 0; index < sizeof SPLIT / sizeof SPLIT[0]; index++) {
        const struct split_case *row = &SPLIT[index];
        struct mp_error error = {0};
        struct mp_plan plan;
        struct mp_load load;
        int32_t owner = row->holder[0];
        int count, next = 0;
        assert_ok(mp_plan_create(&row->topology, 1, 100, &plan, &error), &error);
        assert_ok(mp_load_create(row->topology.ranks, 1, &load, &error), &error);
        load.count[row->source] = row->routes;
        mp_plan_begin(&plan, 0, 0, &owner);
        for (int copy = 1; copy < row->holders; copy++)
            assert_ok(mp_plan_add_copy(&plan, 0, row->holder[copy], MP_STAGE_AFTER_GATE, &error),
                      &error);
        assert_ok(mp_plan_dispatch_nearest(&plan, &load, &error), &error);
        const struct mp_dispatch_part *part = mp_plan_parts(&plan, row->source, 0, &count);
        for (int holder = 0; holder < row->holders; holder++) {
            if (row->share[holder] == 0)
                continue;
            assert_true(next < count);
            assert_int_equal(part[next].holder, row->holder[holder]);
            assert_int_equal(part[next].count, row->share[holder]);
            next++;
        }
        assert_int_equal(next, count);
        mp_plan_destroy(&plan);
        mp_load_destroy(&load);
    }
}

static bool holder_in_node(const struct mp_plan *plan, int expert, int node) {
    int rank =
        mp_placement_next(&plan->during, expert, mp_topology_node_begin(&plan->topology, node));
    return rank >= 0 && rank < mp_topology_node_end(&plan->topology, node);
}

/* What 1.9 says of every pair, told without its arithmetic: nearest holders only, shares that
 * differ by at most one. */
static void check_nearest_pair(const struct mp_plan *plan, const struct mp_load *load, int source,
                               int expert) {
    int count, node = mp_topology_node(&plan->topology, source);
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &count);
    uint32_t least = UINT32_MAX, most = 0;

    for (int index = 0; index < count; index++) {
        if (mp_placement_holds(&plan->during, expert, source))
            assert_int_equal(part[index].holder, source);
        else if (holder_in_node(plan, expert, node))
            assert_int_equal(mp_topology_node(&plan->topology, part[index].holder), node);
        if (index > 0)
            assert_true(part[index].holder > part[index - 1].holder);
        least = part[index].count < least ? part[index].count : least;
        most = part[index].count > most ? part[index].count : most;
    }
    if (count > 0)
        assert_true(most - least <= 1);
    if (mp_load_at(load, source, expert) == 0)
        assert_int_equal(count, 0);
}

static void both_rules_are_legal_for_random_plans(void **state) {
    (void)state;
    for (int round = 0; round < 150; round++) {
        struct example example;
        struct mp_error error = {0};
        random_example(&random_state, false, &example);
        struct mp_plan *plan = &example.plan;
        assert_ok(mp_plan_dispatch_nearest(plan, &example.load, &error), &error);
        assert_ok(mp_plan_check(plan, &example.load, &example.law, NULL, &error), &error);
        for (int source = 0; source < plan->topology.ranks; source++)
            for (int expert = 0; expert < plan->experts; expert++)
                check_nearest_pair(plan, &example.load, source, expert);
        assert_ok(mp_plan_dispatch_to_owner(plan, &example.load, &error), &error);
        assert_ok(mp_plan_check(plan, &example.load, &example.law, NULL, &error), &error);
        for (int64_t index = 0; index < plan->part_begin[plan->experts]; index++)
            assert_true(plan->part[index].count > 0);
        destroy_example(&example);
    }
}

/* Once a plan has met its largest load, planning that load again takes no more memory. */
static void steady_state_keeps_its_memory(void **state) {
    (void)state;
    struct example example;
    struct mp_error error = {0};
    random_example(&random_state, false, &example);
    assert_ok(mp_plan_dispatch_nearest(&example.plan, &example.load, &error), &error);
    struct mp_plan first = example.plan;
    for (int round = 0; round < 3; round++)
        assert_ok(mp_plan_dispatch_nearest(&example.plan, &example.load, &error), &error);
    assert_ptr_equal(example.plan.part, first.part);
    assert_ptr_equal(example.plan.holder_list, first.holder_list);
    assert_int_equal(example.plan.part_capacity, first.part_capacity);
    destroy_example(&example);
}

int main(void) {
    random_state = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_gives_the_golden_loads),
        cmocka_unit_test(nearest_gives_the_golden_matrix),
        cmocka_unit_test(nearest_splits_by_rule),
        cmocka_unit_test(both_rules_are_legal_for_random_plans),
        cmocka_unit_test(steady_state_keeps_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
