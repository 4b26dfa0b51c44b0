/* Slots, homes made of them, and routes spread over them. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/plan/slots.h"

/* Slots, and what a plan with them needs. */
struct job {
    struct mp_slots slots;
    struct mp_placement home;
    struct example of;
};

static void create_job(int experts, int per_rank, struct job *job) {
    mp_slots_create(&memory, 4, experts, per_rank, &job->slots);
    job->home = placement_of(4, experts);
    owned_example(GOLDEN_TOPOLOGY, experts, (const int32_t[3]){0}, &job->of);
}

TEST_END(destroy_job, struct job, destroy_example(&it->of))

/* Routes of each source to each rank: of expert 0, which has two slots on rank 0 and one each on
 * ranks 2 and 3.  All of expert 1 go to rank 1. */
static const struct spread_case {
    const char *name;
    enum mp_spread spread;
    int64_t capacity;
    int routes[4][4];
} SPREADS[] = {
    {"slot after slot", MP_SPREAD_TURN, -1, {{3, 0, 1, 1}, {1, 0, 1, 1}, {2}, {3, 0, 2, 2}}},
    {"the first nine", MP_SPREAD_TURN, 9, {{3, 0, 1, 1}, {1, 0, 1, 1}, {1}, {0}}},
    {"from the source's number on",
     MP_SPREAD_SOURCE,
     -1,
     {{3, 0, 1, 1}, {1, 0, 1, 1}, {0, 0, 1, 1}, {4, 0, 1, 2}}},
    {"in the node", MP_SPREAD_NODE, -1, {{5}, {3}, {0, 0, 1, 1}, {0, 0, 4, 3}}},
};

TEST_EACH(routes_are_spread_by_hand, SPREADS, row) {
    static const int32_t slots[8] = {0, 0, 1, 1, -1, 0, 0, -1}, of_expert_0[4] = {0, 0, 2, 3};
    static const uint32_t routes[8] = {5, 1, 3, 0, 2, 4, 7, 0};
    AUTO(destroy_job) struct job job;
    create_job(2, 2, &job);
    memcpy(job.slots.expert, slots, sizeof slots);
    memcpy(job.of.load.count, routes, sizeof routes);
    mp_slots_index(&job.slots, row->spread == MP_SPREAD_NODE ? 2 : 0);
    assert_int_equal(mp_slots_of(&job.slots, 0), 4);
    assert_memory_equal(job.slots.rank + job.slots.begin[0], of_expert_0, sizeof of_expert_0);
    mp_placement_set_owners(&job.home, (const int32_t[]){3, 0});
    assert_works(mp_slots_homes(&job.slots, &job.home, &error));
    assert_int_equal(job.home.owner[0], 3); /* has a slot, and stays */
    assert_int_equal(job.home.owner[1], 1);
    assert_int_equal(mp_placement_copies(&job.home, 0), 3);
    job.of.plan.policy = policy_with(MP_OPTIMIZER_SLICES_OF_SUM);
    assert_works(mp_plan_begin(&job.of.plan, 1, 0, &job.home, &error));
    job.of.plan.capacity[0] = row->capacity;
    assert_works(
        mp_plan_dispatch_slots(&job.of.plan, &job.of.load, &job.slots, row->spread, &error));
    for (int source = 0; source < 4; source++)
        for (int to = 0; to < 4; to++) {
            assert_int_equal(mp_plan_routes_to(&job.of.plan, source, 0, to),
                             row->routes[source][to]);
            assert_int_equal(mp_plan_routes_to(&job.of.plan, source, 1, to),
                             to == 1 ? routes[2 * source + 1] : 0);
        }
}

TEST(what_does_not_fit_is_refused) {
    AUTO(destroy_job) struct job job;
    create_job(3, 1, &job);
    memcpy(job.slots.expert, (int32_t[4]){0, 1, 1, 0}, 4 * sizeof(int32_t));
    mp_slots_index(&job.slots, 0);
    assert_sentence(mp_slots_homes(&job.slots, &job.home, &error), MP_EPLAN,
                    "expert 2 has none of 4 slots");
    job.slots.expert[3] = 2;
    mp_slots_index(&job.slots, 0);
    assert_works(mp_slots_homes(&job.slots, &job.home, &error));
    mp_placement_add(&job.home, 2, 0);
    job.of.plan.policy = policy_with(MP_OPTIMIZER_SLICES);
    assert_works(mp_plan_begin(&job.of.plan, 5, 2, &job.home, &error));
    assert_sentence(
        mp_plan_dispatch_slots(&job.of.plan, &job.of.load, &job.slots, MP_SPREAD_TURN, &error),
        MP_EPLAN,
        "iteration 5, layer 2: the holders of expert 2 are not the "
        "ranks with a slot of it");
}
