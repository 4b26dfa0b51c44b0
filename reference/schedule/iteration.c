
#include "reference/schedule/schedule.h"

int mp_schedule_create(const struct mp_executor *executor, void *self,
                       const struct mp_policy *policy, int layers, int ranks,
                       struct mp_schedule *schedule, struct mp_error *error) {
    *schedule = (struct mp_schedule){
        .executor = executor, .self = self, .policy = policy, .layers = layers, .micro_batches = 1};
    for (int i = 0; i < MP_SUMS_ON_THEIR_WAY; i++)
        schedule->sums[i].layer = -1;
    size_t steps = (size_t)mp_exchange_most_steps(ranks);
    MP_TAKE(&schedule->arena, schedule->layer, layers);
    MP_TAKE(&schedule->arena, schedule->needs_late, (size_t)layers * steps);
    if (schedule->arena.lacking) {
        mp_schedule_destroy(schedule);
        return mp_no_memory(error);
    }
    for (int l = 0; l < layers; l++)
        schedule->layer[l].needs_late = schedule->needs_late + (size_t)l * steps;
    return MP_OK;
}

void mp_schedule_destroy(struct mp_schedule *schedule) {
    mp_arena_release(&schedule->arena);
    *schedule = (struct mp_schedule){0};
}

/* ---- verbs ---- */

/* A phase under way; it ends with its block. */
struct phase {
    struct mp_schedule *schedule;
    struct mp_scheduled_phase is;
};
MP_END(phase, struct phase, it->schedule->executor->end(it->schedule->self, it->is))

static struct phase begin(struct mp_schedule *schedule, struct mp_scheduled_phase activity) {
    schedule->executor->begin(schedule->self, activity);
    return (struct phase){schedule, activity};
}

/* The rest of the block. */
#define WITHIN(schedule, activity)                                                                 \
    MP_AUTO(phase) __attribute__((unused)) struct phase under_way = begin(schedule, activity)

static struct mp_operation of(enum mp_operation_kind kind, enum mp_direction direction, int layer,
                              int step) {
    return (struct mp_operation){kind, direction, layer, step, MP_ALL_PRODUCTS};
}

static int work(struct mp_schedule *schedule, struct mp_operation operation,
                struct mp_error *error) {
    return schedule->executor->work(schedule->self, &operation, error);
}

static int start(struct mp_schedule *schedule, struct mp_operation operation,
                 struct mp_error *error) {
    return schedule->executor->start(schedule->self, &operation, error);
}

static int wait(struct mp_schedule *schedule, struct mp_operation operation,
                struct mp_error *error) {
    return schedule->executor->wait(schedule->self, &operation, error);
}

static int start_and_wait(struct mp_schedule *schedule, struct mp_operation operation,
                          struct mp_error *error) {
    MP_TRY(start(schedule, operation, error));
    return wait(schedule, operation, error);
}

static struct mp_scheduled_phase phase_of(enum mp_phase phase, enum mp_direction direction,
                                          int layer) {
    return (struct mp_scheduled_phase){phase, direction, layer, MP_ALL_STEPS, MP_ALL_PRODUCTS};
}

/* One of those above. */
typedef int operate(struct mp_schedule *schedule, struct mp_operation operation,
                    struct mp_error *error);

static int operate_within(struct mp_schedule *schedule, struct mp_scheduled_phase activity,
                          operate *doing, struct mp_operation operation, struct mp_error *error) {
    WITHIN(schedule, activity);
    return doing(schedule, operation, error);
}

/* As a phase by itself: own work, or a background operation's start, or its end. */
static int alone(struct mp_schedule *schedule, operate *doing, enum mp_phase phase,
                 struct mp_operation operation, struct mp_error *error) {
    return operate_within(schedule, phase_of(phase, operation.direction, operation.layer), doing,
                          operation, error);
}

static bool travels(const struct mp_schedule *schedule, int layer, enum mp_operation_kind kind) {
    return schedule->layer[layer].travels >> kind & 1;
}

/* ---- copies ---- */

