/* Carrying out a plan: gate, exchange and experts of a layer. */
#include <string.h>

#include "reference/trainer/internal.h"

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
    float *auxiliary = trainer->auxiliary + (size_t)layer * (size_t)experts;
    for (int r = 0; r < ranks; r++)
        memcpy(load->count + (size_t)r * (size_t)experts,
               trainer->all_counts + (size_t)r * 2 * (size_t)experts,
               (size_t)experts * sizeof *load->count);
    for (int e = 0; e < experts; e++) {
        double firsts = 0;
        for (int r = 0; r < ranks; r++)
            firsts += trainer->all_counts[((size_t)r * 2 + 1) * (size_t)experts + (size_t)e];
        double slope = trainer->job.auxiliary_weight * experts * (firsts / tokens) / tokens;
        auxiliary[e] = (float)slope;
        loss += slope * trainer->mass[e];
    }
    trainer->auxiliary_loss[layer] = loss;
    trainer->device->operations->copy(trainer->device, trainer->model.stream,
                                      trainer->model.state[layer].auxiliary, auxiliary,
                                      (size_t)experts * sizeof(float));
    return MP_OK;
}

/* How many of this rank's tokens may leave its node, and which experts are in the node: those with
 * a holder there when the gate runs. */
static int limit_gate(struct mp_trainer *trainer, int layer, struct mp_gate_limit *limit,
                      struct mp_error *error) {
    const struct mp_plan *plan = &trainer->plan[layer];
    const struct mp_topology *topology = &plan->topology;
    int node = trainer->comm->rank / topology->ranks_per_node, insiders = 0;
    int first = mp_topology_node_begin(topology, node), end = mp_topology_node_end(topology, node);
    for (int e = 0; e < plan->experts; e++) {
        int holder = mp_placement_next(&plan->during, e, first);
        trainer->inside[e] = holder >= 0 && holder < end;
        insiders += trainer->inside[e];
    }
    if (trainer->model.shape.top_k != 2 || insiders < 2)
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: the plan limits outgoing tokens of a top-%d gate "
                       "with %d experts in the node; it takes a top-2 gate and 2 experts",
                       (long long)plan->iteration, layer, trainer->model.shape.top_k, insiders);
    int64_t most = trainer->model.tokens;
    *limit = (struct mp_gate_limit){
        (int)(plan->outgoing_limit < most ? plan->outgoing_limit : most), trainer->inside};
    return MP_OK;
}

static int gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_GATE);
    int experts = trainer->job.experts;
    if (trainer->forced) {
        int code = mp_trainer_force_choices(trainer, layer, error);
        if (code)
            return code;
    }
    struct mp_gate_limit limit = {0};
    bool limited = trainer->plan[layer].outgoing_limit >= 0 && !trainer->forced;
    int code = limited ? limit_gate(trainer, layer, &limit, error) : MP_OK;
    if (code)
        return code;
    mp_model_gate(&trainer->model, layer, trainer->forced, limited ? &limit : NULL, trainer->counts,
                  trainer->counts + experts, trainer->mass);
    code = gather_loads(trainer, layer, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_GATE, MP_FORWARD, layer, trainer->model.tokens, -1);
    return code;
}

/* Routes that the gate chose on this rank, per expert. */
static const uint32_t *own_load(const struct mp_trainer *trainer, int layer) {
    const struct mp_load *load = &trainer->load[layer];
    return load->count + (size_t)trainer->comm->rank * (size_t)load->experts;
}

static int plan_after_gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_plan *plan = &trainer->plan[layer];
    struct mp_model *model = &trainer->model;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_PLAN);
    int code = mp_trainer_pause(trainer, plan, error);
    if (!code)
        code =
            mp_system_end_plan(trainer->system, trainer->self, &trainer->load[layer], plan, error);
    if (!code && trainer->check_plans)
        code = mp_plan_check(plan, &trainer->load[layer], &trainer->law, NULL, error);
    if (!code)
        code = mp_trainer_resume(trainer, plan, error);
    if (!code)
        code = mp_routing_build(plan, own_load(trainer, layer), trainer->comm->rank,
                                &model->state[layer].routing, error);
    if (!code)
        code = mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_PLAN, MP_FORWARD, layer, -1, -1);
    return code;
}

/* Rows towards the experts (or, with `back`, from them to their tokens). */
static int exchange(struct mp_trainer *trainer, int layer, bool back, const void *from, void *to,
                    struct mp_error *error) {
    const struct mp_routing_step *all = trainer->model.state[layer].routing.step;
    size_t row_bytes = (size_t)trainer->setting.route_bytes;
    int code = mp_exchange_start(trainer->comm, back ? all->receive_rows : all->send_rows,
                                 back ? all->send_rows : all->receive_rows, row_bytes, from, to,
                                 trainer->model.stream, trainer->exchange, error);
    return code ? code : mp_request_wait(trainer->exchange, error);
}

