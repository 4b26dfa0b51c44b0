/* FSSDP as a system: what it copies and when, homes and what of them is saved. */
#include "tests/baselines/rehearsal.h"
#include "tests/errors.h"

#include "reference/fssdp/fssdp.h"

static uint64_t random_state;

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

TEST_ROWS(overlap_is_what_attention_hides, OVERLAP, row) {
    int64_t width = row->width;
    struct mp_setting setting = {.experts = 64,
                                 .expert_bytes = 8 * width * width,
                                 .bandwidth = row->bandwidth,
                                 .non_moe_seconds = row->seconds};
    assert_int_equal(mp_fssdp_overlap(&setting), row->overlap);
}

/* m experts in every one of 12 layers, or of two that are there at once, with their gradients; less
 * than one more fits, whatever overlaps.  Where nothing is known of memory it is no limit. */
static const struct {
    int layers;
    bool rematerialise;
    double left; /* of an expert and its gradient */
    int memory;
} memories[] = {{12, false, 36, 3}, {12, false, 35.9, 2}, {12, false, 11.9, 0}, {12, true, 36, 18},
                {12, true, 1.9, 0}, {1, true, 5, 5},      {12, false, 1e9, 64}, {12, false, 0, 64}};

TEST_ROWS(memory_is_what_is_left, memories, c) {
    const struct mp_setting setting =
        setting_of(formatted("layers=%d experts=64 top-k=1 ranks-per-node=2 tokens=8 "
                             "expert-bytes=1000 gradient-bytes=2000 bandwidth=1e9 "
                             "copies-memory=%.17g",
                             c->layers, 3000 * c->left));
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_fssdp, &setting,
                   c->rematerialise ? "overlap=all rematerialise=yes" : "overlap=all");
    assert_int_equal(rehearsal.planner.law.extra_copies_limit, c->memory);
}

/* V-FSSDP-9: what spAG brings and what spRS sums, by the plan's lists. */
TEST(golden_transfers) {
    static const int64_t power[4] = {1, 10, 100, 1000};
    static const int64_t sum[8] = {111, 1, 1010, 10, 100, 100, 1001, 1000};
    static const int32_t received[4] = {6, 0, 0, 2};
    struct mp_setting setting = {
        .layers = 1, .experts = 8, .topology = GOLDEN_TOPOLOGY, .expert_bytes = 64};
    AUTO(rehearsal) struct rehearsal rehearsal;
    int64_t gradient[8];

    rehearsal_open(&rehearsal, &mp_system_fssdp, &setting, "overlap=4 memory=1 calibrate=no");
    memcpy(rehearsal.load->count, GOLDEN_COUNT, sizeof GOLDEN_COUNT);
    assert_memory_equal(rehearsal.planner.home->owner, GOLDEN_OWNER, sizeof GOLDEN_OWNER);
    rehearsal_step(&rehearsal, rehearsal.load);
    assert_false(rehearsal.planner.change.changed);
    assert_works(mp_planner_begin_layer(&rehearsal.planner, 1, 0, &error));
    const struct mp_plan *plan = rehearsal.planner.plan;
    assert_int_equal(plan->fetch.count, 4);
    for (int index = 0; index < 4; index++)
        assert_int_equal(plan->fetch.item[index].expert, received[plan->fetch.item[index].to]);
    for (int expert = 0; expert < 8; expert++)
        gradient[expert] = power[GOLDEN_OWNER[expert]];
    for (int index = 0; index < plan->reduce.count; index++)
        gradient[plan->reduce.item[index].expert] += power[plan->reduce.item[index].from];
    assert_memory_equal(gradient, sum, sizeof sum);
}

/* What a copy costs a frugal system: its parameters there, its gradient back, three GEMMs more.  70
 * % of 4096 routes go to the first 4 of 32 experts, owned by rank 0 of 2: by hand, each of the
 * first three copies saves 537 s and the fourth 273 s (calibrate_test.c).  Forward alone it is a
 * third, and copies go one way. */
static const struct {
    double copy_seconds, seconds_per_expert;
    int copies;
    bool forward_only;
} frugal[] = {{245, 0, 3, false}, {255, 0, 0, false}, {80, 0, 4, false},   {90, 0, 3, false},
              {50, 20, 4, false}, {50, 27, 3, false}, {50, 130, 3, false}, {50, 140, 0, false},
              {163, 0, 3, true},  {170, 0, 0, true},  {50, 113, 3, true},  {50, 120, 0, true}};

