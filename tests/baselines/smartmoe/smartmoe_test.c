/* SmartMoE as a system: when it looks for a placement and when it takes one, what moves, what it
 * remembers and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/fastermoe/fastermoe.h"
#include "baselines/smartmoe/smartmoe.h"

static const struct mp_system *const tested = &mp_system_smartmoe;

/* A run of a system: loads and homes of all layers. */
enum { LAYERS = 2 };
struct run {
    struct mp_setting setting;
    void *self;
    struct mp_load load[LAYERS];
    struct mp_placement home[LAYERS], next[LAYERS];
    struct mp_rehome change;
};

static void begin_run(struct run *run, int experts, struct mp_topology topology,
                      const char *const pair[][2]) {
    struct mp_smartmoe_options options;
    *run = (struct run){.setting = {.layers = LAYERS,
                                    .experts = experts,
                                    .top_k = 2,
                                    .topology = topology,
                                    .tokens_per_rank = 64,
                                    .expert_bytes = 1 << 12,
                                    .route_bytes = 256,
                                    .bandwidth = 1e9,
                                    .seconds_per_route = 1e-6}};
    parse_options(tested, &options, pair);
    assert_works(mp_system_create(tested, &run->setting, &options, &run->self, &error));
    for (int layer = 0; layer < LAYERS; layer++) {
        assert_works(mp_load_create(topology.ranks, experts, &run->load[layer], &error));
        assert_works(mp_placement_create(topology.ranks, experts, &run->home[layer], &error));
        assert_works(mp_placement_create(topology.ranks, experts, &run->next[layer], &error));
    }
    assert_works(mp_system_initial_homes(tested, run->self, LAYERS, run->home, &error));
}

static void end_run(struct run *run) {
    for (int layer = 0; layer < LAYERS; layer++) {
        mp_load_destroy(&run->load[layer]);
        mp_placement_destroy(&run->home[layer]);
        mp_placement_destroy(&run->next[layer]);
    }
    mp_system_destroy(tested, run->self);
}

TEST_END(end_run, struct run, end_run(it))

/* after_step, with the law for homes; the homes stay for the caller to compare. */
static void step(struct run *run, int64_t iteration) {
    for (int layer = 0; layer < LAYERS; layer++)
        mp_placement_copy(&run->next[layer], &run->home[layer]);
    run->change = (struct mp_rehome){.next = run->next};
    assert_works(
        tested->after_step(run->self, iteration, run->load, run->home, &run->change, &error));
    assert_works(mp_rehome_check(run->home, &run->change, LAYERS, MP_OPTIMIZER_OWNER,
                                 LAYERS * run->setting.experts / run->setting.topology.ranks,
                                 &error));
}

static void move_home(struct run *run) {
    for (int layer = 0; layer < LAYERS; layer++)
        mp_placement_copy(&run->home[layer], &run->next[layer]);
}

static int64_t largest_load(const struct mp_load *load, const struct mp_placement *home) {
    int64_t sum[64] = {0}, largest = 0;
    for (int source = 0; source < load->ranks; source++)
        for (int expert = 0; expert < load->experts; expert++)
            sum[home->owner[expert]] += mp_load_at(load, source, expert);
    for (int rank = 0; rank < load->ranks; rank++)
        largest = sum[rank] > largest ? sum[rank] : largest;
    return largest;
}

static void set_golden(struct mp_load *load) {
    static const uint32_t golden[8] = {40, 6, 30, 2, 10, 4, 20, 8};
    for (int source = 0; source < 4; source++)
        for (int expert = 0; expert < 8; expert++)
            load->count[source * 8 + expert] =
                golden[expert] / 4 + ((uint32_t)source < golden[expert] % 4);
}

/* V-SMART-1 as a change of homes, in one layer of two. */
TEST(owners_change_as_published) {
    static const int32_t expected[8] = {0, 3, 1, 0, 2, 1, 3, 2};
    static const char *const pair[][3][2] = {
        {{"interval", "10"}, {0}},
        {{"threshold", "1.09"}, {"state", "stays"}, {0}}, /* 46 > 1.09 * 42 */
        {{"threshold", "1.1"}, {0}},                      /* and not > 1.1 * 42 */
    };
    for (int row = 0; row < 3; row++) {
        AUTO(end_run) struct run run;
        begin_run(&run, 8, (struct mp_topology){4, 2}, pair[row]);
        set_golden(&run.load[0]);
        for (int cell = 0; cell < 32; cell++) /* balanced: nothing is strictly better */
            run.load[1].count[cell] = 5;
        for (int iteration = 0; iteration < 9; iteration++) {
            step(&run, iteration);
            assert_false(run.change.changed);
        }
        step(&run, 9);
        assert_int_equal(run.change.changed, row < 2);
        assert_int_equal(run.change.leave_state, row == 1);
        assert_memory_equal(run.next[1].owner, run.home[1].owner, 8 * sizeof(int32_t));
        if (row < 2)
            assert_memory_equal(run.next[0].owner, expected, sizeof expected);
    }
}

