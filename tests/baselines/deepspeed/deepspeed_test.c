/* DeepSpeed as a system: who holds what, what its options mean, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

static struct mp_setting setting_with(int layers, int experts, int ranks, int top_k, int tokens) {
    struct mp_setting setting = small_setting(layers, experts, (struct mp_topology){ranks, 2});
    setting.top_k = top_k;
    setting.tokens_per_rank = tokens;
    return setting;
}

/* Holders of all experts, a digit per rank, experts parted by blanks. */
struct placement_case {
    int experts, ranks;
    const char *expert_parallel, *holders;
    enum mp_optimizer_split optimizer;
    int32_t owner[8];
};
static const struct placement_case PLACEMENTS[] = {
    {8, 4, "auto", "0 0 1 1 2 2 3 3", MP_OPTIMIZER_OWNER, {0, 0, 1, 1, 2, 2, 3, 3}},
    {4, 4, "auto", "0 1 2 3", MP_OPTIMIZER_OWNER, {0, 1, 2, 3}},
    {4, 4, "all", "0 1 2 3", MP_OPTIMIZER_OWNER, {0, 1, 2, 3}},
    {4, 8, "auto", "04 15 26 37", MP_OPTIMIZER_REPLICATED, {0, 5, 2, 7}},
    {2, 6, "auto", "024 135", MP_OPTIMIZER_REPLICATED, {0, 3}},
    {8, 4, "2", "02 02 02 02 13 13 13 13", MP_OPTIMIZER_REPLICATED, {0, 2, 0, 2, 1, 3, 1, 3}},
    {3, 4, "1", "0123 0123 0123", MP_OPTIMIZER_REPLICATED, {0, 1, 2}},
    {3, 1, "auto", "0 0 0", MP_OPTIMIZER_OWNER, {0, 0, 0}},
};

TEST_ROWS(every_group_of_ranks_holds_all_experts_once, PLACEMENTS, row) {
    struct mp_setting setting = setting_with(2, row->experts, row->ranks, 2, 16);
    AUTO(rehearsal) struct rehearsal rehearsal;
    char holders[64] = "", *at = holders;
    rehearsal_open(&rehearsal, &mp_system_deepspeed, &setting,
                   formatted("expert-parallel=%s", row->expert_parallel));
    const struct mp_placement *home = rehearsal.planner.home;
    for (int expert = 0; expert < row->experts; expert++) {
        if (expert > 0)
            *at++ = ' ';
        for (int rank = 0; rank < row->ranks; rank++)
            if (mp_placement_holds(&home[1], expert, rank))
                *at++ = (char)('0' + rank);
        assert_int_equal(home[0].owner[expert], row->owner[expert]);
        assert_int_equal(home[1].owner[expert], row->owner[expert]);
    }
    assert_string_equal(holders, row->holders);
    assert_int_equal(rehearsal.planner.policy.optimizer, row->optimizer);
}

/* The largest count of a source for an expert, which is no more than a source's tokens. */
TEST(without_drops_the_largest_count_is_the_capacity) {
    static const uint32_t largest[] = {29, 45, 0};
    static const int64_t capacity[] = {29, 30, 0};
    const struct mp_setting setting = setting_with(1, 4, 2, 2, 30);
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_deepspeed, &setting, "drop-tokens=no");
    assert_int_equal(rehearsal.planner.law.padding_limit, 30);
    struct mp_load *load = rehearsal.load;
    for (int i = 0; i < 3; i++) {
        load->count[2] = largest[i] / 2;
        load->count[5] = largest[i];
        rehearsal_plan(&rehearsal, 0, load);
        assert_int_equal(rehearsal.planner.plan->source_capacity, capacity[i]);
        assert_int_equal(rehearsal.planner.plan->padding, capacity[i]);
    }
}

/* ceil(1.2 * 10 / 2) = 6 routes of an expert over both ranks: the second has what room is left. */
TEST(a_receiver_is_full_for_all) {
    static const uint32_t routes[2][4] = {{4, 7, 0, 6}, {5, 2, 6, 0}};
    static const int kept[2][4] = {{4, 6, 0, 6}, {2, 0, 6, 0}};
    struct mp_setting setting = setting_with(1, 4, 2, 1, 10);
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_deepspeed, &setting,
                   "formula=fastmoe-switch capacity-factor=1.2 padded=no policy=position");
    struct mp_load *load = rehearsal.load;
    memcpy(load->count, routes, sizeof routes);
    for (int iteration = 0; iteration < 2; iteration++)
        rehearsal_plan(&rehearsal, 0, load);
    for (int source = 0; source < 2; source++)
        for (int expert = 0; expert < 4; expert++)
            assert_int_equal(mp_plan_routes_to(rehearsal.planner.plan, source, expert, expert / 2),
                             kept[source][expert]);
    assert_int_equal(rehearsal.planner.plan->capacity[3], 6);
}

