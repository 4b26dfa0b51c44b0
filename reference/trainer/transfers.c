/* What a plan moves between ranks beside tokens: parameters of experts (spAG, or put together from
 * slices) and their gradients (spRS, sums shared between replicas, slices). */
#include "reference/trainer/internal.h"

static size_t chunk_bytes(const struct mp_trainer *trainer) {
    return trainer->model.experts.chunk * mp_element_bytes(trainer->device);
}

static size_t gradient_bytes(const struct mp_trainer *trainer) {
    return trainer->model.experts.chunk * sizeof(float);
}

/* Whether holders' parameters are put together from slices before this layer's gate. */
static bool gathers(const struct mp_plan *plan) {
    return mp_optimizer_sliced(plan->optimizer) && plan->gather_stage == MP_STAGE_BEFORE_GATE;
}

static bool fetches_in(const struct mp_plan *plan, enum mp_stage stage) {
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage)
            return true;
    return stage == MP_STAGE_BEFORE_GATE && gathers(plan);
}

static int64_t bytes_to_me(const struct mp_trainer *trainer, const struct mp_plan *plan,
                           enum mp_stage stage) {
    int64_t bytes = 0, ranks = trainer->comm->ranks;
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage && plan->fetch.item[i].to == trainer->comm->rank)
            bytes += plan->fetch.item[i].bytes;
    for (int e = 0; gathers(plan) && stage == MP_STAGE_BEFORE_GATE && e < plan->experts; e++)
        if (mp_placement_holds(&plan->during, e, trainer->comm->rank))
            bytes += plan->expert_bytes * (ranks - 1) / ranks;
    return bytes;
}

/* The plan's facts, kept for what is recorded of the iteration, and the totals that they add to. */
static void count_transfers(struct mp_trainer *trainer, const struct mp_plan *plan) {
    struct mp_plan_facts *facts = &trainer->facts[plan->layer];
    mp_plan_facts(plan, &trainer->load[plan->layer], facts);
    for (int i = 0; i < plan->fetch.count; i++)
        trainer->totals.copies[plan->fetch.item[i].stage]++;
    if (mp_optimizer_sliced(plan->optimizer))
        trainer->totals.copies[plan->gather_stage] += facts->copies;
    for (int stage = 0; stage < MP_STAGES; stage++)
        if (stage != MP_STAGE_BACKWARD_PREFETCH)
            trainer->totals.bytes[stage] += facts->bytes[stage];
    trainer->totals.replicas += plan->share.count;
    trainer->totals.routes += facts->routes;
    trainer->totals.dropped += facts->routes_dropped;
}

/* Memory was laid out as the first plan said: what lives until backward needs a region for each
 * layer, and what is put together before the gate is not there before. */
static int check_layout(const struct mp_trainer *trainer, const struct mp_plan *plan,
                        struct mp_error *error) {
    bool sliced = mp_optimizer_sliced(plan->optimizer);
    if (sliced && plan->gather_stage != trainer->gather_stage)
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: experts are put together in stage %s, in the "
                       "first plan of the run it was %s",
                       (long long)plan->iteration, plan->layer, mp_stage_name(plan->gather_stage),
                       mp_stage_name(trainer->gather_stage));
    if ((plan->rematerialise && (!sliced || gathers(plan))) ||
        (plan->fetch.count == 0 && !sliced) ||
        trainer->model.experts.layout.regions == trainer->job.layers)
        return MP_OK;
    return mp_fail(error, MP_EPLAN,
                   "iteration %lld, layer %d: the plan keeps copies until backward, the first plan "
                   "of the run re-materialised them",
                   (long long)plan->iteration, plan->layer);
}

/* Starts whatever of a layer travels in one stage. */
static int start_fetch(struct mp_trainer *trainer, const struct mp_plan *plan, enum mp_stage stage,
                       void *const chunk[], struct mp_request *request, struct mp_error *error) {
    if (stage == MP_STAGE_BEFORE_GATE && gathers(plan))
        return mp_trainer_gather_slices_start(trainer, &plan->during, plan->layer, chunk, request,
                                              error);
    return mp_sparse_all_gather_start(trainer->comm, &plan->fetch, stage, plan->experts, chunk,
                                      chunk_bytes(trainer), trainer->model.stream, request, error);
}

