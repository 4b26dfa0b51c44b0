/* What-if: replayed as it was, a run takes as long as it took; otherwise, what can be worked out by
 * hand, where nothing is symmetric. */
#include "harness/predict/what_if.h"

#include "tests/results/runs.h"

TEST_END(what_if, struct mp_what_if *, mp_what_if_destroy(*it))

/* ---- by hand ---- */

/* Two ranks and two layers: experts, then an exchange, of each.  Iteration i takes longer by i. */
enum { PEERS = 2, ITERATIONS = 4, LAYERS = 2, EACH = 5 };

struct recording {
    struct mp_recorded run;
    struct mp_recorded_rank rank[ITERATIONS * PEERS];
    struct mp_recorded_span span[ITERATIONS * PEERS * EACH];
};

/* Layer 0: 2 and 6 + i, transfers 1 and 3; layer 1: 4 and 2, transfers 2 and 2.  At last 1 s of
 * optimizer, half a second after the exchange on rank 0, and a second on rank 1. */
static void make_recording(struct recording *recording) {
    static const double transfer[LAYERS][PEERS] = {{1, 3}, {2, 2}}, gap[PEERS] = {0.5, 1};
    *recording = (struct recording){.run = {.ranks = PEERS,
                                            .iterations = ITERATIONS,
                                            .rank = recording->rank,
                                            .span = recording->span,
                                            .spans = ITERATIONS * PEERS * EACH}};
    for (int i = 0; i < ITERATIONS; i++) {
        double now[PEERS] = {0, 0};
        for (int l = 0; l < LAYERS; l++) {
            double own[PEERS] = {l ? 4 : 2, l ? 2 : 6 + i}, last = 0;
            for (int r = 0; r < PEERS; r++)
                last = fmax(last, now[r] + own[r]);
            for (int r = 0; r < PEERS; r++) {
                struct mp_recorded_span *span = &recording->span[(i * PEERS + r) * EACH + 2 * l];
                double arrived = now[r] + own[r], end = last + transfer[l][r];
                span[0] = (struct mp_recorded_span){now[r], arrived,         0,         -1,
                                                    l,      MP_PHASE_EXPERT, MP_FORWARD};
                span[1] = (struct mp_recorded_span){
                    arrived, end, end - arrived, 10, l, MP_PHASE_DISPATCH, MP_FORWARD};
                now[r] = end;
            }
        }
        for (int r = 0; r < PEERS; r++) {
            recording->span[(i * PEERS + r) * EACH + 4] =
                (struct mp_recorded_span){now[r] + gap[r],    now[r] + gap[r] + 1, 0, -1, -1,
                                          MP_PHASE_OPTIMIZER, MP_NO_DIRECTION};
            recording->rank[i * PEERS + r] = (struct mp_recorded_rank){
                0, now[r] + gap[r] + 1, (size_t)((i * PEERS + r) * EACH), EACH, 0};
        }
    }
}

static void assert_seconds(struct mp_what_if *what_if, struct mp_what_if_change change,
                           double first, double more) {
    double seconds[ITERATIONS];
    mp_what_if_run(what_if, &change, seconds);
    for (int i = 0; i < ITERATIONS; i++)
        assert_close(seconds[i], first + i * more, 1e-12);
    assert_close(mp_what_if_median(what_if, &change), first + 1.5 * more, 1e-12);
}

/* As it was: both meet at 6 + i, leave at 7 + i and 9 + i, meet at 11 + i, leave at 13 + i, and
 * rank 1 is through at 15 + i. */