struct policy_case {
    const char *policy;
    int top_k;
    enum mp_route_order order;
    int capacity;
};
static const struct policy_case POLICIES[] = {
    {"auto", 1, MP_ROUTES_AT_RANDOM, 25},
    {"auto", 2, MP_ROUTES_BY_CHOICE, 50},
    {"auto", 3, MP_ROUTES_BY_PROBABILITY, 75},
    {"position", 1, MP_ROUTES_BY_TOKEN, 25},
    {"position", 2, MP_ROUTES_BY_TOKEN, 50},
    {"probability", 2, MP_ROUTES_BY_PROBABILITY, 50},
    {"random", 2, MP_ROUTES_AT_RANDOM, 50},
    {"position capacity-factor=0.7", 2, MP_ROUTES_BY_TOKEN, 35},
    {"position capacity-factor=0.2 min-capacity=6", 1, MP_ROUTES_BY_TOKEN, 6},
};

TEST_ROWS(policies_say_who_loses, POLICIES, row) {
    const struct mp_setting setting = setting_with(1, 4, 2, row->top_k, 100);
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_deepspeed, &setting, formatted("policy=%s", row->policy));
    struct mp_load *load = rehearsal.load;
    for (int at = 0; at < 8; at++)
        load->count[at] = 20 + (uint32_t)at;
    rehearsal_plan(&rehearsal, 0, load);
    const struct mp_plan *plan = rehearsal.planner.plan;
    assert_int_equal(plan->policy->route_order, row->order);
    assert_int_equal(plan->policy->renormalise_survivors, row->top_k > 1);
    assert_int_equal(plan->source_capacity, row->capacity);
    assert_int_equal(plan->padding, row->capacity);
    assert_int_equal(rehearsal.planner.law.padding_limit, row->capacity);
}

static const struct refusal refusals[] = {
    {"experts=4 ranks=2 top-k=1 tokens=10",
     "formula=fastmoe-switch capacity-factor=1.2 padded=no expert-parallel=1",
     "deepspeed's formula fastmoe-switch needs every expert on one rank, whose capacity it is; "
     "here are 2 groups of ranks"},
    {"experts=4 ranks=2 top-k=1 tokens=10", "formula=fastmoe-switch",
     "deepspeed's formula fastmoe-switch is a capacity for all ranks' routes together: it takes "
     "padded=no and drop-tokens=yes"},
    {"experts=6", "",
     "deepspeed needs the same number of experts on every rank: 6 experts can't be shared by "
     "groups of 4 of the 4 ranks"},
    {"experts=4 ranks=6", "",
     "deepspeed needs expert-parallel to divide the ranks: 6 ranks can't form groups of 4, which "
     "hold the 4 experts once each"},
    {"experts=6", "expert-parallel=3",
     "deepspeed needs expert-parallel to divide the ranks: 4 ranks can't form groups of 3, which "
     "hold the 6 experts once each"},
    {"experts=4 ranks=8", "expert-parallel=all",
     "deepspeed needs the same number of experts on every rank: 4 experts can't be shared by "
     "groups of 8 of the 8 ranks"},
    {"experts=4 ranks=8", "expert-parallel=0",
     "deepspeed needs expert-parallel of at least 1, not 0"},
    {"experts=4 top-k=1 tokens=3", "dispatch=one-hot padded=no",
     "deepspeed's one-hot dispatch makes a capacity of rows for every expert: it takes padded=yes"},
    {"top-k=1 tokens=3", "formula=tutel capacity-factor=0.5",
     "deepspeed needs a capacity of 1 to 2147483647 routes of a rank for an expert, not 0: 3 "
     "tokens, top-1, 8 experts, capacity factor 0.5"},
    {"tokens=16", "capacity-factor=0 min-capacity=0",
     "deepspeed needs a capacity of 1 to 2147483647 routes of a rank for an expert, not 0: 16 "
     "tokens, top-2, 8 experts, capacity factor 0"},
};

TEST_ROWS(what_cannot_be_is_refused, refusals, c) {
    assert_refusal(&mp_system_deepspeed, c);
}

/* Without drops no capacity is asked of the formula. */
TEST(no_capacity_is_needed_without_drops) {
    const struct mp_setting setting = setting_with(1, 8, 4, 2, 16);
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_deepspeed, &setting,
                   "capacity-factor=0 min-capacity=0 drop-tokens=no");
}
