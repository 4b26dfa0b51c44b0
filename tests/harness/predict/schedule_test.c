/* The order of an iteration in model time, against times that are worked out by hand.
 *
 * On machines on which arithmetic is all that own work costs: a product takes its operations over
 * the peak, everything else nothing. */
#include "tests/harness/predict/predictor_support.h"

/* A token per position of a sequence of 512, one sequence per rank; 256 wide, a row has 1024 bytes.
 * Experts have 1024 hidden elements. */
enum { MOST_SPANS = 4096 };

/* All else takes no time but copies, at `self` B/s, and what travels. */
#define PLAIN                                                                                      \
    .memory = 80e9, .memory_bandwidth = 1e15,                                                      \
    .efficiency = "    tokens: [1]\n    width: [1]\n    share: [[1]]\n"

struct spans {
    struct mp_span span[MOST_SPANS]; /* of rank 0 in an iteration, by stream: */
    enum mp_predict_stream stream[MOST_SPANS];
    int count;
};

static void keep(void *context, int rank, enum mp_predict_stream stream,
                 const struct mp_span *span) {
    struct spans *spans = context;
    if (rank != 0)
        return;
    assert_true(spans->count < MOST_SPANS);
    spans->stream[spans->count] = stream;
    spans->span[spans->count++] = *span;
}

/* Every rank's tokens go to all experts alike, one expert per rank and one per token. */
static struct test_case create(const struct test_machine *machine, const char *system, int layers) {
    uint64_t none = 0;
    struct test_case test =
        test_make(machine, system, layers, machine->nodes * machine->ranks_per_node, 1);
    test_set(&test, "gate=switch");
    test.options.precision = MP_FP32;
    test.options.gradient_bytes = 4;
    test_fill_loads(&test, &none, 0);
    return test;
}

/* Rank 0's spans of the last of three iterations: planners have seen loads by then. */
static struct mp_prediction predict(const struct test_case *test, struct spans *spans) {
    struct mp_predict_sink sink = {.context = spans, .span = keep};
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(test, &sink);
    struct mp_prediction prediction = {0};
    for (int i = 0; i < 3; i++) {
        spans->count = 0;
        prediction = test_step(predictor, test);
    }
    return prediction;
}

static bool is(const struct spans *spans, int i, enum mp_predict_stream stream, enum mp_phase phase,
               enum mp_direction direction, int layer) {
    const struct mp_span *span = &spans->span[i];
    return spans->stream[i] == stream && span->phase == phase && span->direction == direction &&
           span->layer == layer;
}

/* Seconds at which a stream has first begun a phase of a layer, and last ended it. */
static void bounds(const struct spans *spans, enum mp_predict_stream stream, enum mp_phase phase,
                   enum mp_direction direction, int layer, double *begin, double *end) {
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int i = 0; i < spans->count; i++) {
        if (!is(spans, i, stream, phase, direction, layer))
            continue;
        first = spans->span[i].start_ns < first ? spans->span[i].start_ns : first;
        last = spans->span[i].end_ns > last ? spans->span[i].end_ns : last;
    }
    assert_true(first < last);
    *begin = 1e-9 * (double)first;
    *end = 1e-9 * (double)last;
}

static double waited(const struct spans *spans, enum mp_phase phase, enum mp_direction direction,
                     int layer) {
    int64_t sum = 0;
    for (int i = 0; i < spans->count; i++)
        if (is(spans, i, MP_STREAM_COMPUTE, phase, direction, layer))
            sum += spans->span[i].wait_ns;
    return 1e-9 * (double)sum;
}

/* ---- FSSDP: copies under attention, sums of their gradients too ---- */