int mp_trainer_plan_before_gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_plan *plan = &trainer->plan[layer];
    struct mp_model *model = &trainer->model;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_PLAN);
    int code = mp_system_begin_plan(trainer->system, trainer->self, trainer->iteration, layer,
                                    &trainer->home[layer], plan, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_PLAN, MP_FORWARD, layer, -1, -1);
    if (code || !fetches_in(plan, MP_STAGE_BEFORE_GATE))
        return code;
    code = check_layout(trainer, plan, error); /* before anything is on its way */
    if (code)
        return code;
    mark = mp_trainer_mark(trainer, MP_PHASE_FETCH);
    trainer->fetch_flight = mp_trainer_departed(trainer, mark.start_ns, MP_PHASE_FETCH);
    code = mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, error);
    trainer->fetching = true;
    if (!code)
        code = start_fetch(trainer, plan, MP_STAGE_BEFORE_GATE, model->parameter, trainer->fetch,
                           error);
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_FORWARD, layer, -1, -1);
    return code;
}

int mp_trainer_fetch_late(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    int code = check_layout(trainer, plan, error);
    if (code)
        return code;
    count_transfers(trainer, plan);
    if (!fetches_in(plan, MP_STAGE_AFTER_GATE))
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_FETCH);
    trainer->late_fetch_flight = mp_trainer_departed(trainer, mark.start_ns, MP_PHASE_FETCH);
    trainer->late_fetching = true;
    code = mp_trainer_pause(trainer, plan, error);
    if (!code)
        code = start_fetch(trainer, plan, MP_STAGE_AFTER_GATE, trainer->model.parameter,
                           trainer->late_fetch, error);
    if (!code && plan->free_transfers)
        code = mp_request_wait(trainer->late_fetch, error);
    if (!code)
        code = mp_trainer_resume(trainer, plan, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_FORWARD, layer, -1, -1);
    return code;
}

/* Waited for, and recorded, once: `fetching` says whether it still is to be. */
static int wait_fetch(struct mp_trainer *trainer, int layer, enum mp_stage stage,
                      struct mp_request *request, bool *fetching, struct mp_flight flight,
                      struct mp_error *error) {
    if (!*fetching)
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_FETCH);
    int code = mp_request_wait(request, error);
    *fetching = false;
    mp_trainer_arrived(trainer, flight, MP_PHASE_FETCH, MP_FORWARD, layer,
                       bytes_to_me(trainer, &trainer->plan[layer], stage));
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_FORWARD, layer, -1, -1);
    return code;
}

int mp_trainer_wait_fetches(struct mp_trainer *trainer, int layer, bool late,
                            struct mp_error *error) {
    int code = wait_fetch(trainer, layer, MP_STAGE_BEFORE_GATE, trainer->fetch, &trainer->fetching,
                          trainer->fetch_flight, error);
    if (!code && late)
        code = wait_fetch(trainer, layer, MP_STAGE_AFTER_GATE, trainer->late_fetch,
                          &trainer->late_fetching, trainer->late_fetch_flight, error);
    return code;
}

/* ---- backward: parameters again, then gradients ---- */

static bool fetches_again(const struct mp_plan *plan) {
    return plan->rematerialise && (plan->fetch.count > 0 || gathers(plan));
}

int mp_trainer_prefetch(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    if (!fetches_again(plan))
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_FETCH);
    const struct mp_plan_facts *facts = &trainer->facts[layer];
    trainer->fetch_flight = mp_trainer_departed(trainer, mark.start_ns, MP_PHASE_FETCH);
    static const enum mp_stage stages[] = {MP_STAGE_BEFORE_GATE, MP_STAGE_AFTER_GATE};
    int code = mp_experts_locate(&trainer->model.experts, plan, trainer->prefetch_chunk,
                                 trainer->prefetch_gradient, error);
    for (int i = 0; !code && i < 2; i++)
        code = start_fetch(trainer, plan, stages[i], trainer->prefetch_chunk, trainer->prefetch[i],
                           error);
    trainer->totals.copies[MP_STAGE_BACKWARD_PREFETCH] +=
        gathers(plan) ? facts->copies : plan->fetch.count;
    trainer->totals.bytes[MP_STAGE_BACKWARD_PREFETCH] += facts->bytes[MP_STAGE_BACKWARD_PREFETCH];
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_BACKWARD, layer, -1, -1);
    return code;
}

int mp_trainer_wait_prefetch(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    if (!fetches_again(plan))
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_FETCH);
    int code = mp_request_wait(trainer->prefetch[0], error);
    if (!code)
        code = mp_request_wait(trainer->prefetch[1], error);
    mp_trainer_arrived(trainer, trainer->fetch_flight, MP_PHASE_FETCH, MP_BACKWARD, layer,
                       bytes_to_me(trainer, plan, MP_STAGE_BEFORE_GATE) +
                           bytes_to_me(trainer, plan, MP_STAGE_AFTER_GATE));
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_BACKWARD, layer, -1, -1);
    return code;
}

