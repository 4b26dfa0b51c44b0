/* Carrying out a plan: exchange, fetches (spAG) and reductions (spRS) around the experts. */
#include <string.h>

#include "reference/trainer/internal.h"

static size_t chunk_bytes(const struct mp_trainer *trainer) {
    return trainer->model.experts.chunk * sizeof(float);
}

static int64_t bytes_to_me(const struct mp_trainer *trainer, const struct mp_plan *plan,
                           enum mp_stage stage) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage && plan->fetch.item[i].to == trainer->comm->rank)
            bytes += plan->fetch.item[i].bytes;
    return bytes;
}

static void count_transfers(struct mp_trainer *trainer, const struct mp_plan *plan) {
    for (int i = 0; i < plan->fetch.count; i++) {
        trainer->totals.copies[plan->fetch.item[i].stage]++;
        trainer->totals.bytes[plan->fetch.item[i].stage] += plan->fetch.item[i].bytes;
    }
    for (int i = 0; i < plan->reduce.count; i++)
        trainer->totals.bytes[plan->reduce.item[i].stage] += plan->reduce.item[i].bytes;
}

int mp_trainer_plan_before_gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_plan *plan = &trainer->plan[layer];
    struct mp_model *model = &trainer->model;
    struct mp_mark mark = mp_trainer_mark(trainer);
    mp_plan_begin(plan, trainer->iteration, layer,
                  trainer->owner + (size_t)layer * (size_t)trainer->job.experts);
    int code = MP_OK;
    if (trainer->system->before_gate)
        code = trainer->system->before_gate(trainer->self, plan, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_PLAN, MP_FORWARD, layer, -1, -1);
    if (code || plan->fetch.count == 0)
        return code;
    mark = mp_trainer_mark(trainer);
    code = mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, error);
    trainer->fetch_started = mark.start_ns;
    if (!code)
        code =
            mp_sparse_all_gather_start(trainer->comm, &plan->fetch, MP_STAGE_BEFORE_GATE,
                                       plan->experts, (void *const *)model->parameter,
                                       chunk_bytes(trainer), model->stream, trainer->fetch, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_FORWARD, layer, -1, -1);
    return code;
}

/* The load matrix of the layer, and this rank's share of the auxiliary loss with its gradient. */
static int gather_loads(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    int experts = trainer->job.experts, ranks = trainer->comm->ranks;
    struct mp_load *load = &trainer->load[layer];
    int code = mp_gather_counts_start(trainer->comm, trainer->counts, 2 * experts,
                                      trainer->all_counts, trainer->gather, error);
    if (!code)
        code = mp_request_wait(trainer->gather, error);
    if (code)
        return code;
    double tokens = (double)trainer->global_tokens, loss = 0;
    for (int r = 0; r < ranks; r++)
        memcpy(load->count + (size_t)r * (size_t)experts,
               trainer->all_counts + (size_t)r * 2 * (size_t)experts,
               (size_t)experts * sizeof *load->count);
    for (int e = 0; e < experts; e++) {
        double firsts = 0;
        for (int r = 0; r < ranks; r++)
            firsts += trainer->all_counts[((size_t)r * 2 + 1) * (size_t)experts + (size_t)e];
        double slope = trainer->job.auxiliary_weight * experts * (firsts / tokens) / tokens;
        trainer->auxiliary[e] = (float)slope;
        loss += slope * trainer->mass[e];
    }
    trainer->auxiliary_loss[layer] = loss;
    trainer->device->operations->copy_from_host(
        trainer->device, trainer->model.stream, trainer->model.state[layer].auxiliary,
        trainer->auxiliary, (size_t)experts * sizeof(float));
    return MP_OK;
}

static int gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_mark mark = mp_trainer_mark(trainer);
    int experts = trainer->job.experts;
    if (trainer->forced) {
        int code = mp_trainer_force_choices(trainer, layer, error);
        if (code)
            return code;
    }
    mp_model_gate(&trainer->model, layer, trainer->forced, trainer->counts,
                  trainer->counts + experts, trainer->mass);
    int code = gather_loads(trainer, layer, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_GATE, MP_FORWARD, layer, trainer->model.tokens, -1);
    return code;
}

/* The first plan has told how long copies live, and room for them was made accordingly: those that
 * live until backward need a region for each layer. */
static int check_regions(const struct mp_trainer *trainer, const struct mp_plan *plan,
                         struct mp_error *error) {
    if (plan->rematerialise || plan->fetch.count == 0 ||
        trainer->model.experts.regions == trainer->job.layers)
        return MP_OK;
    return mp_fail(error, MP_EPLAN,
                   "iteration %lld, layer %d: the plan keeps copies until backward, the first plan "
                   "of the run re-materialised them",
                   (long long)plan->iteration, plan->layer);
}