/* Own work of 512 tokens, in operations over 2^26 per second; backward is twice as much:
 *   attention   2 * 512 * 256 * (768 + 256) into and out of it, and 4 * 512 * 512 * 256 of whole
 *               squares of scores: 2^28 + 2^28                                             8 s
 *   gate        2 * 512 * 256 * 32 = 2^23                                              0.125 s
 *   experts     all of the rank's own tokens: 4 * 512 * 256 * 1024 = 2^29                  8 s
 * An exchange copies 512 rows of 1024 bytes at 2^20 B/s: 0.5 s.
 *
 * An expert has 2 MiB.  A node is entered by the 24 foreign experts of 32, all by its one port,
 * which as many leave by; ports inside nodes are as good as free.  So all copies of a layer take
 * 24 * 2 MiB over the port's bandwidth, which is chosen for that: T.  So do the sums of their
 * gradients.
 *
 * Non-expert gradients of a block (two layer norms, attention's projections, the gate) have
 * 4 * 271,360 bytes, of which each rank of a node sends a 32nd part 3 times by the node's port, and
 * again when the sum is gathered: 2 * 3 * 33,920 * 8 over the port's bandwidth. */
struct hand_worked {
    const char *name;
    double transfer; /* T */
    double copies;   /* exposed: of a layer's copies in forward, */
    double upper;    /* and of the sums of the upper layer, */
    double lower;    /* and of the lower one */
};

static const struct hand_worked transfers[] = {
    /* Rows stay on their devices, for 0.5 an exchange, and leave the port to what travels.
     * Copies set out before attention (8), gate (0.125) and an exchange, behind which experts wait
     * for them:
     *   40 - 8.625 = 31.375
     * The upper layer's sums set out behind its second exchange.  Over them pass its gate (0.25)
     * and attention (16), and the experts (16) and both exchanges of the layer below, where they
     * are waited for, because the next ones set out there:
     *   40 - 33.25 = 6.75
     * Meanwhile the block's gradients have set out, and go now: 1,628,160 / (24 * 2 MiB / 40 s) =
     * 1.294.  The lower layer's sums come behind them and have its gate and attention alone:
     *   1.294 + 40 - 16.25 = 25.044 */
    {"40 seconds", 40, 31.375, 6.75, 25.044},
    /* The same with 30 - 8.625 = 21.375; the upper layer's sums end under the experts below, when
     * the second exchange is still to come, and the block's gradients (0.970) too: 30.97 < 32.25;
     * so the lower layer's sums go at once: 30 - 16.25 = 13.75. */
    {"30 seconds", 30, 21.375, 0, 13.75},
};

/* Every expert is copied to all 32 ranks before the gate, so that no token leaves its rank. */
TEST_EACH(transfers_hide_as_worked_out, transfers, hand) {
    const struct test_machine machine = {PLAIN,
                                         .nodes = 4,
                                         .ranks_per_node = 8,
                                         .peak = 2 * 0x1p26,
                                         .self = 0x1p20,
                                         .bandwidth = 1e15,
                                         .far_bandwidth = 24 * 0x1p21 / hand->transfer,
                                         .overlap = 1};
    static struct spans spans;
    double begin, end, other_begin, other_end;
    AUTO(test)
    struct test_case test = create(&machine,
                                   "fssdp options.overlap=all options.memory=all "
                                   "options.calibrate=no options.reshard-interval=0",
                                   2);
    struct mp_prediction prediction = predict(&test, &spans);
    assert_int_equal(prediction.copies, 2 * 32 * 31);
    assert_within(prediction.exchanged_bytes, 0, 0);
    for (int l = 0; l < 2; l++) {
        assert_within(waited(&spans, MP_PHASE_FETCH, MP_FORWARD, l), hand->copies, 1e-3);
        bounds(&spans, MP_STREAM_COMM, MP_PHASE_FETCH, MP_FORWARD, l, &begin, &end);
        bounds(&spans, MP_STREAM_COMPUTE, MP_PHASE_ATTENTION, MP_FORWARD, l, &other_begin,
               &other_end);
        assert_within(begin, other_begin, 1e-6);
    }
    assert_within(waited(&spans, MP_PHASE_REDUCE, MP_BACKWARD, 1), hand->upper, 1e-3);
    assert_within(waited(&spans, MP_PHASE_REDUCE, MP_BACKWARD, 0), hand->lower, 1e-3);
    assert_within(prediction.transfer_exposed_seconds, 2 * hand->copies + hand->upper + hand->lower,
                  1e-3);

    bounds(&spans, MP_STREAM_COMM, MP_PHASE_REDUCE, MP_BACKWARD, 1, &begin, &end);
    bounds(&spans, MP_STREAM_COMM, MP_PHASE_DISPATCH, MP_BACKWARD, 1, &other_begin, &other_end);
    assert_within(other_end - other_begin, 0.5, 1e-3);
    assert_within(begin, other_end, 1e-6);
    assert_within(end - begin, hand->transfer, 1e-3);
}

