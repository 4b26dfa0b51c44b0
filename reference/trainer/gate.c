/* A layer's gate, the loads that all ranks learn of, and the plan made of them. */
#include <string.h>

#include "reference/model/replay.h"
#include "reference/trainer/internal.h"

/* What is replayed of a source here, as a gate with the plan's limit would leave it. */
static const uint32_t *replayed_row(struct mp_trainer *trainer, int layer, int source) {
    const struct mp_loads *loads = &trainer->loads;
    const uint32_t *row = mp_loads_row(loads, trainer->iteration, layer, source);
    if (!trainer->replay_limit.inside)
        return row;
    memcpy(trainer->limited, row, (size_t)loads->experts * sizeof *row);
    mp_replay_limit(loads->experts, trainer->replay_limit.inside,
                    trainer->replay_limit.tokens / loads->sources, trainer->limited);
    return trainer->limited;
}

int mp_trainer_force_choices(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_loads *loads = &trainer->loads;
    uint64_t turn = (uint64_t)trainer->iteration * 131 + (uint64_t)layer * 17;
    int top_k = trainer->model.shape.top_k, experts = trainer->job.experts;
    int tokens = trainer->model.tokens / loads->sources, code = MP_OK;
    for (int s = 0; s < loads->sources && !code; s++)
        code =
            mp_replay_choices(tokens, top_k, experts, replayed_row(trainer, layer, s), turn,
                              trainer->forced + (size_t)s * (size_t)tokens * (size_t)top_k, error);
    return code;
}

int mp_trainer_start_counts(struct mp_trainer *trainer, struct mp_error *error) {
    return mp_gather_counts_start(trainer->comm, trainer->counts, 2 * trainer->job.experts,
                                  trainer->all_counts, trainer->gather, error);
}

int mp_trainer_wait_counts(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    int experts = trainer->job.experts, ranks = trainer->comm->ranks;
    struct mp_load *load = &trainer->load[layer];
    int code = mp_request_wait(trainer->gather, error);
    if (code)
        return code;
    bool of_all = trainer->job.gate == MP_GATE_SOFTMAX;
    double tokens = (double)trainer->global_tokens, loss = 0;
    double counted = of_all ? tokens * trainer->model.shape.top_k : tokens;
    float *auxiliary = trainer->auxiliary + (size_t)layer * (size_t)experts;
    for (int r = 0; r < ranks; r++)
        memcpy(load->count + (size_t)r * (size_t)experts,
               trainer->all_counts + (size_t)r * 2 * (size_t)experts,
               (size_t)experts * sizeof *load->count);
    for (int e = 0; e < experts; e++) {
        double chosen = 0; /* of all its choices, or of first choices */
        for (int r = 0; r < ranks; r++)
            chosen += trainer->all_counts[((size_t)r * 2 + !of_all) * (size_t)experts + (size_t)e];
        double slope = trainer->job.auxiliary_weight * experts * (chosen / counted) / tokens;
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
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
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

int mp_trainer_gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    int experts = trainer->job.experts;
    struct mp_gate_limit limit = {0};
    bool limited = mp_planner_plan(&trainer->planner, layer)->outgoing_limit >= 0;
    int code = limited ? limit_gate(trainer, layer, &limit, error) : MP_OK;
    trainer->replay_limit = limit;
    if (!code && trainer->forced)
        code = mp_trainer_force_choices(trainer, layer, error);
    if (!code)
        mp_model_gate(&trainer->model, layer, trainer->forced,
                      limited && !trainer->forced ? &limit : NULL, trainer->counts,
                      trainer->counts + experts, trainer->mass);
    return code;
}

/* Routes that the gate chose on this rank, per expert. */
static const uint32_t *own_load(const struct mp_trainer *trainer, int layer) {
    const struct mp_load *load = &trainer->load[layer];
    return load->count + (size_t)trainer->comm->rank * (size_t)load->experts;
}

static int end_plan(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    struct mp_model *model = &trainer->model;
    int code = mp_trainer_pause(trainer, plan, error);
    if (!code)
        code = mp_planner_end_layer(&trainer->planner, layer, &trainer->load[layer], error);
    if (!code)
        code = mp_trainer_resume(trainer, plan, error);
    if (!code)
        code = mp_routing_build(plan, own_load(trainer, layer), trainer->comm->rank,
                                &model->state[layer].routing, error);
    if (!code)
        code = mp_trainer_reserve_rows(trainer, layer, error);
    if (!code)
        code = mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, error);
    return code;
}

int mp_trainer_plan(struct mp_trainer *trainer, int layer, bool before_gate,
                    struct mp_error *error) {
    int code = before_gate
                   ? mp_planner_begin_layer(&trainer->planner, trainer->iteration, layer, error)
                   : end_plan(trainer, layer, error);
    return code
               ? code
               : mp_trainer_check_layout(trainer, mp_planner_plan(&trainer->planner, layer), error);
}