static int plan_after_gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_plan *plan = &trainer->plan[layer];
    struct mp_model *model = &trainer->model;
    struct mp_mark mark = mp_trainer_mark(trainer);
    int code = trainer->system->after_gate(trainer->self, &trainer->load[layer], plan, error);
    if (!code && trainer->check_plans)
        code = mp_plan_check(plan, &trainer->load[layer], &trainer->law, NULL, error);
    if (!code)
        code = check_regions(trainer, plan, error);
    if (!code)
        code = mp_routing_build(plan, trainer->comm->rank, &model->state[layer].routing, error);
    if (!code)
        code = mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_PLAN, MP_FORWARD, layer, -1, -1);
    return code;
}

/* Starts the copies decided after the gate; they are exposed. */
static int fetch_late(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    struct mp_mark mark = mp_trainer_mark(trainer);
    trainer->late_fetch_started = mark.start_ns;
    int code =
        mp_sparse_all_gather_start(trainer->comm, &plan->fetch, MP_STAGE_AFTER_GATE, plan->experts,
                                   (void *const *)trainer->model.parameter, chunk_bytes(trainer),
                                   trainer->model.stream, trainer->late_fetch, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_FORWARD, layer, -1, -1);
    return code;
}

static bool fetches_in(const struct mp_plan *plan, enum mp_stage stage) {
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].stage == stage)
            return true;
    return false;
}

static int wait_fetches(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    if (plan->fetch.count == 0)
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer);
    int code = mp_request_wait(trainer->fetch, error);
    if (fetches_in(plan, MP_STAGE_BEFORE_GATE))
        mp_trainer_in_flight(trainer, trainer->fetch_started, MP_PHASE_FETCH, MP_FORWARD, layer,
                             bytes_to_me(trainer, plan, MP_STAGE_BEFORE_GATE));
    if (!code)
        code = mp_request_wait(trainer->late_fetch, error);
    if (fetches_in(plan, MP_STAGE_AFTER_GATE))
        mp_trainer_in_flight(trainer, trainer->late_fetch_started, MP_PHASE_FETCH, MP_FORWARD,
                             layer, bytes_to_me(trainer, plan, MP_STAGE_AFTER_GATE));
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_FORWARD, layer, -1, -1);
    return code;
}

/* Rows towards the experts (or, with `back`, from them to their tokens). */
static int exchange(struct mp_trainer *trainer, int layer, bool back, const float *from, float *to,
                    struct mp_error *error) {
    const struct mp_routing *routing = &trainer->model.state[layer].routing;
    size_t row_bytes = (size_t)trainer->job.width * sizeof(float);
    int code = mp_exchange_start(trainer->comm, back ? routing->receive_rows : routing->send_rows,
                                 back ? routing->send_rows : routing->receive_rows, row_bytes, from,
                                 to, trainer->model.stream, trainer->exchange, error);
    return code ? code : mp_request_wait(trainer->exchange, error);
}

static int64_t expert_flops(const struct mp_trainer *trainer, int rows) {
    return mp_model_route_flops(&trainer->model.shape) * rows;
}

int mp_trainer_moe_forward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing *routing = &model->state[layer].routing;
    int code = gate(trainer, layer, error);
    if (!code)
        code = plan_after_gate(trainer, layer, error);
    if (!code && trainer->plan[layer].fetch.count > 0)
        code = fetch_late(trainer, layer, error);
    if (code)
        return code;
    count_transfers(trainer, &trainer->plan[layer]);

    struct mp_mark mark = mp_trainer_mark(trainer);
    mp_model_permute(model, layer);
    code =
        exchange(trainer, layer, false, model->send, mp_model_receive_buffer(model, layer), error);
    mp_trainer_spent(trainer, mark, MP_PHASE_DISPATCH, MP_FORWARD, layer, routing->send_total, -1);
    if (!code)
        code = wait_fetches(trainer, layer, error);
    if (code)
        return code;

    mark = mp_trainer_mark(trainer);
    mp_model_experts(model, layer);
    mp_trainer_spent(trainer, mark, MP_PHASE_EXPERT, MP_FORWARD, layer, routing->receive_total,
                     expert_flops(trainer, routing->receive_total));

    mark = mp_trainer_mark(trainer);
    code = exchange(trainer, layer, true, model->received, model->state[layer].combine_in, error);
    if (!code)
        mp_model_combine(model, layer);
    mp_trainer_spent(trainer, mark, MP_PHASE_COMBINE, MP_FORWARD, layer, routing->send_total, -1);
    return code;
}

