/* The system free-balance: perfect balance on any load, few copies, own tokens first, legal plans.
 */
#include "tests/reference/plan/plan_support.h"

#include "baselines/free_balance/free_balance.h"

static struct mp_arena memory;

enum { MOST_RANKS = 70, MOST_EXPERTS = 60 };

TEST(it_says_what_it_is) {
    struct mp_systems systems = {0};
    assert_works(mp_systems_register(&systems, &mp_system_free_balance, &error));
    assert_true(mp_system_free_balance.capabilities & MP_SYSTEM_UNATTAINABLE);
    assert_non_null(strstr(mp_system_free_balance.title, "unattainable"));
    assert_non_null(strstr(mp_system_free_balance.models, "no system attains"));
}

/* Routes of four experts on three ranks that own 0 and 1, 2, 3, and what becomes of them. */
struct known_case {
    const char *name;
    int64_t total[4];
    int64_t piece[4][3]; /* of each expert on each rank */
};
static const struct known_case KNOWN[] = {
    {"balanced already", {5, 5, 10, 10}, {{5, 0, 0}, {5, 0, 0}, {0, 10, 0}, {0, 0, 10}}},
    {"the remainder goes to the fullest",
     {5, 6, 10, 10},
     {{5, 0, 0}, {6, 0, 0}, {0, 10, 0}, {0, 0, 10}}},
    {"one hot expert", {30, 0, 0, 0}, {{10, 10, 10}, {0}, {0}, {0}}},
    /* The second piece is of the other expert, which has most left. */
    {"two hot experts", {50, 50, 0, 0}, {{17, 33, 0}, {17, 0, 33}, {0}, {0}}},
    {"two ranks over their share", {20, 0, 16, 0}, {{12, 0, 8}, {0}, {0, 12, 4}, {0}}},
    {"several cuts of one rank", {8, 8, 2, 0}, {{4, 4, 0}, {2, 0, 6}, {0, 2, 0}, {0}}},
    {"an expert that is given up", {6, 6, 0, 6}, {{0, 6, 0}, {6, 0, 0}, {0}, {0, 0, 6}}},
    {"a route", {0, 0, 0, 1}, {{0}, {0}, {0}, {0, 0, 1}}},
    {"no routes", {0}, {{0}}},
};

TEST(known_loads_are_cut_as_documented) {
    static const int32_t OWNER[4] = {0, 0, 1, 2};
    for (size_t index = 0; index < sizeof KNOWN / sizeof *KNOWN; index++) {
        const struct known_case *row = &KNOWN[index];
        int64_t piece[4][3] = {{0}};
        struct mp_free_balance state;
        print_message("  %s\n", row->name);
        assert_works(mp_free_balance_create(&memory, 3, 4, &state, &error));
        memcpy(state.total, row->total, sizeof row->total);
        assert_works(mp_free_balance_decide(&state, OWNER, &error));
        for (int expert = 0; expert < 4; expert++)
            for (int32_t at = state.pieces.first[expert]; at >= 0; at = state.pieces.item[at].next)
                piece[expert][state.pieces.item[at].rank] += state.pieces.item[at].routes;
        assert_memory_equal(piece, row->piece, sizeof piece);
        mp_arena_release(&memory);
    }
}

/* A random job, planned by two instances. */
struct job {
    struct mp_setting setting;
    struct mp_load load;
    struct mp_placement home;
    struct mp_policy policy;
    struct mp_plan plan[2];
    void *self[2];
};

static void create_job(uint64_t *random, struct job *job) {
    int experts = test_random_int(random, 1, MOST_EXPERTS);
    *job = (struct job){.setting = {.layers = 1,
                                    .experts = experts,
                                    .top_k = 2,
                                    .topology = random_topology(random, MOST_RANKS),
                                    .expert_bytes = 64}};
    int ranks = job->setting.topology.ranks;
    assert_works(mp_load_create(ranks, experts, &job->load, &error));
    random_load(random, &job->load);
    assert_works(mp_placement_create(ranks, experts, &job->home, &error));
    for (int index = 0; index < 2; index++) {
        assert_works(mp_system_create(&mp_system_free_balance, &job->setting, NULL,
                                      &job->self[index], &error));
        assert_works(
            mp_plan_create(&job->setting.topology, experts, 64, &job->plan[index], &error));
        job->plan[index].policy = &job->policy;
    }
    mp_system_policy(&mp_system_free_balance, job->self[0], &job->setting, &job->policy);
    assert_true(job->policy.free_transfers);
    assert_works(
        mp_system_initial_homes(&mp_system_free_balance, job->self[0], 1, &job->home, &error));
}

