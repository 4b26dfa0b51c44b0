/* Tutel: its defaults, capacities of all three kinds, the model's seconds, trials and what they
 * leave behind, restarts, parameters that are gathered, and refusals.
 */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"
#include "baselines/tutel/tutel.h"

/* 4 nodes of 2 ranks with an expert each. */
static struct mp_setting setting_with(int tokens) {
    return setting_of(formatted("layers=2 ranks=8 ranks-per-node=2 tokens=%d bandwidth=1e9 "
                                "bandwidth-in-node=4e9",
                                tokens));
}

/* ceil(20/8) = 3 routes are an even share of one choice.  Largest count: 11. */
static const struct {
    const char *factor;
    int64_t capacity;
} fixed_or_not[] = {{"1.0", 6}, {"1.5", 8}, {"0", 11}, {"-1.5", 8}, {"-4", 11}};

TEST_ROWS(capacity_is_fixed_or_follows_loads, fixed_or_not, c) {
    const struct mp_setting setting = setting_with(20);
    AUTO(rehearsal) struct rehearsal on;
    rehearsal_open(&on, &mp_system_tutel, &setting, formatted("capacity-factor=%s", c->factor));
    on.load[0].count[3 * 8 + 5] = 11;
    on.load[0].count[2 * 8 + 5] = 4;
    rehearsal_plan(&on, 0, &on.load[0]);
    const struct mp_plan *plan = on.planner.plan;
    assert_numbers(plan->padding, c->capacity, plan->source_capacity, c->capacity);
    assert_int_equal(plan->policy->route_order, MP_ROUTES_BY_CHOICE);
    assert_false(plan->policy->renormalise_survivors);
    assert_int_equal(mp_plan_routes_to(plan, 3, 5, 5), c->capacity < 11 ? c->capacity : 11);
    assert_int_equal(mp_plan_routes_to(plan, 2, 5, 5), 4);
}

/* Of an expert's ranks each takes a piece of the capacity: 1 floor(1.2 ceil(20/2)) = 12 routes, or
 * the largest count, 5, of which a load has none above 20. */
static const struct {
    int ranks;
    const char *factor;
    int64_t capacity, limit;
} pieces[] = {{2, "1.2", 12, 12},     {8, "1.2", 12, 12},    {10, "1.2", 15, 15},
              {8, "0", 8, 20},        {6, "-0.3", 3, 3},     {6, "0", 6, 21},
              {512, "1.2", 256, 256}, {516, "1.2", 384, 384}};

TEST_ROWS(capacity_is_cut_among_an_experts_ranks, pieces, c) {
    struct mp_setting setting = setting_with(20);
    AUTO(rehearsal) struct rehearsal on;
    const char *given = formatted("capacity-factor=%s", c->factor);
    setting.experts = 2;
    setting.top_k = 1;
    setting.topology.ranks = c->ranks;
    rehearsal_open(&on, &mp_system_tutel, &setting, given);
    on.load[0].count[3] = 5;
    rehearsal_plan(&on, 0, &on.load[0]);
    assert_int_equal(on.planner.plan->padding, c->capacity);
    struct mp_tutel_options options;
    parse_options(&mp_system_tutel, &options, given);
    assert_int_equal(mp_system_tutel.padding_limit(&setting, &options), c->limit);
}

/* 8 ranks in nodes of 2, 1 GB/s between and 4 inside; 1 us a message, 4000 bytes a chunk. */
TEST(model_counts_bytes_and_messages) {
    struct mp_setting setting = setting_with(20);
    assert_close(mp_tutel_seconds(&setting, 1e-6, 8, MP_EXCHANGE_FLAT, 4000), 6 * (1e-6 + 4e-6),
                 1e-15);
    assert_close(mp_tutel_seconds(&setting, 1e-6, 8, MP_EXCHANGE_TWO_LEVEL, 4000),
                 (1e-6 + 4 * 1e-6) + 3 * (1e-6 + 8e-6), 1e-15);
    setting.topology.ranks_per_node = 4; /* of which a group of 2 has one message each */
    assert_close(mp_tutel_seconds(&setting, 1e-6, 2, MP_EXCHANGE_FLAT, 4000), 2e-6, 1e-15);
    setting.topology.ranks_per_node = 2;
    setting.bandwidth = 1e12; /* then the one inside takes longest */
    assert_close(mp_tutel_seconds(&setting, 0, 8, MP_EXCHANGE_FLAT, 4e6), 1e-3, 1e-12);
}

