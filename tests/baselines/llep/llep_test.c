/* LLEP: golden decisions, what holds for any load, legal plans that are the same
 * on every rank, and what it refuses. */
#include "tests/reference/plan/system_support.h"

#include "baselines/llep/llep.h"

static struct mp_arena memory;

/* Four ranks with two experts each, routes per expert. */
struct golden_piece {
    int expert, rank;
    int64_t routes;
};
struct golden_case {
    const char *name, *trigger, *threshold, *smallest_gemm;
    int64_t total[8];
    bool active;
    int64_t load[4];
    struct golden_piece spilled[8]; /* what is not the owner's; 0 routes end the list */
};
static const struct golden_case GOLDEN[] = {
    {"V-LLEP-1, m 1",
     "per-expert",
     "1.3",
     "1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     true,
     {320, 320, 320, 320},
     {{0, 1, 180}, {0, 3, 160}, {0, 2, 40}, {1, 2, 100}}},
    {"V-LLEP-1, m 64",
     "per-expert",
     "1.3",
     "64",
     {700, 100, 80, 60, 120, 60, 90, 70},
     true,
     {360, 320, 280, 320},
     {{0, 1, 180}, {0, 3, 160}, {1, 2, 100}}},
    {"V-LLEP-1, uniform",
     "per-expert",
     "1.3",
     "1",
     {100, 100, 100, 100, 100, 100, 100, 100},
     false,
     {0},
     {{0}}},
    /* 4.375 times the mean, to the last bit. */
    {"at the threshold",
     "per-expert",
     "4.375",
     "1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     true,
     {320, 320, 320, 320},
     {{0, 1, 180}, {0, 3, 160}, {0, 2, 40}, {1, 2, 100}}},
    {"below the threshold",
     "per-expert",
     "4.376",
     "1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     false,
     {0},
     {{0}}},
    /* Experts are uneven, ranks are not. */
    {"per rank", "per-rank", "1.3", "1", {190, 10, 10, 190, 100, 100, 150, 50}, false, {0}, {{0}}},
    {"per expert",
     "per-expert",
     "1.3",
     "1",
     {190, 10, 10, 190, 100, 100, 150, 50},
     true,
     {200, 200, 200, 200},
     {{0}}},
    {"no routes", "per-expert", "0", "1", {0}, false, {0}, {{0}}},
};

static void check_golden(const struct golden_case *row, const struct mp_llep *state) {
    int spilled = 0;
    assert_int_equal(state->active, row->active);
    if (!row->active)
        return;
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(state->load[rank], row->load[rank]);
    for (int index = 0; row->spilled[index].routes > 0; index++) {
        const struct golden_piece *expected = &row->spilled[index];
        int32_t at = state->pieces.first[expected->expert];
        while (at >= 0 && state->pieces.item[at].rank != expected->rank)
            at = state->pieces.item[at].next;
        assert_true(at >= 0);
        assert_int_equal(state->pieces.item[at].routes, expected->routes);
        spilled++;
    }
    assert_int_equal(state->pieces.count, 8 + spilled);
}

