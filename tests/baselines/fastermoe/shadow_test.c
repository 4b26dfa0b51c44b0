/* The selection of shadows: golden decisions of every policy with the latencies that led to them.
 */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "baselines/fastermoe/fastermoe.h"

/* The frame of all golden vectors: alpha 2, width 1000, 4 bytes per element. */
static const struct mp_setting GOLDEN_SETTING = {.layers = 1,
                                                 .experts = 4,
                                                 .top_k = 1,
                                                 .topology = {4, 4},
                                                 .tokens_per_rank = 4000,
                                                 .expert_bytes = 2 * 2 * 1000 * 1000 * 4,
                                                 .route_bytes = 1000 * 4,
                                                 .bandwidth = 1.6e10,
                                                 .seconds_per_route = 4.0 * 2 * 1e6 / 2.4e13};

enum { MOST_EXPERTS = 8 };

struct golden_load {
    const char *name;
    int ranks, experts;
    uint32_t count[4 * MOST_EXPERTS];
};

static const struct golden_load V1 = {
    "V-FAST-1",
    4,
    4,
    {2500, 700, 500, 300, 2200, 800, 600, 400, 2600, 600, 500, 300, 2700, 500, 400, 400}};
static const struct golden_load V2 = {"V-FAST-2",
                                      4,
                                      4,
                                      {18000, 17000, 3000, 2000, 17000, 18000, 2500, 2500, 17500,
                                       17500, 2500, 2500, 18500, 16500, 2500, 2500}};
static const struct golden_load V3 = {
    "V-FAST-3", 4, 4, {60, 20, 10, 10, 50, 25, 15, 10, 70, 10, 10, 10, 70, 15, 5, 10}};
static const struct golden_load V4 = {
    "V-FAST-4", 3, 3, {2300, 600, 200, 800, 3100, 1300, 1600, 2700, 4000}};
static const struct golden_load V5 = {
    "V-FAST-5",
    4,
    4,
    {100, 200, 300, 3400, 100, 200, 200, 2500, 50, 50, 100, 800, 20, 30, 50, 400}};
static const struct golden_load V6 = {
    "V-FAST-6", 4, 8, {500, 100, 50, 50, 100, 100, 50, 3050, 500, 100, 50, 50, 100, 100, 50, 3050,
                       500, 100, 50, 50, 100, 100, 50, 3050, 500, 100, 50, 50, 100, 100, 50, 3050}};

/* Latencies in microseconds: without shadows, then of each candidate tried; 0 ends the list. */
struct golden_case {
    const struct golden_load *load;
    enum mp_fastermoe_policy policy;
    double latency[8];
    int count;
    int32_t expert[4];
};

#define PAPER MP_FASTERMOE_PAPER
#define PRINTED MP_FASTERMOE_PAPER_PRINTED
#define RELEASED MP_FASTERMOE_RELEASED
#define FIXED MP_FASTERMOE_RELEASED_FIXED

static const struct golden_case GOLDEN[] = {
    {&V1, PAPER, {20000, 6800, 9200}, 1, {0}},
    {&V1, FIXED, {20000, 6200, 6000, 5800}, 3, {0, 1, 2}},
    {&V1, RELEASED, {8000, 9000}, 0, {0}},
    {&V2, PAPER, {142000, 88000, 49500, 53000}, 2, {0, 1}},
    {&V2, FIXED, {142000, 139000, 23000, 22000}, 3, {0, 1, 2}},
    {&V2, RELEASED, {80000, 81000}, 0, {0}},
    {&V3, PAPER, {500, 2120}, 0, {0}},
    {&V3, FIXED, {500, 1140}, 0, {0}},
    {&V3, RELEASED, {200, 1200}, 0, {0}},
    {&V4, PAPER, {12800, 10200, 10700}, 1, {1}},
    {&V4, PRINTED, {12800, 10200, 9500, 11600}, 2, {1, 2}},
    {&V5, RELEASED, {8000, 7000, 4000, 4000}, 2, {0, 1}},
    {&V5, FIXED, {14200, 2300, 2960}, 1, {3}},
    {&V5, PAPER, {14200, 5670, 7970}, 1, {3}},
    {&V6, FIXED, {24400, 5000, 2800, 3800}, 2, {7, 0}},
    {&V6, RELEASED, {8000, 9000}, 0, {0}},
};
/* Forward alone: a third of the computing, half of the travel, parameters there and no gradients
 * back. */
static const struct golden_case GOLDEN_SERVING[] = {
    {&V1, PAPER, {25000.0 / 3, 2600, 11200.0 / 3}, 1, {0}},
    {&V1, FIXED, {25000.0 / 3, 9500.0 / 3, 11000.0 / 3}, 1, {0}},
};

