/* What the predictor has travel: the bytes that its network is given, and when its timeline starts
 * and awaits them. */
#include <string.h>

#include "reference/model/model.h"
#include "tests/errors.h"
#include "tests/harness/predict/predictor_support.h"
#include "tests/same/trace.h"

LED_THROUGH(mp_traffic_clear);
LED_THROUGH(mp_traffic_add);
LED_THROUGH(mp_traffic_fill);
LED_THROUGH(mp_network_exchange);
LED_THROUGH(mp_network_all_reduce);
LED_THROUGH(mp_network_all_gather);
LED_THROUGH(mp_timeline_start);
LED_THROUGH(mp_timeline_wait);
LED_THROUGH(mp_timeline_exchange_start);
LED_THROUGH(mp_timeline_wait_until);
LED_THROUGH(mp_timeline_together);

LED_THROUGH(mp_costs_own);
LED_THROUGH(mp_timeline_work);
LED_THROUGH(mp_timeline_work_each);
LED_THROUGH(mp_holding_layer_update);

enum { TABLE = 1024 };

/* Bytes by what they belong to: a traffic, or the seconds that the network made of one. */
struct known {
    const void *of[TABLE];
    trace_matrix bytes[TABLE];
    int count;
};

static struct {
    struct mp_cluster *cluster;
    struct mp_predictor *predictor;
    struct mp_predict_options options;
    struct trace *trace; /* NULL: nothing is noted */
    trace_matrix *bytes; /* [TRACE_OPERATIONS] */
    struct known traffic, carried;
    struct {
        double bytes, seconds;
    } collective[TABLE];
    int collectives;
    enum mp_phase asked;                  /* whose seconds have been asked for last, */
    int direction;                        /* and in which direction */
    int number[TRACE_OPERATIONS];         /* operations by their number in the background */
    const double *done[TRACE_OPERATIONS]; /* when rows arrive, of those on their way; or NULL */
} seen;

static uint32_t (*bytes_of(struct known *known, const void *of))[TRACE_RANKS] {
    int i = 0;
    while (i < known->count && known->of[i] != of)
        i++;
    assert_true(i < TABLE);
    if (i == known->count) {
        known->of[known->count++] = of;
        memset(known->bytes[i], 0, sizeof known->bytes[i]);
    }
    return known->bytes[i];
}

/* ---- traffic ---- */

void __wrap_mp_traffic_clear(struct mp_traffic *traffic) {
    memset(bytes_of(&seen.traffic, traffic), 0, sizeof(trace_matrix));
    __real_mp_traffic_clear(traffic);
}

void __wrap_mp_traffic_add(struct mp_traffic *traffic, int from, int to, double bytes) {
    assert_within(bytes, floor(bytes), 0);
    bytes_of(&seen.traffic, traffic)[from][to] += (uint32_t)bytes;
    __real_mp_traffic_add(traffic, from, to, bytes);
}

/* Who is asked for the rows of a traffic, and what has been said. */
struct asked {
    mp_traffic_rows *rows_of;
    void *context;
    double row_bytes;
    trace_row *bytes;
};

static int ask_rows(void *context, int from, uint32_t rows[], int32_t to[]) {
    const struct asked *asked = context;
    int count = asked->rows_of(asked->context, from, rows, to);
    for (int i = 0; i < count; i++)
        asked->bytes[from][to[i]] = (uint32_t)(rows[to[i]] * asked->row_bytes);
    return count;
}

void __wrap_mp_traffic_fill(struct mp_traffic *traffic, mp_traffic_rows *rows_of, void *context,
                            double row_bytes) {
    struct asked asked = {rows_of, context, row_bytes, bytes_of(&seen.traffic, traffic)};
    memset(asked.bytes, 0, sizeof(trace_matrix));
    __real_mp_traffic_fill(traffic, ask_rows, &asked, row_bytes);
}

/* What ranks send themselves is no message. */
static void add_traffic(const struct mp_traffic *traffic, bool back, trace_matrix to) {
    const trace_row *bytes = bytes_of(&seen.traffic, traffic);
    for (int a = 0; a < TRACE_RANKS; a++)
        for (int b = 0; b < TRACE_RANKS; b++)
            if (a != b)
                to[a][b] += back ? bytes[b][a] : bytes[a][b];
}

/* What comes to a rank in a round, its own copies included, is what leaves it in the next one. */
static void check_rounds(struct mp_traffic *const traffic[], int rounds, bool back) {
    if (seen.predictor->rows.distinct) /* what comes is copied, or summed */
        return;
    for (int round = 0; round + 1 < rounds; round++) {
        const trace_row *now = bytes_of(&seen.traffic, traffic[round]);
        const trace_row *next = bytes_of(&seen.traffic, traffic[round + 1]);
        for (int r = 0; r < TRACE_RANKS; r++) {
            uint32_t comes = 0, leaves = 0;
            for (int other = 0; other < TRACE_RANKS; other++) {
                comes += back ? now[r][other] : now[other][r];
                leaves += back ? next[other][r] : next[r][other];
            }
            assert_int_equal(comes, leaves);
        }
    }
}

