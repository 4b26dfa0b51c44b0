/* The timeline's streams: exchanges go first, background operations take the gaps, in order. */
#include "harness/predict/timeline.h"

#include "tests/harness/predict/predictor_support.h"

enum { RANKS = 2, MOST_SPANS = 64 };

struct bench {
    struct mp_cluster *cluster;
    struct mp_network *network;
    struct mp_traffic *traffic; /* 1 s between the two ranks */
    struct mp_timeline timeline;
    struct mp_span comm[RANKS][MOST_SPANS];
    int spans[RANKS];
};

static const struct mp_scheduled_phase EXCHANGE = {MP_PHASE_DISPATCH, MP_FORWARD, 0, 0,
                                                   MP_ALL_PRODUCTS};
static const struct mp_scheduled_phase FETCH = {MP_PHASE_FETCH, MP_FORWARD, 0, 0, MP_ALL_PRODUCTS};
static const struct mp_scheduled_phase REDUCE = {MP_PHASE_REDUCE, MP_BACKWARD, 1, 0,
                                                 MP_ALL_PRODUCTS};
static const double ONE[RANKS] = {1, 1};

static void keep(void *context, int rank, enum mp_predict_stream stream,
                 const struct mp_span *span) {
    struct bench *bench = context;
    if (stream == MP_STREAM_COMM)
        bench->comm[rank][bench->spans[rank]++] = *span;
}

static void create(struct bench *bench, double overlap) {
    struct test_machine machine = test_machine_of(1, RANKS);
    struct mp_predict_sink sink = {.context = bench, .span = keep};
    machine.latency = 0;
    machine.bandwidth = 1e9;
    *bench = (struct bench){.cluster = test_cluster(&machine)};
    assert_works(mp_network_create(bench->cluster, &bench->network, &error));
    assert_works(mp_traffic_create(bench->network, &bench->traffic, &error));
    mp_traffic_clear(bench->traffic);
    mp_traffic_add(bench->traffic, 0, 1, 1e9);
    mp_traffic_add(bench->traffic, 1, 0, 1e9);
    assert_works(
        mp_timeline_create(bench->network, RANKS, overlap, 3, &sink, &bench->timeline, &error));
    mp_timeline_begin(&bench->timeline, 0, 0);
}

TEST_END(bench, struct bench, {
    mp_timeline_destroy(&it->timeline);
    mp_traffic_destroy(it->traffic);
    mp_network_destroy(it->network);
    mp_cluster_destroy(it->cluster);
})

/* Gates of all levels for so long. */
static int64_t start(struct bench *bench, struct mp_scheduled_phase activity,
                     const double seconds[]) {
    double *each = (double *)seconds;
    return mp_timeline_start(&bench->timeline, activity,
                             &(struct mp_carriage){true, each, each, .others = each});
}

static void exchange(struct bench *bench) {
    struct mp_timeline *timeline = &bench->timeline;
    double done[sizeof ONE / sizeof *ONE];
    mp_timeline_exchange_start(timeline, EXCHANGE, &bench->traffic, 1, false, ONE, NULL,
                               timeline->clock, done);
    mp_timeline_wait_until(timeline, done);
    mp_timeline_forget_late(timeline);
}

static void assert_span(const struct bench *bench, int rank, int index, enum mp_phase phase,
                        double start, double end) {
    const struct mp_span *span = &bench->comm[rank][index];
    assert_true(index < bench->spans[rank]);
    assert_int_equal(span->phase, phase);
    assert_all_close(1e-6, (double)span->start_ns / 1e9, start, (double)span->end_ns / 1e9, end);
}

/* 3 s one way, then 2 s the other way; at once they would take 3 s.  The gates are busy for all of
 * it; a rank that is 1 s late delays both rounds. */
TEST(rounds_come_one_after_the_other) {
    AUTO(bench) struct bench bench;
    struct mp_traffic *round[2];
    static const double alone[RANKS] = {5, 5}, come[RANKS] = {0, 1};
    double done[RANKS];
    create(&bench, 1);
    for (int i = 0; i < 2; i++) {
        assert_works(mp_traffic_create(bench.network, &round[i], &error));
        mp_traffic_clear(round[i]);
        mp_traffic_add(round[i], i, 1 - i, i == 0 ? 3e9 : 2e9);
    }
    mp_timeline_exchange_start(&bench.timeline, EXCHANGE, round, 2, false, alone, NULL, come, done);
    for (int r = 0; r < RANKS; r++) {
        assert_close(done[r], 6, 1e-6);
        assert_close(bench.timeline.port[r], 5, 1e-6);
        assert_span(&bench, r, 0, MP_PHASE_DISPATCH, come[r], 6);
        mp_traffic_destroy(round[r]);
    }
}

