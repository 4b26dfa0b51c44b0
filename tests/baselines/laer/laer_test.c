/* LAER as a system: legal plans one iteration behind their loads, the same on every rank; the
 * paper's layouts under every ablation; and what it refuses. */
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/memory.h"

#include "baselines/flexmoe/flexmoe.h"
#include "baselines/laer/laer.h"
#include "baselines/systems.h"

static const struct mp_system *const tested = &mp_system_laer;

static const struct {
    int experts, top_k, ranks;
    const char *option;
    int slots;
} slots[] = {
    {8, 2, 32, "auto", 2}, {16, 4, 32, "auto", 4}, {32, 2, 16, "auto", 4}, {2, 2, 8, "auto", 2},
    {1, 1, 4, "auto", 1},  {33, 1, 16, "auto", 6}, {8, 2, 32, "5", 5},     {8, 2, 32, "all", 8},
};

TEST_ROWS(slots_are_the_papers_where_it_says, slots, c) {
    const struct mp_setting setting =
        setting_of(formatted("experts=%d top-k=%d ranks=%d ranks-per-node=8 bandwidth=1 "
                             "bandwidth-in-node=1 seconds-per-route=1",
                             c->experts, c->top_k, c->ranks));
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, tested, &setting, formatted("slots=%s", c->option));
    assert_int_equal(rehearsal.planner.law.extra_copies_limit, c->slots);
}

/* V-LAER-2 as a run: 4 ranks on 2 nodes, 3 slots, a route 1 s in a node, 2 s between, 1 s computed.
 */
static const uint32_t LAER_COUNT[16] = {20, 1, 5, 1, 10, 2, 8, 0, 6, 1, 9, 1, 4, 2, 8, 0};

struct golden_case {
    const char *even, *queue;
    uint64_t holders[4]; /* of each expert, as bits */
    int64_t computed[4];
};
static const struct golden_case GOLDEN[] = {
    {"yes", "yes", {15, 5, 15, 10}, {25, 22, 17, 14}},
    {"no", "yes", {15, 5, 15, 10}, {25, 22, 17, 14}},
    {"yes", "no", {7, 6, 9, 13}, {29, 18, 14, 17}},
};

TEST_ROWS(the_next_iteration_has_the_cheapest_layout, GOLDEN, row) {
    AUTO(rehearsal) struct rehearsal rehearsal;
    const struct mp_setting setting =
        setting_of("experts=4 top-k=1 ranks-per-node=2 tokens=27 expert-bytes=8");
    int64_t computed[4];
    rehearsal_open(&rehearsal, tested, &setting,
                   formatted("slots=3 even=%s priority-queue=%s bandwidth-in-node=8 "
                             "bandwidth-between-nodes=4 seconds-per-route=1",
                             row->even, row->queue));
    struct mp_load *load = rehearsal.load;
    assert_int_equal(tested->copies_limit(rehearsal.planner.self), 3);
    memcpy(load->count, LAER_COUNT, sizeof LAER_COUNT);
    rehearsal_plan(&rehearsal, 0, load);
    assert_int_equal(rehearsal.planner.policy.optimizer, MP_OPTIMIZER_SLICES);
    assert_true(rehearsal.planner.policy.gather_before_gate);
    assert_true(rehearsal.planner.policy.rematerialise);
    rehearsal_step(&rehearsal, load);
    rehearsal_plan(&rehearsal, 0, load);
    for (int expert = 0; expert < 4; expert++)
        assert_int_equal(rehearsal.planner.plan->during.holder[expert], row->holders[expert]);
    rank_routes(rehearsal.planner.plan, computed, NULL, NULL);
    assert_memory_equal(computed, row->computed, sizeof computed);
}

/* The baseline never changes, and without overlap everything happens after the step. */
TEST_RANDOM(the_static_layout_stays) {
    struct mp_setting setting = small_setting(2, 8, (struct mp_topology){32, 8});
    setting.bandwidth = 1;
    setting.bandwidth_in_node = 1;
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, tested, &setting, "layout=static prefetch=0");
    for (int iteration = 0; iteration < 3; iteration++) {
        for (int layer = 0; layer < 2; layer++) {
            random_load(random, &rehearsal.load[layer]);
            rehearsal_plan(&rehearsal, layer, &rehearsal.load[layer]);
            for (int expert = 0; expert < 8; expert++)
                assert_int_equal(rehearsal.planner.plan->during.holder[expert], UINT64_C(0x11111111)
                                                                                    << expert % 4);
            assert_false(rehearsal.planner.policy.gather_before_gate);
            assert_false(rehearsal.planner.policy.rematerialise);
        }
        rehearsal_step(&rehearsal, rehearsal.load);
    }
    assert_int_equal(rehearsal.changes, 0);
}

/* FLEX: 8 experts in 4 slots on each of 8 ranks of 2 nodes start with all experts on both nodes, as
 * the static layout, and go from layout to layout as the policy says; no route leaves its node,
 * and parameters are put together as LAER's are. */
