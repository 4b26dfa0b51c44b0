/* FSSDP as a system: whole random runs under the law, equal on all ranks and after a restart. */
#include "tests/reference/plan/system_support.h"

#include "reference/fssdp/fssdp.h"

static uint64_t random_state;

static void defaults_are_the_papers(void **state) {
    (void)state;
    struct mp_fssdp_options options;
    register_and_parse_defaults(&mp_system_fssdp, &options);
    assert_int_equal(options.window, 5);
    assert_int_equal(options.overlap, MP_AUTO);
    assert_int_equal(options.memory, MP_AUTO);
    assert_true(options.calibrate);
    assert_int_equal(options.reshard_interval, 100);
    assert_false(options.rematerialise);
}

struct overlap_case {
    int width;
    double seconds, bandwidth;
    int overlap;
};
/* V-FSSDP-1, and the ends of the range. */
static const struct overlap_case OVERLAP[] = {
    {768, 10e-3, 12.5e9, 26}, {1024, 10e-3, 12.5e9, 14}, {1536, 10e-3, 12.5e9, 6},
    {768, 4e-3, 50e9, 42},    {1024, 4e-3, 50e9, 23},    {1536, 4e-3, 50e9, 10},
    {768, 0, 12.5e9, 0},      {768, 10, 12.5e9, 64},
};

static void overlap_is_what_attention_hides(void **state) {
    (void)state;
    for (size_t index = 0; index < sizeof OVERLAP / sizeof OVERLAP[0]; index++) {
        int64_t width = OVERLAP[index].width;
        struct mp_setting setting = {.experts = 64,
                                     .expert_bytes = 8 * width * width,
                                     .bandwidth = OVERLAP[index].bandwidth,
                                     .non_moe_seconds = OVERLAP[index].seconds};
        assert_int_equal(mp_fssdp_overlap(&setting), OVERLAP[index].overlap);
    }
}

/* m experts in every one of 12 layers, or of two that are there at once, with their gradients; less
 * than one more fits, whatever overlaps.  Where nothing is known of memory it is no limit. */
static void memory_is_what_is_left(void **state) {
    (void)state;
    static const struct {
        int layers;
        bool rematerialise;
        double left; /* of an expert and its gradient */
        int memory;
    } cases[] = {{12, false, 36, 3},   {12, false, 35.9, 2}, {12, false, 11.9, 0},
                 {12, true, 36, 18},   {12, true, 1.9, 0},   {1, true, 5, 5},
                 {12, false, 1e9, 64}, {12, false, 0, 64}};
    for (size_t index = 0; index < sizeof cases / sizeof cases[0]; index++) {
        const char *const pair[][2] = {
            {"overlap", "all"}, {"rematerialise", cases[index].rematerialise ? "yes" : "no"}, {0}};
        struct mp_setting setting = {.layers = cases[index].layers,
                                     .experts = 64,
                                     .top_k = 1,
                                     .topology = {4, 2},
                                     .tokens_per_rank = 8,
                                     .expert_bytes = 1000,
                                     .gradient_bytes = 2000,
                                     .route_bytes = 8,
                                     .bandwidth = 1e9,
                                     .copies_memory = 3000 * cases[index].left};
        struct mp_fssdp_options options;
        struct mp_error error = {0};
        void *self;
        parse_options(&mp_system_fssdp, &options, pair);
        assert_int_equal(mp_fssdp_memory(&setting, cases[index].rematerialise),
                         cases[index].memory);
        assert_ok(mp_system_create(&mp_system_fssdp, &setting, &options, &self, &error), &error);
        assert_int_equal(mp_system_fssdp.copies_limit(self), cases[index].memory);
        mp_system_destroy(&mp_system_fssdp, self);
    }
}