TEST(changes_by_hand) {
    struct recording recording;
    AUTO(what_if) struct mp_what_if *what_if;
    struct mp_what_if_change change = mp_what_if_nothing();
    make_recording(&recording);
    assert_works(mp_what_if_create(&recording.run, &what_if, &error));
    assert_int_equal(mp_what_if_layers(what_if), LAYERS);
    assert_false(mp_what_if_knows_tokens(what_if));
    assert_seconds(what_if, change, 15, 1);
    /* 4 + i/2, 2 of transfer for both; 3, 2 of transfer; 2. */
    change.balance = true;
    assert_seconds(what_if, change, 13, 0.5);
    change.layer = 0; /* 4 + i/2, 2, then 4 of rank 0, 2; 2 */
    assert_seconds(what_if, change, 14, 0.5);
    change.layer = 1; /* 6 + i, 3 of rank 1, 3, 2, 2 */
    assert_seconds(what_if, change, 16, 1);
    /* Without rank 1's own work: 2, then 5 and 3, so 7 and 9; its gap is rank 0's. */
    change = mp_what_if_nothing();
    change.without_rank = 1;
    assert_seconds(what_if, change, 12.5, 0);
    change.without_rank = 0; /* 6 + i; 9 + i, 2 of both, 2; its gap is not on the way */
    assert_seconds(what_if, change, 15, 1);
    /* All at once: work 4 + i/2, 2; 3, 2; 0.75 s of gap, 1. */
    change = mp_what_if_nothing();
    change.ideal = true;
    assert_seconds(what_if, change, 12.75, 0.5);
}

/* Where tokens are known they are made even, and a rank that is slow at as many stays slow. */
TEST_TURNS(even_tokens_by_hand, 2, uneven) {
    struct recording recording;
    AUTO(what_if) struct mp_what_if *what_if;
    struct mp_what_if_change change = mp_what_if_nothing();
    make_recording(&recording);
    for (size_t s = 0; s < recording.run.spans; s++) { /* 10 for all, or one for each second */
        struct mp_recorded_span *span = &recording.span[s];
        if (span->phase == MP_PHASE_EXPERT)
            span->tokens = uneven ? llround(span->end - span->start) : 10;
    }
    assert_works(mp_what_if_create(&recording.run, &what_if, &error));
    change.balance = true;
    /* Unevenly 4 + i/2, 1 of transfer for rank 1, too, whose 3 times as many tokens took 3
     * times as long; 3, 2; 2. */
    assert_seconds(what_if, change, uneven ? 12 : 15, uneven ? 0.5 : 1);
    /* Unevenly rank 1 is not slow, and keeps what its tokens take: only its gap goes. */
    change = mp_what_if_nothing();
    change.without_rank = 1;
    assert_true(mp_what_if_knows_tokens(what_if));
    assert_seconds(what_if, change, uneven ? 14.5 : 12.5, uneven);
}

/* Gaps count as ranks' own. */
TEST(ranks_by_hand) {
    struct recording recording;
    AUTO(what_if) struct mp_what_if *what_if;
    double own, blocked;
    make_recording(&recording);
    assert_works(mp_what_if_create(&recording.run, &what_if, &error));
    mp_what_if_rank(what_if, 0, &own, &blocked); /* 4 + i and 1, none and 2 */
    assert_close(own, 2 + 4 + 0.5 + 1, 1e-12);
    assert_close(blocked, 5.5 + 1 + 2, 1e-12);
    mp_what_if_rank(what_if, 1, &own, &blocked);
    assert_close(own, 7.5 + 2 + 2, 1e-12);
    assert_close(blocked, 3 + 2, 1e-12);
}

/* ---- runs that were recorded ---- */

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
static void ask(struct runs_folder *folder, struct runs_rank ranks[], int count,
                struct asked *asked) {
    struct mp_store_run description = runs_description("ep", "text");
    description.ranks = description.ranks_per_node = count;
    for (int r = 0; r < count; r++) {
        mp_record_text(ranks[r].compute, "environment.host", "here");
        runs_clock_samples(&ranks[r]);
    }
    int64_t run = runs_ingest(folder, &description, ranks, count);
    assert_works(mp_recorded_read(folder->store, run, &asked->recorded, &error));
    assert_works(mp_what_if_create(&asked->recorded, &asked->what_if, &error));
}

