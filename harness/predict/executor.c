/* The schedule's verbs, in model time.
 *
 * The comm stream carries exchanges in the order in which they are started.  Where the processor
 * that computes also copies, a step's experts take longer by that share of what the rank's gates
 * are busy with the step behind and the return before it, though never more than twice as long: the
 * rest passes while the rank waits. */
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"

/* Of operations that are all of a phase, or all that travels in it. */
static const enum mp_phase phase_of[MP_OPERATIONS] = {[MP_WORK_EMBED] = MP_PHASE_EMBED,
                                                      [MP_WORK_ATTENTION] = MP_PHASE_ATTENTION,
                                                      [MP_WORK_GATE] = MP_PHASE_GATE,
                                                      [MP_TRAVEL_FETCH] = MP_PHASE_FETCH,
                                                      [MP_TRAVEL_LATE_FETCH] = MP_PHASE_FETCH,
                                                      [MP_TRAVEL_REFETCH] = MP_PHASE_FETCH,
                                                      [MP_TRAVEL_HOMES] = MP_PHASE_FETCH,
                                                      [MP_TRAVEL_AHEAD] = MP_PHASE_FETCH,
                                                      [MP_TRAVEL_SUM_COPIES] = MP_PHASE_REDUCE,
                                                      [MP_TRAVEL_SHARE_SUMS] = MP_PHASE_REDUCE,
                                                      [MP_TRAVEL_SEND_SLICES] = MP_PHASE_REDUCE,
                                                      [MP_TRAVEL_SUM_DENSE] = MP_PHASE_ALLREDUCE,
                                                      [MP_TRAVEL_MOVES] = MP_PHASE_MOVE};

/* ---- rows of a step ---- */

static struct mp_layer_rows *layer_of(struct mp_predictor *predictor, int layer) {
    return &predictor->rows.layer[layer];
}

static size_t row_of(const struct mp_predictor *predictor, int step) {
    return (size_t)step * (size_t)predictor->ranks;
}

/* ---- spans ---- */

static void begin(void *self, struct mp_scheduled_phase activity) {
    struct mp_predictor *predictor = self;
    (void)activity;
    predictor->passes = false;
    mp_timeline_mark(&predictor->timeline);
}

/* Tokens and bytes are those of the half that sets out, or returns, as a whole. */
static double end_exchange(struct mp_predictor *predictor, struct mp_scheduled_phase activity) {
    const struct mp_layer_rows *layer = layer_of(predictor, activity.layer);
    enum mp_phase there = activity.direction == MP_FORWARD ? MP_PHASE_DISPATCH : MP_PHASE_COMBINE;
    bool is_there = activity.phase == there;
    bool flat = activity.step == MP_ALL_STEPS;
    bool whole = flat || activity.step == layer->steps->steps;
    const int64_t *tokens = whole && (is_there || flat) ? layer->sent_rows : NULL;
    const double *bytes = is_there ? layer->sent : layer->received;
    return mp_timeline_spent(&predictor->timeline, activity, tokens, whole ? bytes : NULL, -1);
}

static double end_experts(struct mp_predictor *predictor, struct mp_scheduled_phase activity) {
    const struct mp_timeline *timeline = &predictor->timeline;
    double flops = mp_sizes_route_flops(&predictor->costs->sizes) *
                   (activity.direction == MP_FORWARD ? 1 : 2) *
                   mp_costs_part(predictor->costs, MP_PHASE_EXPERT, activity.products);
    for (int r = 0; r < predictor->ranks; r++)
        predictor->sums.experts[r] += timeline->clock[r] - timeline->mark[r];
    const int64_t *rows = layer_of(predictor, activity.layer)->steps->rows;
    return mp_timeline_spent(&predictor->timeline, activity,
                             rows + row_of(predictor, activity.step), NULL, flops);
}

static double end_shared(struct mp_predictor *predictor, struct mp_scheduled_phase activity) {
    double flops =
        mp_costs_shared_flops(predictor->costs) * (activity.direction == MP_FORWARD ? 1 : 2);
    return mp_timeline_spent(&predictor->timeline, activity, predictor->tokens, NULL, flops);
}

