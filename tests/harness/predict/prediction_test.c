/* Predictions against what can be worked out without the predictor. */
#include "tests/harness/predict/predictor_support.h"

/* ---- a small case, span by span ---- */

struct expected {
    enum mp_phase phase;
    enum mp_direction direction;
    double start, end, wait;
};

enum { MOST_SPANS = 64 };

struct recorded {
    struct mp_span span[2][2][MOST_SPANS]; /* of two ranks, both streams */
    int count[2][2];
};

static void keep_span(void *context, int rank, enum mp_predict_stream stream,
                      const struct mp_span *span) {
    struct recorded *recorded = context;
    int *count = &recorded->count[rank][stream];
    assert_true(*count < MOST_SPANS);
    recorded->span[rank][stream][(*count)++] = *span;
}

static void assert_spans(const struct mp_span span[], int count, const struct expected expected[],
                         int wanted) {
    assert_int_equal(count, wanted);
    for (int i = 0; i < count; i++) {
        assert_numbers(span[i].phase, expected[i].phase, span[i].direction, expected[i].direction);
        /* Rounded, and what the network's floats leave. */
        assert_true(fabs((double)span[i].start_ns - 1e9 * expected[i].start) < 1);
        assert_true(fabs((double)span[i].end_ns - 1e9 * expected[i].end) < 1);
        assert_true(fabs((double)span[i].wait_ns - 1e9 * expected[i].wait) < 1);
    }
}

/* Adds a phase of so many seconds, the last `wait` of them waiting. */
static void add(struct expected list[], int *count, enum mp_phase phase,
                enum mp_direction direction, double seconds, double wait) {
    double start = *count ? list[*count - 1].end : 0;
    list[(*count)++] = (struct expected){phase, direction, start, start + seconds, wait};
}

/* Seconds of what a rank does and of what travels, worked out from the formulas; by direction. */
struct by_hand {
    double exchange, gather, sum, agree, permute, embed, hidden, head, optimizer;
    double attention[2], gate[2], experts[2][2]; /* experts: [rank] */
};

/* What two_ranks_by_hand expects of a rank. */
struct schedule {
    struct expected work[MOST_SPANS], comm[MOST_SPANS];
    int works, comms;
};

static struct by_hand work_out(struct mp_costs *costs) {
    struct by_hand is = {.exchange = 5e-6 + 424 * 512 / 1e11,
                         .gather = 5e-6 + 8 / 1e11,
                         .sum = 2 * (5e-6 + mp_costs_block_gradient_bytes(costs) / 2 / 1e11),
                         .agree = 2 * (5e-6 + 12 / 1e11),
                         .permute = mp_costs_permute(costs, 1024),
                         .embed = mp_costs_own(costs, MP_PHASE_EMBED, MP_FORWARD),
                         .hidden = mp_costs_own(costs, MP_PHASE_EMBED, MP_BACKWARD),
                         .head = mp_costs_own(costs, MP_PHASE_HEAD, MP_FORWARD)};
    is.optimizer = mp_costs_optimizer(costs, 2 * mp_costs_block_parameters(costs)) +
                   mp_costs_optimizer(costs, costs->sizes.expert);
    for (int d = 0; d < 2; d++) {
        is.attention[d] = mp_costs_own(costs, MP_PHASE_ATTENTION, d);
        is.gate[d] = mp_costs_own(costs, MP_PHASE_GATE, d);
        is.experts[0][d] = mp_costs_expert(costs, 1148, d);
        is.experts[1][d] = mp_costs_expert(costs, 900, d);
        assert_true(is.experts[0][d] > is.experts[1][d]);
    }
    return is;
}

/* The next work of a rank; the last `travels` seconds before the last `after` of it are in flight.
 */
static void expect(struct schedule *schedule, enum mp_phase phase, enum mp_direction direction,
                   double seconds, double travels, double after) {
    add(schedule->work, &schedule->works, phase, direction, seconds, travels);
    double end = schedule->work[schedule->works - 1].end - after;
    if (travels > 0)
        schedule->comm[schedule->comms++] =
            (struct expected){phase, direction, end - travels, end, 0};
}