static double median(const struct asked *asked, struct mp_what_if_change change) {
    return mp_what_if_median(asked->what_if, &change);
}

/* Rank 1 works 6 ms in each of two iterations, rank 0 2, and waits only from 2 to 3. */
static void ask_example(struct runs_folder *folder, struct asked *asked) {
    struct runs_rank ranks[2];
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        for (int i = 0; i < 2; i++) {
            int64_t at = i * 10000, work = r ? 6000 : 2000;
            const struct runs_span spans[] = {
                {MP_PHASE_EXPERT, MP_FORWARD, at, work, 0, 0, 10, -1, false},
                {MP_PHASE_FETCH, MP_FORWARD, at + work, 1000, 1000, 0, -1, -1, false},
                {MP_PHASE_ITERATION, MP_NO_DIRECTION, at, work + 1000, 0, -1, 10, -1, false},
            };
            runs_record_all(&ranks[r], i, spans);
        }
    }
    ask(folder, ranks, 2, asked);
}

/* Ranks that had gone on before another came did not need it, and need it in no replay. */
RUNS_TEST(who_left_before_needs_nobody_later) {
    AUTO(asked) struct asked asked;
    ask_example(folder, &asked);
    assert_int_equal(mp_what_if_layers(asked.what_if), 1);
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
    ask(folder, &rank, 1, &asked);
    const struct mp_recorded recorded = asked.recorded;
    assert_true(recorded.iterations >= 1);
    assert_int_equal(recorded.spans, 2 * recorded.iterations);
    assert_string_equal(recorded.executor, "measured");
    for (size_t s = 0; s < recorded.spans; s++) {
        const struct mp_recorded_span *span = &recorded.span[s];
        assert_int_equal(span->phase, s % 2 ? MP_PHASE_EXPERT : MP_PHASE_ATTENTION);
        assert_all_close(1e-9, span->start, s % 2 ? 4e-3 : 0, span->end, s % 2 ? 5e-3 : 0.7e-3);
        assert_int_equal(span->direction, s % 2 ? MP_BACKWARD : MP_FORWARD);
        assert_int_equal(span->layer, 0);
        assert_int_equal(span->tokens, s % 2 ? 10 : -1);
    }
}

RUNS_TEST(what_is_missing_is_named) {
    struct mp_recorded recorded;
    assert_fails(mp_recorded_read(folder->store, 0, &recorded, &error), MP_ENOTFOUND,
                 "there is no run in it");
    assert_fails(mp_recorded_read(folder->store, 7, &recorded, &error), MP_ENOTFOUND,
                 "there is no run 7; ");
    AUTO(asked) struct asked asked;
    ask_example(folder, &asked);
    static const struct {
        const char *sql, *words;
    } cases[] = {
        {"UPDATE rank SET clock = 'wall clock' WHERE rank = 1",
         "has no common clock: rank 1 was put on it by its wall clock"},
        {"UPDATE rank SET clock = NULL", "common clock: rank 0 was put on it by nothing"},
        {"DELETE FROM span WHERE rank = 1 AND phase_id = "
         "(SELECT id FROM StringIds WHERE value = 'iteration')",
         ": rank 1 has no spans of "},
        {"DELETE FROM span WHERE phase_id <> (SELECT id FROM StringIds WHERE value = 'iteration')",
         ": rank 0 has no spans inside its iterations"},
        {"UPDATE iteration_summary SET steady = 0",
         "has no steady iteration that every rank recorded"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        runs_execute(folder->store, "BEGIN");
        runs_execute(folder->store, cases[i].sql);
        assert_fails(mp_recorded_read(folder->store, 1, &recorded, &error), MP_ENOTFOUND,
                     cases[i].words);
        runs_execute(folder->store, "ROLLBACK");
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
    ask(folder, ranks, 2, &asked);
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