/* Exchanges of so many iterations of both layers, a letter each: f or t. */
static void run(struct rehearsal *on, int iterations, const char *expected) {
    char text[64], *at = text;
    for (int i = 0; i < iterations; i++) {
        for (int l = 0; l < 2; l++) {
            rehearsal_plan(on, l, &on->load[l]);
            *at++ = on->planner.plan->exchange == MP_EXCHANGE_FLAT ? 'f' : 't';
        }
        rehearsal_step(on, on->load);
    }
    *at = 0;
    assert_string_equal(text, expected);
}

static const char dynamic[] = "capacity-factor=0 trials=2 degree=1";

/* Two trials of both ways; then few bytes go in two levels and many flat: 6 m + 6 b/W against
 * 4 m + 4 b/V + 6 b/W with V = 4 W: flat from b = 2 m W = 8000 bytes, 1000 routes, on, judged by
 * the middle of the entry. */
TEST(keys_are_tried_and_then_decided) {
    const struct mp_setting setting = setting_with(20000);
    AUTO(rehearsal) struct rehearsal on;
    rehearsal_open(&on, &mp_system_tutel, &setting, dynamic);
    on.load[0].count[3] = 200;
    on.load[1].count[3] = 8000;
    run(&on, 6, "fffftttttftf");
    on.load[0].count[3] = 129;  /* of the same key, 128 .. 255 */
    on.load[1].count[3] = 1023; /* of another, whose middle is 960 */
    run(&on, 6, "tftftttttttt");
    on.load[0].count[3] = 1024;
    run(&on, 5, "ftftttttft");
}

/* 8 ranks as above, 4000 bytes of each chunk of two take 24 us flat; 20 us of work, 40 in backward.
 * Forward: chunks are here at 24 and 48, computed at 44 and 68, back at 72 (behind all that set
 * out) and 96; backward computed at 64 and 104, back at 88 and 128.  In one: 48 + 40 + 48, 48 + 80
 * + 48. An expert's parameters are read for each chunk. */
TEST(chunks_travel_under_work) {
    struct mp_setting setting = setting_with(20);
    setting.seconds_per_route = 1e-6;
    assert_close(mp_tutel_way_seconds(&setting, 0, 8, MP_EXCHANGE_FLAT, 2, 8000, 40, 3), 224e-6,
                 1e-12);
    assert_close(mp_tutel_way_seconds(&setting, 0, 8, MP_EXCHANGE_FLAT, 1, 8000, 40, 3), 312e-6,
                 1e-12);
    setting.forward_only = true;
    assert_close(mp_tutel_way_seconds(&setting, 0, 8, MP_EXCHANGE_FLAT, 2, 8000, 40, 3), 96e-6,
                 1e-12);
    setting.forward_only = false;
    setting.seconds_per_expert =
        10e-6; /* 50 and 100 us a chunk: 24, 74, 124, 148; 24, 124, 224, 248 */
    assert_close(mp_tutel_way_seconds(&setting, 0, 8, MP_EXCHANGE_FLAT, 2, 8000, 40, 3), 396e-6,
                 1e-12);
}

