/* MoonEP: golden decisions, the published procedure word by word, exact balance
 * with few copies on any load, plans that are legal and late, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/moonep/moonep.h"

static struct mp_arena memory;

enum { MOST_RANKS = 40, MOST_EXPERTS = 60 };

/* ---- decisions ---- */

/* Routes of expert on rank, from the pieces; those of an expert are on ascending ranks. */
static void lay_out(const struct mp_moonep *state, int64_t routes[MOST_EXPERTS][MOST_RANKS]) {
    memset(routes, 0, sizeof(int64_t[MOST_EXPERTS][MOST_RANKS]));
    for (int expert = 0; expert < state->experts; expert++) {
        int last = -1;
        for (int32_t at = state->pieces.first[expert]; at >= 0; at = state->pieces.item[at].next) {
            const struct mp_piece *piece = &state->pieces.item[at];
            assert_true(piece->rank > last && piece->routes > 0);
            last = piece->rank;
            routes[expert][piece->rank] = piece->routes;
        }
    }
}

/* V-MOON: four ranks with two experts each; routes of each expert on each rank. */
struct golden_case {
    const char *name;
    int64_t total[8];
    int64_t routes[8][4];
};
static const struct golden_case GOLDEN[] = {
    {"V-MOON-1",
     {40, 10, 5, 5, 10, 10, 0, 0},
     {{10, 10, 0, 20}, {10}, {0, 5}, {0, 5}, {0, 0, 10}, {0, 0, 10}, {0}, {0}}},
    {"V-MOON-2",
     {1, 2, 3, 4, 30, 20, 10, 10},
     {{1}, {2}, {0, 3}, {0, 4}, {17, 0, 13, 0}, {0, 13, 7, 0}, {0, 0, 0, 10}, {0, 0, 0, 10}}},
    {"V-MOON-3", {0, 0, 0, 0, 0, 0, 80, 0}, {{0}, {0}, {0}, {0}, {0}, {0}, {20, 20, 20, 20}, {0}}},
    {"V-MOON-4",
     {20, 0, 10, 10, 5, 15, 12, 8},
     {{20}, {0}, {0, 10}, {0, 10}, {0, 0, 5}, {0, 0, 15}, {0, 0, 0, 12}, {0, 0, 0, 8}}},
    /* Of a hundred thousand routes that don't divide, the fullest groups have one more. */
    {"a remainder",
     {100002, 0, 1, 0, 0, 0, 0, 0},
     {{25001, 25000, 25001, 25000}, {0}, {0, 1}, {0}, {0}, {0}, {0}, {0}}},
    {"no routes", {0}, {{0}}},
};