/* V-FSSDP-9: what spAG brings and what spRS sums, by the plan's lists. */
static void golden_transfers(void **state) {
    (void)state;
    static const int64_t power[4] = {1, 10, 100, 1000};
    static const int64_t sum[8] = {111, 1, 1010, 10, 100, 100, 1001, 1000};
    static const int32_t received[4] = {6, 0, 0, 2};
    static const char *const pair[][2] = {
        {"overlap", "4"}, {"memory", "1"}, {"calibrate", "no"}, {NULL, NULL}};
    struct mp_setting setting = {
        .layers = 1, .experts = 8, .topology = GOLDEN_TOPOLOGY, .expert_bytes = 64};
    struct mp_fssdp_options options;
    struct mp_error error = {0};
    struct mp_load load;
    struct mp_placement home, next;
    struct mp_rehome change = {.next = &next};
    struct mp_plan plan;
    void *self;
    int64_t gradient[8];

    parse_options(&mp_system_fssdp, &options, pair);
    golden_load(&load);
    assert_ok(mp_system_create(&mp_system_fssdp, &setting, &options, &self, &error), &error);
    assert_ok(mp_placement_create(4, 8, &home, &error), &error);
    assert_ok(mp_placement_create(4, 8, &next, &error), &error);
    assert_ok(mp_system_initial_homes(&mp_system_fssdp, self, 1, &home, &error), &error);
    assert_memory_equal(home.owner, GOLDEN_OWNER, sizeof GOLDEN_OWNER);
    assert_ok(mp_system_fssdp.after_step(self, 0, &load, &home, &change, &error), &error);
    assert_false(change.changed);
    assert_ok(mp_plan_create(&setting.topology, 8, 64, &plan, &error), &error);
    assert_ok(mp_system_begin_plan(&mp_system_fssdp, self, 1, 0, &home, &plan, &error), &error);
    assert_int_equal(plan.fetch.count, 4);
    for (int index = 0; index < 4; index++)
        assert_int_equal(plan.fetch.item[index].expert, received[plan.fetch.item[index].to]);
    for (int expert = 0; expert < 8; expert++)
        gradient[expert] = power[GOLDEN_OWNER[expert]];
    for (int index = 0; index < plan.reduce.count; index++)
        gradient[plan.reduce.item[index].expert] += power[plan.reduce.item[index].from];
    assert_memory_equal(gradient, sum, sizeof sum);
    mp_plan_destroy(&plan);
    mp_placement_destroy(&home);
    mp_placement_destroy(&next);
    mp_load_destroy(&load);
    mp_system_destroy(&mp_system_fssdp, self);
}

/* What a copy costs a frugal system: its parameters there, its gradient back, three GEMMs more.  70
 * % of 4096 routes go to the first 4 of 32 experts, owned by rank 0 of 2: by hand, each of the
 * first three copies saves 537 s and the fourth 273 s (calibrate_test.c). */
static void frugal_copies_pay_both_ways(void **state) {
    (void)state;
    const struct {
        double copy_seconds, seconds_per_expert;
        int copies;
    } rows[] = {{245, 0, 3}, {255, 0, 0}, {80, 0, 4},   {90, 0, 3},
                {50, 20, 4}, {50, 27, 3}, {50, 130, 3}, {50, 140, 0}};
    static const char *const pair[][2] = {{"overlap", "32"}, {"calibrate", "no"}, {NULL, NULL}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct mp_setting setting = {.layers = 1,
                                     .experts = 32,
                                     .top_k = 1,
                                     .topology = {2, 1},
                                     .tokens_per_rank = 2048,
                                     .expert_bytes = 1,
                                     .bandwidth = 1 / rows[row].copy_seconds,
                                     .seconds_per_route = 0.5,
                                     .seconds_per_expert = rows[row].seconds_per_expert};
        struct mp_fssdp_options options;
        struct mp_error error = {0};
        struct mp_load load;
        struct mp_placement home, next;
        struct mp_rehome change = {.next = &next};
        struct mp_plan plan;
        void *self;
        parse_options(&mp_system_frugal, &options, pair);
        assert_ok(mp_load_create(2, 32, &load, &error), &error);
        for (int index = 0; index < 64; index++)
            load.count[index] = index % 32 < 4 ? 358 : 22;
        assert_ok(mp_system_create(&mp_system_frugal, &setting, &options, &self, &error), &error);
        assert_ok(mp_placement_create(2, 32, &home, &error), &error);
        assert_ok(mp_placement_create(2, 32, &next, &error), &error);
        assert_ok(mp_system_initial_homes(&mp_system_frugal, self, 1, &home, &error), &error);
        assert_ok(mp_system_frugal.after_step(self, 0, &load, &home, &change, &error), &error);
        assert_ok(mp_plan_create(&setting.topology, 32, 64, &plan, &error), &error);
        assert_ok(mp_system_begin_plan(&mp_system_frugal, self, 1, 0, &home, &plan, &error),
                  &error);
        assert_int_equal(plan.fetch.count, rows[row].copies);
        mp_plan_destroy(&plan);
        mp_placement_destroy(&home);
        mp_placement_destroy(&next);
        mp_load_destroy(&load);
        mp_system_destroy(&mp_system_frugal, self);
    }
}