TEST_ROWS(frugal_copies_pay_both_ways, frugal, c) {
    struct mp_setting setting =
        setting_of(formatted("experts=32 top-k=1 ranks=2 tokens=2048 expert-bytes=1 route-bytes=0 "
                             "bandwidth=%.17g seconds-per-route=0.5 seconds-per-expert=%g",
                             1 / c->copy_seconds, c->seconds_per_expert));
    AUTO(rehearsal) struct rehearsal rehearsal;
    setting.forward_only = c->forward_only;
    rehearsal_open(&rehearsal, &mp_system_frugal, &setting, "overlap=32 calibrate=no");
    for (int index = 0; index < 64; index++)
        rehearsal.load->count[index] = index % 32 < 4 ? 358 : 22;
    rehearsal_step(&rehearsal, rehearsal.load);
    assert_works(mp_planner_begin_layer(&rehearsal.planner, 1, 0, &error));
    assert_int_equal(rehearsal.planner.plan->fetch.count, c->copies);
}

/* Three layers of a random size, planned with these options. */
enum { LAYERS = 3 };
static void start(struct rehearsal *job, int experts, struct mp_topology topology,
                  const struct mp_fssdp_options *options) {
    struct mp_setting setting = small_setting(LAYERS, experts, topology);
    setting.bandwidth = 1e9;
    rehearsal_create(job, &mp_system_fssdp, &setting, options);
    for (int layer = 0; layer < LAYERS; layer++)
        random_load(&random_state, &job->load[layer]);
}

/* Every rank has its share of all layers' experts. */
static void check_shares(const struct mp_planner *planner) {
    int experts = planner->setting.experts, ranks = planner->setting.topology.ranks;
    int owned[24] = {0};
    for (int at = 0; at < LAYERS * experts; at++)
        owned[planner->home[at / experts].owner[at % experts]]++;
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(owned[rank], mp_shard_slots(LAYERS, experts, ranks, rank));
}

/* Homes change when they are due; before anything is known copies come after the gate. */
TEST(homes_change_when_they_are_due) {
    for (int round = 0; round < 40; round++) {
        const struct mp_fssdp_options options = {.window = 2,
                                                 .overlap = test_random_int(&random_state, 0, 4),
                                                 .memory = test_random_int(&random_state, 0, 10),
                                                 .reshard_interval =
                                                     test_random_int(&random_state, 0, 4),
                                                 .rematerialise = round % 2};
        AUTO(rehearsal) struct rehearsal job;
        start(&job, test_random_int(&random_state, 1, 40), random_topology(&random_state, 24),
              &options);
        const struct mp_planner *planner = &job.planner;
        assert_in_range(mp_system_fssdp.copies_limit(planner->self), 0, options.memory);
        for (int iteration = 0; iteration < 7; iteration++) {
            for (int layer = 0; layer < LAYERS; layer++) {
                random_load(&random_state, &job.load[layer]);
                rehearsal_plan(&job, layer, &job.load[layer]);
                assert_int_equal(planner->plan->policy->rematerialise, options.rematerialise);
                for (int i = 0; iteration == 0 && i < planner->plan->fetch.count; i++)
                    assert_int_equal(planner->plan->fetch.item[i].stage, MP_STAGE_AFTER_GATE);
            }
            rehearsal_step(&job, job.load);
            int interval = options.reshard_interval;
            assert_int_equal(planner->change.changed,
                             interval > 0 && (iteration + 1) % interval == 0);
            check_shares(planner);
        }
    }
}

/* With loads that repeat, the second re-sharding finds nothing to do. */
TEST(a_second_resharding_changes_nothing) {
    const struct mp_fssdp_options options = {.window = 3, .reshard_interval = 1};
    int all = 0;
    for (int round = 0; round < 40; round++) {
        AUTO(rehearsal) struct rehearsal job;
        start(&job, test_random_int(&random_state, 1, 40), random_topology(&random_state, 24),
              &options);
        rehearsal_step(&job, job.load);
        int changes = job.changes;
        rehearsal_step(&job, job.load);
        assert_int_equal(job.changes, changes);
        all += changes;
    }
    assert_true(all > 0);
}

static const struct refusal refusals[] = {
    {"", "", "needs a bandwidth above 0, not 0 B/s"},
    {"bandwidth=-1", "", "needs a bandwidth above 0, not -1 B/s"},
    {"expert-bytes=0 bandwidth=1", "", "bytes per expert of at least 1, not 1 and 0"},
    {"ranks=0 bandwidth=1", "", "not 1, 8 and 0"},
    {"bandwidth=1 seconds-per-route=-1", "", "needs times of at least 0, not -1 s per route"},
    {"bandwidth=1 non-moe-seconds=-1", "", "needs times of at least 0"},
};

TEST_ROWS(impossible_settings_are_refused, refusals, c) {
    assert_refusal(&mp_system_fssdp, c);
}

TEST(no_number_is_refused) {
    struct mp_setting setting = setting_of("bandwidth=1");
    struct mp_fssdp_options options;
    setting.non_moe_seconds = NAN;
    parse_options(&mp_system_fssdp, &options, NULL);
    assert_refused(&mp_system_fssdp, &setting, &options, "needs times of at least 0");
}

TEST_SEED(random_state);