/* Exchange and degree of layer 0 in one iteration after the other: f1, t8, .... */
static void run_ways(const struct mp_setting *setting, const char *options, int iterations,
                     const char *expected) {
    AUTO(rehearsal) struct rehearsal on;
    char text[64] = "", *at = text;
    rehearsal_open(&on, &mp_system_tutel, setting, options);
    for (int i = 0; i < iterations; i++) {
        rehearsal_plan(&on, 0, &on.load[0]);
        const struct mp_plan *plan = on.planner.plan;
        at += sprintf(at, "%c%d", plan->exchange == MP_EXCHANGE_FLAT ? 'f' : 't', plan->degree);
        rehearsal_step(&on, on.load);
    }
    assert_string_equal(text, expected);
}

/* All eight ways, then the best: with nothing to work on one chunk, with work as long as travelling
 * as many as there are while messages are free, fewer where each costs. */
TEST(degrees_are_tried_with_exchanges) {
    struct mp_setting setting = setting_with(20);
    setting.knows_messages = true;
    run_ways(&setting, NULL, 10, "f1f2f4f8t1t2t4t8f1f1");
    setting.seconds_per_route = 40e-9;
    run_ways(&setting, NULL, 10, "f1f2f4f8t1t2t4t8f8f8");
    setting.message_seconds = 3e-7;
    run_ways(&setting, NULL, 10, "f1f2f4f8t1t2t4t8t4t4");
    setting.topology.ranks_per_node = 8;
    run_ways(&setting, NULL, 5, "f1f2f4f8f4");
    run_ways(&setting, "degree=3", 2, "f3f3");
    run_ways(&setting, "r=0", 2, "f1f1");
    setting.exchange_degree = 4; /* the job's */
    run_ways(&setting, NULL, 2, "f4f4");
}

/* Where messages cost their bytes alone, two levels are tried and never taken. */
TEST(a_known_cost_of_messages_decides) {
    struct mp_setting setting = setting_with(20000);
    setting.knows_messages = true;
    for (int i = 0; i < 2; i++) {
        AUTO(rehearsal) struct rehearsal on;
        setting.message_seconds = i * 1e-5;
        rehearsal_open(&on, &mp_system_tutel, &setting, dynamic);
        on.load[0].count[3] = on.load[1].count[3] =
            i ? 2000 : 1; /* flat, and two levels, by the option */
        run(&on, 6, i ? "fffftttttttt" : "ffffttttffff");
    }
}

TEST(trials_survive_restarts) {
    struct mp_setting setting = setting_with(20000);
    AUTO(rehearsal) struct rehearsal on, other;
    rehearsal_open(&on, &mp_system_tutel, &setting, dynamic);
    on.load[0].count[3] = on.load[1].count[3] = 200;
    run(&on, 1, "ff");
    size_t size = mp_system_tutel.save(on.planner.self, NULL, 0);
    AUTO(allocated) void *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(mp_system_tutel.save(on.planner.self, bytes, size), size);
    setting.tokens_per_rank = 10000; /* fewer keys */
    rehearsal_open(&other, &mp_system_tutel, &setting, dynamic);
    other.load[0].count[3] = other.load[1].count[3] = 200;
    assert_works(mp_system_tutel.load(other.planner.self, bytes, size, &error));
    run(&on, 4, "fftttttt");
    run(&other, 4, "fftttttt");
}

static const struct {
    int ranks_per_node, experts;
    const char *r, *exchange, *kinds;
} levels[] = {
    {2, 8, "1", "auto", "ffttttt"},      {2, 8, "1", "two-level", "ttttttt"},
    {2, 8, "1", "flat", "fffffff"},      {8, 8, "1", "auto", "fffffff"}, /* one node */
    {1, 8, "1", "auto", "fffffff"},                                      /* a rank each */
    {4, 4, "1", "two-level", "fffffff"}, /* groups of 4 inside nodes */
    {2, 8, "0", "auto", "fffffff"},
};

TEST_ROWS(only_where_there_are_levels, levels, c) {
    struct mp_setting setting = setting_with(20);
    AUTO(rehearsal) struct rehearsal on;
    setting.topology.ranks_per_node = c->ranks_per_node;
    setting.experts = c->experts;
    rehearsal_open(&on, &mp_system_tutel, &setting,
                   formatted("r=%s exchange=%s degree=1", c->r, c->exchange));
    run(&on, 3, formatted("%.6s", c->kinds));
}

