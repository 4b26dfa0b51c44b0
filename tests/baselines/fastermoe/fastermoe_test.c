/* FasterMoE as a system: legal plans that follow the selection, the same on every rank, and what it
 * refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/fastermoe/fastermoe.h"
#include "baselines/systems.h"

/* V-FAST-1 as a plan, under each policy. */
struct golden_case {
    const char *policy, *shadows;
    int copies_limit;
    int expected; /* experts 0 .. expected - 1 are shadowed */
};
static const struct golden_case GOLDEN[] = {
    {"paper", "all", 3, 1},          {"paper-printed", "all", 3, 1}, {"released", "all", 3, 0},
    {"released-fixed", "all", 3, 3}, {"released-fixed", "2", 2, 2},  {"paper", "0", 0, 0},
};
static const uint32_t GOLDEN_COUNTS[16] = {2500, 700, 500, 300, 2200, 800, 600, 400,
                                           2600, 600, 500, 300, 2700, 500, 400, 400};

static void check_golden_plan(const struct golden_case *row, const struct mp_plan *plan,
                              const struct mp_load *load) {
    assert_numbers(plan->fetch.count, 3 * row->expected, plan->reduce.count, 3 * row->expected);
    for (int index = 0; index < plan->fetch.count; index++) {
        assert_int_equal(plan->fetch.item[index].stage, MP_STAGE_AFTER_GATE);
        assert_int_equal(plan->fetch.item[index].from, plan->fetch.item[index].expert);
        assert_int_equal(plan->reduce.item[index].stage, MP_STAGE_BACKWARD_REDUCE);
    }
    for (int expert = 0; expert < 4; expert++) {
        assert_int_equal(mp_placement_copies(&plan->during, expert),
                         expert < row->expected ? 4 : 1);
        for (int source = 0; source < 4; source++) {
            int parts;
            const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
            assert_int_equal(parts, 1);
            assert_int_equal(part->run, 1);
            assert_int_equal(plan->holder[part->first], expert < row->expected ? source : expert);
            assert_int_equal(part->count, mp_load_at(load, source, expert));
        }
    }
}

TEST_ROWS(shadows_are_everywhere_and_their_tokens_stay_home, GOLDEN, row) {
    const struct mp_setting setting =
        setting_of("layers=2 experts=4 top-k=1 ranks-per-node=2 tokens=4000 expert-bytes=16000000 "
                   "route-bytes=4000 bandwidth=1.6e10 seconds-per-route=3.3333333333333333e-7");
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_fastermoe, &setting,
                   formatted("policy=%s shadows=%s", row->policy, row->shadows));
    assert_int_equal(mp_system_fastermoe.copies_limit(rehearsal.planner.self), row->copies_limit);
    for (int at = 0; at < 8; at++)
        assert_int_equal(rehearsal.planner.home[at / 4].owner[at % 4], at % 4);
    memcpy(rehearsal.load->count, GOLDEN_COUNTS, sizeof GOLDEN_COUNTS);
    rehearsal_plan(&rehearsal, 1, rehearsal.load);
    check_golden_plan(row, rehearsal.planner.plan, rehearsal.load);
}

/* Six ranks in three groups of the two experts.  All tokens of group 1 want expert 1, which its
 * rank 2 shadows; those of the others are spread evenly, and nobody there has a copy.  Routes stay
 * in their group. */
TEST(groups_shadow_by_themselves) {
    struct mp_setting setting = small_setting(1, 2, (struct mp_topology){6, 3});
    setting.top_k = 1;
    setting.tokens_per_rank = 100;
    setting.bandwidth = 1e9;
    setting.seconds_per_route = 1e-6;
    AUTO(rehearsal) struct rehearsal rehearsal;
    int64_t computed[6];
    rehearsal_open(&rehearsal, &mp_system_fastermoe, &setting, "group-size=1");
    for (int rank = 0; rank < 6; rank++) {
        rehearsal.load->count[2 * rank] = rank / 2 == 1 ? 0 : 50;
        rehearsal.load->count[2 * rank + 1] = rank / 2 == 1 ? 100 : 50;
    }
    rehearsal_plan(&rehearsal, 0, rehearsal.load);
    const struct mp_plan *plan = rehearsal.planner.plan;
    assert_int_equal(plan->policy->optimizer, MP_OPTIMIZER_REPLICATED);
    for (int rank = 0; rank < 6; rank++) {
        assert_int_equal(mp_placement_holds(&plan->before, 0, rank), rank % 2 == 0);
        assert_int_equal(mp_placement_holds(&plan->before, 1, rank), rank % 2 == 1);
        assert_int_equal(mp_placement_holds(&plan->during, 0, rank), rank % 2 == 0);
        assert_int_equal(mp_placement_holds(&plan->during, 1, rank), rank % 2 == 1 || rank == 2);
    }
    assert_int_equal(plan->fetch.count, 1);
    rank_routes(plan, computed, NULL, NULL);
    for (int rank = 0; rank < 6; rank++) {
        assert_int_equal(computed[rank], 100);
        for (int expert = 0; expert < 2; expert++)
            for (int to = 0; to < 6; to++)
                if (to / 2 != rank / 2)
                    assert_int_equal(mp_plan_routes_to(plan, rank, expert, to), 0);
    }
}