/* A run: two equal ranks of a random job, and a third that is restored half-way. */
enum { INSTANCES = 3, ITERATIONS = 14, RESTORED_AT = 6, MOST_LAYERS = 4 };
struct run {
    struct mp_setting setting;
    struct mp_fssdp_options options;
    void *self[INSTANCES];
    struct mp_plan plan[INSTANCES];
    struct mp_load load[MOST_LAYERS];
    struct mp_placement home[MOST_LAYERS], next[INSTANCES][MOST_LAYERS];
    struct mp_plan_law law;
    int64_t copies_before, copies_after, moved; /* seen so far */
};

static void random_job(struct run *run) {
    *run = (struct run){0};
    run->setting = (struct mp_setting){
        .layers = test_random_int(&random_state, 1, MOST_LAYERS),
        .experts = test_random_int(&random_state, 1, 40),
        .top_k = 2,
        .topology = random_topology(&random_state, 24),
        .tokens_per_rank = 64,
        .expert_bytes = test_random_int(&random_state, 1, 100000),
        .route_bytes = 256,
        .bandwidth = 1e9,
        .seconds_per_route = 1e-6 * test_random_double(&random_state),
        .non_moe_seconds = 1e-3 * test_random_double(&random_state),
    };
    run->options = (struct mp_fssdp_options){
        .window = test_random_int(&random_state, 1, 7),
        .overlap = test_random_int(&random_state, -1, 41),
        .memory = test_random_int(&random_state, 0, 12),
        .calibrate = test_random_int(&random_state, 0, 3),
        .reshard_interval = test_random_int(&random_state, 0, 5),
        .rematerialise = test_random_int(&random_state, 0, 1),
    };
    if (run->options.memory > 10)
        run->options.memory = MP_ALL;
    if (run->options.overlap == 41)
        run->options.overlap = MP_ALL;
}

static void create_run(struct run *run) {
    struct mp_error error = {0};
    const struct mp_setting *setting = &run->setting;
    for (int index = 0; index < INSTANCES; index++) {
        assert_ok(
            mp_system_create(&mp_system_fssdp, setting, &run->options, &run->self[index], &error),
            &error);
        assert_ok(mp_plan_create(&setting->topology, setting->experts, setting->expert_bytes,
                                 &run->plan[index], &error),
                  &error);
    }
    int ranks = setting->topology.ranks, experts = setting->experts;
    for (int layer = 0; layer < setting->layers; layer++) {
        assert_ok(mp_load_create(ranks, experts, &run->load[layer], &error), &error);
        assert_ok(mp_placement_create(ranks, experts, &run->home[layer], &error), &error);
        for (int index = 0; index < INSTANCES; index++)
            assert_ok(mp_placement_create(ranks, experts, &run->next[index][layer], &error),
                      &error);
    }
    assert_ok(
        mp_system_initial_homes(&mp_system_fssdp, run->self[0], setting->layers, run->home, &error),
        &error);
    run->law.extra_copies_limit = mp_system_fssdp.copies_limit(run->self[0]);
    assert_in_range(run->law.extra_copies_limit, 0, setting->experts);
    assert_true(run->law.extra_copies_limit <= run->options.memory);
}

static void destroy_run(struct run *run) {
    for (int index = 0; index < INSTANCES; index++) {
        mp_system_destroy(&mp_system_fssdp, run->self[index]);
        mp_plan_destroy(&run->plan[index]);
    }
    for (int layer = 0; layer < run->setting.layers; layer++) {
        mp_load_destroy(&run->load[layer]);
        mp_placement_destroy(&run->home[layer]);
        for (int index = 0; index < INSTANCES; index++)
            mp_placement_destroy(&run->next[index][layer]);
    }
}

static void assert_equal_plans(const struct mp_plan *a, const struct mp_plan *b) {
    int64_t pairs = (int64_t)a->topology.ranks * a->experts;
    assert_int_equal(a->fetch.count, b->fetch.count);
    for (int index = 0; index < a->fetch.count; index++) {
        const struct mp_transfer *x = &a->fetch.item[index], *y = &b->fetch.item[index];
        assert_true(x->expert == y->expert && x->from == y->from && x->to == y->to &&
                    x->stage == y->stage);
    }
    assert_memory_equal(a->part_begin, b->part_begin, (size_t)(pairs + 1) * sizeof *a->part_begin);
    if (a->part_begin[pairs] > 0)
        assert_memory_equal(a->part, b->part, (size_t)a->part_begin[pairs] * sizeof *a->part);
}

