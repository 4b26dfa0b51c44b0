/* SYMI as a system: layouts that follow popularity one iteration behind, drops by capacity, the
 * same on every rank and after a restart, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"
#include "reference/plan/slots.h"

enum { LAYERS = 2 };
static const struct mp_system *const tested = &mp_system_swiftmoe;

static void start(struct rehearsal *run, const struct mp_setting *setting, const char *slots,
                  const char *factor) {
    rehearsal_open(run, tested, setting, formatted("slots=%s capacity-factor=%s", slots, factor));
}

/* Returns whether homes changed. */
static bool learn(struct rehearsal *run) {
    rehearsal_step(run, run->load);
    assert_false(run->planner.change.leave_state);
    for (int layer = 0; layer < LAYERS; layer++) { /* sums all go the same way */
        const struct mp_placement *home = &run->planner.home[layer];
        for (int expert = 0; expert < home->experts; expert++)
            assert_int_equal(home->owner[expert], mp_placement_next(home, expert, 0));
    }
    return run->planner.change.changed;
}

static void random_loads(uint64_t *random, struct rehearsal *run) {
    for (int layer = 0; layer < LAYERS; layer++)
        random_load(random, &run->load[layer]);
}

static const struct {
    const char *setting, *slots;
    int limit; /* experts on a rank */
} automatic[] = {{"layers=2 experts=9", "auto", 6},
                 {"layers=2 experts=9 ranks=16", "auto", 2},
                 {"layers=2 experts=9 ranks=16", "all", 9}};

TEST_ROWS(automatic_slots_follow_the_setting, automatic, c) {
    const struct mp_setting setting = setting_of(c->setting);
    AUTO(rehearsal) struct rehearsal run;
    start(&run, &setting, c->slots, "0");
    assert_int_equal(run.planner.law.extra_copies_limit, c->limit);
}

struct golden {
    const char *name;
    int per_rank, experts;
    int64_t popularity[5];
    int32_t count[5];
    int32_t slot[12];
};
static const struct golden GOLDEN[] = {
    {"V-SYMI-1", 2, 4, {50, 30, 15, 5}, {4, 2, 1, 1}, {0, 0, 0, 0, 1, 1, 2, 3}},
    {"V-SYMI-2", 2, 4, {40, 35, 15, 10}, {3, 3, 1, 1}, {0, 0, 0, 1, 1, 1, 2, 3}},
    {"V-SYMI-3", 2, 4, {97, 1, 1, 1}, {5, 1, 1, 1}, {0, 0, 0, 0, 0, 1, 2, 3}},
    {"V-SYMI-4", 3, 5, {7, 0, 23, 11, 19}, {1, 1, 4, 2, 4}, {0, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4}},
    {"V-SYMI-5", 2, 3, {34, 33, 33}, {3, 3, 2}, {0, 0, 0, 1, 1, 1, 2, 2}},
    {"V-SYMI-5, equal", 2, 4, {25, 25, 25, 25}, {2, 2, 2, 2}, {0, 0, 1, 1, 2, 2, 3, 3}},
    {"a slot too many of two", 2, 5, {47, 47, 2, 2, 2}, {2, 3, 1, 1, 1}, {0, 0, 1, 1, 1, 2, 3, 4}},
    {"no routes", 2, 3, {0, 0, 0}, {3, 3, 2}, {0, 0, 0, 1, 1, 1, 2, 2}},
    {"as many slots as experts", 1, 4, {9, 0, 0, 0}, {1, 1, 1, 1}, {0, 1, 2, 3}},
};

/* Loads of an iteration make the next one's slots, of which holders and capacities tell. */
TEST_EACH(golden_placements_come_out, GOLDEN, row) {
    const struct mp_setting setting =
        setting_of(formatted("layers=2 experts=%d tokens=1000", row->experts));
    AUTO(rehearsal) struct rehearsal run;
    rehearsal_open(&run, tested, &setting,
                   formatted("slots=%d capacity-factor=0.7", row->per_rank));
    for (int layer = 0; layer < LAYERS; layer++)
        for (int expert = 0; expert < row->experts; expert++)
            run.load[layer].count[expert] = (uint32_t)row->popularity[expert];
    learn(&run);
    rehearsal_plan(&run, 1, &run.load[1]);
    const struct mp_plan *plan = run.planner.plan;
    for (int expert = 0; expert < row->experts; expert++)
        assert_int_equal(plan->capacity[expert],
                         row->count[expert] * mp_slot_capacity(&setting, row->per_rank, 0.7));
    for (int slot = 0; slot < 4 * row->per_rank; slot++)
        assert_true(mp_placement_holds(&plan->before, row->slot[slot], slot / row->per_rank));
}