void __wrap_mp_network_exchange(struct mp_network *network, struct mp_traffic *traffic, bool back,
                                const double ready[], double done[]) {
    trace_row *bytes = bytes_of(&seen.carried, done);
    memset(bytes, 0, sizeof(trace_matrix));
    add_traffic(traffic, back, bytes);
    __real_mp_network_exchange(network, traffic, back, ready, done);
}

/* ---- dense collectives ---- */

static double note_collective(double bytes, double seconds) {
    assert_true(seen.collectives < TABLE);
    seen.collective[seen.collectives].bytes = bytes;
    seen.collective[seen.collectives++].seconds = seconds;
    return seconds;
}

double __wrap_mp_network_all_reduce(const struct mp_network *network, double bytes) {
    return note_collective(bytes, __real_mp_network_all_reduce(network, bytes));
}

double __wrap_mp_network_all_gather(const struct mp_network *network, double bytes) {
    return note_collective(bytes, __real_mp_network_all_gather(network, bytes));
}

static uint32_t collective_of(double seconds) {
    int i = 0;
    while (i < seen.collectives && memcmp(&seen.collective[i].seconds, &seconds, sizeof seconds))
        i++;
    assert_true(i < seen.collectives);
    return (uint32_t)seen.collective[i].bytes;
}

/* ---- starts and waits ---- */

static int start(struct mp_scheduled_phase activity) {
    int number =
        trace_start(seen.trace, (struct trace_operation){.phase = (int32_t)activity.phase,
                                                         .direction = (int32_t)activity.direction,
                                                         .layer = activity.layer});
    return number;
}

/* Copies that come again are those of both stages in forward. */
static void add_stages(int number) {
    const struct trace_operation *again = &seen.trace->operation[number];
    for (int i = 0; i < number; i++) {
        const struct trace_operation *before = &seen.trace->operation[i];
        if (before->phase != MP_PHASE_FETCH || before->direction != MP_FORWARD ||
            before->layer != again->layer)
            continue;
        for (int from = 0; from < TRACE_RANKS; from++)
            for (int to = 0; to < TRACE_RANKS; to++)
                seen.bytes[number][from][to] += seen.bytes[i][from][to];
    }
}

int64_t __wrap_mp_timeline_start(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                                 const struct mp_carriage *carriage) {
    int64_t issued = __real_mp_timeline_start(timeline, activity, carriage);
    int number = start(activity);
    seen.number[issued] = number;
    if (activity.phase == MP_PHASE_ALLREDUCE)
        seen.trace->operation[number].each = collective_of(carriage->seconds[0]);
    else if (activity.phase == MP_PHASE_FETCH && activity.direction == MP_BACKWARD &&
             carriage != &seen.predictor->carrier.layer[activity.layer].ahead)
        add_stages(number);
    else
        memcpy(seen.bytes[number], bytes_of(&seen.carried, carriage->seconds),
               sizeof(trace_matrix));
    return issued;
}

void __wrap_mp_timeline_wait(struct mp_timeline *timeline, int64_t number) {
    trace_wait(seen.trace, seen.number[number]);
    __real_mp_timeline_wait(timeline, number);
}

void __wrap_mp_timeline_exchange_start(struct mp_timeline *timeline,
                                       struct mp_scheduled_phase activity,
                                       struct mp_traffic *const traffic[], int rounds, bool back,
                                       const double alone[], const double received[],
                                       const double begin[], double done[]) {
    int number = start(activity);
    seen.trace->operation[number].step = activity.step;
    for (int round = 0; round < rounds; round++)
        add_traffic(traffic[round], back, seen.bytes[number]);
    check_rounds(traffic, rounds, back);
    seen.done[number] = done;
    __real_mp_timeline_exchange_start(timeline, activity, traffic, rounds, back, alone, received,
                                      begin, done);
}

void __wrap_mp_timeline_wait_until(struct mp_timeline *timeline, const double time[]) {
    int number = seen.trace->operations - 1;
    while (number >= 0 && seen.done[number] != time)
        number--;
    assert_true(number >= 0);
    seen.done[number] = NULL;
    trace_wait(seen.trace, number);
    __real_mp_timeline_wait_until(timeline, time);
}

void __wrap_mp_timeline_together(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                                 double seconds) {
    int number = start(activity);
    seen.trace->operation[number].each = collective_of(seconds);
    trace_wait(seen.trace, number);
    __real_mp_timeline_together(timeline, activity, seconds);
}

/* ---- own work ---- */

double __wrap_mp_costs_own(const struct mp_costs *costs, enum mp_phase phase, int direction) {
    seen.asked = phase;
    seen.direction = direction;
    return __real_mp_costs_own(costs, phase, direction);
}