TEST_RANDOM(flex_changes_the_static_layout) {
    struct mp_setting setting = small_setting(1, 8, (struct mp_topology){8, 4});
    setting.bandwidth = 1;
    setting.bandwidth_in_node = 1;
    AUTO(rehearsal) struct rehearsal rehearsal;
    struct mp_flex flex;
    int32_t slot[32];
    int rounds = 0;
    rehearsal_open(&rehearsal, tested, &setting, "layout=flex slots=4 window=1");
    struct mp_load *load = rehearsal.load;
    mp_flex_create(&memory, 8, 8, 4, &flex);
    for (int at = 0; at < 32; at++)
        slot[at] = at % 4 * 2 + at / 4 % 2;
    for (int iteration = 0; iteration < 50; iteration++) {
        for (int cell = 0; cell < 64; cell++)
            load->count[cell] = (uint32_t)test_random_int(random, 10, cell % 8 == 1 ? 900 : 100);
        rehearsal_plan(&rehearsal, 0, load);
        assert_int_equal(rehearsal.planner.policy.optimizer, MP_OPTIMIZER_SLICES);
        assert_true(rehearsal.planner.policy.gather_before_gate);
        for (int expert = 0; expert < 8; expert++) {
            uint64_t holders = 0;
            for (int at = 0; at < 32; at++)
                holders |= (uint64_t)(slot[at] == expert) << at / 4;
            assert_int_equal(rehearsal.planner.plan->during.holder[expert], holders);
            for (int pair_of = 0; pair_of < 64; pair_of++)
                if (pair_of / 8 / 4 != pair_of % 8 / 4)
                    assert_int_equal(
                        mp_plan_routes_to(rehearsal.planner.plan, pair_of / 8, expert, pair_of % 8),
                        0);
        }
        rehearsal_step(&rehearsal, load);
        mp_flex_begin(&flex, slot, load);
        rounds += mp_flex_laer_policy(&flex, 4, 10);
        memcpy(slot, flex.expert, sizeof slot);
    }
    assert_true(rounds > 0);
}

/* Seconds of a route: as measured between nodes and in them, or as given. */
static const struct {
    double in_node, between; /* 0: the option's default */
    double costs[2];
    bool forward_only;
} costs_of_routes[] = {
    {0, 0, {0.2, 1}, false},
    {4, 0, {0.25, 1}, true},
    {0, 0.5, {0.2, 2}, false},
    {216.269, 88.9539, {1 / 216.269, 1 / 88.9539}, true},
};

TEST_ROWS(routes_cost_less_within_a_node, costs_of_routes, c) {
    struct mp_setting setting = setting_of("ranks-per-node=2 bandwidth=8 bandwidth-in-node=40 "
                                           "seconds-per-route=3");
    struct mp_laer_options options;
    setting.forward_only = c->forward_only;
    parse_options(tested, &options, NULL);
    options.bandwidth_in_node = 8 * c->in_node;
    options.bandwidth_between_nodes = 8 * c->between;
    struct mp_laer_costs costs = mp_laer_costs(&setting, &options);
    assert_all_close(1e-12, costs.in_node, c->costs[0], costs.between_nodes, c->costs[1]);
    assert_numbers(costs.compute, 3, costs.forward_only, setting.forward_only);
}

TEST_RANDOM(a_restart_on_other_ranks_begins_anew) {
    struct mp_setting setting = small_setting(1, 8, (struct mp_topology){4, 2});
    setting.bandwidth = 1;
    setting.bandwidth_in_node = 1;
    AUTO(rehearsal) struct rehearsal first, second, fresh;
    char saved[4096];
    rehearsal_open(&first, tested, &setting, NULL);
    random_load(random, first.load);
    rehearsal_plan(&first, 0, first.load);
    rehearsal_step(&first, first.load);
    size_t size = tested->save(first.planner.self, saved, sizeof saved);
    assert_true(size <= sizeof saved);
    setting.topology.ranks = 2;
    rehearsal_open(&second, tested, &setting, NULL);
    rehearsal_open(&fresh, tested, &setting, NULL);
    assert_works(tested->load(second.planner.self, saved, size, &error));
    for (int iteration = 0; iteration < 3; iteration++) {
        random_load(random, fresh.load);
        rehearsal_plan(&second, 0, fresh.load);
        rehearsal_plan(&fresh, 0, fresh.load);
        assert_equal_plans(second.planner.plan, fresh.planner.plan);
        rehearsal_step(&second, fresh.load);
        rehearsal_step(&fresh, fresh.load);
    }
}

static const struct refusal refusals[] = {
    {"ranks=2 bandwidth=1", "slots=3", "3 on each of 2 ranks are too few for 8 experts"},
    {"ranks=2 bandwidth=1", "slots=0", "0 on each of 2 ranks are too few for 8 experts"},
    {"bandwidth=1", "slots=3 layout=static", "8 experts with 3 slots on 4 ranks can't"},
    {"bandwidth=1", "slots=3 layout=flex", "8 experts with 3 slots on 4 ranks can't"},
    {"bandwidth=1", "slots=3 priority-queue=no", "12 slots for 8 experts"},
    {"bandwidth=1", "even=no priority-queue=no", "needs option even"},
    {"ranks-per-node=2", "", "and measured were 0 and 0 B/s"},
};

TEST_ROWS(what_it_can_not_do_is_refused, refusals, c) {
    assert_refusal(tested, c);
}