int mp_trainer_prefetch(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    if (!plan->rematerialise || plan->fetch.count == 0)
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer);
    static const enum mp_stage stages[] = {MP_STAGE_BEFORE_GATE, MP_STAGE_AFTER_GATE};
    int code = mp_experts_locate(&trainer->model.experts, plan, trainer->prefetch_chunk,
                                 trainer->prefetch_gradient, error);
    for (int i = 0; !code && i < 2; i++)
        code =
            mp_sparse_all_gather_start(trainer->comm, &plan->fetch, stages[i], plan->experts,
                                       (void *const *)trainer->prefetch_chunk, chunk_bytes(trainer),
                                       trainer->model.stream, trainer->prefetch[i], error);
    trainer->totals.copies[MP_STAGE_BACKWARD_PREFETCH] += plan->fetch.count;
    trainer->totals.bytes[MP_STAGE_BACKWARD_PREFETCH] += plan->fetch.count * plan->expert_bytes;
    trainer->fetch_started = mark.start_ns;
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_BACKWARD, layer, -1, -1);
    return code;
}

static int wait_prefetch(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    if (!plan->rematerialise || plan->fetch.count == 0)
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer);
    int code = mp_request_wait(trainer->prefetch[0], error);
    if (!code)
        code = mp_request_wait(trainer->prefetch[1], error);
    mp_trainer_in_flight(trainer, trainer->fetch_started, MP_PHASE_FETCH, MP_BACKWARD, layer,
                         bytes_to_me(trainer, plan, MP_STAGE_BEFORE_GATE) +
                             bytes_to_me(trainer, plan, MP_STAGE_AFTER_GATE));
    mp_trainer_spent(trainer, mark, MP_PHASE_FETCH, MP_BACKWARD, layer, -1, -1);
    return code;
}

static int wait_reduce(struct mp_trainer *trainer, int which, struct mp_error *error) {
    int layer = trainer->reduce_layer[which];
    if (layer < 0)
        return MP_OK;
    struct mp_mark mark = mp_trainer_mark(trainer);
    int code = mp_request_wait(trainer->reduce[which], error);
    trainer->reduce_layer[which] = -1;
    mp_trainer_in_flight(trainer, trainer->reduce_started[which], MP_PHASE_REDUCE, MP_BACKWARD,
                         layer, -1);
    mp_trainer_spent(trainer, mark, MP_PHASE_REDUCE, MP_BACKWARD, layer, -1, -1);
    return code;
}

/* Gradients of all copies into their owners, under the backward of this block's attention.  The
 * gradient of layer + 2 is waited for first: its request, and with re-materialisation its region,
 * are used again. */
static int start_reduce(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    if (plan->reduce.count == 0)
        return MP_OK;
    int which = layer % MP_REDUCES_IN_FLIGHT;
    struct mp_mark mark = mp_trainer_mark(trainer);
    int code = mp_sparse_reduce_scatter_start(trainer->comm, &plan->reduce, plan->experts,
                                              trainer->model.gradient, chunk_bytes(trainer),
                                              trainer->model.stream, trainer->reduce[which], error);
    trainer->reduce_layer[which] = layer;
    trainer->reduce_started[which] = mp_clock_ns();
    mp_trainer_spent(trainer, mark, MP_PHASE_REDUCE, MP_BACKWARD, layer, -1, -1);
    return code;
}

int mp_trainer_finish_reduces(struct mp_trainer *trainer, struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; !code && i < MP_REDUCES_IN_FLIGHT; i++)
        code = wait_reduce(trainer, i, error);
    return code;
}

static int backward_experts(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int rows = model->state[layer].routing.receive_total;
    int code = wait_prefetch(trainer, layer, error);
    if (!code)
        code = wait_reduce(trainer, layer % MP_REDUCES_IN_FLIGHT, error);
    if (!code)
        code = mp_experts_locate(&model->experts, &trainer->plan[layer], model->parameter,
                                 model->gradient, error);
    if (code)
        return code;
    struct mp_mark mark = mp_trainer_mark(trainer);
    mp_model_experts_backward(model, layer);
    mp_trainer_spent(trainer, mark, MP_PHASE_EXPERT, MP_BACKWARD, layer, rows,
                     2 * expert_flops(trainer, rows));
    return start_reduce(trainer, layer, error);
}

int mp_trainer_moe_backward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing *routing = &model->state[layer].routing;
    struct mp_mark mark = mp_trainer_mark(trainer);
    mp_model_combine_backward(model, layer);
    int code = exchange(trainer, layer, false, model->send, model->received, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_COMBINE, MP_BACKWARD, layer, routing->send_total, -1);
    if (!code)
        code = backward_experts(trainer, layer, error);
    if (code)
        return code;

    mark = mp_trainer_mark(trainer);
    code = exchange(trainer, layer, true, model->received, model->send, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_DISPATCH, MP_BACKWARD, layer, routing->send_total, -1);
    if (code)
        return code;
    mark = mp_trainer_mark(trainer);
    mp_model_gate_backward(model, layer);
    mp_trainer_spent(trainer, mark, MP_PHASE_GATE, MP_BACKWARD, layer, model->tokens, -1);
    return MP_OK;
}