static void plan_layer(struct run *run, int64_t iteration, int layer) {
    struct mp_error error = {0};
    for (int index = 0; index < INSTANCES; index++) {
        struct mp_plan *plan = &run->plan[index];
        if (index == 2 && iteration < RESTORED_AT)
            continue;
        assert_ok(mp_system_begin_plan(&mp_system_fssdp, run->self[index], iteration, layer,
                                       &run->home[layer], plan, &error),
                  &error);
        assert_ok(mp_plan_check(plan, NULL, &run->law, NULL, &error), &error);
        run->copies_before += plan->fetch.count;
        run->copies_after -= plan->fetch.count;
        assert_ok(mp_system_fssdp.after_gate(run->self[index], &run->load[layer], plan, &error),
                  &error);
        assert_ok(mp_plan_check(plan, &run->load[layer], &run->law, NULL, &error), &error);
        run->copies_after += plan->fetch.count;
        assert_int_equal(plan->rematerialise, run->options.rematerialise);
        assert_equal_plans(plan, &run->plan[0]);
        for (int fetch = 0; iteration == 0 && fetch < plan->fetch.count; fetch++)
            assert_int_equal(plan->fetch.item[fetch].stage, MP_STAGE_AFTER_GATE);
    }
}

/* The homes that `change` asks for become the present ones. */
static void rehome(struct run *run, const struct mp_rehome *change, int64_t iteration) {
    const struct mp_setting *setting = &run->setting;
    int ranks = setting->topology.ranks, all = setting->layers * setting->experts, owned[24] = {0};
    struct mp_transfers moves = {0};
    struct mp_error error = {0};

    assert_ok(mp_rehome_check(run->home, change, setting->layers, MP_OPTIMIZER_OWNER,
                              (all + ranks - 1) / ranks, &error),
              &error);
    assert_ok(mp_rehome_transfers(run->home, change->next, setting->layers, &setting->topology,
                                  setting->expert_bytes, &moves, &error),
              &error);
    assert_false(change->leave_state);
    int interval = run->options.reshard_interval;
    assert_int_equal(change->changed, interval > 0 && (iteration + 1) % interval == 0);
    if (!change->changed)
        assert_int_equal(moves.count, 0);
    for (int layer = 0; layer < setting->layers; layer++) {
        mp_placement_copy(&run->home[layer], &change->next[layer]);
        for (int expert = 0; expert < setting->experts; expert++)
            owned[run->home[layer].owner[expert]]++;
    }
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(owned[rank],
                         mp_shard_slots(setting->layers, setting->experts, ranks, rank));
    run->moved += moves.count;
    mp_transfers_destroy(&moves);
}

static void end_iteration(struct run *run, int64_t iteration) {
    struct mp_rehome change[INSTANCES];
    struct mp_error error = {0};
    for (int index = 0; index < INSTANCES; index++) {
        change[index] = (struct mp_rehome){.next = run->next[index]};
        if (index == 2 && iteration < RESTORED_AT)
            continue;
        for (int layer = 0; layer < run->setting.layers; layer++)
            mp_placement_copy(&run->next[index][layer], &run->home[layer]);
        assert_ok(mp_system_fssdp.after_step(run->self[index], iteration, run->load, run->home,
                                             &change[index], &error),
                  &error);
        assert_int_equal(change[index].changed, change[0].changed);
        for (int layer = 0; layer < run->setting.layers; layer++)
            assert_memory_equal(run->next[index][layer].owner, run->next[0][layer].owner,
                                (size_t)run->setting.experts * sizeof(int32_t));
    }
    rehome(run, &change[0], iteration);
}

static void restore_third(struct run *run) {
    struct mp_error error = {0};
    size_t size = mp_system_fssdp.save(run->self[0], NULL, 0);
    char *bytes = malloc(size);
    assert_int_equal(mp_system_fssdp.save(run->self[0], bytes, size), size);
    assert_ok(mp_system_fssdp.load(run->self[2], bytes, size, &error), &error);
    free(bytes);
}

static void random_runs_obey_the_law(void **state) {
    (void)state;
    int64_t before = 0, after = 0, moved = 0;
    for (int round = 0; round < 60; round++) {
        struct run run;
        random_job(&run);
        create_run(&run);
        for (int64_t iteration = 0; iteration < ITERATIONS; iteration++) {
            if (iteration == RESTORED_AT)
                restore_third(&run);
            for (int layer = 0; layer < run.setting.layers; layer++) {
                random_load(&random_state, &run.load[layer]);
                plan_layer(&run, iteration, layer);
            }
            end_iteration(&run, iteration);
        }
        if (run.setting.topology.ranks == 1)
            assert_true(run.copies_before + run.copies_after + run.moved == 0);
        before += run.copies_before;
        after += run.copies_after;
        moved += run.moved;
        destroy_run(&run);
    }
    assert_true(before > 0 && after > 0 && moved > 0); /* the runs met all three */
}

