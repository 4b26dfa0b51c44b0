/* Where nothing is symmetric: spans of ranks that do different things, and a recording replayed
 * otherwise; worked out by hand. */
#include "harness/predict/what_if.h"
#include "tests/harness/predict/predictor_support.h"

#include "harness/predict/timeline.h"
#include "profiler/record/record.h"

TEST_END(what_if, struct mp_what_if *, mp_what_if_destroy(*it))
TEST_END(timeline, struct mp_timeline, mp_timeline_destroy(it))

/* ---- spans ---- */

enum { RANKS = 3, MOST_SPANS = 32 };

struct kept {
    struct mp_span span[RANKS][2][MOST_SPANS]; /* of a stream: comm or not */
    int count[RANKS][2];
};

static void keep(void *context, int rank, enum mp_predict_stream stream,
                 const struct mp_span *span) {
    struct kept *kept = context;
    int comm = stream == MP_STREAM_COMM;
    kept->span[rank][comm][kept->count[rank][comm]++] = *span;
}

static void assert_kept(const struct kept *kept, int rank, int comm, int index,
                        struct mp_span expected) {
    const struct mp_span *span = &kept->span[rank][comm][index];
    assert_true(index < kept->count[rank][comm]);
    assert_numbers(span->start_ns, expected.start_ns, span->end_ns, expected.end_ns);
    assert_numbers(span->wait_ns, expected.wait_ns, span->tokens, expected.tokens);
    assert_numbers(span->bytes, expected.bytes, span->flops, expected.flops);
    assert_numbers(span->iteration, expected.iteration, span->layer, expected.layer);
    assert_numbers(span->phase, expected.phase, span->direction, expected.direction);
    assert_int_equal(span->cpu_ns, -1);
}

static const double work[RANKS] = {1, 3, 2};
static const int64_t tokens[RANKS] = {5, 15, 10};

/* Of iteration 6, with nothing counted; the direction as spans have it, in two bits. */
static struct mp_span span_of(enum mp_phase phase, unsigned direction, int layer, int64_t start_ns,
                              int64_t end_ns, int64_t wait_ns) {
    return (struct mp_span){.start_ns = start_ns,
                            .end_ns = end_ns,
                            .wait_ns = wait_ns,
                            .tokens = -1,
                            .bytes = -1,
                            .flops = -1,
                            .iteration = 6,
                            .layer = (int16_t)layer,
                            .phase = (uint8_t)phase,
                            .direction = direction & 3};
}

/* What is kept of the iteration below. */
static void assert_spans(const struct kept *kept) {
    static const int64_t s = 1000000000, bytes[RANKS] = {10, 11, 0};
    for (int r = 0; r < RANKS; r++) {
        const int64_t own = (int64_t)work[r] * s, met = 7 * s / 2;
        struct mp_span expert = span_of(MP_PHASE_EXPERT, MP_FORWARD, 2, 0, own, 0);
        expert.tokens = tokens[r];
        expert.bytes = bytes[r];
        expert.flops = 2 * tokens[r];
        assert_kept(kept, r, 0, 0, expert);
        assert_kept(kept, r, 0, 1,
                    span_of(MP_PHASE_ALLREDUCE, MP_BACKWARD, -1, own, met, met - own));
        struct mp_span whole = span_of(MP_PHASE_ITERATION, MP_NO_DIRECTION, -1, 0, 9 * s / 2,
                                       r == 1 ? 3 * s / 2 : met - own);
        whole.tokens = 30;
        assert_kept(kept, r, 0, 2, whole);
        assert_int_equal(kept->count[r][0], 3);
    }
    struct mp_span part = span_of(MP_PHASE_FETCH, MP_FORWARD, 1, 0, 3 * s, 0);
    part.bytes = 0; /* they count where it ends */
    assert_kept(kept, 1, 1, 0, part);
    part = span_of(MP_PHASE_FETCH, MP_FORWARD, 1, 7 * s / 2, 9 * s / 2, 0);
    part.bytes = 77;
    assert_kept(kept, 1, 1, 2, part);
    assert_numbers(kept->count[0][1], 1, kept->count[1][1], 3);
}

/* Ranks work 1, 3 and 2 s in experts; then all meet for 0.5 s, which begins at 3 s; a fetch of 4 s
 * on rank 1 alone that began at 0 goes on behind the meeting: 3 s before it, 1 s after. */