static void expect_forward(const struct by_hand *is, int rank, struct schedule *schedule) {
    double late = is->experts[0][0] - is->experts[rank][0];
    expect(schedule, MP_PHASE_EMBED, MP_FORWARD, is->embed, 0, 0);
    expect(schedule, MP_PHASE_PLAN, MP_FORWARD, 0, 0, 0);
    expect(schedule, MP_PHASE_ATTENTION, MP_FORWARD, is->attention[0], 0, 0);
    expect(schedule, MP_PHASE_GATE, MP_FORWARD, is->gate[0] + is->gather, is->gather, 0);
    expect(schedule, MP_PHASE_PLAN, MP_FORWARD, 0, 0, 0);
    expect(schedule, MP_PHASE_DISPATCH, MP_FORWARD, is->permute + is->exchange, is->exchange, 0);
    expect(schedule, MP_PHASE_EXPERT, MP_FORWARD, is->experts[rank][0], 0, 0);
    expect(schedule, MP_PHASE_COMBINE, MP_FORWARD, late + is->exchange + is->permute,
           late + is->exchange, is->permute);
}

/* The sum of gradients passes under the embedding's backward, as far as it can. */
static void expect_backward(const struct by_hand *is, int rank, struct schedule *schedule) {
    double late = is->experts[0][1] - is->experts[rank][1];
    double exposed = is->sum > is->hidden ? is->sum - is->hidden : 0;
    expect(schedule, MP_PHASE_HEAD, MP_BACKWARD, is->head, 0, 0);
    expect(schedule, MP_PHASE_COMBINE, MP_BACKWARD, is->permute + is->exchange, is->exchange, 0);
    expect(schedule, MP_PHASE_EXPERT, MP_BACKWARD, is->experts[rank][1], 0, 0);
    expect(schedule, MP_PHASE_DISPATCH, MP_BACKWARD, late + is->exchange + is->permute,
           late + is->exchange, is->permute);
    expect(schedule, MP_PHASE_GATE, MP_BACKWARD, is->gate[1], 0, 0);
    expect(schedule, MP_PHASE_ATTENTION, MP_BACKWARD, is->attention[1], 0, 0);
    double begun = schedule->work[schedule->works - 1].end;
    schedule->comm[schedule->comms++] =
        (struct expected){MP_PHASE_ALLREDUCE, MP_BACKWARD, begun, begun + is->sum, 0};
    expect(schedule, MP_PHASE_EMBED, MP_BACKWARD, is->hidden, 0, 0);
    add(schedule->work, &schedule->works, MP_PHASE_ALLREDUCE, MP_BACKWARD, exposed, exposed);
    expect(schedule, MP_PHASE_OPTIMIZER, MP_NO_DIRECTION, is->optimizer, 0, 0);
    expect(schedule, MP_PHASE_WAIT, MP_NO_DIRECTION, is->agree, is->agree, 0);
}

static void expect_iteration(struct schedule *schedule) {
    double waited = 0;
    for (int i = 0; i < schedule->works; i++)
        waited += schedule->work[i].wait;
    double end = schedule->work[schedule->works - 1].end;
    schedule->work[schedule->works++] =
        (struct expected){MP_PHASE_ITERATION, MP_NO_DIRECTION, 0, end, waited};
}

/* Two ranks of one node, an expert each.  Rank 0 has 724 routes for its own expert and sends 300,
 * rank 1 sends 424 and keeps 600; the longer message takes 424 rows of 512 bytes over 1e11 B/s and
 * 5 us, more than any copy on a device.  Rank 0's expert has 1148 rows, rank 1's 900. */
