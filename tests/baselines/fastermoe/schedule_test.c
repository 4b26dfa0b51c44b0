/* The smart schedule's model: golden ends, and the group size that it favours. */
#include "tests/reference/plan/plan_support.h"

#include "baselines/fastermoe/fastermoe.h"

struct golden_case {
    const char *name;
    double broadcasts, shadows;
    double send[4], compute[4], back[4], shadows_end, makespan;
};
/* Four steps of 1 to send, 2 to compute and 1 to return. */
static const struct golden_case GOLDEN[] = {
    {"V-FAST-7", 0, 0, {1, 2, 3, 4}, {3, 5, 7, 9}, {5, 6, 8, 10}, 9, 10},
    {"V-FAST-7, broadcasts of 3, shadows of 2",
     3,
     2,
     {1, 2, 3, 4},
     {3, 5, 7, 9},
     {8, 9, 10, 11},
     11,
     11},
    {"V-FAST-7, broadcasts of 8", 8, 2, {1, 2, 3, 4}, {3, 5, 7, 9}, {13, 14, 15, 16}, 14, 16},
    {"shadows end last", 3, 9, {1, 2, 3, 4}, {3, 5, 7, 9}, {8, 9, 10, 11}, 18, 18},
};

TEST_EACH(golden_ends, GOLDEN, row) {
    double ones[4] = {1, 1, 1, 1}, twos[4] = {2, 2, 2, 2}, send[4], compute[4], back[4];
    struct mp_smart_costs costs = {4, ones, twos, ones, row->broadcasts, row->shadows};
    struct mp_smart_ends ends = {send, compute, back, 0};
    assert_true(mp_smart_schedule(&costs, &ends) == row->makespan);
    for (int step = 0; step < 4; step++) {
        assert_true(send[step] == row->send[step]);
        assert_true(compute[step] == row->compute[step]);
        assert_true(back[step] == row->back[step]);
    }
    assert_true(ends.shadows == row->shadows_end);
}

struct size_case {
    const char *name;
    int ranks;
    double seconds_per_route, seconds_per_expert;
    int size;
};
/* 1000 tokens per rank, top-2, rows of 1 us: 2000 us to send and to return everything at once. */
static const struct size_case SIZES[] = {
    {"computing is hidden either way", 8, 1e-6, 0, 2},
    {"small steps begin early", 8, 4e-6, 0, 1},
    {"experts cost little to begin with", 8, 1e-6, 300e-6, 2}, /* 3950 us, in 4: 4350 us */
    {"experts cost more", 8, 1e-6, 600e-6, 4},                 /* 4950 us, in 2: 5150 us */
    {"experts cost all", 8, 1e-6, 1, 8},
    {"no divisor but one and all", 7, 4e-6, 0, 1},
    {"one rank", 1, 1e-6, 0, 1},
};

TEST_ROWS(groups_are_as_large_as_experts_are_dear, SIZES, row) {
    struct mp_setting setting = {.layers = 1,
                                 .experts = row->ranks,
                                 .top_k = 2,
                                 .topology = {row->ranks, row->ranks},
                                 .tokens_per_rank = 1000,
                                 .seconds_per_expert = row->seconds_per_expert};
    struct mp_shadow_costs costs = {row->seconds_per_route, 1e-6, 1, false};
    int size = 0;
    assert_works(mp_smart_group_size(&setting, &costs, &size, &error));
    print_message("  %s: groups of %d\n", row->name, size);
    assert_int_equal(size, row->size);
}

TEST(released_groups_are_of_four_ranks_where_they_can_be) {
    static const int size[] = {1, 2, 3, 4, 1, 3, 1, 4, 3, 2, 1, 4}; /* of 1, 2, .. ranks */
    for (int ranks = 1; ranks <= 12; ranks++)
        assert_int_equal(mp_smart_released_size(ranks), size[ranks - 1]);
}
