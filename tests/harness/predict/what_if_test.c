/* What-if: replayed as it was, a run takes as long as it took; otherwise, what can be worked out by
 * hand. */
#include "harness/predict/what_if.h"

#include "tests/results/runs.h"

/* A run, and what is asked of it. */
struct asked {
    struct mp_recorded recorded;
    struct mp_what_if *what_if;
};
TEST_END(asked, struct asked, {
    mp_what_if_destroy(it->what_if);
    mp_recorded_destroy(&it->recorded);
})

/* Ends the recordings of ranks, and puts them into the database as a run that is read again. */
static void ask(struct runs_folder *folder, const char *executor, struct runs_rank ranks[],
                int count, struct asked *asked) {
    struct mp_store_run description = runs_description("ep", "text");
    description.ranks = description.ranks_per_node = count;
    description.executor = executor;
    for (int r = 0; r < count; r++) {
        mp_record_text(ranks[r].compute, "environment.host", "here");
        runs_clock_samples(&ranks[r]);
    }
    int64_t run = runs_ingest(folder, &description, ranks, count);
    assert_works(mp_recorded_read(folder->store, run, &asked->recorded, &error));
    assert_works(mp_what_if_create(&asked->recorded, &asked->what_if, &error));
}

/* Four ranks whose experts take 10, 10, 10 and 18 ms, then an exchange of 2 ms: the example worked
 * out by hand for slowdowns, twice: rank 1 comes late to the second iteration. */
enum { RANKS = 4, WORK = 10000, SLOW = 18000, TRANSFER = 2000, LATE = 3000 };

static void record_rank(struct runs_rank *own, int iterations, int64_t tokens) {
    int64_t at = 0;
    int64_t work = own->rank == 3 ? SLOW : WORK, wait = SLOW - work + TRANSFER;
    for (int i = 0; i < iterations; i++) {
        int64_t late = i % 2 == 1 && own->rank == 1 ? LATE : 0;
        const struct runs_span spans[] = {
            {MP_PHASE_EXPERT, MP_FORWARD, at + late, work, 0, 0, tokens, -1, false},
            {MP_PHASE_COMBINE, MP_FORWARD, at + late + work, wait - late, wait - late, 0, 100, -1,
             false},
            {MP_PHASE_ITERATION, MP_NO_DIRECTION, at, SLOW + TRANSFER, 0, -1, 100, -1, false},
        };
        runs_record_all(own, i, spans);
        at += SLOW + TRANSFER + 500;
    }
    mp_record_number(own->compute, -1, -1, "ranks-share-cores", 0);
}

/* `tokens` of every rank; -1: not counted. */
static void ask_example(struct runs_folder *folder, const char *executor, int64_t tokens,
                        struct asked *asked) {
    struct runs_rank ranks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        runs_rank_open(folder, r, RANKS, &ranks[r]);
        record_rank(&ranks[r], 4, tokens);
    }
    ask(folder, executor, ranks, RANKS, asked);
}

static double median(const struct asked *asked, struct mp_what_if_change change) {
    return mp_what_if_median(asked->what_if, &change);
}

RUNS_TEST(slowdowns_are_those_by_hand) {
    static const char *const executors[] = {"measured", "predicted"};
    for (int64_t run = 1; run <= 2; run++) {
        AUTO(asked) struct asked asked;
        double own, waiting, seconds[4];
        ask_example(folder, executors[run - 1], run == 1 ? -1 : 100, &asked);
        const struct mp_recorded recorded = asked.recorded;
        struct mp_what_if *what_if = asked.what_if;
        assert_string_equal(recorded.executor, executors[run - 1]);
        assert_true(recorded.iterations >= 1);
        assert_int_equal(mp_what_if_layers(what_if), 1);
        struct mp_what_if_change change = mp_what_if_nothing();
        mp_what_if_run(what_if, &change, seconds);
        for (int i = 0; i < recorded.iterations; i++)
            assert_close(seconds[i] / recorded.seconds[i], 1, 1e-4);
        assert_close(median(&asked, change), 20e-3, 1e-5);

        change.ideal = true; /* 12 ms of work, of rank 1 in every other iteration later */
        mp_what_if_run(what_if, &change, seconds);
        for (int i = 0; i < recorded.iterations; i++)
            assert_close(seconds[i], 14e-3 + (recorded.number[i] % 2 ? 1e-6 * LATE / RANKS : 0),
                         1e-5);
        change = mp_what_if_nothing();
        change.balance = true; /* the delay of rank 1 stays; at as many tokens, rank 3's, too */
        mp_what_if_run(what_if, &change, seconds);
        for (int i = 0; i < recorded.iterations; i++)
            assert_close(seconds[i],
                         run == 1 ? 14e-3 + (recorded.number[i] % 2 ? 1e-6 * LATE : 0) : 20e-3,
                         1e-5);
        change.layer = 5;
        assert_close(median(&asked, change), 20e-3, 1e-5);
        for (int r = 0; r < RANKS; r++) {
            change = mp_what_if_nothing();
            change.without_rank = r;
            mp_what_if_run(what_if, &change, seconds);
            for (int i = 0; i < recorded.iterations; i++) {
                double late = recorded.number[i] % 2 ? 1e-6 * LATE : 0;
                assert_close(seconds[i], r < 3 ? 20e-3 : 12e-3 + late, 1e-5);
            }
            mp_what_if_rank(what_if, r, &own, &waiting);
            if (r != 1)
                assert_close(own, r < 3 ? 10e-3 : 18e-3, 1e-5);
            assert_close(own + waiting, 20e-3, 1e-5);
        }
    }
}