/* 100 tokens per rank, top-2; what an option makes of a plan. */
struct plan_case {
    const char *name;
    struct mp_topology topology;
    const char *option;
    int group_size; /* 0: flat */
    int64_t outgoing_limit;
};
static const struct plan_case PLANS[] = {
    {"defaults", {8, 4}, "", 4, -1},
    {"defaults, 6 ranks", {6, 2}, "", 3, -1},
    {"one rank", {1, 1}, "", 0, -1},
    {"no schedule", {8, 4}, "smart-schedule=no group-size=3", 0, -1},
    {"groups of 2", {8, 4}, "group-size=2", 2, -1},
    {"one group", {8, 4}, "group-size=all", 8, -1},
    {"predicted", {8, 4}, "group-size=auto", 1, -1},
    {"released limit", {8, 4}, "topology-gate=yes", 4, 14},
    {"a fraction", {8, 4}, "topology-gate=yes outgoing-fraction=0.256", 4, 25},
    /* 1e9 / (4 * 1e10) of 100 tokens, and with the network given, 4 / 40. */
    {"the paper's", {8, 4}, "topology-gate=yes outgoing=paper local-bandwidth=1e10", 4, 2},
    {"the paper's, network given",
     {8, 4},
     "outgoing=paper local-bandwidth=1e10 bandwidth=4e9 topology-gate=yes",
     4,
     10},
    {"the paper's, a network faster than nodes",
     {8, 4},
     "topology-gate=yes outgoing=paper local-bandwidth=1e6",
     4,
     100},
    {"one node", {8, 8}, "topology-gate=yes", 4, -1},
};

TEST_EACH(options_become_plans, PLANS, row) {
    struct mp_setting setting = setting_of("tokens=100 expert-bytes=1048576 route-bytes=4000 "
                                           "bandwidth=1e9 seconds-per-route=1e-5");
    AUTO(rehearsal) struct rehearsal rehearsal;
    setting.topology = row->topology;
    rehearsal_open(&rehearsal, &mp_system_fastermoe, &setting, row->option);
    rehearsal.load->count[3] = 7;
    rehearsal_plan(&rehearsal, 0, rehearsal.load);
    const struct mp_plan *plan = rehearsal.planner.plan;
    assert_int_equal(plan->policy->outgoing_limit, row->outgoing_limit);
    assert_int_equal(plan->exchange, row->group_size ? MP_EXCHANGE_PIPELINED : MP_EXCHANGE_FLAT);
    assert_int_equal(plan->group_size, row->group_size);
}

static const struct refusal refusals[] = {
    {"experts=4 ranks=2", "",
     "fastermoe needs a bandwidth above 0, and neither its option (0 B/s) nor the measured one (0 "
     "B/s) is"},
    {"experts=4 ranks=5 bandwidth=1e9", "policy=released",
     "fastermoe with policy released takes ranks for experts and needs at least as many experts "
     "as ranks, not 4 experts on 5 ranks"},
    {"ranks=8 bandwidth=1e9", "group-size=3",
     "fastermoe with smart-schedule needs groups that divide the ranks: groups of 3 don't divide 8 "
     "ranks"},
    {"ranks=2 bandwidth=1e9", "group-size=4",
     "fastermoe with smart-schedule needs groups that divide the ranks: groups of 4 don't divide 2 "
     "ranks"},
    {"ranks-per-node=2 bandwidth=1e9 exchange=two-level", "",
     "fastermoe with smart-schedule sends rows in steps of its own, not through exchange "
     "two-level; one of the two has to go"},
    {"ranks=2 top-k=0 bandwidth=1e9", "topology-gate=yes",
     "fastermoe with topology-gate needs 2 experts per token, not 0"},
    {"ranks=8 ranks-per-node=2 bandwidth=1e9", "topology-gate=yes outgoing=paper",
     "fastermoe with outgoing paper needs a local-bandwidth above 0, not 0 B/s"},
    {"ranks=8 bandwidth=1e9", "topology-gate=yes",
     "fastermoe with topology-gate needs at least 2 experts in every node, and of 8 experts on 8 "
     "nodes one has 1"},
    {"experts=7 ranks=8 ranks-per-node=2 bandwidth=1e9", "topology-gate=yes",
     "fastermoe with topology-gate needs at least 2 experts in every node, and of 7 experts on 4 "
     "nodes one has 1"},
    /* The last node is smaller. */
    {"experts=6 ranks=5 ranks-per-node=4 bandwidth=1e9", "topology-gate=yes",
     "fastermoe with topology-gate needs at least 2 experts in every node, and of 6 experts on 2 "
     "nodes one has 1"},
};

TEST_ROWS(what_cannot_be_is_refused, refusals, c) {
    assert_refusal(&mp_system_fastermoe, c);
}

/* Nothing is measured on one rank, and nothing need be: there is nobody to copy to. */
TEST(one_rank_needs_no_figures) {
    const struct mp_setting setting = setting_of("experts=4 ranks=1");
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_fastermoe, &setting, NULL);
    assert_int_equal(mp_system_fastermoe.copies_limit(rehearsal.planner.self), 0);
}