/* An exchange of 1 s waits from 0 until rank 1 comes at 4: its gates are idle until then, and the
 * background of 5 s has them. */
TEST(the_background_goes_on_while_an_exchange_waits) {
    AUTO(bench) struct bench bench;
    const double late[RANKS] = {0, 4}, seconds[RANKS] = {5, 0};
    create(&bench, 1);
    int64_t number = start(&bench, FETCH, seconds);
    mp_timeline_work_each(&bench.timeline, late);
    exchange(&bench);
    assert_close(bench.timeline.clock[0], 5, 1e-6);
    mp_timeline_wait(&bench.timeline, number);
    assert_close(bench.timeline.clock[0], 6, 1e-6);
    assert_span(&bench, 0, 0, MP_PHASE_DISPATCH, 0, 5);
    assert_span(&bench, 0, 1, MP_PHASE_FETCH, 0, 4);
    assert_span(&bench, 0, 2, MP_PHASE_FETCH, 5, 6);
}

/* One rank's span of one phase is longer at its end, in every n-th iteration; in a phase of
 * communication that is waiting, in others work. */
TEST_RANDOM(an_injected_delay_is_one_rank_s) {
    AUTO(bench) struct bench bench;
    create(&bench, 1);
    struct mp_inject *inject = &bench.timeline.inject;
    *inject = (struct mp_inject){.rank = test_random_int(random, 0, RANKS - 1),
                                 .phase = MP_PHASE_EXPERT,
                                 .seconds = 1e-3 * test_random_int(random, 1, 1000),
                                 .every = test_random_int(random, 1, 3),
                                 .layer = test_random_int(random, 0, 1) ? MP_ALL : 1};
    for (int i = 0; i < 6; i++) {
        double expected = 2;
        mp_timeline_begin(&bench.timeline, i, 100 + i);
        for (int layer = 0; layer < 2; layer++) {
            mp_timeline_mark(&bench.timeline);
            mp_timeline_work(&bench.timeline, 1);
            mp_timeline_spent(
                &bench.timeline,
                (struct mp_scheduled_phase){MP_PHASE_EXPERT, MP_FORWARD, layer, 0, MP_ALL_PRODUCTS},
                NULL, NULL, -1);
            if (i % inject->every == 0 && (inject->layer == MP_ALL || layer == inject->layer))
                expected += inject->seconds;
        }
        for (int r = 0; r < RANKS; r++) {
            assert_close(bench.timeline.clock[r], r == inject->rank ? expected : 2, 1e-9);
            assert_close(bench.timeline.waited[r], 0, 1e-9);
        }
    }
    *inject = (struct mp_inject){1, MP_PHASE_DISPATCH, 0.5, 1, MP_ALL};
    mp_timeline_begin(&bench.timeline, 0, 0);
    mp_timeline_mark(&bench.timeline);
    exchange(&bench);
    mp_timeline_spent(&bench.timeline, EXCHANGE, NULL, NULL, -1);
    assert_all_close(1e-6, bench.timeline.clock[0], 1, bench.timeline.clock[1], 1.5);
    assert_close(bench.timeline.waited[1], 1.5, 1e-6);
}

/* Work 1 s, exchange 1 s, work 1 s: a fetch of 2.5 s goes on in the gaps and is waited for. */
TEST(background_takes_the_gaps) {
    AUTO(bench) struct bench bench;
    const double seconds[RANKS] = {2.5, 0}, received[RANKS] = {7, 0};
    create(&bench, 1);
    const struct mp_carriage carriage = {
        true, (double *)seconds, (double *)seconds, (double *)received, (double *)seconds, NULL};
    int64_t number = mp_timeline_start(&bench.timeline, FETCH, &carriage);
    mp_timeline_work(&bench.timeline, 1);
    exchange(&bench);
    mp_timeline_work(&bench.timeline, 1);
    mp_timeline_wait(&bench.timeline, number);
    assert_span(&bench, 0, 0, MP_PHASE_FETCH, 0, 1);
    assert_span(&bench, 0, 1, MP_PHASE_DISPATCH, 1, 2);
    assert_span(&bench, 0, 2, MP_PHASE_FETCH, 2, 3.5);
    assert_numbers(bench.comm[0][0].bytes + bench.comm[0][2].bytes, 7, bench.spans[0], 3);
    assert_int_equal(bench.spans[1], 1); /* no part in it */
    assert_all_close(1e-6, bench.timeline.clock[0], 3.5, bench.timeline.clock[1], 3);
    assert_close(bench.timeline.waited[0], 1.5, 1e-6);
    assert_close(bench.timeline.sums.transfers, 2.5, 0);
    assert_close(bench.timeline.sums.serial, 2.5 + 3, 1e-6);
}