/* 8 experts of 64 bytes and their gradients: 8 * (128 + 64) * 7/8 at 1 GB/s are 1.344 us. Four
 * exchanges of chunks of 2 * 3 routes of 8 bytes: (1 + 3) messages and 4 * 48/4 + 3 * 96 bytes at
 * 1 GB/s in two levels, flat 6 and 6 * 48. */
TEST(experts_travel_where_they_are_smaller) {
    struct mp_setting setting = setting_with(20);
    struct mp_tutel_options options;
    void *self;
    parse_options(&mp_system_tutel, &options, "r=auto");
    setting.gradient_bytes = 64;
    options.message_cost = 0;
    assert_close(mp_tutel_travel_seconds(&setting, &options, 0), 1.344e-6, 1e-15);
    assert_close(mp_tutel_travel_seconds(&setting, &options, 1), 4 * 288e-9, 1e-15);
    options.message_cost = 1e-7;
    assert_close(mp_tutel_travel_seconds(&setting, &options, 1), 4 * (4e-7 + 336e-9), 1e-15);
    options.exchange = MP_TUTEL_FLAT;
    assert_close(mp_tutel_travel_seconds(&setting, &options, 1), 4 * (6e-7 + 288e-9), 1e-15);
    struct mp_setting serving = setting;
    serving.forward_only = true;
    serving.gradient_bytes = 0;
    assert_close(mp_tutel_travel_seconds(&serving, &options, 0), 448e-9, 1e-15);
    assert_close(mp_tutel_travel_seconds(&serving, &options, 1), 2 * (6e-7 + 288e-9), 1e-15);
    for (int r = 0; r < 2; r++) {
        options.message_cost = r ? 0 : 1e-7;
        assert_int_equal(mp_system_create(&mp_system_tutel, &setting, &options, &self, NULL),
                         MP_OK);
        struct mp_policy policy = mp_policy_plain;
        mp_system_tutel.policy(self, &policy);
        assert_int_equal(policy.optimizer, r ? MP_OPTIMIZER_OWNER : MP_OPTIMIZER_SLICES);
        mp_system_destroy(&mp_system_tutel, self);
    }
}

/* 2 experts of 64 bytes and their gradients on 8 ranks in nodes of 2, a capacity of 2 * 10 routes
 * of 8 bytes rounded up to 4 pieces: 160 bytes a chunk at 1 GB/s between nodes, in flat exchanges.
 */