/* What belongs to MoE layers; fetches with a direction do, too. */
static const bool in_moe[MP_PHASES] = {
    [MP_PHASE_GATE] = true,   [MP_PHASE_PLAN] = true,    [MP_PHASE_DISPATCH] = true,
    [MP_PHASE_EXPERT] = true, [MP_PHASE_WEIGHTS] = true, [MP_PHASE_SHARED] = true,
    [MP_PHASE_REDUCE] = true, [MP_PHASE_COMBINE] = true, [MP_PHASE_FETCH] = true};
/* And what all tokens of a rank go through. */
static const bool of_tokens[MP_PHASES] = {[MP_PHASE_EMBED] = true,
                                          [MP_PHASE_ATTENTION] = true,
                                          [MP_PHASE_GATE] = true,
                                          [MP_PHASE_HEAD] = true};

static double end_phase(struct mp_predictor *predictor, struct mp_scheduled_phase activity) {
    if (activity.phase == MP_PHASE_DISPATCH || activity.phase == MP_PHASE_COMBINE)
        return end_exchange(predictor, activity);
    if (mp_phase_of_experts(activity.phase))
        return end_experts(predictor, activity);
    if (activity.phase == MP_PHASE_SHARED)
        return end_shared(predictor, activity);
    bool has_tokens = of_tokens[activity.phase] && activity.products != MP_WEIGHT_PRODUCTS;
    return mp_timeline_spent(&predictor->timeline, activity, has_tokens ? predictor->tokens : NULL,
                             NULL, -1);
}

static void end(void *self, struct mp_scheduled_phase activity) {
    struct mp_predictor *predictor = self;
    struct mp_moe_sums *sums = &predictor->sums;
    const double *waited = &predictor->timeline.sums.waited[MP_PHASE_FETCH];
    if (!predictor->passes) /* what only sets out takes no time */
        return;
    double before = *waited, seconds = end_phase(predictor, activity);
    if (activity.phase == MP_PHASE_FETCH && activity.direction == MP_NO_DIRECTION) {
        sums->gathering += seconds;
        sums->gathering_waited += *waited - before;
    } else if (in_moe[activity.phase]) {
        sums->moe += seconds;
        if (activity.layer >= 0)
            sums->layer_moe[activity.layer] += seconds / predictor->ranks;
    }
}

/* ---- plans ---- */

/* Own work of a phase: as recorded, or what it takes each rank, or (NULL) what the costs say. */
static void work_in(struct mp_predictor *predictor, enum mp_phase phase,
                    const struct mp_operation *operation, const double each[]) {
    const double *recorded =
        mp_costs_recorded(predictor->costs, phase, (int)operation->direction, operation->layer);
    double part = mp_costs_part(predictor->costs, phase, operation->products);
    for (int r = 0; recorded && part < 1 && r < predictor->ranks; r++)
        predictor->seconds[r] = part * recorded[r];
    if (recorded)
        each = part < 1 ? predictor->seconds : recorded;
    if (each)
        mp_timeline_work_each(&predictor->timeline, each);
    else
        mp_timeline_work(&predictor->timeline,
                         part * mp_costs_own(predictor->costs, phase, operation->direction));
}

static int plan_before(struct mp_predictor *predictor, int layer, struct mp_error *error) {
    int micro_batch = predictor->schedule.micro_batch;
    if (layer == 0)
        mp_planner_begin_micro_batch(&predictor->planner, micro_batch);
    MP_TRY(mp_planner_begin_layer(&predictor->planner, predictor->iteration, layer, error));
    MP_TRY(mp_gated_loads_limit(&predictor->loads, &predictor->planner, micro_batch, error));
    mp_carrier_fetch(&predictor->carrier, MP_STAGE_BEFORE_GATE, micro_batch == 0,
                     &predictor->carrier.fetch);
    return MP_OK;
}

static void record_facts(const struct mp_predictor *predictor, int layer,
                         const struct mp_load *load) {
    struct mp_plan_facts facts;
    if (!predictor->sink.facts)
        return;
    mp_plan_facts(predictor->planner.plan, load, &facts);
    predictor->sink.facts(predictor->sink.context, predictor->called, layer,
                          predictor->planner.plan, &facts);
}