static int64_t expert_flops(const struct mp_trainer *trainer, int rows) {
    return mp_model_route_flops(&trainer->model.shape) * rows;
}

uint64_t mp_trainer_route_seed(const struct mp_trainer *trainer, int layer) {
    return mp_model_route_seed((uint64_t)trainer->job.seed, trainer->iteration, layer,
                               trainer->comm->rank);
}

static int flat_forward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing *routing = &model->state[layer].routing;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_DISPATCH);
    mp_model_permute(model, layer, mp_trainer_route_seed(trainer, layer));
    int code = exchange(trainer, layer, false, model->send,
                        mp_model_receive_buffer(model, layer, 0), error);
    mp_trainer_spent(trainer, mark, MP_PHASE_DISPATCH, MP_FORWARD, layer, routing->send_total, -1);
    if (!code)
        code = mp_trainer_wait_fetches(trainer, layer, true, error);
    if (code)
        return code;

    mark = mp_trainer_mark(trainer, MP_PHASE_EXPERT);
    mp_model_experts(model, layer, 0);
    mp_trainer_spent(trainer, mark, MP_PHASE_EXPERT, MP_FORWARD, layer, routing->receive_total,
                     expert_flops(trainer, routing->receive_total));

    mark = mp_trainer_mark(trainer, MP_PHASE_COMBINE);
    code = exchange(trainer, layer, true, model->received, model->state[layer].combine_in, error);
    if (!code)
        mp_model_combine(model, layer);
    mp_trainer_spent(trainer, mark, MP_PHASE_COMBINE, MP_FORWARD, layer, routing->send_total, -1);
    return code;
}

int mp_trainer_moe_forward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    int code = gate(trainer, layer, error);
    if (!code)
        code = plan_after_gate(trainer, layer, error);
    if (!code)
        code = mp_trainer_fetch_late(trainer, layer, error);
    if (code)
        return code;
    return trainer->plan[layer].exchange == MP_EXCHANGE_PIPELINED
               ? mp_trainer_pipeline_forward(trainer, layer, error)
               : flat_forward(trainer, layer, error);
}

int mp_trainer_before_expert_gradients(struct mp_trainer *trainer, int layer,
                                       struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int code = mp_trainer_wait_prefetch(trainer, layer, error);
    if (!code)
        code = mp_trainer_wait_reduce(trainer, layer, error);
    if (!code)
        code = mp_experts_locate(&model->experts, &trainer->plan[layer], model->parameter,
                                 model->gradient, error);
    return code;
}

static int flat_experts_backward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    int rows = model->state[layer].routing.receive_total;
    int code = mp_trainer_before_expert_gradients(trainer, layer, error);
    if (code)
        return code;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_EXPERT);
    mp_model_experts_backward(model, layer, 0, false);
    mp_trainer_spent(trainer, mark, MP_PHASE_EXPERT, MP_BACKWARD, layer, rows,
                     2 * expert_flops(trainer, rows));
    return mp_trainer_start_reduce(trainer, layer, error);
}

static int flat_backward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_model *model = &trainer->model;
    const struct mp_routing *routing = &model->state[layer].routing;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_COMBINE);
    mp_model_combine_backward(model, layer);
    int code = exchange(trainer, layer, false, model->send, model->received, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_COMBINE, MP_BACKWARD, layer, routing->send_total, -1);
    if (!code)
        code = flat_experts_backward(trainer, layer, error);
    if (code)
        return code;

    mark = mp_trainer_mark(trainer, MP_PHASE_DISPATCH);
    code = exchange(trainer, layer, true, model->received, model->send, error);
    mp_trainer_spent(trainer, mark, MP_PHASE_DISPATCH, MP_BACKWARD, layer, routing->send_total, -1);
    return code;
}

int mp_trainer_moe_backward(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    int code = trainer->plan[layer].exchange == MP_EXCHANGE_PIPELINED
                   ? mp_trainer_pipeline_backward(trainer, layer, error)
                   : flat_backward(trainer, layer, error);
    if (code)
        return code;
    struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASE_GATE);
    mp_model_gate_backward(&trainer->model, layer);
    mp_trainer_spent(trainer, mark, MP_PHASE_GATE, MP_BACKWARD, layer, trainer->model.tokens, -1);
    return MP_OK;
}