/* Older loads are forgotten: of 4 iterations only the last 2 count. */
TEST(history_is_the_last_iterations) {
    static const char *const pair[][2] = {{"interval", "4"}, {0}};
    static const uint32_t row[4][4] = {
        {900, 800, 0, 0}, {700, 0, 600, 0}, {10, 30, 0, 0}, {30, 10, 0, 0}};
    AUTO(end_run) struct run run;
    begin_run(&run, 4, (struct mp_topology){2, 2}, pair);
    for (int iteration = 0; iteration < 4; iteration++) {
        for (int layer = 0; layer < LAYERS; layer++)
            memcpy(run.load[layer].count, row[iteration], sizeof row[iteration]);
        step(&run, iteration);
    }
    static const int32_t expected[4] = {0, 1, 1, 0}; /* of 40 40 0 0 */
    assert_true(run.change.changed);
    assert_memory_equal(run.next[0].owner, expected, sizeof expected);
    assert_memory_equal(run.next[1].owner, expected, sizeof expected);
}

/* Random jobs: every change is legal and pays, plans go to owners, and an instance that is created
 * late and restored decides as the first one. */
TEST_RANDOM(changes_pay_and_a_restored_run_makes_the_same) {
    static const char *const solver[] = {"greedy", "dynamic-programming", "hybrid"};
    int changes = 0;
    for (int round = 0; round < 60; round++) {
        struct mp_topology topology = random_topology(random, 12);
        int choice = round % 3, most = choice == 1 ? 16 / topology.ranks : 6;
        const char *const pair[][2] = {
            {"interval", "2"}, {"history", "1"}, {"solver", solver[choice]}, {0}};
        AUTO(end_run) struct run run, late;
        AUTO(plan) struct mp_plan plan;
        char saved[65536];
        begin_run(&run, topology.ranks * test_random_int(random, 1, most), topology, pair);
        begin_run(&late, run.setting.experts, topology, pair);
        assert_works(mp_plan_create(&topology, run.setting.experts, 8, &plan, &error));
        for (int iteration = 0; iteration < 6; iteration++) {
            for (int layer = 0; layer < LAYERS; layer++) {
                struct mp_plan_law law = {.extra_copies_limit = tested->copies_limit(run.self)};
                random_load(random, &run.load[layer]);
                mp_load_copy(&late.load[layer], &run.load[layer]);
                assert_works(mp_system_begin_plan(tested, run.self, iteration, layer,
                                                  &run.home[layer], &plan, &error));
                assert_works(tested->after_gate(run.self, &run.load[layer], &plan, &error));
                assert_works(mp_plan_check(&plan, &run.load[layer], &law, NULL, &error));
            }
            step(&run, iteration);
            for (int layer = 0; layer < LAYERS; layer++)
                if (memcmp(run.next[layer].owner, run.home[layer].owner,
                           (size_t)run.setting.experts * sizeof(int32_t))) {
                    assert_true(run.change.changed && iteration % 2 == 1);
                    assert_true(largest_load(&run.load[layer], &run.next[layer]) <
                                largest_load(&run.load[layer], &run.home[layer]));
                    changes++;
                }
            if (iteration > 2) {
                for (int layer = 0; layer < LAYERS; layer++)
                    mp_placement_copy(&late.home[layer], &run.home[layer]);
                step(&late, iteration);
                for (int layer = 0; layer < LAYERS; layer++)
                    assert_memory_equal(late.next[layer].owner, run.next[layer].owner,
                                        (size_t)run.setting.experts * sizeof(int32_t));
            }
            size_t size = tested->save(run.self, saved, sizeof saved);
            assert_true(size <= sizeof saved);
            assert_works(tested->load(late.self, saved, size, &error));
            assert_int_equal(tested->load(late.self, saved, size - 1, NULL), MP_EFORMAT);
            move_home(&run);
        }
    }
    print_message("  %d layers changed\n", changes);
    assert_true(changes > 0);
}

/* Plans are FasterMoE's on the present owners, whatever these are; without schedule and shadows
 * those of plain expert parallelism. */