/* What is fetched before the gate, of this layer; and what is put together from slices of those
 * that are due to set out with it: every layer's do, as plans are alike in that. */
static int start_gathers(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    int last = layer + schedule->policy->gather_ahead;
    bool fetching = travels(schedule, layer, MP_TRAVEL_FETCH);
    for (int l = layer > 0 ? last : 0; fetching && l <= last && l < schedule->layers; l++)
        MP_TRY(
            alone(schedule, start, MP_PHASE_FETCH, of(MP_TRAVEL_FETCH, MP_FORWARD, l, 0), error));
    return MP_OK;
}

static int start_fetch(struct mp_schedule *schedule, int layer, enum mp_operation_kind kind,
                       bool *fetching, struct mp_error *error) {
    *fetching = travels(schedule, layer, kind);
    return *fetching ? alone(schedule, start, MP_PHASE_FETCH, of(kind, MP_FORWARD, layer, 0), error)
                     : MP_OK;
}

static int wait_fetch(struct mp_schedule *schedule, int layer, enum mp_operation_kind kind,
                      bool *fetching, struct mp_error *error) {
    if (!*fetching)
        return MP_OK;
    *fetching = false;
    return alone(schedule, wait, MP_PHASE_FETCH, of(kind, MP_FORWARD, layer, 0), error);
}

static int wait_fetches(struct mp_schedule *schedule, int layer, bool late,
                        struct mp_error *error) {
    MP_TRY(wait_fetch(schedule, layer, MP_TRAVEL_FETCH, &schedule->fetching, error));
    if (late)
        MP_TRY(wait_fetch(schedule, layer, MP_TRAVEL_LATE_FETCH, &schedule->late_fetching, error));
    return MP_OK;
}

static int start_refetch(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    if (layer < 0 || !travels(schedule, layer, MP_TRAVEL_REFETCH))
        return MP_OK;
    return alone(schedule, start, MP_PHASE_FETCH, of(MP_TRAVEL_REFETCH, MP_BACKWARD, layer, 0),
                 error);
}

/* ---- sums of gradients ---- */

/* Starts the first stage from `stage` on that the layer has; behind the last one, nothing of it is
 * on its way any more. */
static int start_sums_from(struct mp_schedule *schedule, int layer, int stage,
                           struct mp_error *error) {
    int place = layer % MP_SUMS_ON_THEIR_WAY;
    while (stage <= MP_TRAVEL_SEND_SLICES && !travels(schedule, layer, stage))
        stage++;
    schedule->sums[place].layer = stage <= MP_TRAVEL_SEND_SLICES ? layer : -1;
    if (stage > MP_TRAVEL_SEND_SLICES)
        return MP_OK;
    schedule->sums[place].stage = (enum mp_operation_kind)stage;
    return start(schedule, of((enum mp_operation_kind)stage, MP_BACKWARD, layer, 0), error);
}

/* Waits for the stage on its way and starts the next one.  Every rank does so at the same places,
 * as operations start in the same order everywhere. */
static int advance_sums(struct mp_schedule *schedule, int place, struct mp_error *error) {
    int layer = schedule->sums[place].layer;
    enum mp_operation_kind stage = schedule->sums[place].stage;
    if (layer < 0)
        return MP_OK;
    WITHIN(schedule, phase_of(MP_PHASE_REDUCE, MP_BACKWARD, layer));
    MP_TRY(wait(schedule, of(stage, MP_BACKWARD, layer, 0), error));
    return start_sums_from(schedule, layer, (int)stage + 1, error);
}

static int finish_sums(struct mp_schedule *schedule, int place, struct mp_error *error) {
    while (schedule->sums[place].layer >= 0)
        MP_TRY(advance_sums(schedule, place, error));
    return MP_OK;
}