void __wrap_mp_timeline_work(struct mp_timeline *timeline, double seconds) {
    if (seconds > 0) /* planning takes none */
        trace_work(seen.trace, seen.asked, (enum mp_direction)seen.direction);
    __real_mp_timeline_work(timeline, seconds);
}

/* Backward begins with the head. */
static enum mp_direction experts_direction(void) {
    for (int i = 0; i < seen.trace->operations; i++)
        if (seen.trace->operation[i].phase == MP_PHASE_HEAD)
            return MP_BACKWARD;
    return MP_FORWARD;
}

double __wrap_mp_holding_layer_update(const struct mp_holding *holding, int layer, int rank) {
    seen.asked = MP_PHASE_OPTIMIZER;
    return __real_mp_holding_layer_update(holding, layer, rank);
}

/* Whose seconds these are is known by where they lie, and those of a shared expert and of a layer's
 * update by having been asked for. */
void __wrap_mp_timeline_work_each(struct mp_timeline *timeline, const double seconds[]) {
    const struct mp_predictor *predictor = seen.predictor;
    bool orders = false;
    for (int l = 0; l < predictor->layers; l++)
        orders |= seconds == predictor->rows.layer[l].permute;
    if (seconds == predictor->holding.optimizer_seconds)
        trace_work(seen.trace, MP_PHASE_OPTIMIZER, MP_NO_DIRECTION);
    else if (seen.asked == MP_PHASE_OPTIMIZER)
        trace_work(seen.trace, MP_PHASE_OPTIMIZER, MP_BACKWARD);
    else if (seen.asked == MP_PHASE_SHARED)
        trace_work(seen.trace, MP_PHASE_SHARED, (enum mp_direction)seen.direction);
    else if (!orders)
        trace_work(seen.trace, MP_PHASE_EXPERT, experts_direction());
    seen.asked = MP_PHASES;
    __real_mp_timeline_work_each(timeline, seconds);
}

/* ---- the predictor ---- */

static void same_setting(const struct mp_setting *own, const struct mp_setting *trainers) {
    assert_numbers(own->layers, trainers->layers, own->experts, trainers->experts);
    assert_numbers(own->top_k, trainers->top_k, own->topology.ranks, trainers->topology.ranks);
    assert_int_equal(own->topology.ranks_per_node, trainers->topology.ranks_per_node);
    assert_int_equal(own->tokens_per_rank, trainers->tokens_per_rank);
    assert_int_equal(own->forward_only, trainers->forward_only);
    assert_int_equal(own->gradient_bytes, trainers->gradient_bytes);
    assert_int_equal(own->expert_bytes, trainers->expert_bytes);
    assert_int_equal(own->route_bytes, trainers->route_bytes);
    assert_numbers(own->attention_bytes, trainers->attention_bytes, own->seed, trainers->seed);
    assert_within(own->bandwidth, trainers->bandwidth, 0);
    assert_within(own->bandwidth_in_node, trainers->bandwidth_in_node, 0);
    assert_within(own->message_seconds, trainers->message_seconds, 0);
    assert_true(own->latency == trainers->latency);
    assert_true(own->latency_in_node == trainers->latency_in_node);
    assert_within(own->seconds_per_route, trainers->seconds_per_route, 0);
    assert_within(own->seconds_per_expert, trainers->seconds_per_expert, 0);
    assert_within(own->non_moe_seconds, trainers->non_moe_seconds, 0);
}

void network_create(const struct mp_job_file *job, const struct mp_setting *setting) {
    struct test_machine machine = GOOD_MACHINE;
    machine.ranks_per_node = setting->topology.ranks_per_node;
    machine.nodes = setting->topology.ranks / machine.ranks_per_node;
    seen.cluster = test_cluster(&machine);
    seen.traffic.count = seen.carried.count = seen.collectives = 0;
    assert_works(mp_options_set_defaults(mp_predict_options_table, &seen.options, &error));
    seen.options.precision = MP_FP32;
    seen.options.vocabulary = MP_VOCABULARY;
    seen.options.gradient_bytes = sizeof(float);
    seen.options.optimizer_bytes = 2 * sizeof(float); /* the moments */
    struct mp_predictor_config config = {.cluster = seen.cluster,
                                         .job = job,
                                         .options = &seen.options,
                                         .is_gated = job->job.routing == MP_ROUTING_GATE,
                                         .check_plans = true};
    assert_works(mp_predictor_create(&config, &seen.predictor, &error));
    same_setting(&seen.predictor->planner.setting, setting);
}

void network_destroy(void) {
    mp_predictor_destroy(seen.predictor);
    mp_cluster_destroy(seen.cluster);
}

void network_step(const struct mp_load load[], struct trace *trace, trace_matrix bytes[]) {
    struct mp_prediction prediction;
    trace->operations = trace->events = 0;
    memset(bytes, 0, TRACE_OPERATIONS * sizeof *bytes);
    memset(seen.done, 0, sizeof seen.done);
    seen.trace = trace;
    seen.bytes = bytes;
    assert_works(mp_predictor_step(seen.predictor, load, &prediction, &error));
}