static void destroy_job(struct job *job) {
    for (int index = 0; index < 2; index++) {
        mp_system_destroy(&mp_system_free_balance, job->self[index]);
        mp_plan_destroy(&job->plan[index]);
    }
    mp_placement_destroy(&job->home);
    mp_load_destroy(&job->load);
}

static void plan_twice(struct job *job) {
    struct mp_plan_law law = {.extra_copies_limit =
                                  mp_system_free_balance.copies_limit(job->self[0])};
    int64_t pairs = (int64_t)job->load.ranks * job->load.experts;
    for (int index = 0; index < 2; index++) {
        struct mp_plan *plan = &job->plan[index];
        assert_works(mp_system_begin_plan(&mp_system_free_balance, job->self[index], 0, 0,
                                          &job->home, plan, &error));
        assert_works(mp_system_free_balance.after_gate(job->self[index], &job->load, plan, &error));
        assert_works(mp_plan_check(plan, &job->load, &law, NULL, &error));
    }
    assert_int_equal(job->plan[0].fetch.count, job->plan[1].fetch.count);
    assert_memory_equal(job->plan[0].part_begin, job->plan[1].part_begin,
                        (size_t)(pairs + 1) * sizeof *job->plan[0].part_begin);
}

/* Copies against what free_balance.h says: cuts between ranks, and experts that left their owner.
 */
static void check_copies(const struct mp_plan *plan, const int64_t total[]) {
    int left = 0;
    for (int expert = 0; expert < plan->experts; expert++) {
        int64_t kept = 0;
        for (int source = 0; source < plan->topology.ranks; source++)
            kept += mp_plan_routes_to(plan, source, expert, plan->during.owner[expert]);
        left += total[expert] > 0 && kept == 0;
    }
    assert_true(plan->fetch.count <= plan->topology.ranks - 1 + left);
}

/* Of its part of an expert a rank computes as many routes of its own tokens as there are. */
static void check_local(const struct mp_plan *plan, const struct mp_load *load) {
    for (int expert = 0; expert < plan->experts; expert++)
        for (int at = plan->holder_begin[expert]; at < plan->holder_begin[expert + 1]; at++) {
            int rank = plan->holder[at];
            int64_t own = mp_load_at(load, rank, expert), computed = 0;
            for (int source = 0; source < plan->topology.ranks; source++)
                computed += mp_plan_routes_to(plan, source, expert, rank);
            assert_int_equal(mp_plan_routes_to(plan, rank, expert, rank),
                             own < computed ? own : computed);
        }
}

TEST_RANDOM(every_rank_computes_as_much_as_every_other) {
    int64_t copies = 0;
    for (int round = 0; round < 200; round++) {
        int64_t computed[MOST_RANKS], total[MOST_EXPERTS];
        struct job job;
        create_job(random, &job);
        plan_twice(&job);
        rank_routes(&job.plan[0], computed, NULL, NULL);
        int64_t each = mp_load_total(&job.load) / job.load.ranks;
        for (int rank = 0; rank < job.load.ranks; rank++)
            assert_true(computed[rank] == each || computed[rank] == each + 1);
        mp_load_expert_totals(&job.load, total);
        check_copies(&job.plan[0], total);
        check_local(&job.plan[0], &job.load);
        copies += job.plan[0].fetch.count;
        destroy_job(&job);
    }
    print_message("  %lld copies\n", (long long)copies);
    assert_true(copies > 0);
}

TEST(what_cannot_be_is_refused) {
    struct mp_setting setting = {.layers = 1, .experts = 0, .topology = {4, 2}};
    struct mp_free_balance state;
    void *self = &state;
    assert_sentence(mp_system_create(&mp_system_free_balance, &setting, NULL, &self, &error),
                    MP_EREFUSED,
                    "free-balance needs layers, experts and ranks of at least 1, not 1, 0 and 4");
    assert_null(self);
    assert_int_equal(mp_free_balance_create(&memory, 0, 4, &state, NULL), MP_EINVAL);
}