static int start_sums(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    const unsigned stages =
        1u << MP_TRAVEL_SUM_COPIES | 1u << MP_TRAVEL_SHARE_SUMS | 1u << MP_TRAVEL_SEND_SLICES;
    if (!(schedule->layer[layer].travels & stages))
        return MP_OK;
    /* The layer above has had this layer's experts to send its first stage under. */
    MP_TRY(advance_sums(schedule, (layer + 1) % MP_SUMS_ON_THEIR_WAY, error));
    WITHIN(schedule, phase_of(MP_PHASE_REDUCE, MP_BACKWARD, layer));
    return start_sums_from(schedule, layer, MP_TRAVEL_SUM_COPIES, error);
}

static bool sends_ahead(const struct mp_schedule *schedule, int layer) {
    return layer < schedule->layers && travels(schedule, layer, MP_TRAVEL_AHEAD);
}

/* Experts of a layer, of which there may be none, the sums of whose gradients have come. */
static int update_early(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    if (!schedule->policy->updates_early || layer >= schedule->layers ||
        schedule->micro_batch + 1 < schedule->micro_batches)
        return MP_OK;
    MP_TRY(alone(schedule, work, MP_PHASE_OPTIMIZER,
                 of(MP_WORK_UPDATE_EXPERTS, MP_BACKWARD, layer, 0), error));
    return sends_ahead(schedule, layer) ? alone(schedule, start, MP_PHASE_FETCH,
                                                of(MP_TRAVEL_AHEAD, MP_BACKWARD, layer, 0), error)
                                        : MP_OK;
}

/* Parameters are here, and gradients may be written: those of two layers above are done with. */
static int prepare_gradients(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    if (travels(schedule, layer, MP_TRAVEL_REFETCH))
        MP_TRY(alone(schedule, wait, MP_PHASE_FETCH, of(MP_TRAVEL_REFETCH, MP_BACKWARD, layer, 0),
                     error));
    MP_TRY(finish_sums(schedule, layer % MP_SUMS_ON_THEIR_WAY, error));
    int above = layer + MP_SUMS_ON_THEIR_WAY;
    return sends_ahead(schedule, above) ? update_early(schedule, above, error) : MP_OK;
}

/* ---- the exchange, with the experts in between ---- */

struct passage {
    struct mp_schedule *schedule;
    struct mp_scheduled_layer *layer;
    int number;
    enum mp_direction direction;
    enum mp_phase there, back; /* what its two halves are called */
    bool behind;               /* weights, as the policy says */
    bool flat;                 /* rows return together when all are computed */
    bool at_once; /* nothing is done between rows' departure and arrival: they are one span */
};

static struct passage passage_of(struct mp_schedule *schedule, int layer,
                                 enum mp_direction direction) {
    bool forward = direction == MP_FORWARD, behind = !forward && schedule->policy->weights_behind;
    bool flat = !behind && schedule->layer[layer].steps == 1;
    return (struct passage){schedule,
                            &schedule->layer[layer],
                            layer,
                            direction,
                            forward ? MP_PHASE_DISPATCH : MP_PHASE_COMBINE,
                            forward ? MP_PHASE_COMBINE : MP_PHASE_DISPATCH,
                            behind,
                            flat,
                            flat && !schedule->shares};
}

static struct mp_scheduled_phase half_of(const struct passage *passage, enum mp_phase phase,
                                         int step) {
    return (struct mp_scheduled_phase){phase, passage->direction, passage->number, step,
                                       MP_ALL_PRODUCTS};
}

static struct mp_operation step_of(const struct passage *passage, enum mp_operation_kind kind,
                                   int step) {
    return of(kind, passage->direction, passage->number, step);
}

/* What hides the way of rows that have set out. */
static int share(const struct passage *passage, struct mp_error *error) {
    struct mp_operation operation = of(MP_WORK_SHARED, passage->direction, passage->number, 0);
    return passage->schedule->shares
               ? alone(passage->schedule, work, MP_PHASE_SHARED, operation, error)
               : MP_OK;
}

/* All steps set out; a flat exchange is one span, with its arrival, unless there is something to do
 * in between. */
