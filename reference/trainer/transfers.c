/* What a plan moves between ranks beside tokens: parameters of experts (spAG, or put together from
 * slices) and their gradients (spRS, sums shared between replicas, slices). */
#include "reference/trainer/internal.h"

static size_t chunk_bytes(const struct mp_trainer *trainer) {
    return trainer->model.experts.chunk * mp_element_bytes(trainer->device);
}

static size_t gradient_bytes(const struct mp_trainer *trainer) {
    return trainer->model.experts.chunk * sizeof(float);
}

static const struct mp_plan *plan_of(const struct mp_trainer *trainer, int layer) {
    return mp_planner_plan(&trainer->planner, layer);
}

static struct mp_transfer_in_flight *carriage_of(struct mp_trainer *trainer,
                                                 const struct mp_operation *operation) {
    int ahead = operation->layer % mp_schedule_fetches(&trainer->schedule);
    switch (operation->kind) {
    case MP_TRAVEL_FETCH:
        return &trainer->fetch[ahead];
    case MP_TRAVEL_LATE_FETCH:
        return &trainer->late_fetch;
    case MP_TRAVEL_REFETCH:
        return &trainer->refetch[ahead];
    default:
        return &trainer->sums[operation->layer % MP_SUMS_ON_THEIR_WAY];
    }
}

/* ---- parameters ---- */

static int64_t bytes_to_me(const struct mp_trainer *trainer, const struct mp_plan *plan,
                           enum mp_stage stage) {
    int64_t bytes = 0, keepers = trainer->model.experts.keepers;
    bool gathers = stage == MP_STAGE_BEFORE_GATE && mp_policy_gathers(plan->policy);
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage && plan->fetch.item[i].to == trainer->comm->rank)
            bytes += plan->fetch.item[i].bytes;
    for (int e = 0; gathers && e < plan->experts; e++)
        if (mp_placement_holds(&plan->during, e, trainer->comm->rank))
            bytes += plan->expert_bytes * (keepers - 1) / keepers;
    return bytes;
}

/* Whatever of a layer travels in one stage. */
static int start_stage(struct mp_trainer *trainer, const struct mp_plan *plan, enum mp_stage stage,
                       void *const chunk[], struct mp_request *request, struct mp_error *error) {
    if (stage == MP_STAGE_BEFORE_GATE && mp_policy_gathers(plan->policy))
        return mp_trainer_gather_slices_start(trainer, &plan->during, plan->layer, chunk, request,
                                              error);
    return mp_sparse_all_gather_start(trainer->comm, &plan->fetch, stage, plan->experts, chunk,
                                      chunk_bytes(trainer), trainer->model.stream, request, error);
}

/* From slices, at homes, which is all that a plan of the layer may add to: it need not be there
 * yet.  The layers before it still use their memory. */
static int start_gathers(struct mp_trainer *trainer, int layer,
                         struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    const struct mp_placement *home = &trainer->planner.home[layer];
    int code = mp_experts_locate_held(&trainer->model.experts, layer, home, trainer->prefetch_chunk,
                                      trainer->prefetch_gradient, error);
    return code ? code
                : mp_trainer_gather_slices_start(trainer, home, layer, trainer->prefetch_chunk,
                                                 carriage->request[0], error);
}

/* The layer before may be using the model's table of where parameters are: until the layer's plan
 * is complete, which locates them there. */
static int start_fetch(struct mp_trainer *trainer, const struct mp_plan *plan, enum mp_stage stage,
                       struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    int code = mp_experts_locate(&trainer->model.experts, plan, trainer->prefetch_chunk,
                                 trainer->prefetch_gradient, error);
    return code ? code
                : start_stage(trainer, plan, stage, trainer->prefetch_chunk, carriage->request[0],
                              error);
}

/* Both stages (but where layers set out ahead, which have one), into memory of their own while the
 * layer above still uses its copies. */
static int start_refetch(struct mp_trainer *trainer, const struct mp_plan *plan,
                         struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    static const enum mp_stage stages[] = {MP_STAGE_BEFORE_GATE, MP_STAGE_AFTER_GATE};
    int code = mp_experts_locate(&trainer->model.experts, plan, trainer->prefetch_chunk,
                                 trainer->prefetch_gradient, error);
    for (int i = 0; !code && i < 2 && carriage->request[i]; i++)
        code = start_stage(trainer, plan, stages[i], trainer->prefetch_chunk, carriage->request[i],
                           error);
    return code;
}