static int plan_after(struct mp_predictor *predictor, int layer, struct mp_error *error) {
    struct mp_carrier *carrier = &predictor->carrier;
    int micro_batch = predictor->schedule.micro_batch;
    bool last = micro_batch + 1 == predictor->schedule.micro_batches;
    const struct mp_load *load = mp_gated_load(&predictor->loads, micro_batch, layer);
    MP_TRY(mp_planner_end_layer(&predictor->planner, layer, load, error));
    mp_late_copies_mark(&carrier->late, predictor->planner.plan);
    if (!predictor->planner.policy.free_transfers)
        work_in(predictor, MP_PHASE_PLAN, &(struct mp_operation){.layer = layer}, NULL);
    mp_carrier_fetch(carrier, MP_STAGE_AFTER_GATE, micro_batch == 0, &carrier->late_fetch);
    mp_carrier_gradients(carrier, layer, last);
    mp_holding_count_copies(&predictor->holding, layer);
    if (last)
        record_facts(predictor, layer, load);
    return mp_predicted_rows_fill(&predictor->rows, &carrier->late, micro_batch, layer, error);
}

static int plan(void *self, int layer, bool before_gate, const struct mp_plan **of_layer,
                struct mp_error *error) {
    struct mp_predictor *predictor = self;
    predictor->passes = true;
    *of_layer = predictor->planner.plan;
    return before_gate ? plan_before(predictor, layer, error) : plan_after(predictor, layer, error);
}

/* ---- own work ---- */

/* What the processor also copies while a step is computed, or (-1) what comes before the first.
 * What weights hide of the step's own return is not hidden by the next one. */
static void stretch(struct mp_predictor *predictor, const struct mp_steps *steps, int step,
                    enum mp_products products) {
    double share = 1 - predictor->timeline.overlap;
    int first = products == MP_WEIGHT_PRODUCTS  ? step
                : products == MP_INPUT_PRODUCTS ? step + 1
                                                : step - 1;
    int last = products == MP_WEIGHT_PRODUCTS ? step : step + 1;
    for (int r = 0; share > 0 && r < predictor->ranks; r++) {
        double busy = 0, most = predictor->seconds[r];
        for (int other = first; other <= last; other += 2)
            if (other >= 0 && other < steps->steps)
                busy += steps->alone[row_of(predictor, other) + (size_t)r];
        predictor->seconds[r] += share * (busy < most ? busy : most);
    }
}

static void compute(struct mp_predictor *predictor, const struct mp_operation *operation) {
    const struct mp_layer_rows *layer = layer_of(predictor, operation->layer);
    int direction = operation->direction;
    const double *speed = mp_costs_speed(predictor->costs, direction);
    memcpy(predictor->seconds, layer->steps->expert[direction] + row_of(predictor, operation->step),
           (size_t)predictor->ranks * sizeof *predictor->seconds);
    double part = mp_costs_part(predictor->costs, MP_PHASE_EXPERT, operation->products);
    for (int r = 0; r < predictor->ranks; r++)
        predictor->seconds[r] *= part * (speed ? speed[r] : 1);
    if (operation->step < layer->steps->steps)
        stretch(predictor, layer->steps, operation->step, operation->products);
    mp_timeline_work_each(&predictor->timeline, predictor->seconds);
}

/* The shared expert, while rows set out. */
static void share(struct mp_predictor *predictor, const struct mp_operation *operation) {
    double seconds = mp_costs_own(predictor->costs, MP_PHASE_SHARED, operation->direction);
    for (int r = 0; r < predictor->ranks; r++)
        predictor->seconds[r] = seconds;
    stretch(predictor, layer_of(predictor, operation->layer)->steps, -1, operation->products);
    work_in(predictor, MP_PHASE_SHARED, operation, predictor->seconds);
}