static int send_rows(const struct passage *passage, struct mp_error *error) {
    int own = passage->at_once ? MP_ALL_STEPS : passage->layer->steps;
    WITHIN(passage->schedule, half_of(passage, passage->there, own));
    MP_TRY(work(passage->schedule, step_of(passage, MP_WORK_PERMUTE, 0), error));
    for (int s = 0; s < passage->layer->steps; s++)
        MP_TRY(start(passage->schedule, step_of(passage, MP_TRAVEL_ROWS, s), error));
    return passage->at_once ? wait(passage->schedule, step_of(passage, MP_TRAVEL_ROWS, 0), error)
                            : MP_OK;
}

static int wait_rows(const struct passage *passage, int step, struct mp_error *error) {
    return passage->at_once
               ? MP_OK
               : operate_within(passage->schedule, half_of(passage, passage->there, step), wait,
                                step_of(passage, MP_TRAVEL_ROWS, step), error);
}

static int compute_products(const struct passage *passage, int step, enum mp_products products,
                            struct mp_error *error) {
    enum mp_phase phase = products == MP_WEIGHT_PRODUCTS ? MP_PHASE_WEIGHTS : MP_PHASE_EXPERT;
    struct mp_scheduled_phase activity = half_of(passage, phase, step);
    struct mp_operation operation = step_of(passage, MP_WORK_EXPERTS, step);
    activity.products = operation.products = products;
    return operate_within(passage->schedule, activity, work, operation, error);
}

/* Own rows, which never travel, at once. */
static int compute(const struct passage *passage, int step, struct mp_error *error) {
    bool behind = passage->behind && step < passage->layer->steps;
    return compute_products(passage, step, behind ? MP_INPUT_PRODUCTS : MP_ALL_PRODUCTS, error);
}

static int return_rows(const struct passage *passage, int step, struct mp_error *error) {
    return passage->flat ? MP_OK
                         : operate_within(passage->schedule, half_of(passage, passage->back, step),
                                          start, step_of(passage, MP_TRAVEL_RETURNS, step), error);
}

static int receive_rows(const struct passage *passage, struct mp_error *error) {
    int own = passage->flat ? MP_ALL_STEPS : passage->layer->steps;
    WITHIN(passage->schedule, half_of(passage, passage->back, own));
    if (passage->flat)
        MP_TRY(start(passage->schedule, step_of(passage, MP_TRAVEL_RETURNS, 0), error));
    for (int s = 0; s < passage->layer->steps; s++)
        MP_TRY(wait(passage->schedule, step_of(passage, MP_TRAVEL_RETURNS, s), error));
    return work(passage->schedule, step_of(passage, MP_WORK_COMBINE, 0), error);
}

/* ---- forward ---- */

static int plan(struct mp_schedule *schedule, int layer, bool before_gate, struct mp_error *error) {
    const struct mp_plan *of_layer = NULL;
    {
        WITHIN(schedule, phase_of(MP_PHASE_PLAN, MP_FORWARD, layer));
        MP_TRY(schedule->executor->plan(schedule->self, layer, before_gate, &of_layer, error));
    }
    struct mp_scheduled_layer *scheduled = &schedule->layer[layer];
    scheduled->travels = mp_plan_travels(of_layer, schedule->micro_batch, schedule->micro_batches);
    if (!before_gate)
        mp_plan_schedule_exchange(of_layer, scheduled);
    return MP_OK;
}

static int gate(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    WITHIN(schedule, phase_of(MP_PHASE_GATE, MP_FORWARD, layer));
    MP_TRY(work(schedule, of(MP_WORK_GATE, MP_FORWARD, layer, 0), error));
    return start_and_wait(schedule, of(MP_TRAVEL_COUNTS, MP_FORWARD, layer, 0), error);
}

static int prepare(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    MP_TRY(plan(schedule, layer, true, error));
    return start_gathers(schedule, layer, error);
}

static int attend(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    if (layer == 0 || !schedule->policy->fetch_early)
        MP_TRY(prepare(schedule, layer, error));
    schedule->fetching = travels(schedule, layer, MP_TRAVEL_FETCH);
    MP_TRY(alone(schedule, work, MP_PHASE_ATTENTION, of(MP_WORK_ATTENTION, MP_FORWARD, layer, 0),
                 error));
    MP_TRY(gate(schedule, layer, error));
    return plan(schedule, layer, false, error);
}

