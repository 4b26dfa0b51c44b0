/* Dispatch: both shared rules, and the rows that hold their result. */
#include "tests/reference/plan/plan_support.h"

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

static void plan_golden(const struct placement_case *row, struct example *example) {
    owned_example(GOLDEN_TOPOLOGY, 8, GOLDEN_OWNER, example);
    memcpy(example->load.count, GOLDEN_COUNT, sizeof GOLDEN_COUNT);
    for (int index = 0; index < row->copies; index++)
        assert_works(mp_plan_add_copy(&example->plan, row->copy[index].expert,
                                      row->copy[index].rank, MP_STAGE_BEFORE_GATE, &error));
    assert_works(mp_plan_dispatch_nearest(&example->plan, &example->load, &error));
}

TEST_ROWS(nearest_gives_the_golden_loads, GOLDEN, row) {
    AUTO(example) struct example example;
    struct mp_plan_facts facts;
    int64_t computed[4], sent[4], received[4];
    plan_golden(row, &example);
    rank_routes(&example.plan, computed, sent, received);
    mp_plan_facts(&example.plan, &example.load, &facts);
    assert_memory_equal(computed, row->computed, sizeof computed);
    assert_memory_equal(sent, row->sent, sizeof sent);
    assert_memory_equal(received, row->received, sizeof received);
    assert_numbers(facts.routes_between_nodes, row->between_nodes, facts.routes, 120);
    assert_numbers(facts.routes_dropped, 0, facts.copies, row->copies);
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

TEST_ROWS(nearest_splits_by_rule, SPLIT, row) {
    AUTO(example) struct example example;
    struct mp_plan *plan = &example.plan;
    owned_example(row->topology, 1, (const int32_t[]){row->holder[0]}, &example);
    example.load.count[row->source] = row->routes;
    for (int copy = 1; copy < row->holders; copy++)
        assert_works(mp_plan_add_copy(plan, 0, row->holder[copy], MP_STAGE_AFTER_GATE, &error));
    assert_works(mp_plan_dispatch_nearest(plan, &example.load, &error));
    for (int holder = 0; holder < row->holders; holder++)
        assert_int_equal(mp_plan_routes_to(plan, row->source, 0, row->holder[holder]),
                         row->share[holder]);
}

TEST(routes_to_a_rank_without_the_expert_are_refused) {
    AUTO(plan) struct mp_plan plan;
    assert_works(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 100, &plan, &error));
    begin_owned(&plan, 3, 1, GOLDEN_OWNER);
    assert_works(mp_plan_dispatch_begin(&plan, &error));
    mp_plan_dispatch_end_pair(&plan);
    assert_sentence(mp_plan_dispatch_part(&plan, 1, 5, &error), MP_EINVAL,
                    "iteration 3, layer 1: routes for expert 1 on rank 1, which "
                    "does not hold it");
    assert_works(mp_plan_dispatch_part(&plan, 0, 0, &error));
    int64_t written = plan.part_begin[2];
    plan.padding = 9; /* now rows are sent although no token is in them */
    assert_works(mp_plan_dispatch_part(&plan, 0, 0, &error));
    assert_int_equal(plan.part_begin[2], written + 1);
    mp_placement_remove(&plan.during, 7, GOLDEN_OWNER[7]);
    assert_sentence(mp_plan_dispatch_begin(&plan, &error), MP_EPLAN,
                    "iteration 3, layer 1: no rank holds expert 7");
}

/* V-SYMI-6, and the rule itself. */
TEST(slices_come_from_the_right_holders) {
    static const int host[4][2] = {{0, 1}, {1, 2}, {3, 3}, {3, 3}};
    static const int source[4][4] = {{0, 1, 0, 1}, {1, 1, 2, 2}, {3, 3, 3, 3}, {3, 3, 3, 3}};
    struct mp_topology topology = {4, 2};
    AUTO(plan) struct mp_plan plan;

    struct mp_placement home = placement_of(4, 4);
    assert_works(mp_plan_create(&topology, 4, 100, &plan, &error));
    mp_placement_set_owners(&home, (const int32_t[4]){0, 1, 3, 3});
    for (int expert = 0; expert < 4; expert++)
        mp_placement_add(&home, expert, host[expert][1]);
    plan.policy = policy_with(MP_OPTIMIZER_SLICES_OF_SUM);
    assert_works(mp_plan_begin(&plan, 0, 0, &home, &error));
    assert_works(mp_plan_dispatch_begin(&plan, &error));
    for (int expert = 0; expert < 4; expert++)
        for (int rank = 0; rank < 4; rank++)
            assert_int_equal(mp_plan_slice_source(&plan, expert, rank), source[expert][rank]);
}