/* Rows in order at one end of an exchange. */
static void permute(struct mp_predictor *predictor, const struct mp_operation *operation,
                    bool there) {
    const struct mp_layer_rows *layer = layer_of(predictor, operation->layer);
    bool forward = operation->direction == MP_FORWARD;
    enum mp_phase phase = there == forward ? MP_PHASE_DISPATCH : MP_PHASE_COMBINE;
    /* Padded: as many rows on every rank. */
    for (int r = 0; layer->one_hot > 0 && r < predictor->ranks; r++)
        layer->permute[r] =
            mp_costs_one_hot(predictor->costs, layer->one_hot, phase, operation->direction);
    work_in(predictor, phase, operation, layer->permute);
}

/* Before rows of tokens set out, all ranks learn how many there are. */
static void gather_distinct(struct mp_predictor *predictor, const struct mp_operation *operation) {
    const struct mp_levels levels = mp_plan_token_levels(predictor->planner.plan);
    double counts = predictor->planner.plan->degree * (double)mp_levels_groups(&levels);
    mp_timeline_together(&predictor->timeline,
                         (struct mp_scheduled_phase){MP_PHASE_DISPATCH, MP_FORWARD,
                                                     operation->layer, 0, MP_ALL_PRODUCTS},
                         mp_network_all_gather(predictor->network, counts * sizeof(uint32_t)));
}

static int work(void *self, const struct mp_operation *operation, struct mp_error *error) {
    struct mp_predictor *predictor = self;
    int way = operation->direction;
    predictor->passes = true;
    switch (operation->kind) {
    case MP_WORK_EMBED:
    case MP_WORK_ATTENTION:
    case MP_WORK_GATE:
        work_in(predictor, phase_of[operation->kind], operation, NULL);
        break;
    case MP_WORK_PERMUTE:
        if (way == MP_BACKWARD)
            MP_TRY(mp_predicted_rows_restore(&predictor->rows, &predictor->carrier.late,
                                             predictor->schedule.micro_batch, operation->layer,
                                             predictor->iteration, error));
        permute(predictor, operation, true);
        if (predictor->rows.distinct && way == MP_FORWARD)
            gather_distinct(predictor, operation);
        break;
    case MP_WORK_SHARED:
        share(predictor, operation);
        break;
    case MP_WORK_EXPERTS:
        compute(predictor, operation);
        break;
    case MP_WORK_COMBINE:
        permute(predictor, operation, false);
        break;
    case MP_WORK_HEAD:
        mp_holding_count_memory(&predictor->holding);
        work_in(predictor, MP_PHASE_HEAD, operation, NULL);
        break;
    case MP_WORK_UPDATE_EXPERTS:
        for (int r = 0; r < predictor->ranks; r++)
            predictor->seconds[r] =
                mp_holding_layer_update(&predictor->holding, operation->layer, r);
        mp_timeline_work_each(&predictor->timeline, predictor->seconds);
        break;
    default:
        mp_timeline_work_each(&predictor->timeline, predictor->holding.optimizer_seconds);
    }
    return MP_OK;
}

/* ---- rows on their way ---- */

static struct mp_scheduled_phase activity_of(const struct mp_operation *operation) {
    bool there = operation->kind == MP_TRAVEL_ROWS, forward = operation->direction == MP_FORWARD;
    return (struct mp_scheduled_phase){there == forward ? MP_PHASE_DISPATCH : MP_PHASE_COMBINE,
                                       operation->direction, operation->layer, operation->step,
                                       MP_ALL_PRODUCTS};
}

/* When the rows of a step are there: [ranks]. */
static double *arrival_of(const struct mp_predictor *predictor,
                          const struct mp_operation *operation) {
    const double *first =
        operation->kind == MP_TRAVEL_ROWS ? predictor->way.arrived : predictor->way.returned;
    return (double *)first + row_of(predictor, operation->step);
}

static int reserve_arrivals(struct mp_predictor *predictor, int steps, struct mp_error *error) {
    size_t cells = row_of(predictor, steps);
    if (steps <= predictor->way.steps_limit)
        return MP_OK;
    free(predictor->way.arrived);
    predictor->way.arrived = malloc(2 * cells * sizeof *predictor->way.arrived);
    predictor->way.returned = predictor->way.arrived + cells;
    predictor->way.steps_limit = predictor->way.arrived ? steps : 0;
    return predictor->way.arrived
               ? MP_OK
               : mp_fail(error, MP_ENOMEM, "no memory for an exchange of %d steps", steps);
}