static int forward_step(const struct passage *passage, int step, struct mp_error *error) {
    MP_TRY(wait_rows(passage, step, error));
    MP_TRY(
        wait_fetches(passage->schedule, passage->number, passage->layer->needs_late[step], error));
    MP_TRY(compute(passage, step, error));
    return return_rows(passage, step, error);
}

static bool waits_for_copies(const struct mp_schedule *schedule, int layer) {
    return schedule->layer[layer].passes_on && !schedule->keeps_order;
}

static int start_late(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    if (waits_for_copies(schedule, layer))
        MP_TRY(wait_fetch(schedule, layer, MP_TRAVEL_FETCH, &schedule->fetching, error));
    return start_fetch(schedule, layer, MP_TRAVEL_LATE_FETCH, &schedule->late_fetching, error);
}

static int forward_layer(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    MP_TRY(attend(schedule, layer, error));
    struct passage passage = passage_of(schedule, layer, MP_FORWARD);
    bool late_first = passage.flat && !waits_for_copies(schedule, layer);
    if (late_first)
        MP_TRY(start_late(schedule, layer, error));
    MP_TRY(send_rows(&passage, error));
    if (!late_first)
        MP_TRY(start_late(schedule, layer, error));
    if (schedule->policy->fetch_early && layer + 1 < schedule->layers)
        MP_TRY(prepare(schedule, layer + 1, error));
    MP_TRY(share(&passage, error));
    for (int s = 0; s < passage.layer->steps; s++)
        MP_TRY(forward_step(&passage, s, error));
    /* Also without rows for them: what has been fetched is used in backward. */
    MP_TRY(wait_fetches(schedule, layer, true, error));
    if (passage.layer->own)
        MP_TRY(compute(&passage, passage.layer->steps, error));
    return receive_rows(&passage, error);
}

int mp_schedule_forward(struct mp_schedule *schedule, struct mp_error *error) {
    MP_TRY(alone(schedule, work, MP_PHASE_EMBED, of(MP_WORK_EMBED, MP_FORWARD, -1, 0), error));
    for (int l = 0; l < schedule->layers; l++)
        MP_TRY(forward_layer(schedule, l, error));
    return MP_OK;
}

/* ---- backward ---- */

static int backward_experts(const struct passage *passage, struct mp_error *error) {
    const struct mp_scheduled_layer *layer = passage->layer;
    MP_TRY(prepare_gradients(passage->schedule, passage->number, error));
    if (layer->own)
        MP_TRY(compute(passage, layer->steps, error));
    if (layer->own_first)
        MP_TRY(start_sums(passage->schedule, passage->number, error));
    for (int s = 0; s < layer->steps; s++) {
        MP_TRY(wait_rows(passage, s, error));
        MP_TRY(compute(passage, s, error));
        MP_TRY(return_rows(passage, s, error));
        if (passage->behind)
            MP_TRY(compute_products(passage, s, MP_WEIGHT_PRODUCTS, error));
    }
    return MP_OK;
}

static int start_dense_sum(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    if (schedule->micro_batch + 1 < schedule->micro_batches)
        return MP_OK;
    return operate_within(
        schedule, phase_of(MP_PHASE_ALLREDUCE, MP_BACKWARD, layer < schedule->layers ? layer : -1),
        start, of(MP_TRAVEL_SUM_DENSE, MP_BACKWARD, layer, 0), error);
}

static int attend_backward(struct mp_schedule *schedule, int layer, enum mp_products products,
                           struct mp_error *error) {
    struct mp_scheduled_phase activity = phase_of(MP_PHASE_ATTENTION, MP_BACKWARD, layer);
    struct mp_operation operation = of(MP_WORK_ATTENTION, MP_BACKWARD, layer, 0);
    activity.products = operation.products = products;
    MP_TRY(operate_within(schedule, activity, work, operation, error));
    return products == MP_INPUT_PRODUCTS ? MP_OK : start_dense_sum(schedule, layer, error);
}

