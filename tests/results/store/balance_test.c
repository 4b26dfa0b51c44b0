/* What the store says of a recorded load and what the straggler analysis says of it: the same bits.
 */
#include "profiler/straggler/balance.h"
#include "tests/results/runs.h"

enum { EXPERTS = 48, LAYERS = 5, ITERATIONS = 40, RANKS = 2 };

static uint32_t routes[RANKS][ITERATIONS][LAYERS][EXPERTS];

/* Some layers without a route, some experts dead, few and many routes. */
static void draw_routes(uint64_t *random) {
    for (int i = 0; i < ITERATIONS; i++)
        for (int l = 0; l < LAYERS; l++) {
            int most = test_random_int(random, 0, 9) ? test_random_int(random, 1, 1 << 20) : 0;
            for (int r = 0; r < RANKS; r++)
                for (int e = 0; e < EXPERTS; e++)
                    routes[r][i][l][e] = test_random_int(random, 0, 4)
                                             ? (uint32_t)test_random_int(random, 0, most)
                                             : 0;
        }
}

static void record_rank(struct runs_folder *folder, int r, struct runs_rank *own) {
    runs_rank_open(folder, r, RANKS, own);
    for (int i = 0; i < ITERATIONS; i++) {
        const struct runs_span whole = {
            MP_PHASE_ITERATION, MP_NO_DIRECTION, i * 1000, 900, 0, -1, 50, -1, false};
        runs_record(own, i, &whole);
        for (int l = 0; l < LAYERS; l++)
            mp_record_load(own->compute, i, l, EXPERTS, routes[r][i][l], NULL);
    }
    runs_clock_samples(own);
}

/* A NULL is the NAN that no routes give. */
static void same_bits(sqlite3_stmt *row, int column, double expected) {
    if (isnan(expected)) {
        assert_int_equal(sqlite3_column_type(row, column), SQLITE_NULL);
        return;
    }
    double stored = sqlite3_column_double(row, column);
    assert_memory_equal(&stored, &expected, sizeof stored);
}

static void compare_row(sqlite3_stmt *row) {
    uint32_t both[EXPERTS];
    int64_t sorted[EXPERTS];
    int i = sqlite3_column_int(row, 0), l = sqlite3_column_int(row, 1);
    for (int e = 0; e < EXPERTS; e++)
        both[e] = routes[0][i][l][e] + routes[1][i][l][e];
    struct mp_balance balance = mp_balance_of(both, EXPERTS, sorted);
    same_bits(row, 2, balance.imbalance.max_over_mean);
    same_bits(row, 3, balance.imbalance.effective);
    same_bits(row, 4, balance.imbalance.dead_fraction);
}

RUNS_TEST(store_and_analysis_agree_bit_for_bit) {
    struct runs_rank ranks[RANKS];
    uint64_t random = test_seed();
    draw_routes(&random);
    for (int r = 0; r < RANKS; r++)
        record_rank(folder, r, &ranks[r]);
    const struct mp_store_run description = runs_description("ep", "drawn");
    runs_ingest(folder, &description, ranks, RANKS);

    sqlite3_stmt *row = NULL;
    int rows = 0;
    assert_int_equal(
        sqlite3_prepare_v2(mp_store_connection(folder->store),
                           "SELECT iteration, layer, expert_max_over_mean, effective_experts, "
                           "dead_fraction FROM v_imbalance",
                           -1, &row, NULL),
        SQLITE_OK);
    for (; sqlite3_step(row) == SQLITE_ROW; rows++)
        compare_row(row);
    assert_int_equal(sqlite3_finalize(row), SQLITE_OK);
    assert_int_equal(rows, ITERATIONS * LAYERS);
}
