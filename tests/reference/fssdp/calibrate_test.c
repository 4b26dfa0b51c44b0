/* Calibration: the golden latencies and decisions. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/system_support.h"

#include "reference/fssdp/fssdp.h"

/* One second per route and per crossing route, so that all figures are whole. */
static struct mp_setting golden_setting(int64_t expert_seconds) {
    return setting_of(formatted("ranks-per-node=2 tokens=16 expert-bytes=%d route-bytes=1 "
                                "bandwidth=1 seconds-per-route=1",
                                (int)expert_seconds));
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

TEST_ROWS(golden_latencies, LATENCY, row) {
    struct mp_setting setting = golden_setting(80);
    struct mp_calibrator calibrator;
    AUTO(load) struct mp_load load;

    golden_load(&load);
    mp_calibrator_create(&memory, &setting, &calibrator);
    struct mp_placement placement = placement_of(4, 8);
    for (int copy = 0; copy < row->copies; copy++)
        mp_placement_add(&placement, row->copy[copy].expert, row->copy[copy].rank);
    assert_close(mp_calibrator_latency(&calibrator, &placement, &load), row->latency, 0);
}

/* Forward alone is 46 + 2 * 32 = 110 s and 32 + 2 * 19 = 70 s with the copies. */
struct decision_case {
    int64_t expert_seconds;
    int memory;
    bool accepted, forward_only;
};
static const struct decision_case DECISION[] = {
    {80, 1, true, false},  {93, 1, true, false}, {94, 1, false, false}, {95, 1, false, false},
    {80, 0, false, false}, {39, 1, true, true},  {40, 1, false, true},
};

TEST_ROWS(golden_decisions, DECISION, row) {
    AUTO(load) struct mp_load load;

    golden_load(&load);
    struct mp_setting setting = golden_setting(row->expert_seconds);
    setting.forward_only = row->forward_only;
    struct mp_calibrator calibrator;
    struct mp_materializer materializer;
    struct mp_placement placement = placement_of(4, 8);
    mp_calibrator_create(&memory, &setting, &calibrator);
    mp_materializer_create(&memory, &GOLDEN_TOPOLOGY, 8, 4, &materializer);
    bool accepted = mp_calibrate(&calibrator, &materializer, &placement, &load, row->memory);
    assert_int_equal(accepted, row->accepted);
    assert_int_equal(materializer.copies, row->memory ? 4 : 0);
}

/* 70 % of 4096 routes on the first 4 of 32 experts, owned by rank 0 of 2, which computes 3392
 * routes. By hand: each of the first three copies takes 358 from it (537 s at 3 x 0.5 s a route),
 * the fourth leaves 1960 and 2136, so it saves 2318 - 2136 routes, 273 s; a fifth would only burden
 * rank 1. */
static const struct {
    double copy_seconds;
    int chosen;
} frugal[] = {{1000, 0}, {300, 3}, {200, 3}, {150, 4}, {20, 4}};

TEST_ROWS(frugal_copies_are_those_that_pay, frugal, c) {
    const struct mp_setting setting =
        setting_of(formatted("experts=32 ranks=2 expert-bytes=1 route-bytes=0 bandwidth=%.17g "
                             "seconds-per-route=0.5",
                             1 / c->copy_seconds));
    struct mp_calibrator calibrator;
    struct mp_materializer materializer;
    AUTO(load) struct mp_load load;
    assert_works(mp_load_create(2, 32, &load, &error));
    for (int index = 0; index < 64; index++)
        load.count[index] = index % 32 < 4 ? 358 : 22;
    struct mp_placement placement = placement_of(2, 32);
    mp_calibrator_create(&memory, &setting, &calibrator);
    mp_materializer_create(&memory, &setting.topology, 32, 32, &materializer);
    int chosen = mp_choose_overlap(&calibrator, &materializer, &placement, &load, 32);
    assert_int_equal(chosen, c->chosen);
    assert_numbers(materializer.copies, c->chosen, materializer.overlap, 32);
}