/* What the layer above has left. */
static int attend_behind(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    return schedule->policy->weights_behind && layer < schedule->layers
               ? attend_backward(schedule, layer, MP_WEIGHT_PRODUCTS, error)
               : MP_OK;
}

static int backward_layer(struct mp_schedule *schedule, int layer, struct mp_error *error) {
    struct passage passage = passage_of(schedule, layer, MP_BACKWARD);
    const int above = layer + MP_SUMS_ON_THEIR_WAY;
    MP_TRY(send_rows(&passage, error));
    MP_TRY(attend_behind(schedule, layer + 1, error));
    MP_TRY(share(&passage, error));
    MP_TRY(backward_experts(&passage, error));
    if (!sends_ahead(schedule, above)) /* the last rows' way hides it */
        MP_TRY(update_early(schedule, above, error));
    MP_TRY(receive_rows(&passage, error));
    if (!passage.layer->own_first)
        MP_TRY(start_sums(schedule, layer, error));
    MP_TRY(alone(schedule, work, MP_PHASE_GATE, of(MP_WORK_GATE, MP_BACKWARD, layer, 0), error));
    MP_TRY(start_refetch(schedule, layer - 1 - schedule->policy->gather_ahead, error));
    return attend_backward(schedule, layer, passage.behind ? MP_INPUT_PRODUCTS : MP_ALL_PRODUCTS,
                           error);
}

static int receive_ahead(struct mp_schedule *schedule, struct mp_error *error) {
    for (int l = schedule->layers - 1; l >= 0; l--)
        if (sends_ahead(schedule, l))
            MP_TRY(alone(schedule, wait, MP_PHASE_FETCH, of(MP_TRAVEL_AHEAD, MP_BACKWARD, l, 0),
                         error));
    return MP_OK;
}

/* In the order in which they were started. */
static int finish_dense_sums(struct mp_schedule *schedule, struct mp_error *error) {
    if (schedule->micro_batch + 1 < schedule->micro_batches)
        return MP_OK;
    WITHIN(schedule, phase_of(MP_PHASE_ALLREDUCE, MP_BACKWARD, -1));
    for (int l = schedule->layers - 1; l >= -1; l--)
        MP_TRY(wait(schedule, of(MP_TRAVEL_SUM_DENSE, MP_BACKWARD, l < 0 ? schedule->layers : l, 0),
                    error));
    return MP_OK;
}

static int backward(struct mp_schedule *schedule, struct mp_error *error) {
    int last = schedule->layers - 1;
    for (int l = last; l >= last - schedule->policy->gather_ahead; l--)
        MP_TRY(start_refetch(schedule, l, error));
    MP_TRY(alone(schedule, work, MP_PHASE_HEAD, of(MP_WORK_HEAD, MP_BACKWARD, -1, 0), error));
    for (int l = last; l >= 0; l--)
        MP_TRY(backward_layer(schedule, l, error));
    MP_TRY(attend_behind(schedule, 0, error));
    MP_TRY(alone(schedule, work, MP_PHASE_EMBED, of(MP_WORK_EMBED, MP_BACKWARD, -1, 0), error));
    MP_TRY(start_dense_sum(schedule, schedule->layers, error));
    /* Layer 1 was started before layer 0. */
    for (int place = MP_SUMS_ON_THEIR_WAY - 1; place >= 0; place--) {
        MP_TRY(finish_sums(schedule, place, error));
        MP_TRY(update_early(schedule, place, error));
    }
    return finish_dense_sums(schedule, error);
}

/* ---- after backward ---- */

/* One layer travels while the next one is made ready. */
static int gather_homes(struct mp_schedule *schedule, struct mp_error *error) {
    int layers = schedule->layers;
    for (int l = 0; l < layers + MP_SUMS_ON_THEIR_WAY; l++) {
        WITHIN(schedule, phase_of(MP_PHASE_FETCH, MP_NO_DIRECTION, l < layers ? l : -1));
        if (l >= MP_SUMS_ON_THEIR_WAY)
            MP_TRY(wait(schedule, of(MP_TRAVEL_HOMES, MP_NO_DIRECTION, l - MP_SUMS_ON_THEIR_WAY, 0),
                        error));
        if (l < layers)
            MP_TRY(start(schedule, of(MP_TRAVEL_HOMES, MP_NO_DIRECTION, l, 0), error));
    }
    return MP_OK;
}

