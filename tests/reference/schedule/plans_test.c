/* What plans mean for the schedule, counted route by route. */
#include "reference/schedule/schedule.h"

#include "reference/plan/chunks.h"
#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"
#include "tests/reference/schedule/names.h"

enum { MOST_RANKS = 130 };

static bool any_late(const struct mp_plan *plan, int expert) {
    for (int r = 0; r < plan->topology.ranks; r++)
        if (fetched_late(plan, expert, r))
            return true;
    return false;
}

/* In which step rows go from one rank to another: groups of neighbours, i sends to i + s. */
static int step_by_hand(const struct mp_plan *plan, int from, int to) {
    int groups = plan->topology.ranks / plan->group_size;
    for (int step = 0;; step++)
        if ((from / plan->group_size + step) % groups == to / plan->group_size)
            return step;
}

/* Whether the schedule calls it one, and says that the expert stays if it does. */
static bool is_late(const struct mp_plan *plan, int expert, int rank, bool stays) {
    bool found = false;
    for (struct mp_late_copy copy = {.expert = -1}; mp_plan_next_late(plan, &copy);) {
        if (copy.expert == expert)
            assert_int_equal(copy.stays, stays);
        found |= copy.expert == expert && copy.rank == rank;
    }
    return found;
}

static void check_exchange(const struct mp_plan *plan) {
    bool needs_late[MOST_RANKS], expected[MOST_RANKS];
    struct mp_scheduled_layer layer = {.needs_late = needs_late};
    bool pipelined = plan->exchange == MP_EXCHANGE_PIPELINED, own = false, own_first = true;
    int ranks = plan->topology.ranks;
    memset(expected, !pipelined, sizeof expected); /* of others any row may meet any copy */
    mp_plan_schedule_exchange(plan, &layer);
    assert_int_equal(layer.steps, pipelined ? ranks / plan->group_size : plan->degree);
    for (int e = 0; e < plan->experts; e++) {
        bool stays = true;
        for (int from = 0; from < ranks; from++)
            for (int to = 0; to < ranks; to++) {
                if (from == to || mp_plan_routes_to(plan, from, e, to) == 0)
                    continue;
                stays = false;
                if (pipelined)
                    assert_int_equal(mp_plan_step(plan, from, to), step_by_hand(plan, from, to));
                if (pipelined && fetched_late(plan, e, to))
                    expected[step_by_hand(plan, from, to)] = true;
            }
        for (int r = 0; plan->padding == 0 && r < ranks; r++)
            assert_int_equal(is_late(plan, e, r, stays),
                             fetched_late(plan, e, r) ||
                                 (any_late(plan, e) && stays && plan->during.owner[e] == r));
        own |= any_late(plan, e);
        for (int r = 0; r < ranks; r++) {
            bool copy = mp_placement_holds(&plan->during, e, r) && plan->during.owner[e] != r;
            own_first &= !copy || (stays && fetched_late(plan, e, r));
        }
    }
    assert_int_equal(layer.own, pipelined && own);
    assert_int_equal(layer.own_first, pipelined && own && own_first &&
                                          plan->policy->optimizer == MP_OPTIMIZER_OWNER);
    assert_memory_equal(needs_late, expected, (size_t)layer.steps * sizeof *needs_late);
}

TEST_RANDOM(exchanges_are_scheduled_as_routes_go) {
    for (int i = 0; i < 150; i++) {
        AUTO(example) struct example example;
        random_kind_of_example(random, test_random_int(random, 0, 1), &example);
        check_exchange(&example.plan);
    }
}