/* Bytes that each rank gets in all rounds of a step: [ranks]. */
static double *received_in(struct mp_predictor *predictor, struct mp_traffic *const traffic[],
                           int rounds, bool back) {
    double *bytes = predictor->bytes, *part = predictor->seconds;
    mp_traffic_totals(traffic[0], back ? bytes : NULL, back ? NULL : bytes);
    for (int round = 1; round < rounds; round++) {
        mp_traffic_totals(traffic[round], back ? part : NULL, back ? NULL : part);
        for (int r = 0; r < predictor->ranks; r++)
            bytes[r] += part[r];
    }
    return bytes;
}

/* What travels beside rows goes forth in forward and back in backward. */
static int trip_of(const struct mp_steps *steps, const struct mp_operation *operation) {
    bool back = operation->kind == MP_TRAVEL_RETURNS, forward = operation->direction == MP_FORWARD;
    if (steps->trips == 1)
        return 0;
    return back == forward ? MP_TRIP_ALONE : forward ? MP_TRIP_FORTH : MP_TRIP_BACK;
}

static int start_rows(struct mp_predictor *predictor, const struct mp_operation *operation,
                      struct mp_error *error) {
    const struct mp_steps *steps = layer_of(predictor, operation->layer)->steps;
    bool back = operation->kind == MP_TRAVEL_RETURNS;
    struct mp_traffic *const *traffic =
        steps->traffic +
        (trip_of(steps, operation) * steps->steps + operation->step) * steps->rounds;
    MP_TRY(reserve_arrivals(predictor, steps->steps, error));
    struct mp_traffic *backwards[2 * MP_EXCHANGE_ROUNDS];
    const double *bytes =
        predictor->sink.span ? received_in(predictor, traffic, steps->rounds, back) : NULL;
    for (int hop = 0; back && hop < steps->hops; hop++)
        backwards[hop] = traffic[steps->hops - 1 - hop];
    if (back && steps->hops > 1)
        traffic = backwards;
    mp_timeline_exchange_start(&predictor->timeline, activity_of(operation), traffic, steps->rounds,
                               back, steps->alone + row_of(predictor, operation->step), bytes,
                               predictor->timeline.clock, arrival_of(predictor, operation));
    return MP_OK;
}

static void wait_rows(struct mp_predictor *predictor, const struct mp_operation *operation) {
    int steps = layer_of(predictor, operation->layer)->steps->steps;
    mp_timeline_wait_until(&predictor->timeline, arrival_of(predictor, operation));
    if (steps == 1 || (operation->kind == MP_TRAVEL_RETURNS && operation->step + 1 == steps))
        mp_timeline_forget_late(&predictor->timeline);
}

/* ---- the background ---- */

static struct mp_carriage *carriage_of(struct mp_predictor *predictor,
                                       const struct mp_operation *operation) {
    switch (operation->kind) {
    case MP_TRAVEL_FETCH:
        if (predictor->planner.policy.gather_ahead == 0)
            return &predictor->carrier.fetch;
        /* Its bytes count when the layer is planned. */
        mp_carrier_homes(&predictor->carrier, operation->layer, &predictor->carrier.ahead);
        return &predictor->carrier.ahead;
    case MP_TRAVEL_LATE_FETCH:
        return &predictor->carrier.late_fetch;
    case MP_TRAVEL_REFETCH:
        return &predictor->carrier.layer[operation->layer].prefetch;
    case MP_TRAVEL_AHEAD:
        return &predictor->carrier.layer[operation->layer].ahead;
    case MP_TRAVEL_HOMES:
        predictor->carrier.bytes[MP_STAGE_AFTER_STEP] +=
            mp_carrier_homes(&predictor->carrier, operation->layer, &predictor->carrier.fetch);
        return &predictor->carrier.fetch;
    case MP_TRAVEL_MOVES:
        mp_holding_expect_moves(&predictor->holding);
        mp_carrier_moves(&predictor->carrier, &predictor->carrier.fetch);
        return &predictor->carrier.fetch;
    default:
        return &predictor->carrier.layer[operation->layer]
                    .gradient[operation->kind - MP_TRAVEL_SUM_COPIES];
    }
}

