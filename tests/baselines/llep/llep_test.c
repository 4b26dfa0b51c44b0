/* LLEP: golden decisions and how many copies there are at most. */
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/memory.h"

#include "baselines/llep/llep.h"

/* Four ranks with two experts each, routes per expert. */
struct golden_piece {
    int expert, rank;
    int64_t routes;
};
struct golden_case {
    const char *name, *options;
    int64_t total[8];
    bool active;
    int64_t load[4];
    struct golden_piece spilled[8]; /* what is not the owner's; 0 routes end the list */
};
static const struct golden_case GOLDEN[] = {
    {"V-LLEP-1, m 1",
     "trigger=per-expert threshold=1.3 smallest-gemm=1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     true,
     {320, 320, 320, 320},
     {{0, 1, 180}, {0, 3, 160}, {0, 2, 40}, {1, 2, 100}}},
    {"V-LLEP-1, m 64",
     "trigger=per-expert threshold=1.3 smallest-gemm=64",
     {700, 100, 80, 60, 120, 60, 90, 70},
     true,
     {360, 320, 280, 320},
     {{0, 1, 180}, {0, 3, 160}, {1, 2, 100}}},
    {"V-LLEP-1, uniform",
     "trigger=per-expert threshold=1.3 smallest-gemm=1",
     {100, 100, 100, 100, 100, 100, 100, 100},
     false,
     {0},
     {{0}}},
    /* 4.375 times the mean, to the last bit. */
    {"at the threshold",
     "trigger=per-expert threshold=4.375 smallest-gemm=1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     true,
     {320, 320, 320, 320},
     {{0, 1, 180}, {0, 3, 160}, {0, 2, 40}, {1, 2, 100}}},
    {"below the threshold",
     "trigger=per-expert threshold=4.376 smallest-gemm=1",
     {700, 100, 80, 60, 120, 60, 90, 70},
     false,
     {0},
     {{0}}},
    /* Experts are uneven, ranks are not. */
    {"per rank",
     "trigger=per-rank threshold=1.3 smallest-gemm=1",
     {190, 10, 10, 190, 100, 100, 150, 50},
     false,
     {0},
     {{0}}},
    {"per expert",
     "trigger=per-expert threshold=1.3 smallest-gemm=1",
     {190, 10, 10, 190, 100, 100, 150, 50},
     true,
     {200, 200, 200, 200},
     {{0}}},
    {"a single route moves",
     "trigger=per-expert threshold=1.3 smallest-gemm=1",
     {296, 1, 49, 1, 49, 1, 2, 1},
     true,
     {100, 100, 100, 100},
     {{0, 3, 97}, {0, 1, 50}, {0, 2, 49}, {1, 2, 1}}},
    /* 2.5 routes each, rounded up. */
    {"a cap that is no whole number",
     "trigger=per-rank threshold=1.3 smallest-gemm=1",
     {10, 0, 0, 0, 0, 0, 0, 0},
     true,
     {3, 3, 3, 1},
     {{0, 1, 3}, {0, 2, 3}, {0, 3, 1}}},
    {"no routes", "trigger=per-expert threshold=0 smallest-gemm=1", {0}, false, {0}, {{0}}},
};

static void check_golden(const struct golden_case *row, const struct mp_llep *state) {
    int pieces = 0;
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
        pieces++;
    }
    for (int expert = 0; expert < 8; expert++) {
        int64_t routes = 0;
        for (int32_t at = state->pieces.first[expert]; at >= 0; at = state->pieces.item[at].next)
            routes += state->pieces.item[at].routes;
        assert_int_equal(routes, row->total[expert]);
        pieces += routes > 0;
    }
    assert_int_equal(state->pieces.count, pieces);
}

TEST_EACH(golden_decisions, GOLDEN, row) {
    static const int32_t OWNER[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    struct mp_llep_options options;
    struct mp_llep state;
    parse_options(&mp_system_llep, &options, row->options);
    mp_llep_create(&memory, 4, 8, &state);
    memcpy(state.total, row->total, sizeof row->total);
    assert_works(mp_llep_decide(&state, &options, OWNER, MP_ALL, &error));
    check_golden(row, &state);
}

struct limit_case {
    const char *name, *options;
    int limit;
};
/* 16 experts on 4 ranks, 1000 tokens per rank, top-2. */
static const struct limit_case LIMITS[] = {
    {"what others own", "smallest-gemm=1 alpha=1 copies=all", 12},
    {"pieces in the cap", "smallest-gemm=300 alpha=1 copies=all", 6},
    {"a larger cap", "smallest-gemm=300 alpha=1.1 copies=all", 7},
    {"the released minimum", "smallest-gemm=1024 alpha=1 copies=all", 1},
    {"no piece is that big", "smallest-gemm=2001 alpha=1 copies=all", 0},
    {"as asked for", "smallest-gemm=1 alpha=1 copies=3", 3},
};

TEST_EACH(copies_are_limited_by_cap_and_smallest_piece, LIMITS, row) {
    const struct mp_setting setting = setting_of("experts=16 ranks-per-node=2 tokens=1000");
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_llep, &setting, row->options);
    assert_int_equal(rehearsal.planner.law.extra_copies_limit, row->limit);
}