TEST(more_ranks_than_experts_may_cut_them) {
    struct mp_setting setting = setting_with(20);
    struct mp_tutel_options options;
    parse_options(&mp_system_tutel, &options, "r=auto exchange=flat");
    options.message_cost = 0;
    setting.experts = 2;
    setting.gradient_bytes = 64;
    setting.expert_width = 12;
    /* Groups of 2 in a node, 4 of them: 4 chunks inside, an expert's gradient there and back. */
    assert_close(mp_tutel_travel_seconds(&setting, &options, 1), 4 * 40e-9 + 2 * 64e-9, 1e-15);
    /* Groups of 4 in two nodes: 2 chunks to the other one, and of half an expert. */
    assert_close(mp_tutel_travel_seconds(&setting, &options, 2), 4 * 320e-9 + 2 * 32e-9, 1e-15);
    assert_close(mp_tutel_travel_seconds(&setting, &options, 4), 4 * 960e-9, 1e-15);
    setting.forward_only = true; /* replicas have no gradients to sum */
    assert_close(mp_tutel_travel_seconds(&setting, &options, 2), 2 * 320e-9, 1e-15);
    setting.forward_only = false;
    static const struct {
        int64_t bytes; /* of a gradient */
        int width, shards;
    } cases[] = {{64, 12, 1}, {64 << 10, 12, 4}, {64 << 10, 6, 2}, {64 << 10, 5, 1}, {2048, 12, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setting.expert_bytes = 100 * cases[i].bytes; /* too much to gather */
        setting.gradient_bytes = cases[i].bytes;
        setting.expert_width = cases[i].width;
        assert_int_equal(mp_system_shards(&mp_system_tutel, &setting, &options), cases[i].shards);
    }
    setting.expert_width = 12;
    options.message_cost = 1; /* r 0 is without */
    assert_int_equal(mp_system_shards(&mp_system_tutel, &setting, &options), 1);
    options.r = 4;
    assert_int_equal(mp_system_shards(&mp_system_tutel, &setting, &options), 4);
    setting.shards = 2;
    assert_int_equal(mp_system_shards(&mp_system_tutel, &setting, &options), 2);
}

/* Of 2 experts on 8 ranks in groups of 4, whose rank i has shard i / 2 of expert i % 2: both shards
 * get a source's routes, as many as a whole expert's capacity lets, and are replicas. */
TEST(shards_get_their_experts_routes) {
    struct mp_setting setting = setting_with(20);
    AUTO(rehearsal) struct rehearsal on;
    setting.shards = 2;
    setting.experts = 4;
    setting.top_k = 2;
    rehearsal_open(&on, &mp_system_tutel, &setting, "r=2 capacity-factor=1.3");
    on.load[0].count[6 * 4 + 1] = 17;
    mp_load_repeat(&on.load[0], 2);
    rehearsal_plan(&on, 0, &on.load[0]);
    const struct mp_plan *plan = on.planner.plan;
    assert_int_equal(plan->padding, 16); /* 1 floor(1.3 ceil(20/2)), in 4 pieces */
    assert_int_equal(plan->policy->optimizer, MP_OPTIMIZER_REPLICATED);
    for (int p = 0; p < 4; p++) {
        assert_int_equal(mp_placement_copies(&plan->before, p), 2);
        assert_int_equal(mp_plan_routes_to(plan, 6, p, 4 + p), p % 2 ? 16 : 0);
    }
}

/* r 0: no route leaves its rank, experts are put together for forward and for backward. */
TEST(all_experts_can_come_to_the_tokens) {
    const struct mp_setting setting = setting_with(20);
    AUTO(rehearsal) struct rehearsal on;
    rehearsal_open(&on, &mp_system_tutel, &setting, "r=0 capacity-factor=0");
    for (int cell = 0; cell < 64; cell++)
        on.load[0].count[cell] = (uint32_t)(cell % 5);
    rehearsal_plan(&on, 0, &on.load[0]);
    const struct mp_plan *plan = on.planner.plan;
    assert_int_equal(plan->policy->optimizer, MP_OPTIMIZER_SLICES);
    assert_true(plan->policy->gather_before_gate);
    assert_true(plan->policy->rematerialise);
    for (int s = 0; s < 8; s++)
        for (int e = 0; e < 8; e++)
            assert_int_equal(mp_plan_routes_to(plan, s, e, s), mp_load_at(&on.load[0], s, e));
}

#define EIGHT_RANKS "ranks=8 tokens=20 bandwidth=1e9 bandwidth-in-node=4e9 "

static const struct refusal refusals[] = {
    {EIGHT_RANKS, "r=2", "tutel with r 2 needs experts that are cut into shards"},
    {EIGHT_RANKS "shards=2 experts=16", "r=2",
     "tutel's r 2 is no divisor of the ranks that an expert can have: 8 ranks over 8 experts make "
     "1"},
    {EIGHT_RANKS, "degree=0", "tutel's degree is 1 to 8, or auto"},
    {EIGHT_RANKS, "degree=all", "tutel's degree is 1 to 8, or auto"},
    {EIGHT_RANKS, "capacity-factor=0.1", "capacity factor 0.1"},
    {EIGHT_RANKS "experts=12", "", "tutel"},
};

TEST_ROWS(refuses_what_it_can_not_do, refusals, c) {
    assert_refusal(&mp_system_tutel, c);
}