TEST(golden_decisions) {
    static const int32_t OWNER[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    static const struct mp_moonep_options OPTIONS = {0};
    struct mp_moonep state;
    assert_works(mp_moonep_create(&memory, 4, 8, &state, &error));
    for (size_t index = 0; index < sizeof GOLDEN / sizeof *GOLDEN; index++) {
        const struct golden_case *row = &GOLDEN[index];
        int64_t routes[MOST_EXPERTS][MOST_RANKS];
        print_message("  %s\n", row->name);
        memcpy(state.total, row->total, sizeof row->total);
        assert_works(mp_moonep_decide(&state, &OPTIONS, OWNER, &error));
        lay_out(&state, routes);
        for (int expert = 0; expert < 8; expert++)
            for (int rank = 0; rank < 4; rank++)
                assert_int_equal(routes[expert][rank], row->routes[expert][rank]);
    }
    mp_arena_release(&memory);
}

/* A random case, and what the procedure as published makes of it. */
struct decision {
    int ranks, experts;
    int32_t owner[MOST_EXPERTS];
    int64_t total[MOST_EXPERTS], routes[MOST_EXPERTS][MOST_RANKS], share[MOST_RANKS];
    int64_t given[MOST_RANKS][MOST_RANKS]; /* z */
};

static int first_largest(const int64_t value[], int count) {
    int found = 0;
    for (int index = 1; index < count; index++)
        found = value[index] > value[found] ? index : found;
    return found;
}

static int first_least(const int64_t value[], int count) {
    int found = 0;
    for (int index = 1; index < count; index++)
        found = value[index] < value[found] ? index : found;
    return found;
}

/* Owned like neighbours, or anyhow; most experts cold, a few hot. */
static void draw_example(uint64_t *random, struct decision *example) {
    bool neighbours = test_random_int(random, 0, 1);
    *example = (struct decision){.ranks = test_random_int(random, 1, MOST_RANKS),
                                 .experts = test_random_int(random, 1, MOST_EXPERTS)};
    for (int expert = 0; expert < example->experts; expert++) {
        int heat = test_random_int(random, 0, 9);
        example->owner[expert] = neighbours
                                     ? mp_contiguous_owner(expert, example->experts, example->ranks)
                                     : test_random_int(random, 0, example->ranks - 1);
        example->total[expert] = test_random_int(random, 0,
                                                 heat < 3   ? 0
                                                 : heat < 6 ? 3
                                                 : heat < 9 ? 100
                                                            : 100000);
    }
}

/* The shares: even, and one more for as many of the fullest groups as there are routes over. */
static void share(struct decision *example) {
    int64_t load[MOST_RANKS] = {0}, sum = 0;
    for (int expert = 0; expert < example->experts; expert++) {
        load[example->owner[expert]] += example->total[expert];
        sum += example->total[expert];
    }
    for (int rank = 0; rank < example->ranks; rank++)
        example->share[rank] = sum / example->ranks;
    for (int64_t over = sum % example->ranks; over > 0; over--) {
        int rank = first_largest(load, example->ranks);
        example->share[rank]++;
        load[rank] = -1;
    }
}

static void follow_procedure(struct decision *example, double allowed) {
    int64_t balance[MOST_RANKS];
    for (int rank = 0; rank < example->ranks; rank++)
        balance[rank] = -example->share[rank];
    for (int expert = 0; expert < example->experts; expert++)
        balance[example->owner[expert]] += example->total[expert];
    for (int h; (double)balance[h = first_largest(balance, example->ranks)] > allowed;) {
        int u = first_least(balance, example->ranks);
        example->given[h][u] = -balance[u];
        balance[h] += balance[u];
        balance[u] = 0;
    }
    for (int h = 0; h < example->ranks; h++) {
        int64_t left[MOST_EXPERTS], quota[MOST_RANKS];
        memcpy(quota, example->given[h], sizeof quota);
        for (int expert = 0; expert < example->experts; expert++)
            left[expert] = example->owner[expert] == h ? example->total[expert] : 0;
        for (int d; quota[d = first_largest(quota, example->ranks)] > 0;) {
            int e = first_largest(left, example->experts);
            int64_t take = left[e] < quota[d] ? left[e] : quota[d];
            example->routes[e][d] += take;
            left[e] -= take;
            quota[d] -= take;
        }
        for (int expert = 0; expert < example->experts; expert++)
            if (example->owner[expert] == h)
                example->routes[expert][h] = left[expert];
    }
}

/* Every rank has its share, give or take what is allowed, and copies of one group alone. */
static void check_balance(const struct decision *example, double allowed) {
    for (int rank = 0; rank < example->ranks; rank++) {
        int64_t computed = 0;
        int group = -1;
        for (int expert = 0; expert < example->experts; expert++) {
            computed += example->routes[expert][rank];
            if (!example->routes[expert][rank] || example->owner[expert] == rank)
                continue;
            assert_true(group < 0 || group == example->owner[expert]);
            group = example->owner[expert];
        }
        assert_true((double)(computed - example->share[rank]) <= allowed);
        if (allowed == 0)
            assert_int_equal(computed, example->share[rank]);
    }
}

static int decisions_with(uint64_t *random, double tolerance) {
    const struct mp_moonep_options options = {.tolerance = tolerance};
    static struct decision example;
    static int64_t routes[MOST_EXPERTS][MOST_RANKS];
    struct mp_moonep state;
    int64_t sum = 0;
    draw_example(random, &example);
    share(&example);
    for (int expert = 0; expert < example.experts; expert++)
        sum += example.total[expert];
    double allowed = tolerance * (double)sum / example.ranks;
    follow_procedure(&example, allowed);
    check_balance(&example, allowed);
    assert_works(mp_moonep_create(&memory, example.ranks, example.experts, &state, &error));
    for (int twice = 0; twice < 2; twice++) { /* nothing is left of the first time */
        memcpy(state.total, example.total, sizeof(int64_t) * (size_t)example.experts);
        assert_works(mp_moonep_decide(&state, &options, example.owner, &error));
    }
    lay_out(&state, routes);
    assert_memory_equal(routes, example.routes, sizeof routes);
    int pieces = state.pieces.count;
    mp_arena_release(&memory);
    return pieces;
}

TEST_RANDOM(decisions_are_those_of_the_procedure) {
    uint64_t again;
    int exact = 0, tolerant = 0;
    for (int round = 0; round < 500; round++) {
        again = *random;
        exact += decisions_with(random, 0);
        tolerant += decisions_with(&again, 0.2); /* the same loads */
    }
    print_message("  %d pieces, %d with a tolerance of 0.2\n", exact, tolerant);
    assert_true(tolerant < exact);
}

/* ---- plans ---- */

/* As many routes of every source, as tokens make them. */
static void even_sources(uint64_t *random, const struct mp_setting *setting, struct mp_load *load) {
    memset(load->count, 0, (size_t)load->ranks * (size_t)load->experts * sizeof *load->count);
    for (int source = 0; source < load->ranks; source++)
        for (int64_t route = 0; route < setting->tokens_per_rank * setting->top_k; route++) {
            int most = test_random_int(random, 0, load->experts - 1);
            load->count[(long)source * load->experts + test_random_int(random, 0, most)]++;
        }
}

/* An expert's routes, numbered source after source, go to its ranks in ascending runs. */
static void check_order(const struct mp_plan *plan, const struct mp_load *load) {
    for (int expert = 0; expert < plan->experts; expert++) {
        int last = -1;
        for (int source = 0; source < load->ranks; source++) {
            int count;
            const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &count);
            for (int index = 0; index < count; index++) {
                assert_int_equal(part[index].run, 1);
                assert_true(plan->holder[part[index].first] >= last);
                last = plan->holder[part[index].first];
            }
        }
    }
}

