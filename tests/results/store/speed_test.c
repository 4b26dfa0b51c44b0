/* A million spans: how fast they come in, and that every view stays usable with them. */
#include "tests/results/runs.h"

enum { ITERATIONS = 500, LAYERS = 12, SPANS_PER_LAYER = 42, RANKS = 4 };
enum { SPANS = ITERATIONS * (LAYERS * SPANS_PER_LAYER + 1) * RANKS };

static double seconds(void) {
    return (double)mp_clock_ns() / 1e9;
}

static void record_rank(struct runs_rank *own, uint64_t *random) {
    int64_t at = 0;
    for (int i = 0; i < ITERATIONS; i++) {
        int64_t start = at;
        for (int s = 0; s < LAYERS * SPANS_PER_LAYER; s++) {
            int phase = MP_PHASE_ATTENTION + s % 8;
            int64_t length = test_random_int(random, 20, 4000);
            runs_record_one(own, i, (enum mp_phase)phase, (enum mp_direction)(s & 1), at, length,
                            s % 3 ? 0 : length / 2, s / SPANS_PER_LAYER, 2048,
                            s % 3 ? -1 : 1000000000 + s, s % 16 == 5);
            at += length;
        }
        runs_record_one(own, i, MP_PHASE_ITERATION, MP_NO_DIRECTION, start, at - start, 0, -1, 2048,
                        -1, false);
        mp_record_number(own->compute, i, -1, "loss", 1.0 / (i + 1));
    }
}

/* What a query costs, in steps of SQLite's virtual machine: no other program changes it. */
static int steps_of(struct mp_store *store, const char *sql) {
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_prepare_v2(mp_store_connection(store), sql, -1, &statement, NULL),
                     SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW)
        continue;
    int steps = sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 0);
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    return steps;
}

TEST_RANDOM(a_million_spans_stay_usable) {
    struct runs_folder folder;
    struct runs_rank ranks[RANKS];
    const char *paths[RANKS];
    runs_create(&folder);
    for (int r = 0; r < RANKS; r++) {
        runs_rank_open(&folder, r, RANKS, &ranks[r]);
        record_rank(&ranks[r], random);
        runs_rank_close(&ranks[r], MP_OK, "");
        paths[r] = ranks[r].path;
    }
    struct mp_store_run run = runs_description("ep", "text");
    run.ranks = RANKS;
    double before = seconds();
    assert_works(mp_store_ingest(folder.store, &run, paths, RANKS, NULL, &error));
    double took = seconds() - before;
    struct stat status;
    assert_int_equal(stat(folder.database, &status), 0);
    print_message("%d spans: %.2f s, %.0f spans/s, %.1f bytes/span\n", SPANS, took, SPANS / took,
                  (double)status.st_size / SPANS);

    static const struct {
        const char *sql;
        int most_steps; /* several times those of SQLite 3.40; a view that walks over all spans
                           needs more than one for each */
    } queries[] = {
        {"SELECT count(*) FROM v_run", 10000},
        {"SELECT count(ms_per_iteration + speedup_vs_ep) FROM v_speedup", 10000},
        {"SELECT count(ms) FROM v_iteration", 10000},
        {"SELECT count(max_ms) FROM v_straggler WHERE run_id = 1 AND iteration = 250", 10000},
        {"SELECT sum(lost_ms) FROM v_straggler", SPANS},
        {"SELECT count(*) FROM v_phase", 10000},
        {"SELECT count(*) FROM v_span WHERE run_id = 1 AND rank = 3", 6 * SPANS},
        {"SELECT count(*) FROM v_span WHERE run_id = 2", 10000},
    };
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        before = seconds();
        int steps = steps_of(folder.store, queries[i].sql);
        took = seconds() - before;
        print_message("%7.1f ms, %9d steps  %s\n", took * 1e3, steps, queries[i].sql);
        assert_in_range(steps, 1, queries[i].most_steps);
    }
    char expected[32];
    snprintf(expected, sizeof expected, "%d", SPANS);
    assert_rows(folder.store, "SELECT count(*) FROM v_span WHERE run_id = 1", expected);
    runs_destroy(&folder);
}
