/* TA-MoE: plain expert parallelism, whose capacities follow the topology, and which says how far
 * its loss brings loads that know nothing of it. */
#include "baselines/systems.h"

#include "tests/baselines/rehearsal.h"

static const struct mp_system *const tested = &mp_system_tamoe;

/* 8 experts on 4 ranks of 2 nodes: shares .4 .4 .1 .1 of 200 routes, over 2 experts each. */

/* Plans a layer of 25 routes everywhere. */
static void plan_even(const char *text, struct rehearsal *rehearsal) {
    const struct mp_setting setting = setting_of("ranks-per-node=2 tokens=100");
    rehearsal_open(rehearsal, tested, &setting, text);
    for (int i = 0; i < 4 * 8; i++)
        rehearsal->load->count[i] = 25;
    rehearsal_plan(rehearsal, 0, rehearsal->load);
}

/* What a source keeps then of an expert near and far. */
static void plan_with(const char *factor, const char *cost, int64_t near, int64_t far) {
    AUTO(rehearsal) struct rehearsal rehearsal;
    plan_even(formatted("capacity-factor=%s outside-cost=%s", factor, cost), &rehearsal);
    const struct mp_plan *plan = rehearsal.planner.plan;
    for (int s = 0; s < 4; s++)
        for (int e = 0; e < 8; e++)
            assert_int_equal(mp_plan_routes_to(plan, s, e, e / 2), s / 2 == e / 4 ? near : far);
}

TEST(capacities_follow_the_target) {
    plan_with("0", "4", 25, 25);   /* none */
    plan_with("1", "4", 25, 10);   /* of 40 and 10 */
    plan_with("0.5", "4", 20, 5);  /* both act */
    plan_with("0.51", "4", 21, 6); /* 20.4 and 5.1, rounded up */
    plan_with("0.5", "1", 13, 13); /* nothing is far: 12.5 */
}

/* One node: no pull, and every rank's share is the same. */
TEST(one_node_is_plain_expert_parallelism) {
    struct mp_setting setting = setting_of("ranks-per-node=2");
    AUTO(rehearsal) struct rehearsal nodes, one;
    rehearsal_open(&nodes, tested, &setting, NULL);
    assert_true(nodes.planner.policy.pull == 0.5 && nodes.planner.policy.outside_cost == 4);
    setting.topology.ranks_per_node = 4;
    rehearsal_open(&one, tested, &setting, NULL);
    assert_true(one.planner.policy.pull == 0);
}

/* The law knows the capacity of far experts, in both directions. */
TEST(capacities_outside_are_law) {
    const struct mp_plan_law law = {.drops_routes = true};
    static const enum mp_plan_violation broken[] = {MP_PLAN_OVER_CAPACITY, MP_PLAN_LEGAL,
                                                    MP_PLAN_DROP_BELOW_CAPACITY};
    AUTO(rehearsal) struct rehearsal rehearsal;
    plan_even("capacity-factor=1", &rehearsal);
    for (int i = 0; i < 3; i++) {
        enum mp_plan_violation violation;
        struct mp_error error = {0};
        rehearsal.planner.plan->outside_capacity = 9 + i;
        mp_plan_check(rehearsal.planner.plan, rehearsal.load, &law, &violation, &error);
        assert_int_equal(violation, broken[i]);
    }
}

TEST(more_ranks_than_experts_are_refused) {
    assert_refusal(
        tested, &(const struct refusal){"experts=2", "", "2 experts can't be shared by 4 ranks"});
}
