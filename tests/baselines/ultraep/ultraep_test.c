/* UltraEP: golden quotas, plans that are legal, late and fetched again, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

/* Four ranks of a node with two experts each; routes of each expert on each rank. */
static const struct {
    const char *name;
    int redundant;
    double tolerance;
    int least;
    int64_t total[8], routes[8][4];
} decisions[] = {
    /* Mean 100: the hottest expert of rank 0 gives 70 to rank 3, that of rank 1 the 20 left. */
    {"the fullest first",
     2,
     0,
     1,
     {130, 40, 60, 60, 50, 50, 5, 5},
     {{60, 0, 0, 70},
      {40},
      {0, 40, 0, 20},
      {0, 60},
      {0, 0, 50},
      {0, 0, 50},
      {0, 0, 0, 5},
      {0, 0, 0, 5}}},
    /* One slot each, three copies. */
    {"everybody takes",
     1,
     0,
     1,
     {100, 0, 0, 0, 0, 0, 0, 0},
     {{25, 25, 25, 25}, {0}, {0}, {0}, {0}, {0}, {0}, {0}}},
    /* Nothing to be done without slots. */
    {"no slots", 0, 0, 1, {100, 0, 0, 0, 0, 0, 0, 0}, {{100}, {0}, {0}, {0}, {0}, {0}, {0}, {0}}},
    /* Within the tolerance nothing moves. */
    {"tolerated",
     2,
     0.5,
     1,
     {30, 0, 24, 0, 23, 0, 23, 0},
     {{30}, {0}, {0, 24}, {0}, {0, 0, 23}, {0}, {0, 0, 0, 23}, {0}}},
};

TEST_EACH(golden_decisions, decisions, c) {
    assert_division(
        &mp_system_ultraep, "ranks-per-node=4",
        formatted("redundant=%d tolerance=%g least-quota=%d", c->redundant, c->tolerance, c->least),
        c->total, c->routes[0]);
}

/* ---- plans ---- */

/* Copies come late, from the node alone, into the slots, and again for backward; a rank's own
 * routes go to its own copy as far as its quota goes. */
TEST_RANDOM(copies_stay_in_the_node) {
    const struct mp_setting setting = small_setting(1, 24, (struct mp_topology){8, 4});
    AUTO(rehearsal) struct rehearsal rehearsal;
    int copies = 0;
    rehearsal_open(&rehearsal, &mp_system_ultraep, &setting, NULL);
    struct mp_load *load = rehearsal.load;
    for (int round = 0; round < 20; round++) {
        const struct mp_plan *plan = rehearsal.planner.plan;
        int slots[8] = {0};
        random_load(random, load);
        rehearsal_plan(&rehearsal, 0, load);
        assert_true(plan->policy->rematerialise);
        for (int index = 0; index < plan->fetch.count; index++) {
            const struct mp_transfer *fetch = &plan->fetch.item[index];
            int64_t quota = 0, own = mp_load_at(load, fetch->to, fetch->expert);
            assert_numbers(fetch->stage, MP_STAGE_AFTER_GATE, fetch->from / 4, fetch->to / 4);
            assert_true(++slots[fetch->to] <= 2);
            for (int source = 0; source < 8; source++)
                quota += mp_plan_routes_to(plan, source, fetch->expert, fetch->to);
            assert_int_equal(mp_plan_routes_to(plan, fetch->to, fetch->expert, fetch->to),
                             own < quota ? own : quota);
        }
        copies += plan->fetch.count;
    }
    assert_true(copies > 0);
}

TEST(what_cannot_be_is_refused) {
    assert_option_refused(&mp_system_ultraep, "threshold", "0.9");
}