static void select_shadows(struct mp_shadows *shadows, const struct mp_shadow_costs *costs,
                           const struct mp_load *load, const int32_t owner[],
                           enum mp_fastermoe_policy policy, int limit) {
    if (policy == PAPER || policy == PRINTED)
        mp_shadow_paper(shadows, costs, load, owner, policy == PRINTED, limit);
    else
        mp_shadow_released(shadows, costs, load, policy == FIXED, limit);
}

/* expert e of E on rank e * R / E: one per rank, or two. */
static void contiguous_owners(int ranks, int experts, int32_t owner[]) {
    for (int expert = 0; expert < experts; expert++)
        owner[expert] = expert * ranks / experts;
}

static void compare(const struct golden_case *row, const struct mp_shadows *shadows) {
    const char *name = row->load->name;
    if (shadows->count != row->count)
        fail_msg("%s, policy %d: %d shadows, expected %d", name, row->policy, shadows->count,
                 row->count);
    for (int index = 0; index < row->count; index++)
        if (shadows->expert[index] != row->expert[index])
            fail_msg("%s, policy %d: shadow %d is %d, expected %d", name, row->policy, index,
                     shadows->expert[index], row->expert[index]);
    int latencies = 0;
    while (row->latency[latencies] > 0)
        latencies++;
    assert_int_equal(shadows->latencies, latencies);
    for (int index = 0; index < latencies; index++)
        if (fabs(1e6 * shadows->latency[index] - row->latency[index]) > 1e-6)
            fail_msg("%s, policy %d: latency %d is %.9g us, expected %.9g", name, row->policy,
                     index, 1e6 * shadows->latency[index], row->latency[index]);
}

static void decide(const struct golden_case *row, bool forward_only) {
    const struct golden_load *golden = row->load;
    struct mp_fastermoe_options options = {.policy = (int)row->policy, .element_bytes = 4};
    struct mp_setting setting = GOLDEN_SETTING;
    setting.forward_only = forward_only;
    struct mp_shadow_costs costs = mp_fastermoe_costs(&setting, &options);
    struct mp_shadows shadows;
    AUTO(load) struct mp_load load;
    int32_t owner[MOST_EXPERTS];
    contiguous_owners(golden->ranks, golden->experts, owner);
    assert_works(mp_load_create(golden->ranks, golden->experts, &load, &error));
    memcpy(load.count, golden->count,
           (size_t)golden->ranks * (size_t)golden->experts * sizeof *load.count);
    mp_shadows_create(&memory, golden->ranks, golden->experts, &shadows);
    select_shadows(&shadows, &costs, &load, owner, row->policy, MP_ALL);
    compare(row, &shadows);
}

TEST(golden_decisions) {
    for (size_t index = 0; index < sizeof GOLDEN / sizeof *GOLDEN; index++)
        decide(&GOLDEN[index], false);
    for (size_t index = 0; index < sizeof GOLDEN_SERVING / sizeof *GOLDEN_SERVING; index++)
        decide(&GOLDEN_SERVING[index], true);
}

struct costs_case {
    const char *name;
    struct mp_fastermoe_options options;
    double compute, feature, model; /* us */
};

/* Width 1000, 16 MB per expert, 16 GB/s: 1/3 us per route, 1/4 us per row, 1000 us per expert. */
static const struct costs_case COSTS[] = {
    {"measured", {.policy = PAPER, .element_bytes = 4}, 1.0 / 3, 0.25, 1000},
    {"released, measured", {.policy = RELEASED, .element_bytes = 4}, 1.0 / 3, 0.25, 1000},
    {"half the bandwidth",
     {.policy = PAPER, .bandwidth = 8e9, .element_bytes = 4},
     1.0 / 3,
     0.5,
     2000},
    {"operations per second",
     {.policy = PAPER, .expert_flops = 8e12, .element_bytes = 4},
     1,
     0.25,
     1000},
    {"alpha 4 instead of 2",
     {.policy = PAPER, .alpha = 4, .element_bytes = 4},
     2.0 / 3,
     0.25,
     2000},
    {"alpha 1, operations per second",
     {.policy = RELEASED, .alpha = 1, .expert_flops = 8e12, .element_bytes = 4},
     0.5,
     0.25,
     500},
    /* Width 2000 of 2 bytes; the same bytes are twice as many parameters. */
    {"two bytes per element",
     {.policy = PAPER, .expert_flops = 8e12, .element_bytes = 2},
     2,
     0.25,
     1000},
    {"two bytes, taken for four",
     {.policy = FIXED, .expert_flops = 8e12, .element_bytes = 2},
     2,
     0.5,
     2000},
};

TEST_EACH(costs_follow_the_options, COSTS, row) {
    struct mp_shadow_costs costs = mp_fastermoe_costs(&GOLDEN_SETTING, &row->options);
    assert_all_close(1e-12, 1e6 * costs.compute, row->compute, 1e6 * costs.feature, row->feature);
    assert_close(1e6 * costs.model, row->model, 1e-12);
}