int mp_schedule_gather_homes(struct mp_schedule *schedule, struct mp_error *error) {
    return mp_policy_gathers_homes(schedule->policy) ? gather_homes(schedule, error) : MP_OK;
}

static const struct mp_operation MOVES = {MP_TRAVEL_MOVES, MP_NO_DIRECTION, -1, 0, MP_ALL_PRODUCTS};

static int move(struct mp_schedule *schedule, struct mp_error *error) {
    return alone(schedule, start_and_wait, MP_PHASE_MOVE, MOVES, error);
}

/* Homes may change, or parameters have: slices are put together anew. */
static int learn(struct mp_schedule *schedule, struct mp_error *error) {
    const struct mp_rehome *change = NULL;
    schedule->gathered =
        mp_policy_gathers_homes(schedule->policy) && !schedule->policy->forward_only;
    if (!schedule->learns)
        return MP_OK;
    {
        WITHIN(schedule, phase_of(MP_PHASE_PLAN, MP_NO_DIRECTION, -1));
        MP_TRY(schedule->executor->learn(schedule->self, &change, error));
    }
    if (!change->changed)
        return MP_OK;
    schedule->gathered = mp_policy_gathers_homes(schedule->policy);
    schedule->moving = change->asynchronous;
    return schedule->moving ? MP_OK : move(schedule, error);
}

int mp_schedule_settle_moves(struct mp_schedule *schedule, struct mp_error *error) {
    bool moving = schedule->moving;
    schedule->moving = false;
    return moving ? move(schedule, error) : MP_OK;
}

static int start_moves(struct mp_schedule *schedule, struct mp_error *error) {
    return schedule->moving ? alone(schedule, start, MP_PHASE_MOVE, MOVES, error) : MP_OK;
}

static int finish_moves(struct mp_schedule *schedule, struct mp_error *error) {
    bool moving = schedule->moving;
    schedule->moving = false;
    return moving ? alone(schedule, wait, MP_PHASE_MOVE, MOVES, error) : MP_OK;
}

/* Every rank waits for all, so that iterations begin together. */
static int agree(struct mp_schedule *schedule, struct mp_error *error) {
    return alone(schedule, start_and_wait, MP_PHASE_WAIT,
                 of(MP_TRAVEL_LOSS, MP_NO_DIRECTION, -1, 0), error);
}

/* What forward is for. */
static int conclude(struct mp_schedule *schedule, struct mp_error *error) {
    return schedule->policy->forward_only
               ? alone(schedule, work, MP_PHASE_HEAD, of(MP_WORK_HEAD, MP_FORWARD, -1, 0), error)
               : backward(schedule, error);
}

static int update(struct mp_schedule *schedule, struct mp_error *error) {
    return schedule->policy->forward_only
               ? MP_OK
               : alone(schedule, work, MP_PHASE_OPTIMIZER,
                       of(MP_WORK_UPDATE, MP_NO_DIRECTION, -1, 0), error);
}

int mp_schedule_iteration(struct mp_schedule *schedule, struct mp_error *error) {
    MP_TRY(start_moves(schedule, error));
    for (int m = 0; m < schedule->micro_batches; m++) {
        schedule->micro_batch = m;
        MP_TRY(mp_schedule_forward(schedule, error));
        MP_TRY(conclude(schedule, error));
    }
    MP_TRY(finish_moves(schedule, error));
    MP_TRY(update(schedule, error));
    MP_TRY(receive_ahead(schedule, error));
    MP_TRY(learn(schedule, error));
    if (schedule->gathered)
        MP_TRY(gather_homes(schedule, error));
    return agree(schedule, error);
}