/* With loads that repeat, the second re-sharding finds nothing to do. */
static void a_second_resharding_changes_nothing(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct run run;
        random_job(&run);
        run.options.reshard_interval = 1;
        create_run(&run);
        for (int layer = 0; layer < run.setting.layers; layer++)
            random_load(&random_state, &run.load[layer]);
        end_iteration(&run, 0);
        int64_t moved = run.moved;
        end_iteration(&run, 1);
        assert_int_equal(run.moved, moved);
        destroy_run(&run);
    }
}

struct refused_case {
    struct mp_setting setting;
    const char *sentence;
};
#define SETTING(ranks, bytes, bandwidth_, route, other)                                            \
    {                                                                                              \
        .layers = 1, .experts = 8, .top_k = 2, .topology = {(ranks), 1}, .tokens_per_rank = 4,     \
        .expert_bytes = (bytes), .route_bytes = 4, .seed = 1, .bandwidth = (bandwidth_),           \
        .seconds_per_route = (route), .non_moe_seconds = (other)                                   \
    }
static const struct refused_case REFUSED[] = {
    {SETTING(4, 64, 0, 1, 1), "needs a bandwidth above 0, not 0 B/s"},
    {SETTING(4, 64, -1, 1, 1), "needs a bandwidth above 0, not -1 B/s"},
    {SETTING(4, 0, 1, 1, 1), "bytes per expert of at least 1, not 1 and 0"},
    {SETTING(0, 64, 1, 1, 1), "not 1, 8 and 0"},
    {SETTING(4, 64, 1, -1, 1), "needs times of at least 0, not -1 s per route"},
    {SETTING(4, 64, 1, 1, NAN), "needs times of at least 0"},
};

static void impossible_settings_are_refused(void **state) {
    (void)state;
    struct mp_fssdp_options options;
    parse_options(&mp_system_fssdp, &options, NULL);
    for (size_t index = 0; index < sizeof REFUSED / sizeof REFUSED[0]; index++)
        assert_refused(&mp_system_fssdp, &REFUSED[index].setting, &options,
                       REFUSED[index].sentence);
}

/* The window's format is that of every checkpoint so far. */
static void foreign_windows_are_refused(void **state) {
    (void)state;
    struct run run;
    struct mp_error error = {0};
    char bytes[4096];
    int32_t head[4];
    random_job(&run);
    run.setting.layers = 3;
    run.setting.experts = 11;
    run.setting.topology = (struct mp_topology){4, 2};
    run.options.window = 2;
    create_run(&run);
    for (int64_t iteration = 0; iteration < 3; iteration++) {
        for (int layer = 0; layer < run.setting.layers; layer++)
            random_load(&random_state, &run.load[layer]);
        end_iteration(&run, iteration);
    }
    assert_foreign_bytes_are_refused(&mp_system_fssdp, run.self[0], 20);
    size_t size = mp_system_fssdp.save(run.self[0], bytes, sizeof bytes);
    assert_int_equal(size, 24 + 2 * 3 * 11 * 8);
    assert_memory_equal(bytes, "MPWINDW1", 8);
    memcpy(head, bytes + 8, sizeof head);
    assert_true(head[0] == 3 && head[1] == 11 && head[2] == 2 && head[3] == 0);
    head[1] = 12;
    memcpy(bytes + 8, head, sizeof head);
    assert_int_equal(mp_system_fssdp.load(run.self[0], bytes, size, &error), MP_EFORMAT);
    assert_non_null(strstr(error.text, "3 layers with 12 experts, the job has 3 with 11"));
    destroy_run(&run);
}

int main(void) {
    random_state = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_papers),
        cmocka_unit_test(overlap_is_what_attention_hides),
        cmocka_unit_test(memory_is_what_is_left),
        cmocka_unit_test(golden_transfers),
        cmocka_unit_test(frugal_copies_pay_both_ways),
        cmocka_unit_test(random_runs_obey_the_law),
        cmocka_unit_test(a_second_resharding_changes_nothing),
        cmocka_unit_test(foreign_windows_are_refused),
        cmocka_unit_test(impossible_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