static int64_t *number_of(struct mp_predictor *predictor, const struct mp_operation *operation) {
    if (operation->kind == MP_TRAVEL_SUM_DENSE)
        return &predictor->way.dense_number[operation->layer];
    if (operation->kind == MP_TRAVEL_AHEAD)
        return &predictor->way.ahead_number[operation->layer];
    if (operation->kind == MP_TRAVEL_MOVES)
        return predictor->way.number[operation->kind];
    return &predictor->way.number[operation->kind][operation->layer % (MP_MOST_AHEAD + 1)];
}

/* Non-expert gradients of a block, or of the tables. */
static int64_t start_dense(struct mp_predictor *predictor, struct mp_scheduled_phase activity) {
    double seconds = predictor->meetings.block_sums, *each = predictor->seconds;
    if (activity.layer == predictor->layers) {
        activity.layer = -1;
        seconds = predictor->meetings.table_sums;
    }
    for (int r = 0; r < predictor->ranks; r++)
        each[r] = seconds;
    const struct mp_carriage sum = {seconds > 0, each, each, .others = each};
    return sum.any ? mp_timeline_start(&predictor->timeline, activity, &sum) : -1;
}

static void start_background(struct mp_predictor *predictor, const struct mp_operation *operation) {
    struct mp_scheduled_phase activity = {phase_of[operation->kind], operation->direction,
                                          operation->layer, 0, MP_ALL_PRODUCTS};
    int64_t *number = number_of(predictor, operation);
    if (operation->kind == MP_TRAVEL_SUM_DENSE) {
        *number = start_dense(predictor, activity);
        return;
    }
    const struct mp_carriage *carriage = carriage_of(predictor, operation);
    *number = carriage->any ? mp_timeline_start(&predictor->timeline, activity, carriage) : -1;
}

static void wait_background(struct mp_predictor *predictor, const struct mp_operation *operation) {
    int64_t number = *number_of(predictor, operation);
    if (number >= 0)
        mp_timeline_wait(&predictor->timeline, number);
}

/* ---- what travels ---- */

static int start(void *self, const struct mp_operation *operation, struct mp_error *error) {
    struct mp_predictor *predictor = self;
    switch (operation->kind) {
    case MP_TRAVEL_COUNTS:
    case MP_TRAVEL_LOSS:
        return MP_OK; /* they begin when the last rank has come */
    case MP_TRAVEL_ROWS:
    case MP_TRAVEL_RETURNS:
        return start_rows(predictor, operation, error);
    case MP_TRAVEL_MOVES:
        *number_of(predictor, operation) = -1;
        if (predictor->planner.change.asynchronous)
            start_background(predictor, operation);
        else if (!mp_optimizer_sliced(predictor->planner.policy.optimizer))
            mp_carrier_move(&predictor->carrier, &predictor->timeline);
        return MP_OK;
    default:
        start_background(predictor, operation);
        return MP_OK;
    }
}

static int wait(void *self, const struct mp_operation *operation, struct mp_error *error) {
    struct mp_predictor *predictor = self;
    struct mp_timeline *timeline = &predictor->timeline;
    struct mp_scheduled_phase activity = {MP_PHASE_GATE, operation->direction, operation->layer, 0,
                                          MP_ALL_PRODUCTS};
    (void)error;
    predictor->passes = true;
    switch (operation->kind) {
    case MP_TRAVEL_COUNTS:
        mp_timeline_together(timeline, activity, predictor->meetings.counts);
        return MP_OK;
    case MP_TRAVEL_LOSS:
        activity.phase = MP_PHASE_WAIT;
        mp_timeline_together(timeline, activity, predictor->meetings.agreement);
        return MP_OK;
    case MP_TRAVEL_ROWS:
    case MP_TRAVEL_RETURNS:
        wait_rows(predictor, operation);
        return MP_OK;
    case MP_TRAVEL_MOVES:
        wait_background(predictor, operation);
        mp_planner_adopt_homes(&predictor->planner);
        mp_holding_count_homes(&predictor->holding);
        return MP_OK;
    default:
        wait_background(predictor, operation);
        return MP_OK;
    }
}