/* The second one issued waits for the first, and begins when the last rank has issued it. */
TEST(background_takes_turns) {
    AUTO(bench) struct bench bench;
    const double first[RANKS] = {1, 1}, second[RANKS] = {1, 1}, late[RANKS] = {0, 4};
    create(&bench, 1);
    mp_timeline_work_each(&bench.timeline, late);
    int64_t one = start(&bench, FETCH, first);
    int64_t two = start(&bench, REDUCE, second);
    mp_timeline_wait(&bench.timeline, two);
    mp_timeline_wait(&bench.timeline, one); /* has long been done */
    for (int r = 0; r < RANKS; r++) {
        assert_span(&bench, r, 0, MP_PHASE_FETCH, 4, 5);
        assert_span(&bench, r, 1, MP_PHASE_REDUCE, 5, 6);
        assert_close(bench.timeline.clock[r], 6, 1e-12);
    }
    /* Places are used again, also by ranks that had nothing to do with what was there. */
    const double none[RANKS] = {0, 0};
    for (int i = 0; i < 7; i++)
        mp_timeline_wait(&bench.timeline, start(&bench, FETCH, i % 2 ? first : none));
    assert_close(bench.timeline.clock[0], 9, 1e-12);
}

/* A meeting has all gates of all ranks once the last one has come; what travels goes on behind. */
TEST(meetings_have_all_gates) {
    AUTO(bench) struct bench bench;
    const double seconds[RANKS] = {4, 4}, late[RANKS] = {1, 3};
    create(&bench, 1);
    int64_t number = start(&bench, FETCH, seconds);
    mp_timeline_work_each(&bench.timeline, late);
    mp_timeline_together(&bench.timeline, EXCHANGE, 0.5);
    mp_timeline_wait(&bench.timeline, number);
    for (int r = 0; r < RANKS; r++) {
        assert_span(&bench, r, 0, MP_PHASE_FETCH, 0, 3);
        assert_span(&bench, r, 1, MP_PHASE_DISPATCH, 3, 3.5);
        assert_span(&bench, r, 2, MP_PHASE_FETCH, 3.5, 4.5);
    }
}

/* Half of a transfer's time is the processor's: 3 s of work beside 2 s of transfer take 4 s; with
 * nothing left to it, work stands still meanwhile. */
TEST(copying_stretches_work) {
    const double seconds[RANKS] = {2, 0};
    for (int i = 0; i < 3; i++) {
        AUTO(bench) struct bench bench;
        create(&bench, i / 2.0);
        int64_t number = start(&bench, FETCH, seconds);
        mp_timeline_work(&bench.timeline, 3);
        mp_timeline_wait(&bench.timeline, number);
        assert_all_close(1e-12, bench.timeline.clock[0], 5 - i, bench.timeline.clock[1], 3);
        assert_close(bench.timeline.waited[0], 0, 1e-12);
        assert_span(&bench, 0, 0, MP_PHASE_FETCH, 0, 2);
    }
    AUTO(bench) struct bench bench; /* work ends first: half as fast until then */
    create(&bench, 0.5);
    int64_t number = start(&bench, FETCH, seconds);
    mp_timeline_work(&bench.timeline, 0.5);
    assert_close(bench.timeline.clock[0], 1, 1e-12);
    mp_timeline_wait(&bench.timeline, number);
    assert_close(bench.timeline.clock[0], 2, 1e-12);
}

/* Who comes early waits for who comes late. */
TEST(late_ranks_are_counted) {
    AUTO(bench) struct bench bench;
    const double late[RANKS] = {0, 4};
    create(&bench, 1);
    mp_timeline_work_each(&bench.timeline, late);
    exchange(&bench);
    assert_all_close(1e-6, bench.timeline.clock[0], 5, bench.timeline.waited[0], 5);
    assert_close(bench.timeline.sums.late, 4, 1e-6);
    mp_timeline_work_each(&bench.timeline, late);
    mp_timeline_together(&bench.timeline, EXCHANGE, 2);
    assert_all_close(1e-6, bench.timeline.sums.late, 8, bench.timeline.clock[0], 11);
    assert_close(mp_timeline_end(&bench.timeline, 1), 11, 1e-6);
}