/* Ranks that had gone on before another came did not need it, and need it in no replay. */
RUNS_TEST(who_left_before_needs_nobody_later) {
    struct runs_rank ranks[2];
    AUTO(asked) struct asked asked;
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        for (int i = 0; i < 2; i++) { /* rank 1 works 6 ms, rank 0 2, and waits only from 2 to 3 */
            int64_t at = i * 10000, work = r ? 6000 : 2000;
            const struct runs_span spans[] = {
                {MP_PHASE_EXPERT, MP_FORWARD, at, work, 0, 0, 10, -1, false},
                {MP_PHASE_FETCH, MP_FORWARD, at + work, 1000, 1000, 0, -1, -1, false},
                {MP_PHASE_ITERATION, MP_NO_DIRECTION, at, work + 1000, 0, -1, 10, -1, false},
            };
            runs_record_all(&ranks[r], i, spans);
        }
    }
    ask(folder, "measured", ranks, 2, &asked);
    assert_close(median(&asked, mp_what_if_nothing()), 7e-3, 1e-5);
    struct mp_what_if_change change = mp_what_if_nothing();
    change.without_rank = 1; /* 2 ms of work, as the other's; the transfer stays */
    assert_close(median(&asked, change), 3e-3, 1e-5);
}

/* Whatever begins before its iteration or ends after it is none of its work. */
RUNS_TEST(spans_across_an_iterations_ends_are_left_out) {
    struct runs_rank rank;
    AUTO(asked) struct asked asked;
    runs_rank_open(folder, 0, 1, &rank);
    for (int i = 0; i < 3; i++) {
        int64_t at = i * 10000;
        const struct runs_span spans[] = {
            {MP_PHASE_CHECKPOINT, MP_NO_DIRECTION, at + 900, 200, 0, -1, -1, -1, false},
            {MP_PHASE_ITERATION, MP_NO_DIRECTION, at + 1000, 5000, 0, -1, 10, -1, false},
            {MP_PHASE_ATTENTION, MP_FORWARD, at + 1000, 700, 0, 0, -1, -1, false},
            {MP_PHASE_EXPERT, MP_BACKWARD, at + 5000, 1000, 0, 0, 10, -1, false},
            {MP_PHASE_VALIDATE, MP_NO_DIRECTION, at + 5900, 200, 0, -1, -1, -1, false},
        };
        runs_record_all(&rank, i, spans);
    }
    ask(folder, "measured", &rank, 1, &asked);
    const struct mp_recorded recorded = asked.recorded;
    assert_true(recorded.iterations >= 1);
    assert_int_equal(recorded.spans, 2 * recorded.iterations);
    for (size_t s = 0; s < recorded.spans; s++) {
        const struct mp_recorded_span *span = &recorded.span[s];
        assert_int_equal(span->phase, s % 2 ? MP_PHASE_EXPERT : MP_PHASE_ATTENTION);
        assert_all_close(1e-9, span->start, s % 2 ? 4e-3 : 0, span->end, s % 2 ? 5e-3 : 0.7e-3);
        assert_int_equal(span->direction, s % 2 ? MP_BACKWARD : MP_FORWARD);
        assert_int_equal(span->layer, 0);
        assert_int_equal(span->tokens, s % 2 ? 10 : -1);
    }
}