/* Exactly S * K routes for everybody, at most E / R copies from one group, all fetched late. */
static void check_plan(const struct mp_setting *setting, const struct mp_plan *plan,
                       const struct mp_load *load) {
    int64_t computed[MOST_RANKS];
    int copies[MOST_RANKS] = {0}, from[MOST_RANKS];
    rank_routes(plan, computed, NULL, NULL);
    for (int rank = 0; rank < load->ranks; rank++)
        assert_int_equal(computed[rank], setting->tokens_per_rank * setting->top_k);
    for (int index = 0; index < plan->fetch.count; index++) {
        const struct mp_transfer *fetch = &plan->fetch.item[index];
        assert_int_equal(fetch->stage, MP_STAGE_AFTER_GATE);
        if (copies[fetch->to]++ > 0)
            assert_int_equal(from[fetch->to], fetch->from);
        from[fetch->to] = fetch->from;
        assert_true(copies[fetch->to] <= setting->experts / load->ranks);
    }
    assert_false(plan->policy->rematerialise);
    check_order(plan, load);
}

TEST_RANDOM(every_rank_computes_as_much_as_every_other) {
    int64_t copies = 0;
    for (int round = 0; round < 100; round++) {
        struct mp_topology topology = random_topology(random, MOST_RANKS);
        const struct mp_setting setting = {.layers = 1,
                                           .experts =
                                               topology.ranks * test_random_int(random, 1, 4),
                                           .top_k = test_random_int(random, 1, 4),
                                           .topology = topology,
                                           .tokens_per_rank = test_random_int(random, 1, 40),
                                           .expert_bytes = 64,
                                           .route_bytes = 8};
        const struct mp_moonep_options options = {0};
        AUTO(rehearsal) struct rehearsal rehearsal;
        AUTO(load) struct mp_load load;
        assert_works(mp_load_create(topology.ranks, setting.experts, &load, &error));
        even_sources(random, &setting, &load);
        rehearsal_create(&rehearsal, &mp_system_moonep, &setting, &options);
        rehearsal_plan(&rehearsal, 0, &load);
        check_plan(&setting, rehearsal.planner.plan, &load);
        copies += rehearsal.planner.plan->fetch.count;
    }
    print_message("  %lld copies\n", (long long)copies);
    assert_true(copies > 0);
}

/* Experts, ranks, and the largest group of another rank. */
TEST(copies_are_at_most_a_group) {
    static const int row[][3] = {{8, 4, 2}, {9, 4, 3}, {3, 4, 1}, {8, 1, 0}, {896, 64, 14}};
    for (size_t index = 0; index < sizeof row / sizeof *row; index++) {
        const struct mp_setting setting = {
            .layers = 1, .experts = row[index][0], .topology = {row[index][1], 1}};
        const struct mp_moonep_options options = {0};
        void *self;
        assert_works(mp_system_create(&mp_system_moonep, &setting, &options, &self, &error));
        assert_int_equal(mp_system_moonep.copies_limit(self), row[index][2]);
        mp_system_destroy(&mp_system_moonep, self);
    }
}

TEST(what_cannot_be_is_refused) {
    struct mp_moonep_options options = {0};
    struct mp_moonep state;
    assert_refuses_none(&mp_system_moonep, &options, "tolerance", "-0.1");
    assert_int_equal(mp_moonep_create(&memory, 0, 4, &state, NULL), MP_EINVAL);
}