/* As many routes of each of five experts as a checkpoint may tell of, in 2^18 slots. */
TEST(too_many_routes_are_refused) {
    const struct mp_setting setting = setting_of("layers=2 experts=5");
    const int64_t routes = INT64_C(1) << 42;
    char state[1024];
    AUTO(rehearsal) struct rehearsal run;
    start(&run, &setting, "65536", "0");
    learn(&run);
    size_t size = tested->save(run.planner.self, state, sizeof state);
    for (size_t cell = 1; cell <= 10; cell++)
        memcpy(state + size - cell * sizeof routes, &routes, sizeof routes);
    assert_fails(tested->load(run.planner.self, state, size, &error), MP_ELIMIT,
                 "routes are too many to be shared by 262144 slots");
}

TEST(capacity_is_rounded_down_after_the_multiplication) {
    struct mp_setting setting = {
        .experts = 4, .topology = {5, 5}, .tokens_per_rank = 10, .top_k = 2};
    assert_int_equal(mp_slot_capacity(&setting, 2, 1.1), 11); /* 1.1 * 100 / 10 */
    assert_int_equal(mp_slot_capacity(&setting, 2, 1.19), 11);
    assert_int_equal(mp_slot_capacity(&setting, 2, 0), -1);
}

/* V-SYMI-8: what survives under equally many replicas, and once they follow popularity. */
TEST(fewer_routes_are_dropped_when_replicas_follow_popularity) {
    static const uint32_t popularity[4] = {160, 140, 60, 40};
    struct mp_setting setting = small_setting(LAYERS, 4, (struct mp_topology){4, 4});
    setting.tokens_per_rank = 100;
    setting.top_k = 1;
    AUTO(rehearsal) struct rehearsal run;
    start(&run, &setting, "2", "1");
    for (int layer = 0; layer < LAYERS; layer++)
        for (int cell = 0; cell < 16; cell++)
            run.load[layer].count[cell] = popularity[cell % 4] / 4;
    static const int64_t capacity[2][4] = {{100, 100, 100, 100}, {150, 150, 50, 50}};
    static const int64_t dropped[2] = {100, 20};
    for (int iteration = 0; iteration < 2; iteration++) {
        for (int layer = 0; layer < LAYERS; layer++) {
            struct mp_plan_facts facts;
            rehearsal_plan(&run, layer, &run.load[layer]);
            mp_plan_facts(run.planner.plan, &run.load[layer], &facts);
            assert_numbers(facts.routes, 400, facts.routes_dropped, dropped[iteration]);
            for (int expert = 0; expert < 4; expert++)
                assert_int_equal(run.planner.plan->capacity[expert], capacity[iteration][expert]);
        }
        assert_int_equal(learn(&run), iteration == 0);
    }
}

/* On other ranks the homes are the initial ones, on these they may come from any system's run. */
TEST_RANDOM(homes_that_the_state_does_not_know_are_used_as_they_are) {
    struct mp_setting setting = small_setting(LAYERS, 6, (struct mp_topology){3, 3});
    setting.tokens_per_rank = 200;
    setting.top_k = 1;
    AUTO(rehearsal) struct rehearsal run, restored;
    char buffer[4096];
    start(&run, &setting, "4", "1");
    random_loads(random, &run);
    for (int cell = 0; cell < 18; cell++)
        run.load[1].count[cell] = cell % 6 == 5 ? 1000 : 3; /* a layout far from the initial one */
    assert_true(learn(&run));
    size_t size = tested->save(run.planner.self, buffer, sizeof buffer);
    setting.topology = (struct mp_topology){4, 4};
    start(&restored, &setting, "3", "1");
    assert_works(tested->load(restored.planner.self, buffer, size, &error));
    struct mp_placement *home = &restored.planner.home[1];
    const struct mp_plan *plan = restored.planner.plan;
    random_loads(random, &restored);
    rehearsal_plan(&restored, 1, &restored.load[1]); /* initial homes: two slots for every expert */
    for (int expert = 0; expert < 6; expert++)
        assert_int_equal(plan->capacity[expert], 2 * (800 / 12));
    for (int expert = 0; expert < 6; expert++) /* an owner of its own, and rank 3 beside it */
        home->owner[expert] = expert % 3;
    mp_placement_set_owners(home, home->owner);
    mp_placement_add(home, 4, 3);
    rehearsal_plan(&restored, 1, &restored.load[1]);
    for (int expert = 0; expert < 6; expert++)
        assert_int_equal(plan->capacity[expert], (expert == 4 ? 2 : 1) * (800 / 12));
    assert_true(learn(&restored));
    for (int layer = 0; layer < LAYERS; layer++)
        rehearsal_plan(&restored, layer, &restored.load[layer]);
}

static const struct refusal refusals[] = {
    {"experts=10", "slots=2", "2 on each of 4 ranks are too few for 10 experts"},
    {"experts=10", "slots=0", "0 on each of 4 ranks are too few for 10 experts"},
    {"experts=10 tokens=8", "slots=5 capacity-factor=0.3",
     "capacity-factor 0.3 leaves a slot less than 1 route: 8 tokens on each of 4 ranks to 2 "
     "experts each, over 20 slots"},
};

TEST_ROWS(what_it_can_not_do_is_refused, refusals, c) {
    assert_refusal(tested, c);
}
