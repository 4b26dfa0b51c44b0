#include "reference/trainer/carriages.h"

int mp_carriages_create(struct mp_carriages *carriages, struct mp_arena *arena,
                        struct mp_error *error) {
    MP_TAKE_EACH(arena, carriages->planner->setting.experts, carriages->prefetch_chunk,
                 carriages->prefetch_gradient, carriages->reduce_chunk, carriages->reduce_gradient);
    if (carriages->planner->policy.updates_early)
        MP_TAKE(arena, carriages->ahead, carriages->planner->setting.layers);
    return mp_slices_create(carriages, arena, error);
}

static size_t chunk_bytes(const struct mp_carriages *carriages) {
    return carriages->model->experts.chunk * mp_element_bytes(carriages->model->device);
}

static size_t gradient_bytes(const struct mp_carriages *carriages) {
    return carriages->model->experts.chunk * sizeof(float);
}

static const struct mp_plan *plan_of(const struct mp_carriages *carriages, int layer) {
    return mp_planner_plan(carriages->planner, layer);
}

static struct mp_transfer_in_flight *carriage_of(struct mp_carriages *carriages,
                                                 const struct mp_operation *operation) {
    const struct mp_policy *policy = &carriages->planner->policy;
    switch (operation->kind) {
    case MP_TRAVEL_FETCH:
        return &carriages->fetch[operation->layer % mp_policy_fetches(policy)];
    case MP_TRAVEL_LATE_FETCH:
        return &carriages->late_fetch;
    case MP_TRAVEL_REFETCH:
        return &carriages->refetch[operation->layer % mp_policy_refetches(policy)];
    case MP_TRAVEL_AHEAD:
        return &carriages->ahead[operation->layer];
    default:
        return &carriages->sums[operation->layer % MP_SUMS_ON_THEIR_WAY];
    }
}

/* ---- parameters ---- */

static int64_t bytes_to_me(const struct mp_carriages *carriages, const struct mp_transfers *list,
                           enum mp_stage stage) {
    int64_t bytes = 0;
    for (int i = 0; i < list->count; i++)
        if (list->item[i].stage == stage && list->item[i].to == carriages->comm->rank)
            bytes += list->item[i].bytes;
    return bytes;
}

static int64_t gathered_bytes(const struct mp_carriages *carriages, const struct mp_plan *plan) {
    int64_t bytes = 0, keepers = carriages->model->experts.keepers;
    for (int e = 0; mp_policy_gathers(plan->policy) && e < plan->experts; e++)
        if (mp_placement_holds(&plan->during, e, carriages->comm->rank))
            bytes += plan->expert_bytes * (keepers - 1) / keepers;
    return bytes;
}

/* Whatever of a layer travels in one stage. */
static int start_stage(struct mp_carriages *carriages, const struct mp_plan *plan,
                       enum mp_stage stage, void *const chunk[], struct mp_request *request,
                       struct mp_error *error) {
    if (stage == MP_STAGE_BEFORE_GATE && mp_policy_gathers(plan->policy))
        return mp_slices_gather_start(carriages, &plan->during, plan->layer, chunk, request, error);
    return mp_sparse_all_gather_start(carriages->comm, &plan->fetch, stage, plan->experts, chunk,
                                      chunk_bytes(carriages), carriages->model->stream, request,
                                      error);
}

/* From slices, at homes, which is all that a plan of the layer may add to: it need not be there
 * yet.  The layers before it still use their memory. */
static int start_gathers(struct mp_carriages *carriages, int layer, struct mp_request *request,
                         struct mp_error *error) {
    const struct mp_placement *home = &carriages->planner->home[layer];
    MP_TRY(mp_experts_locate_held(&carriages->model->experts, layer, home,
                                  carriages->prefetch_chunk, carriages->prefetch_gradient, error));
    return mp_slices_gather_start(carriages, home, layer, carriages->prefetch_chunk, request,
                                  error);
}

/* The layer before may be using the model's table of where parameters are: until the layer's plan
 * is complete, which locates them there. */
static int start_fetch(struct mp_carriages *carriages, const struct mp_plan *plan,
                       enum mp_stage stage, struct mp_transfer_in_flight *carriage,
                       struct mp_error *error) {
    MP_TRY(mp_experts_locate(&carriages->model->experts, plan, carriages->prefetch_chunk,
                             carriages->prefetch_gradient, error));
    return start_stage(carriages, plan, stage, carriages->prefetch_chunk, carriage->request[0],
                       error);
}

/* Both stages (but where layers set out ahead, which have one), into memory of their own while the
 * layer above still uses its copies. */
static int start_refetch(struct mp_carriages *carriages, const struct mp_plan *plan,
                         struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    static const enum mp_stage stages[] = {MP_STAGE_BEFORE_GATE, MP_STAGE_AFTER_GATE};
    MP_TRY(mp_experts_locate(&carriages->model->experts, plan, carriages->prefetch_chunk,
                             carriages->prefetch_gradient, error));
    for (int i = 0; i < 2 && carriage->request[i]; i++)
        MP_TRY(start_stage(carriages, plan, stages[i], carriages->prefetch_chunk,
                           carriage->request[i], error));
    return MP_OK;
}

/* Into memory of copies that backward is done with. */
static int start_ahead(struct mp_carriages *carriages, const struct mp_plan *plan,
                       struct mp_request *request, struct mp_error *error) {
    MP_TRY(mp_experts_locate_ahead(&carriages->model->experts, plan, carriages->prefetch_chunk,
                                   error));
    return mp_sparse_all_gather_start(carriages->comm, &plan->ahead, MP_STAGE_BACKWARD_PREFETCH,
                                      plan->experts, carriages->prefetch_chunk,
                                      chunk_bytes(carriages), carriages->model->stream, request,
                                      error);
}