/* A chunk of whole experts waits for late copies if one is in it: those before need not. */
TEST_RANDOM(chunks_wait_for_their_own_copies) {
    int waiting = 0, steps = 0;
    for (int round = 0; round < 150; round++) {
        bool needs_late[MP_MOST_DEGREE], expected[MP_MOST_DEGREE] = {false};
        struct mp_scheduled_layer layer = {.needs_late = needs_late};
        struct mp_expert_chunks chunks;
        struct mp_arena memory = {0};
        AUTO(example) struct example example;
        random_example(random, false, &example);
        struct mp_plan *plan = &example.plan;
        mp_expert_chunks_create(&memory, &plan->topology, plan->layer + 1,
                                plan->holder_begin[plan->experts], &chunks);
        assert_works(mp_arena_check(&memory, &error));
        plan->degree = test_random_int(random, 2, MP_MOST_DEGREE);
        mp_expert_chunks_cut(&chunks, plan);
        mp_plan_schedule_exchange(plan, &layer);
        for (int e = 0; e < plan->experts; e++)
            for (int32_t at = plan->holder_begin[e]; at < plan->holder_begin[e + 1]; at++)
                expected[plan->place_chunk[at]] |= fetched_late(plan, e, plan->holder[at]);
        assert_int_equal(layer.steps, plan->degree);
        assert_memory_equal(needs_late, expected, (size_t)layer.steps * sizeof *needs_late);
        for (int step = 0; step < layer.steps; step++)
            waiting += needs_late[step];
        steps += layer.steps;
        mp_arena_release(&memory);
    }
    assert_in_range(waiting, 1, steps - 1);
}

/* Shadows as FasterMoE makes them: some experts on every rank, each route with its source. */
TEST_RANDOM(shadowed_experts_stay) {
    for (int i = 0; i < 60; i++) {
        struct mp_topology topology = {test_random_int(random, 2, 12), 1};
        int experts = test_random_int(random, 1, 12);
        int32_t owner[12];
        AUTO(example) struct example example;
        struct mp_plan *plan = &example.plan;
        for (int e = 0; e < experts; e++)
            owner[e] = test_random_int(random, 0, topology.ranks - 1);
        owned_example(topology, experts, owner, &example);
        random_load(random, &example.load);
        plan->exchange = MP_EXCHANGE_PIPELINED;
        plan->group_size = 1;
        for (int e = 0; e < experts; e++)
            for (int r = 0, all = test_random_int(random, 0, 1); all && r < topology.ranks; r++)
                if (r != owner[e])
                    assert_works(mp_plan_add_copy(plan, e, r, MP_STAGE_AFTER_GATE, &error));
        assert_works(mp_plan_dispatch_nearest(plan, &example.load, &error));
        check_exchange(plan);
    }
}

/* One expert, a copy of every kind: which of its transfers each of three micro-batches has. */
static const struct {
    enum mp_stage stage;
    bool again, stays;
    const char *expected[3];
} micro_batches[] = {
    {MP_STAGE_BEFORE_GATE, false, false, {"fetch", "", "sum-copies"}},
    {MP_STAGE_BEFORE_GATE,
     false,
     true,
     {"fetch", "fetch", "fetch sum-copies"}}, /* a new one each */
    {MP_STAGE_BACKWARD_PREFETCH, false, true, {"", "", "sum-copies"}},
    {MP_STAGE_AFTER_GATE, false, true, {"late-fetch", "late-fetch", "late-fetch sum-copies"}},
    {MP_STAGE_BEFORE_GATE,
     true,
     false,
     {"fetch refetch sum-copies", "fetch refetch sum-copies", "fetch refetch sum-copies"}},
    {MP_STAGE_AFTER_GATE,
     false,
     false,
     {"late-fetch sum-copies", "late-fetch sum-copies", "late-fetch sum-copies"}},
};

TEST_ROWS(micro_batches_share_what_stays, micro_batches, c) {
    AUTO(example) struct example example;
    owned_example(GOLDEN_TOPOLOGY, 8, GOLDEN_OWNER, &example);
    assert_works(mp_plan_add_copy(&example.plan, 0, 3, c->stage, &error));
    example.policy.rematerialise = c->again;
    example.policy.copies_stay = c->stays;
    for (int m = 0; m < 3; m++) {
        char text[128] = "";
        unsigned travels = mp_plan_travels(&example.plan, m, 3);
        for (int kind = 0; kind < MP_OPERATIONS; kind++)
            if (travels >> kind & 1)
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? " " : "",
                         name_of((enum mp_operation_kind)kind));
        assert_string_equal(text, c->expected[m]);
    }
}