/* The exchange has gates of level 1 for 1 s; a fetch of 3 s sets out with it, or before.  What that
 * needs of gates at other levels than its own passes before the exchange, and behind it. */
static const struct {
    const char *name;
    uint8_t level;
    double come, others, end;
} besides[] = {{"the same gates", 1, 0, 0, 4},
               {"others alone", 2, 0, 0, 3},
               {"others for the most part", 2, 0, 1, 3},
               {"others for a part", 2, 0, 2.5, 3.5},
               {"all gates", 2, 0, 3, 4},
               {"the same gates, later", 1, 1, 0, 4},
               {"others, which have passed", 2, 1, 1, 3},
               {"others, of which there are left", 2, 1, 2.5, 3.5}};
TEST_EACH(rows_leave_gates_of_other_levels, besides, row) {
    for (int half = 0; half < 2 - (row->come > 0); half++) { /* of the time is copies' */
        AUTO(bench) struct bench bench;
        double seconds[RANKS] = {3, 0}, others[RANKS] = {row->others, 0}, done[RANKS];
        const double come[RANKS] = {row->come, row->come};
        uint8_t level[RANKS] = {row->level, 0};
        const struct mp_carriage carriage = {true, seconds, seconds, NULL, others, level};
        create(&bench, half ? 0.5 : 1);
        int64_t number = mp_timeline_start(&bench.timeline, FETCH, &carriage);
        mp_timeline_exchange_start(&bench.timeline, EXCHANGE, &bench.traffic, 1, false, ONE, NULL,
                                   come, done);
        mp_timeline_work(&bench.timeline, 10);
        assert_close(bench.timeline.clock[0], half ? 11.5 : 10, 1e-6);
        assert_close(bench.timeline.clock[1], 10, 1e-6);
        mp_timeline_wait(&bench.timeline, number);
        assert_span(&bench, 0, bench.spans[0] - 1, MP_PHASE_FETCH, row->come + 1, row->end);
    }
}

/* What needs gates at other levels does not pass beside an exchange: 0.5 s do so, and no more
 * beside the next one, behind which the other 2.5 s are left. */
TEST(gates_of_other_levels_wait_for_all_exchanges) {
    AUTO(bench) struct bench bench;
    double seconds[RANKS] = {3, 0}, others[RANKS] = {2.5, 0}, done[RANKS];
    uint8_t level[RANKS] = {2, 0};
    const struct mp_carriage carriage = {true, seconds, seconds, NULL, others, level};
    create(&bench, 1);
    int64_t number = mp_timeline_start(&bench.timeline, FETCH, &carriage);
    for (int i = 0; i < 2; i++)
        mp_timeline_exchange_start(&bench.timeline, EXCHANGE, &bench.traffic, 1, false, ONE, NULL,
                                   bench.timeline.clock, done);
    mp_timeline_wait(&bench.timeline, number);
    assert_close(bench.timeline.clock[0], 4.5, 1e-6);
}

/* Exchanges of 1 s from 0, 2, 4 ... on are all on their way before a fetch sets out: it takes the
 * gaps of those that the timeline has kept, or runs beside them. */
TEST(background_finds_gaps_before_later_exchanges) {
    for (int beside = 0; beside < 2; beside++) {
        AUTO(bench) struct bench bench;
        enum { BEFORE = MP_MOST_TAKEN + 4 };
        double seconds[RANKS] = {MP_MOST_TAKEN, 0}, others[RANKS] = {0}, done[RANKS];
        uint8_t level[RANKS] = {beside ? 2 : 1, 0};
        const struct mp_carriage carriage = {true, seconds, seconds, NULL, others, level};
        int64_t number = -1;
        create(&bench, 1);
        for (int i = 0; i <= BEFORE; i++) {
            const double come[RANKS] = {2 * i, 2 * i};
            if (i == BEFORE)
                number = mp_timeline_start(&bench.timeline, FETCH, &carriage);
            mp_timeline_exchange_start(&bench.timeline, EXCHANGE, &bench.traffic, 1, false, ONE,
                                       NULL, come, done);
        }
        mp_timeline_wait(&bench.timeline, number);
        const double first = 2 * (BEFORE - MP_MOST_TAKEN) - 1;
        assert_close(bench.timeline.clock[0], first + (beside ? 1 : 2) * MP_MOST_TAKEN - !beside,
                     1e-6);
    }
}