TEST(two_ranks_by_hand) {
    static const uint32_t load[] = {724, 300, 424, 600};
    const struct test_machine machine = test_machine_of(1, 2);
    struct recorded recorded = {0};
    struct mp_predict_sink sink = {.context = &recorded, .span = keep_span};
    AUTO(test) struct test_case test = test_make(&machine, "ep", 1, 2, 1);
    memcpy(test.load[0].count, load, sizeof load);
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, &sink);
    struct by_hand is = work_out(predictor->costs);
    struct mp_prediction prediction = test_step(predictor, &test);
    for (int rank = 0; rank < 2; rank++) {
        struct schedule schedule = {.works = 0};
        expect_forward(&is, rank, &schedule);
        expect_backward(&is, rank, &schedule);
        expect_iteration(&schedule);
        assert_spans(recorded.span[rank][0], recorded.count[rank][0], schedule.work,
                     schedule.works);
        assert_spans(recorded.span[rank][1], recorded.count[rank][1], schedule.comm,
                     schedule.comms);
        assert_close(prediction.seconds / schedule.work[schedule.works - 1].end, 1, 1e-6);
    }
    assert_close(prediction.imbalance, 1148 / 1024.0, 1e-12);
    assert_close(prediction.exchanged_bytes, 4 * 724 * 512, 0);
    assert_close(prediction.late_seconds * 2,
                 is.experts[0][0] - is.experts[1][0] + is.experts[0][1] - is.experts[1][1], 1e-6);
    assert_int_equal(prediction.routes, 2048);
    double meetings = is.gather + is.sum + is.agree;
    assert_close(prediction.port_seconds, 4 * is.exchange + meetings, 1e-5);
    /* Everything one after the other, exchanges with the slower rank's lead over the other. */
    assert_close(prediction.serial_seconds,
                 is.embed + is.hidden + is.head + is.optimizer + meetings + 4 * is.permute +
                     4 * is.exchange + is.attention[0] + is.attention[1] + is.gate[0] + is.gate[1] +
                     2 * (is.experts[0][0] + is.experts[0][1]) - is.experts[1][0] -
                     is.experts[1][1],
                 1e-5);
}

/* ---- micro-batches ---- */

/* Copies that stay travel once in an iteration, and their gradients too; those that are freed after
 * each forward travel every time, twice. */
TEST(copies_stay_over_micro_batches) {
    struct test_machine machine = GOOD_MACHINE;
    double before[2][2], again[2][2], reduce[2][2];
    machine.far_bandwidth = 1e11;
    for (int i = 0; i < 4; i++) {
        int several = i % 2, frees = i / 2;
        uint64_t random = 5;
        AUTO(test)
        struct test_case test = test_make(&machine, "fssdp options.overlap=3 options.calibrate=no",
                                          2, 16, several ? 3 : 1);
        if (frees)
            test_set(&test, "options.rematerialise=yes");
        test_fill_loads(&test, &random, 0.9);
        for (int l = 2; l < 6 && several; l++) /* all micro-batches alike */
            mp_load_copy(&test.load[l], &test.load[l % 2]);
        struct mp_prediction prediction = test_predict(&test);
        before[frees][several] = prediction.bytes[MP_STAGE_BEFORE_GATE];
        again[frees][several] = prediction.bytes[MP_STAGE_BACKWARD_PREFETCH];
        reduce[frees][several] = prediction.bytes[MP_STAGE_BACKWARD_REDUCE];
    }
    assert_true(before[0][0] > 0);
    assert_close(before[0][1] / before[0][0], 1, 1e-12);
    assert_close(reduce[0][1] / reduce[0][0], 1, 1e-12);
    assert_close(again[0][1], 0, 0);
    assert_close(before[1][1] / before[1][0], 3, 1e-12);
    assert_close(again[1][1] / before[1][1], 1, 1e-12);
    assert_close(reduce[1][1] / reduce[1][0], 3, 1e-12);
}

/* Whenever they were made, where the policy says so: each is fetched once and has one gradient. */
TEST(late_copies_stay_over_micro_batches) {
    struct test_machine machine = GOOD_MACHINE;
    machine.far_bandwidth = 1e9;
    for (int several = 0; several < 2; several++) {
        uint64_t random = 6;
        AUTO(test)
        struct test_case test = test_make(&machine, "nodewise", 2, 16, several ? 3 : 1);
        test.job.job.sequence = 16384;
        test_fill_loads(&test, &random, 0.9);
        const struct mp_prediction prediction = test_predict(&test);
        const double late = prediction.bytes[MP_STAGE_AFTER_GATE];
        assert_true(late > 0 && prediction.bytes[MP_STAGE_BACKWARD_REDUCE] > 0);
        assert_close(prediction.bytes[MP_STAGE_BACKWARD_REDUCE] /
                         (late + prediction.bytes[MP_STAGE_BEFORE_GATE]),
                     1, 1e-12);
    }
}