/* ---- FasterMoE's pipelined exchange ---- */

/* PPoPP 2022, figure 8 in numbers: four steps, each of which takes 1 s to send, 2 s to compute and
 * 1 s to return.  All S set out before the first R, so that R_0 waits for S_3: ends of S 1 2 3 4,
 * of C 3 5 7 9, of R 5 6 8 10.  One after the other they would take 16.
 *
 * 4 ranks send each other 128 rows of 1024 bytes in each step, 2^17 bytes, which go through experts
 * in 4 * 128 * 256 * 1024 = 2^27 operations: units of 1/32 s. */
enum { STEPS = 4 };

struct pipelined {
    const char *name;
    double copies;   /* share of the copying */
    double exchange; /* units that a step travels */
    double sent[STEPS], computed[STEPS], returned[STEPS];
};

static void assert_ends(const struct spans *spans, enum mp_predict_stream stream,
                        enum mp_phase phase, double begin, double unit, const double end[STEPS]) {
    int step = 0;
    for (int i = 0; i < spans->count; i++) {
        if (!is(spans, i, stream, phase, MP_FORWARD, 0))
            continue;
        assert_true(step < STEPS);
        assert_within((1e-9 * (double)spans->span[i].end_ns - begin) / unit, end[step++], 1e-4);
    }
    assert_int_equal(step, STEPS);
}

static const struct pipelined steps[] = {
    {"it ends when it should", 0, 1, {1, 2, 3, 4}, {3, 5, 7, 9}, {5, 6, 8, 10}},
    /* The processor does half of the copying: the first and the last step have one neighbour that
     * travels meanwhile, 2 + 1/2, the others two, 2 + 2/2. */
    {"it takes from computing", 0.5, 1, {1, 2, 3, 4}, {3.5, 6.5, 9.5, 12}, {5, 7.5, 10.5, 13}},
    /* Where three units travel in a step, no step takes more than twice as long for it: two units
     * of which half are the processor's, 2 + 2/2 for all. */
    {"no step takes twice as long", 0.5, 3, {3, 6, 9, 12}, {6, 9, 12, 15}, {15, 18, 21, 24}},
};

TEST_EACH(pipelined_steps_end_as_worked_out, steps, hand) {
    const double unit = 0x1p-5, bandwidth = 0x1p17 / unit / hand->exchange;
    const struct test_machine machine = {PLAIN,
                                         .nodes = 1,
                                         .ranks_per_node = 4,
                                         .peak = 2 * 0x1p26 / unit,
                                         .self = bandwidth,
                                         .bandwidth = bandwidth,
                                         .overlap = 1 - hand->copies};
    static struct spans spans;
    double begin, end;
    AUTO(test)
    struct test_case test = create(&machine, "fastermoe options.group-size=1 options.shadows=0", 1);
    predict(&test, &spans);
    bounds(&spans, MP_STREAM_COMM, MP_PHASE_DISPATCH, MP_FORWARD, 0, &begin, &end);
    assert_ends(&spans, MP_STREAM_COMM, MP_PHASE_DISPATCH, begin, unit, hand->sent);
    assert_ends(&spans, MP_STREAM_COMPUTE, MP_PHASE_EXPERT, begin, unit, hand->computed);
    assert_ends(&spans, MP_STREAM_COMM, MP_PHASE_COMBINE, begin, unit, hand->returned);
}