TEST(spans_by_hand) {
    const struct test_machine machine = test_machine_of(1, RANKS);
    struct kept kept = {{{{{0}}}}, {{0}}};
    struct mp_predict_sink sink = {.context = &kept, .span = keep};
    AUTO(network) struct mp_network *network;
    AUTO(timeline) struct mp_timeline timeline;
    static const double fetch[RANKS] = {0, 4, 0}, alone[RANKS] = {0, 5, 0};
    static const double bytes[RANKS] = {10.4, 10.6, 0}, received[RANKS] = {0, 77, 0};
    static const struct mp_scheduled_phase expert = {MP_PHASE_EXPERT, MP_FORWARD, 2, 0,
                                                     MP_ALL_PRODUCTS};
    static const struct mp_scheduled_phase sum = {MP_PHASE_ALLREDUCE, MP_BACKWARD, -1, 0,
                                                  MP_ALL_PRODUCTS};
    static const struct mp_scheduled_phase copy = {MP_PHASE_FETCH, MP_FORWARD, 1, 0,
                                                   MP_ALL_PRODUCTS};
    AUTO(cluster) struct mp_cluster *cluster = test_cluster(&machine);
    assert_works(mp_network_create(cluster, &network, &error));
    assert_works(mp_timeline_create(network, RANKS, 1, 3, &sink, &timeline, &error));
    mp_timeline_begin(&timeline, 3, 6);
    const struct mp_carriage carriage = {
        true, (double *)fetch, (double *)alone, (double *)received, (double *)fetch, NULL};
    int64_t number = mp_timeline_start(&timeline, copy, &carriage);
    mp_timeline_mark(&timeline);
    mp_timeline_work_each(&timeline, work);
    assert_close(mp_timeline_spent(&timeline, expert, tokens, bytes, 2), 6, 1e-12);
    mp_timeline_mark(&timeline);
    mp_timeline_together(&timeline, sum, 0.5);
    assert_close(mp_timeline_spent(&timeline, sum, NULL, NULL, 9), 4.5, 1e-12);
    assert_close(timeline.sums.late, 2 + 1, 1e-12);
    mp_timeline_wait(&timeline, number);
    assert_all_close(1e-12, timeline.clock[0], 3.5, timeline.clock[1], 4.5, timeline.clock[2], 3.5);
    assert_all_close(1e-12, timeline.waited[0], 2.5, timeline.waited[1], 0.5 + 1);
    assert_all_close(1e-12, timeline.port[0], 0.5, timeline.port[1], 4 + 0.5);
    assert_close(timeline.sums.spent[MP_PHASE_EXPERT], 6, 1e-12);
    assert_close(timeline.sums.waited[MP_PHASE_EXPERT], 0, 0);
    assert_close(timeline.sums.waited[MP_PHASE_ALLREDUCE], 4.5, 1e-12);
    assert_all_close(1e-12, timeline.sums.transfers, 4, timeline.sums.serial, 4 + 3 + 0.5);
    assert_close(mp_timeline_end(&timeline, 30), 4.5, 1e-12);

    assert_spans(&kept);
    mp_timeline_begin(&timeline, 4, 7); /* behind the first */
    mp_timeline_mark(&timeline);
    mp_timeline_work(&timeline, 1);
    mp_timeline_spent(&timeline, copy, NULL, NULL, -1);
    const int64_t s = 1000000000;
    assert_numbers(kept.span[0][0][3].start_ns, 9 * s / 2, kept.span[0][0][3].end_ns, 11 * s / 2);
}

/* ---- what if ---- */

/* Two ranks and two layers: experts, then an exchange, of each.  Iteration i takes longer by i. */
enum { PEERS = 2, ITERATIONS = 4, LAYERS = 2, EACH = 5 };

struct recording {
    struct mp_recorded run;
    struct mp_recorded_rank rank[ITERATIONS * PEERS];
    struct mp_recorded_span span[ITERATIONS * PEERS * EACH];
};

/* Layer 0: 2 and 6 + i, transfers 1 and 3; layer 1: 4 and 2, transfers 2 and 2.  At last 1 s of
 * optimizer, a second after the exchange on rank 1. */
static void make_recording(struct recording *recording) {
    static const double transfer[LAYERS][PEERS] = {{1, 3}, {2, 2}};
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
            recording->span[(i * PEERS + r) * EACH + 4] = (struct mp_recorded_span){
                now[r] + r, now[r] + r + 1, 0, -1, -1, MP_PHASE_OPTIMIZER, MP_NO_DIRECTION};
            recording->rank[i * PEERS + r] = (struct mp_recorded_rank){
                0, now[r] + r + 1, (size_t)((i * PEERS + r) * EACH), EACH, 0};
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
    /* Without rank 1's own work: 2, then 5 and 3, so 7 and 9; its gap goes, too. */
    change = mp_what_if_nothing();
    change.without_rank = 1;
    assert_seconds(what_if, change, 12, 0);
    change.without_rank = 0; /* 6 + i; 9 + i, 2 of both, 2; its gap is not on the way */
    assert_seconds(what_if, change, 15, 1);
    /* All at once: work 4 + i/2, 2; 3, 2; half a second of gap, 1. */
    change = mp_what_if_nothing();
    change.ideal = true;
    assert_seconds(what_if, change, 12.5, 0.5);
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
    assert_seconds(what_if, change, uneven ? 14 : 12, uneven);
}

/* A second of rank 1's gap counts as its own. */
TEST(ranks_by_hand) {
    struct recording recording;
    AUTO(what_if) struct mp_what_if *what_if;
    double own, waiting;
    make_recording(&recording);
    assert_works(mp_what_if_create(&recording.run, &what_if, &error));
    mp_what_if_rank(what_if, 0, &own, &waiting); /* 4 + i and 1, none and 2 */
    assert_close(own, 2 + 4 + 1, 1e-12);
    assert_close(waiting, 5.5 + 1 + 2, 1e-12);
    mp_what_if_rank(what_if, 1, &own, &waiting);
    assert_close(own, 7.5 + 2 + 2, 1e-12);
    assert_close(waiting, 3 + 2, 1e-12);
}
