/* Calibration: the golden latencies and decisions, and its sums against a real dispatch. */
#include "tests/reference/plan/plan_support.h"

#include "reference/fssdp/fssdp.h"

static uint64_t random_state;

/* One second per route and per crossing route, so that all figures are whole. */
static struct mp_setting golden_setting(int64_t expert_seconds) {
    return (struct mp_setting){.layers = 1,
                               .experts = 8,
                               .top_k = 2,
                               .topology = GOLDEN_TOPOLOGY,
                               .tokens_per_rank = 16,
                               .expert_bytes = expert_seconds,
                               .route_bytes = 1,
                               .bandwidth = 1,
                               .seconds_per_route = 1};
}

struct latency_case {
    const char *name;
    int copies;
    struct mp_copy copy[6];
    double latency;
};
static const struct latency_case LATENCY[] = {
    {"EP", 0, {{0, 0}}, 266},
    {"A", 6, {{0, 1}, {0, 2}, {0, 3}, {2, 0}, {2, 2}, {2, 3}}, 217},
    {"B", 4, {{0, 2}, {0, 1}, {2, 3}, {6, 0}}, 172},
    {"stale", 4, {{4, 0}, {4, 3}, {7, 1}, {1, 2}}, 268},
};

static void golden_latencies(void **state) {
    (void)state;
    struct mp_setting setting = golden_setting(80);
    struct mp_calibrator calibrator;
    struct mp_load load;
    struct mp_error error = {0};

    golden_load(&load);
    assert_ok(mp_calibrator_create(&setting, &calibrator, &error), &error);
    for (size_t index = 0; index < sizeof LATENCY / sizeof LATENCY[0]; index++) {
        struct mp_placement placement;
        assert_ok(mp_placement_create(4, 8, &placement, &error), &error);
        for (int copy = 0; copy < LATENCY[index].copies; copy++)
            mp_placement_add(&placement, LATENCY[index].copy[copy].expert,
                             LATENCY[index].copy[copy].rank);
        assert_close(mp_calibrator_latency(&calibrator, &placement, &load), LATENCY[index].latency,
                     0);
        mp_placement_destroy(&placement);
    }
    mp_calibrator_destroy(&calibrator);
    mp_load_destroy(&load);
}

struct decision_case {
    int64_t expert_seconds;
    int memory;
    bool accepted;
};
static const struct decision_case DECISION[] = {
    {80, 1, true}, {93, 1, true}, {94, 1, false}, {95, 1, false}, {80, 0, false},
};

static void golden_decisions(void **state) {
    (void)state;
    struct mp_load load;
    struct mp_error error = {0};

    golden_load(&load);
    for (size_t index = 0; index < sizeof DECISION / sizeof DECISION[0]; index++) {
        struct mp_setting setting = golden_setting(DECISION[index].expert_seconds);
        struct mp_calibrator calibrator;
        struct mp_materializer materializer;
        struct mp_placement placement;
        assert_ok(mp_placement_create(4, 8, &placement, &error), &error);
        assert_ok(mp_calibrator_create(&setting, &calibrator, &error), &error);
        assert_ok(mp_materializer_create(&GOLDEN_TOPOLOGY, 8, 4, &materializer, &error), &error);
        bool accepted =
            mp_calibrate(&calibrator, &materializer, &placement, &load, DECISION[index].memory);
        assert_int_equal(accepted, DECISION[index].accepted);
        assert_int_equal(materializer.copies, DECISION[index].memory ? 4 : 0);
        mp_materializer_destroy(&materializer);
        mp_calibrator_destroy(&calibrator);
        mp_placement_destroy(&placement);
    }
    mp_load_destroy(&load);
}

static double dispatched_latency(const struct mp_setting *setting, struct mp_plan *plan,
                                 const struct mp_load *load) {
    int64_t computed[130], sent[130], received[130], work = 0, border = 0;
    struct mp_error error = {0};

    assert_ok(mp_plan_dispatch_nearest(plan, load, &error), &error);
    mp_plan_rank_routes(plan, computed, sent, received);
    for (int rank = 0; rank < load->ranks; rank++) {
        work = computed[rank] > work ? computed[rank] : work;
        border = sent[rank] > border ? sent[rank] : border;
        border = received[rank] > border ? received[rank] : border;
    }
    return 3 * (double)work * setting->seconds_per_route +
           4 * (double)border * (double)setting->route_bytes / setting->bandwidth;
}

/* The short way of accounting gives what dispatching and counting gives, and a proposal is taken if
 * and only if it pays. */
static void decisions_agree_with_a_real_dispatch(void **state) {
    (void)state;
    int accepted = 0, rejected = 0;
    for (int round = 0; round < 200; round++) {
        struct example example;
        struct mp_calibrator calibrator;
        struct mp_materializer materializer;
        struct mp_error error = {0};
        random_example(&random_state, false, &example);
        struct mp_plan *plan = &example.plan;
        struct mp_setting setting = {.layers = 1,
                                     .experts = plan->experts,
                                     .topology = plan->topology,
                                     .expert_bytes = test_random_int(&random_state, 1, 20000),
                                     .route_bytes = 3,
                                     .bandwidth = 2,
                                     .seconds_per_route = 0.5};
        int overlap = test_random_int(&random_state, 0, plan->experts), arrivals[130] = {0},
            most = 0;
        assert_ok(mp_calibrator_create(&setting, &calibrator, &error), &error);
        assert_ok(
            mp_materializer_create(&plan->topology, plan->experts, overlap, &materializer, &error),
            &error);
        double before = dispatched_latency(&setting, plan, &example.load);
        assert_close(mp_calibrator_latency(&calibrator, &plan->during, &example.load), before,
                     1e-12);
        bool taken = mp_calibrate(&calibrator, &materializer, &plan->during, &example.load, 40);
        for (int index = 0; index < materializer.copies; index++) {
            struct mp_copy copy = materializer.copy[index];
            assert_ok(mp_plan_add_copy(plan, copy.expert, copy.rank, MP_STAGE_AFTER_GATE, &error),
                      &error);
            most = ++arrivals[copy.rank] > most ? arrivals[copy.rank] : most;
        }
        double after = dispatched_latency(&setting, plan, &example.load) +
                       most * (double)setting.expert_bytes / setting.bandwidth;
        assert_int_equal(taken, materializer.copies > 0 && after < before);
        accepted += taken;
        rejected += materializer.copies > 0 && !taken;
        mp_materializer_destroy(&materializer);
        mp_calibrator_destroy(&calibrator);
        destroy_example(&example);
    }
    assert_true(accepted > 0 && rejected > 0);
}

int main(void) {
    random_state = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_latencies),
        cmocka_unit_test(golden_decisions),
        cmocka_unit_test(decisions_agree_with_a_real_dispatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