/* Starts one stage of a layer's reduction, unless the plan has nothing to do in it. */
static int start_stage(struct mp_trainer *trainer, struct mp_reduction *reduction, bool *started,
                       struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[reduction->layer];
    const struct mp_transfers *list =
        reduction->stage == MP_REDUCE_COPIES ? &plan->reduce : &plan->share;
    bool slices = reduction->stage == MP_REDUCE_SLICES;
    *started = slices ? mp_optimizer_sliced(plan->optimizer) : list->count > 0;
    if (!*started)
        return MP_OK;
    reduction->flight = mp_trainer_departed(trainer, mp_trainer_now(trainer), MP_PHASE_REDUCE);
    if (slices)
        return mp_trainer_send_slices_start(trainer, reduction, error);
    int code = mp_experts_locate(&trainer->model.experts, plan, trainer->reduce_chunk,
                                 trainer->reduce_gradient, error);
    if (code)
        return code;
    if (reduction->stage == MP_REDUCE_COPIES)
        return mp_sparse_reduce_scatter_start(trainer->comm, list, plan->experts,
                                              trainer->reduce_gradient, gradient_bytes(trainer),
                                              trainer->model.stream, reduction->request, error);
    return mp_sparse_all_gather_start(trainer->comm, list, MP_STAGE_BACKWARD_REDUCE, plan->experts,
                                      (void *const *)trainer->reduce_gradient,
                                      gradient_bytes(trainer), trainer->model.stream,
                                      reduction->request, error);
}

/* From `stage` on, the first stage with something to do; at the end nothing is in flight. */
static int start_from(struct mp_trainer *trainer, struct mp_reduction *reduction, int stage,
                      struct mp_error *error) {
    bool started = false;
    int code = MP_OK;
    for (; stage <= MP_REDUCE_SLICES && !started && !code; stage++) {
        reduction->stage = (enum mp_reduction_stage)stage;
        code = start_stage(trainer, reduction, &started, error);
    }
    if (!started)
        reduction->layer = -1;
    return code;
}

/* Waits for the stage in flight and starts the next one.  Every rank does so at the same places of
 * its program, as operations must start in the same order everywhere. */
static int advance(struct mp_trainer *trainer, struct mp_reduction *reduction,
                   struct mp_error *error) {
    int layer = reduction->layer;
    if (layer < 0)
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_REDUCE);
    int code = mp_request_wait(reduction->request, error);
    mp_trainer_arrived(trainer, reduction->flight, MP_PHASE_REDUCE, MP_BACKWARD, layer, -1);
    if (!code && reduction->stage == MP_REDUCE_SLICES)
        mp_trainer_sum_slices(trainer, reduction);
    if (!code)
        code = start_from(trainer, reduction, (int)reduction->stage + 1, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_REDUCE, MP_BACKWARD, layer, -1, -1);
    return code;
}

int mp_trainer_wait_reduce(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_reduction *reduction = &trainer->reduction[layer % MP_REDUCES_IN_FLIGHT];
    int code = MP_OK;
    while (!code && reduction->layer >= 0)
        code = advance(trainer, reduction, error);
    return code;
}

int mp_trainer_start_reduce(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    struct mp_reduction *reduction = &trainer->reduction[layer % MP_REDUCES_IN_FLIGHT];
    if (plan->reduce.count == 0 && !mp_optimizer_sliced(plan->optimizer))
        return MP_OK;
    /* The layer above has had this layer's experts to send its first stage under. */
    int code = advance(trainer, &trainer->reduction[(layer + 1) % MP_REDUCES_IN_FLIGHT], error);
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_REDUCE);
    reduction->layer = layer;
    if (!code)
        code = mp_trainer_pause(trainer, plan, error);
    if (!code)
        code = start_from(trainer, reduction, MP_REDUCE_COPIES, error);
    if (!code && plan->free_transfers)
        code = mp_trainer_wait_reduce(trainer, layer, error);
    if (!code)
        code = mp_trainer_resume(trainer, plan, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_REDUCE, MP_BACKWARD, layer, -1, -1);
    return code;
}

int mp_trainer_finish_reduces(struct mp_trainer *trainer, struct mp_error *error) {
    int code = MP_OK;
    /* Layer 1 was started before layer 0. */
    for (int i = MP_REDUCES_IN_FLIGHT - 1; !code && i >= 0; i--)
        code = mp_trainer_wait_reduce(trainer, i, error);
    return code;
}