/* ---- gradients ---- */

static int start_sums(struct mp_carriages *carriages, const struct mp_plan *plan,
                      enum mp_operation_kind kind, struct mp_request *request,
                      struct mp_error *error) {
    mp_stream stream = carriages->model->stream;
    MP_TRY(mp_experts_locate(&carriages->model->experts, plan, carriages->reduce_chunk,
                             carriages->reduce_gradient, error));
    if (kind == MP_TRAVEL_SEND_SLICES)
        return mp_slices_send_start(carriages, plan, carriages->reduce_gradient, request, error);
    if (kind == MP_TRAVEL_SUM_COPIES)
        return mp_sparse_reduce_scatter_start(carriages->comm, &plan->reduce, plan->experts,
                                              carriages->reduce_gradient, gradient_bytes(carriages),
                                              stream, request, error);
    /* To who keeps an expert, or is about to: whoever has a copy of it until then has two. */
    for (int e = 0; e < plan->experts && !mp_optimizer_sliced(plan->policy->optimizer); e++)
        carriages->reduce_gradient[e] =
            mp_experts_own_gradient(&carriages->model->experts, plan->layer, e);
    return mp_sparse_all_gather_start(carriages->comm, &plan->share, MP_STAGE_BACKWARD_REDUCE,
                                      plan->experts, (void *const *)carriages->reduce_gradient,
                                      gradient_bytes(carriages), stream, request, error);
}

/* ---- both ---- */

static int start_kind(struct mp_carriages *carriages, const struct mp_operation *operation,
                      struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    const struct mp_plan *plan = plan_of(carriages, operation->layer);
    switch (operation->kind) {
    case MP_TRAVEL_FETCH:
        return carriages->planner->policy.gather_ahead > 0
                   ? start_gathers(carriages, operation->layer, carriage->request[0], error)
                   : start_fetch(carriages, plan, MP_STAGE_BEFORE_GATE, carriage, error);
    case MP_TRAVEL_LATE_FETCH:
        return start_fetch(carriages, plan, MP_STAGE_AFTER_GATE, carriage, error);
    case MP_TRAVEL_REFETCH:
        return start_refetch(carriages, plan, carriage, error);
    case MP_TRAVEL_AHEAD:
        return start_ahead(carriages, plan, carriage->request[0], error);
    default:
        return start_sums(carriages, plan, operation->kind, carriage->request[0], error);
    }
}

static int wait_requests(struct mp_transfer_in_flight *carriage, struct mp_error *error) {
    for (int i = 0; i < 2 && carriage->request[i]; i++)
        MP_TRY(mp_request_wait(carriage->request[i], error));
    return MP_OK;
}

static enum mp_phase phase_of(enum mp_operation_kind kind) {
    return kind < MP_TRAVEL_SUM_COPIES ? MP_PHASE_FETCH : MP_PHASE_REDUCE;
}

/* Free transfers take no time: the clocks stand still until they are here. */
int mp_carriages_start(struct mp_carriages *carriages, const struct mp_operation *operation,
                       struct mp_error *error) {
    struct mp_transfer_in_flight *carriage = carriage_of(carriages, operation);
    carriage->flight = mp_spans_departed(carriages->spans, phase_of(operation->kind));
    MP_TRY(mp_spans_pause(carriages->spans, error));
    MP_TRY(start_kind(carriages, operation, carriage, error));
    if (carriages->planner->policy.free_transfers)
        MP_TRY(wait_requests(carriage, error));
    return mp_spans_resume(carriages->spans, error);
}

static int64_t arrived_bytes(const struct mp_carriages *carriages,
                             const struct mp_operation *operation) {
    const struct mp_plan *plan = plan_of(carriages, operation->layer);
    int64_t bytes = 0;
    if (phase_of(operation->kind) != MP_PHASE_FETCH)
        return -1;
    if (operation->kind == MP_TRAVEL_AHEAD)
        return bytes_to_me(carriages, &plan->ahead, MP_STAGE_BACKWARD_PREFETCH);
    if (operation->kind != MP_TRAVEL_LATE_FETCH)
        bytes += bytes_to_me(carriages, &plan->fetch, MP_STAGE_BEFORE_GATE) +
                 gathered_bytes(carriages, plan);
    if (operation->kind != MP_TRAVEL_FETCH)
        bytes += bytes_to_me(carriages, &plan->fetch, MP_STAGE_AFTER_GATE);
    return bytes;
}

int mp_carriages_wait(struct mp_carriages *carriages, const struct mp_operation *operation,
                      struct mp_error *error) {
    struct mp_transfer_in_flight *carriage = carriage_of(carriages, operation);
    int code = wait_requests(carriage, error);
    mp_spans_arrived(carriages->spans, carriage->flight, phase_of(operation->kind),
                     operation->direction, operation->layer, arrived_bytes(carriages, operation));
    if (!code && operation->kind == MP_TRAVEL_SEND_SLICES)
        mp_slices_sum(carriages, plan_of(carriages, operation->layer));
    return code;
}

/* ---- homes ---- */

/* Two layers may be on their way. */
static struct mp_request *request_of_homes(const struct mp_carriages *carriages, int layer) {
    return layer % 2 ? carriages->late_fetch.request[0] : carriages->fetch[0].request[0];
}

int mp_carriages_start_homes(struct mp_carriages *carriages, int layer, struct mp_error *error) {
    return start_gathers(carriages, layer, request_of_homes(carriages, layer), error);
}

int mp_carriages_wait_homes(struct mp_carriages *carriages, int layer, struct mp_error *error) {
    return mp_request_wait(request_of_homes(carriages, layer), error);
}