static int learn(void *self, const struct mp_rehome **change, struct mp_error *error) {
    struct mp_predictor *predictor = self;
    int64_t tokens = (int64_t)predictor->costs->tokens * predictor->ranks;
    const struct mp_load *learnt = mp_gated_loads_learnt(&predictor->loads, tokens);
    predictor->passes = true;
    *change = &predictor->planner.change;
    if (mp_gated_loads_summed_bytes(&predictor->loads) > 0)
        mp_timeline_together(
            &predictor->timeline,
            (struct mp_scheduled_phase){MP_PHASE_WAIT, MP_NO_DIRECTION, -1, 0, MP_ALL_PRODUCTS},
            predictor->meetings.transitions);
    return mp_planner_after_step(&predictor->planner, predictor->iteration, learnt, error);
}

static const struct mp_executor executor = {begin, end, plan, work, start, wait, learn};

/* ---- life ---- */

static void find_meetings(struct mp_predictor *predictor) {
    const struct mp_network *network = predictor->network;
    const struct mp_costs *costs = predictor->costs;
    /* And where chunks are of tokens, routes of each. */
    const int chunks = predictor->rows.distinct ? predictor->planner.plan->degree : 1;
    const double counts = MP_BYTES_OF_COUNTS + (chunks > 1 ? chunks * sizeof(uint32_t) : 0);
    double transitions = mp_gated_loads_summed_bytes(&predictor->loads);
    predictor->meetings = (struct mp_meetings){
        .block_sums = mp_costs_sums(costs) *
                      mp_network_all_reduce(network, mp_costs_block_gradient_bytes(costs)),
        .table_sums = mp_costs_sums(costs) *
                      mp_network_all_reduce(network, mp_costs_table_gradient_bytes(costs)),
        .counts = mp_network_all_gather(network, counts * (double)predictor->job.experts),
        .transitions = transitions > 0 ? mp_network_all_reduce(network, transitions) : 0,
        .agreement = mp_network_all_reduce(network, MP_AGREED_BYTES)};
}

/* As NCCL does, and messages do not. */
static bool keeps_order(const struct mp_predictor *predictor) {
    const struct mp_job *job = &predictor->job;
    return job->transport != MP_TRANSPORT_MPI &&
           (!predictor->costs->fitted || job->device == MP_DEVICE_CUDA);
}

int mp_predictor_create_executor(struct mp_predictor *predictor, struct mp_error *error) {
    const struct mp_planner *planner = &predictor->planner;
    struct mp_schedule *schedule = &predictor->schedule;
    MP_TRY(mp_schedule_create(&executor, predictor, &planner->policy, predictor->layers,
                              predictor->ranks, schedule, error));
    schedule->learns = planner->system->after_step;
    schedule->micro_batches = predictor->options.micro_batches;
    schedule->shares = predictor->job.shared_experts > 0;
    schedule->keeps_order = keeps_order(predictor);
    find_meetings(predictor);
    MP_TAKE(&predictor->memory, predictor->way.dense_number, predictor->layers + 1);
    MP_TAKE_EACH(&predictor->memory, predictor->layers, predictor->sums.layer_moe,
                 predictor->way.ahead_number);
    MP_TAKE_EACH(&predictor->memory, predictor->ranks, predictor->sums.experts, predictor->tokens,
                 predictor->bytes, predictor->seconds);
    for (int r = 0; predictor->tokens && r < predictor->ranks; r++)
        predictor->tokens[r] = (int64_t)predictor->costs->tokens;
    return mp_arena_check(&predictor->memory, error);
}

void mp_predictor_destroy_executor(struct mp_predictor *predictor) {
    mp_schedule_destroy(&predictor->schedule);
    free(predictor->way.arrived);
}

void mp_predictor_begin_executor(struct mp_predictor *predictor) {
    struct mp_moe_sums *sums = &predictor->sums;
    sums->moe = sums->gathering = sums->gathering_waited = 0;
    memset(sums->experts, 0, (size_t)predictor->ranks * sizeof *sums->experts);
    memset(sums->layer_moe, 0, (size_t)predictor->layers * sizeof *sums->layer_moe);
}