TEST(golden_decisions) {
    static const int32_t OWNER[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    for (size_t index = 0; index < sizeof GOLDEN / sizeof *GOLDEN; index++) {
        const struct golden_case *row = &GOLDEN[index];
        const char *const pair[][2] = {{"trigger", row->trigger},
                                       {"threshold", row->threshold},
                                       {"smallest-gemm", row->smallest_gemm},
                                       {NULL, NULL}};
        struct mp_llep_options options;
        struct mp_llep state;
        print_message("  %s\n", row->name);
        parse_options(&mp_system_llep, &options, pair);
        assert_works(mp_llep_create(&memory, 4, 8, &state, &error));
        memcpy(state.total, row->total, sizeof row->total);
        assert_works(mp_llep_decide(&state, &options, OWNER, MP_ALL, &error));
        check_golden(row, &state);
        mp_arena_release(&memory);
    }
}

enum { MOST_RANKS = 70, MOST_EXPERTS = 60 };

static struct mp_llep_options random_options(uint64_t *random) {
    struct mp_llep_options options;
    parse_options(&mp_system_llep, &options, NULL);
    options.trigger = test_random_int(random, MP_LLEP_PER_EXPERT, MP_LLEP_PER_RANK);
    options.threshold = test_random_int(random, 0, 3) ? 1.3 : 0;
    options.alpha = 0.8 + 0.6 * test_random_double(random);
    if (test_random_int(random, 0, 1))
        options.alpha = 1;
    options.smallest_gemm = 1 + test_random_int(random, 0, 9) * test_random_int(random, 0, 9);
    if (test_random_int(random, 0, 3) == 0)
        options.copies = test_random_int(random, 0, MOST_EXPERTS);
    return options;
}

/* Pieces of one expert: all of its routes, and those of helpers as large as they have to be. */
static void check_expert(const struct mp_llep *state, const struct mp_llep_options *options,
                         int expert, int owner, int64_t load[]) {
    int64_t routes = 0;
    for (int32_t at = state->pieces.first[expert]; at >= 0; at = state->pieces.item[at].next) {
        const struct mp_piece *piece = &state->pieces.item[at];
        routes += piece->routes;
        load[piece->rank] += piece->routes;
        if (piece->rank != owner) {
            assert_true(piece->routes >= options->smallest_gemm);
            assert_true(state->load[piece->rank] <= state->cap);
        }
    }
    assert_int_equal(routes, state->total[expert]);
}

/* LLEP's published pseudo-code, line by line: what each rank computes in the end. */
static void follow_pseudo_code(const struct mp_llep *state, const struct mp_llep_options *options,
                               const int32_t owner[], int copies, int64_t assigned[]) {
    int64_t pending[MOST_RANKS] = {0};
    int foreign[MOST_RANKS] = {0};
    for (int expert = 0; expert < state->experts; expert++)
        pending[owner[expert]] += state->total[expert];
    for (int index = 0; index < state->experts; index++) {
        int expert = state->order[index], native = owner[expert], helper = 0;
        int64_t room = state->cap - assigned[native], left = state->total[expert];
        pending[native] -= left;
        if (room > 0) {
            assigned[native] += room < left ? room : left;
            left -= room < left ? room : left;
        }
        while (left > 0 && helper >= 0) {
            int64_t least = INT64_MAX;
            helper = -1;
            for (int rank = 0; rank < state->ranks; rank++)
                if (rank != native && foreign[rank] < copies &&
                    assigned[rank] + pending[rank] < least) {
                    least = assigned[rank] + pending[rank];
                    helper = rank;
                }
            int64_t piece = left < state->cap - least ? left : state->cap - least;
            if (helper < 0 || piece < options->smallest_gemm)
                break;
            assigned[helper] += piece;
            foreign[helper]++;
            left -= piece;
        }
        assigned[native] += left;
    }
}

/* What holds for every decision: a rank over the cap has no helper that could take a piece. */
static void check_decision(const struct mp_llep *state, const struct mp_llep_options *options,
                           const int32_t owner[], int copies) {
    int64_t load[MOST_RANKS] = {0}, expected[MOST_RANKS] = {0}, most = 0, least = INT64_MAX;
    follow_pseudo_code(state, options, owner, copies, expected);
    for (int expert = 0; expert < state->experts; expert++)
        check_expert(state, options, expert, owner[expert], load);
    for (int rank = 0; rank < state->ranks; rank++) {
        assert_int_equal(load[rank], state->load[rank]);
        assert_int_equal(load[rank], expected[rank]);
        assert_true(state->foreign[rank] <= copies);
        most = load[rank] > most ? load[rank] : most;
        if (state->foreign[rank] < copies)
            least = load[rank] < least ? load[rank] : least;
    }
    if (options->smallest_gemm == 1 && most > state->cap)
        assert_true(least >= state->cap);
}

TEST_RANDOM(decisions_fill_the_least_loaded_up_to_the_cap) {
    int active = 0, over = 0;
    for (int round = 0; round < 500; round++) {
        struct mp_llep_options options = random_options(random);
        int ranks = test_random_int(random, 1, MOST_RANKS);
        int experts = test_random_int(random, 1, MOST_EXPERTS);
        int copies = options.copies < experts ? options.copies : experts;
        int32_t owner[MOST_EXPERTS];
        struct mp_llep state;
        assert_works(mp_llep_create(&memory, ranks, experts, &state, &error));
        for (int expert = 0; expert < experts; expert++) {
            owner[expert] = test_random_int(random, 0, ranks - 1);
            state.total[expert] = test_random_int(random, 0, 3) ? test_random_int(random, 0, 50)
                                                                : test_random_int(random, 0, 3000);
        }
        assert_works(mp_llep_decide(&state, &options, owner, copies, &error));
        active += state.active;
        if (state.active) {
            check_decision(&state, &options, owner, copies);
            over += state.pieces.count > experts;
        }
        mp_arena_release(&memory);
    }
    print_message("  %d skewed, %d with pieces\n", active, over);
    assert_true(active > 0 && over > 0);
}

struct limit_case {
    const char *name, *smallest_gemm, *alpha, *copies;
    int limit;
};
/* 16 experts on 4 ranks, 1000 tokens per rank, top-2. */
static const struct limit_case LIMITS[] = {
    {"what others own", "1", "1", "all", 12},
    {"pieces in the cap", "300", "1", "all", 6},
    {"a larger cap", "300", "1.1", "all", 7},
    {"the released minimum", "1024", "1", "all", 1},
    {"no piece is that big", "2001", "1", "all", 0},
    {"as asked for", "1", "1", "3", 3},
};

TEST(copies_are_limited_by_cap_and_smallest_piece) {
    for (size_t index = 0; index < sizeof LIMITS / sizeof *LIMITS; index++) {
        const struct limit_case *row = &LIMITS[index];
        const char *const pair[][2] = {{"smallest-gemm", row->smallest_gemm},
                                       {"alpha", row->alpha},
                                       {"copies", row->copies},
                                       {NULL, NULL}};
        struct mp_setting setting = {.layers = 1,
                                     .experts = 16,
                                     .top_k = 2,
                                     .topology = {4, 2},
                                     .tokens_per_rank = 1000,
                                     .expert_bytes = 64,
                                     .route_bytes = 8};
        struct mp_llep_options options;
        void *self;
        print_message("  %s\n", row->name);
        parse_options(&mp_system_llep, &options, pair);
        assert_works(mp_system_create(&mp_system_llep, &setting, &options, &self, &error));
        assert_int_equal(mp_system_llep.copies_limit(self), row->limit);
        mp_system_destroy(&mp_system_llep, self);
    }
}

TEST(what_cannot_be_is_refused) {
    struct mp_setting setting = {.layers = 1, .experts = 0, .top_k = 2, .topology = {4, 2}};
    struct mp_llep_options options;
    struct mp_llep state;
    void *self = &options;
    parse_options(&mp_system_llep, &options, NULL);
    assert_sentence(mp_system_create(&mp_system_llep, &setting, &options, &self, &error),
                    MP_EREFUSED,
                    "llep needs layers, experts and ranks of at least 1, not 1, 0 and 4");
    assert_null(self);
    assert_int_equal(mp_llep_create(&memory, 0, 4, &state, NULL), MP_EINVAL);
}