/* ---- gradients ---- */

static int start_sums(struct mp_trainer *trainer, const struct mp_plan *plan,
                      enum mp_operation_kind kind, struct mp_request *request,
                      struct mp_error *error) {
    mp_stream stream = trainer->model.stream;
    if (kind == MP_TRAVEL_SEND_SLICES)
        return mp_trainer_send_slices_start(trainer, plan->layer, request, error);
    int code = mp_experts_locate(&trainer->model.experts, plan, trainer->reduce_chunk,
                                 trainer->reduce_gradient, error);
    if (code)
        return code;
    if (kind == MP_TRAVEL_SUM_COPIES)
        return mp_sparse_reduce_scatter_start(trainer->comm, &plan->reduce, plan->experts,
                                              trainer->reduce_gradient, gradient_bytes(trainer),
                                              stream, request, error);
    return mp_sparse_all_gather_start(trainer->comm, &plan->share, MP_STAGE_BACKWARD_REDUCE,
                                      plan->experts, (void *const *)trainer->reduce_gradient,
                                      gradient_bytes(trainer), stream, request, error);
}

/* ---- both ---- */

static int start_kind(struct mp_trainer *trainer, const struct mp_operation *operation,
                      struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    const struct mp_plan *plan = plan_of(trainer, operation->layer);
    switch (operation->kind) {
    case MP_TRAVEL_FETCH:
        return trainer->planner.policy.gather_ahead > 0
                   ? start_gathers(trainer, operation->layer, carriage, error)
                   : start_fetch(trainer, plan, MP_STAGE_BEFORE_GATE, carriage, error);
    case MP_TRAVEL_LATE_FETCH:
        return start_fetch(trainer, plan, MP_STAGE_AFTER_GATE, carriage, error);
    case MP_TRAVEL_REFETCH:
        return start_refetch(trainer, plan, carriage, error);
    default:
        return start_sums(trainer, plan, operation->kind, carriage->request[0], error);
    }
}

static int wait_requests(struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; !code && i < 2 && carriage->request[i]; i++)
        code = mp_request_wait(carriage->request[i], error);
    return code;
}

static enum mp_phase phase_of(enum mp_operation_kind kind) {
    return kind <= MP_TRAVEL_REFETCH ? MP_PHASE_FETCH : MP_PHASE_REDUCE;
}

/* Free transfers take no time: the clocks stand still until they are here. */
int mp_trainer_start_transfer(struct mp_trainer *trainer, const struct mp_operation *operation,
                              struct mp_error *error) {
    struct mp_transfer_in_flight *carriage = carriage_of(trainer, operation);
    carriage->flight = mp_spans_departed(&trainer->spans, phase_of(operation->kind));
    int code = mp_spans_pause(&trainer->spans, error);
    if (!code)
        code = start_kind(trainer, operation, carriage, error);
    if (!code && trainer->planner.policy.free_transfers)
        code = wait_requests(carriage, error);
    return code ? code : mp_spans_resume(&trainer->spans, error);
}

static int64_t arrived_bytes(const struct mp_trainer *trainer,
                             const struct mp_operation *operation) {
    const struct mp_plan *plan = plan_of(trainer, operation->layer);
    int64_t bytes = 0;
    if (phase_of(operation->kind) != MP_PHASE_FETCH)
        return -1;
    if (operation->kind != MP_TRAVEL_LATE_FETCH)
        bytes += bytes_to_me(trainer, plan, MP_STAGE_BEFORE_GATE);
    if (operation->kind != MP_TRAVEL_FETCH)
        bytes += bytes_to_me(trainer, plan, MP_STAGE_AFTER_GATE);
    return bytes;
}

int mp_trainer_wait_transfer(struct mp_trainer *trainer, const struct mp_operation *operation,
                             struct mp_error *error) {
    struct mp_transfer_in_flight *carriage = carriage_of(trainer, operation);
    int code = wait_requests(carriage, error);
    mp_spans_arrived(&trainer->spans, carriage->flight, phase_of(operation->kind),
                     operation->direction, operation->layer, arrived_bytes(trainer, operation));
    if (!code && operation->kind == MP_TRAVEL_SEND_SLICES)
        mp_trainer_sum_slices(trainer, operation->layer);
    return code;
}