TEST_RANDOM(plans_are_those_of_fastermoe) {
    static const char *const on[3][4][2] = {
        {{"interval", "1"}, {"shadows", "3"}},
        {{"interval", "1"}, {"shadows", "3"}, {"group-size", "1"}},
        {{"interval", "1"}, {"shadows", "3"}, {"smart-schedule", "no"}},
    };
    static const char *const off[][2] = {
        {"shadows", "0"}, {"smart-schedule", "no"}, {"interval", "1"}, {0}};
    int copies = 0, moved = 0;
    for (int round = 0; round < 20; round++) {
        struct mp_topology topology = random_topology(random, 12);
        int experts = topology.ranks * test_random_int(random, 1, 4);
        struct mp_fastermoe_options options;
        struct mp_error error = {0};
        struct run run[2];
        struct mp_plan plan, expected;
        void *fastermoe;
        begin_run(&run[0], experts, topology, on[round % 3]);
        begin_run(&run[1], experts, topology, off);
        assert_int_equal(tested->copies_limit(run[1].self), 0);
        parse_options(&mp_system_fastermoe, &options, &on[round % 3][1]);
        assert_ok(
            mp_system_create(&mp_system_fastermoe, &run[0].setting, &options, &fastermoe, &error),
            &error);
        assert_int_equal(tested->copies_limit(run[0].self),
                         mp_system_fastermoe.copies_limit(fastermoe));
        assert_ok(mp_plan_create(&topology, experts, 8, &plan, &error), &error);
        assert_ok(mp_plan_create(&topology, experts, 8, &expected, &error), &error);
        for (int iteration = 0; iteration < 3; iteration++)
            for (int side = 0; side < 2; side++) {
                const struct mp_placement *home = &run[side].home[0];
                struct mp_load *load = run[side].load;
                for (int layer = 0; layer < LAYERS; layer++)
                    random_load(random, &load[layer]);
                mp_plan_begin(&expected, iteration, 0, home, &error);
                mp_plan_begin(&plan, iteration, 0, home, &error);
                assert_ok(tested->after_gate(run[side].self, load, &plan, &error), &error);
                if (side == 0)
                    mp_system_fastermoe.after_gate(fastermoe, load, &expected, &error);
                else
                    mp_plan_dispatch_to_owner(&expected, load, &error);
                assert_ok(error.code, &error);
                assert_equal_plans(&plan, &expected);
                assert_int_equal(plan.exchange, expected.exchange);
                assert_int_equal(plan.group_size, expected.group_size);
                assert_int_equal(plan.exchange == MP_EXCHANGE_PIPELINED,
                                 side == 0 && round % 3 < 2 && topology.ranks > 1);
                copies += plan.fetch.count;
                step(&run[side], iteration);
                moved += run[side].change.changed;
                move_home(&run[side]);
            }
        mp_plan_destroy(&plan);
        mp_plan_destroy(&expected);
        mp_system_destroy(&mp_system_fastermoe, fastermoe);
        end_run(&run[0]);
        end_run(&run[1]);
    }
    assert_true(copies > 0 && moved > 0);
}

TEST(what_it_can_not_do_is_refused) {
    static const struct {
        int experts, ranks;
        const char *solver, *words;
    } row[] = {
        {10, 4, "greedy", "10 experts can't be shared by 4 ranks"},
        {4, 6, "greedy", "4 experts can't be shared by 6 ranks"},
        {4, 8, "greedy", "smartmoe runs on FasterMoE's exchange, and fastermoe needs bytes"},
        {0, 4, "greedy", "of at least 1, not 1, 0 and 4"},
        {32, 4, "dynamic-programming", "at most 16 experts of a layer by dynamic programming"},
        {32, 4, "dynamic-programming", "not 32 on 4 ranks"},
    };
    for (size_t index = 0; index < sizeof row / sizeof *row; index++) {
        struct mp_setting setting = {
            .layers = 1, .experts = row[index].experts, .topology = {row[index].ranks, 1}};
        const char *const pair[][2] = {{"solver", row[index].solver}, {0}};
        struct mp_smartmoe_options options;
        parse_options(tested, &options, pair);
        assert_refused(tested, &setting, &options, row[index].words);
    }
    struct mp_setting dark = {.layers = 1, .experts = 8, .topology = {4, 2}, .expert_bytes = 8};
    struct mp_smartmoe_options options;
    parse_options(tested, &options, NULL);
    assert_refused(tested, &dark, &options,
                   "smartmoe runs on FasterMoE's exchange, and fastermoe needs bytes");
}