/* Random runs of ranks that meet again and again give their own times back. */
RUNS_TEST(random_runs_give_themselves_back) {
    uint64_t random = test_seed();
    for (int round = 0; round < 20; round++) {
        enum { MEETINGS = 12, ITERATIONS = 3 };
        struct runs_rank ranks[RANKS];
        AUTO(asked) struct asked asked;
        int64_t at[RANKS] = {0}, begin[RANKS];
        for (int r = 0; r < RANKS; r++)
            runs_rank_open(folder, r, RANKS, &ranks[r]);
        for (int i = 0; i < ITERATIONS; i++) {
            for (int r = 0; r < RANKS; r++)
                begin[r] = at[r];
            for (int m = 0; m < MEETINGS; m++) {
                int64_t arrival[RANKS], latest = 0;
                for (int r = 0; r < RANKS; r++) {
                    int64_t gap = test_random_int(&random, 0, 50);
                    int64_t work = test_random_int(&random, 1, 3000);
                    runs_record_one(&ranks[r], i, MP_PHASE_EXPERT, MP_FORWARD, at[r] + gap, work, 0,
                                    m / 4, work, -1, false);
                    arrival[r] = at[r] + gap + work;
                    latest = arrival[r] > latest ? arrival[r] : latest;
                }
                for (int r = 0; r < RANKS; r++) {
                    int64_t end = latest + test_random_int(&random, 1, 200);
                    runs_record_one(&ranks[r], i, m % 2 ? MP_PHASE_COMBINE : MP_PHASE_DISPATCH,
                                    MP_FORWARD, arrival[r], end - arrival[r], end - arrival[r],
                                    m / 4, -1, -1, false);
                    at[r] = end;
                }
            }
            for (int r = 0; r < RANKS; r++)
                runs_record_one(&ranks[r], i, MP_PHASE_ITERATION, MP_NO_DIRECTION, begin[r],
                                at[r] - begin[r], 0, -1, 10, -1, false);
        }
        ask(folder, "measured", ranks, RANKS, &asked);
        double seconds[ITERATIONS], ideal[ITERATIONS], balanced[ITERATIONS];
        struct mp_what_if_change change = mp_what_if_nothing();
        mp_what_if_run(asked.what_if, &change, seconds);
        change.balance = true;
        mp_what_if_run(asked.what_if, &change, balanced);
        change.ideal = true;
        mp_what_if_run(asked.what_if, &change, ideal);
        for (int i = 0; i < asked.recorded.iterations; i++) {
            assert_close(seconds[i] / asked.recorded.seconds[i], 1, 1e-4);
            assert_true(balanced[i] < seconds[i]);
            assert_true(ideal[i] < seconds[i]);
        }
    }
}

RUNS_TEST(what_is_missing_is_named) {
    struct mp_recorded recorded;
    assert_fails(mp_recorded_read(folder->store, 0, &recorded, &error), MP_ENOTFOUND,
                 "there is no run in it");
    assert_fails(mp_recorded_read(folder->store, 7, &recorded, &error), MP_ENOTFOUND,
                 "there is no run 7; ");
    AUTO(asked) struct asked asked;
    ask_example(folder, "measured", -1, &asked);
    static const struct {
        const char *sql, *words;
    } cases[] = {
        {"UPDATE rank SET clock = 'wall clock' WHERE rank = 2",
         "has no common clock: rank 2 was put on it by its wall clock"},
        {"DELETE FROM span WHERE rank = 1 AND phase_id = "
         "(SELECT id FROM StringIds WHERE value = 'iteration')",
         ": rank 1 has no spans of "},
        {"DELETE FROM span WHERE phase_id <> (SELECT id FROM StringIds WHERE value = 'iteration')",
         ": rank 0 has no spans inside its iterations"},
        {"UPDATE iteration_summary SET steady = 0",
         "has no steady iteration that every rank recorded"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sqlite3 *connection = mp_store_connection(folder->store);
        assert_int_equal(sqlite3_exec(connection, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_exec(connection, cases[i].sql, NULL, NULL, NULL), SQLITE_OK);
        assert_fails(mp_recorded_read(folder->store, 1, &recorded, &error), MP_ENOTFOUND,
                     cases[i].words);
        assert_int_equal(sqlite3_exec(connection, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    }
}

/* Rank 1 takes part in the layer and has no span of its experts: evenly each has half of the 10 ms
 * of rank 0, and without rank 0 nobody computes anything. */
RUNS_TEST(who_has_no_span_had_nothing_to_compute) {
    struct runs_rank ranks[2];
    AUTO(asked) struct asked asked;
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        for (int i = 0; i < 4; i++) {
            int64_t at = i * 20000, work = r ? 0 : 10000;
            const struct runs_span spans[] = {
                {MP_PHASE_ITERATION, MP_NO_DIRECTION, at, 13000, 0, -1, 100, -1, false},
                {MP_PHASE_ATTENTION, MP_FORWARD, at, 1000, 0, 0, -1, -1, false},
                {MP_PHASE_COMBINE, MP_FORWARD, at + 1000 + work, 12000 - work, 12000 - work, 0, -1,
                 -1, false},
                {MP_PHASE_EXPERT, MP_FORWARD, at + 1000, work, 0, 0, 100, -1, false},
            };
            runs_record_some(&ranks[r], i, spans, r ? 3 : 4);
        }
    }
    ask(folder, "measured", ranks, 2, &asked);
    struct mp_what_if_change change = mp_what_if_nothing();
    assert_close(median(&asked, change), 13e-3, 1e-5);
    change.balance = true;
    assert_close(median(&asked, change), 8e-3, 1e-5);
    change = mp_what_if_nothing();
    change.ideal = true;
    assert_close(median(&asked, change), 8e-3, 1e-5);
    change = mp_what_if_nothing();
    change.without_rank = 0; /* it is not slow, and keeps all tokens */
    assert_close(median(&asked, change), 13e-3, 1e-5);
}
