/* A layer's gate, the loads that all ranks learn of, and the plan made of them. */
#include <string.h>

#include "reference/base/random.h"
#include "reference/model/replay.h"
#include "reference/trainer/internal.h"

/* What is replayed of a source here, as a gate with the plan's limit would leave it. */
static const uint32_t *replayed_row(struct mp_trainer *trainer, int layer, int source) {
    const struct mp_loads *loads = &trainer->loads;
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    const uint32_t *row = mp_loads_row(loads, trainer->iteration, layer, source);
    if (!trainer->replay_limit.inside)
        return row;
    memcpy(trainer->limited, row, (size_t)loads->experts * sizeof *row);
    if (plan->policy->pull > 0) {
        int node = mp_topology_node(&plan->topology, trainer->comm->rank);
        mp_replay_pull(loads->experts, trainer->replay_limit.inside,
                       mp_topology_share_inside(&plan->topology, node, plan->policy->outside_cost),
                       plan->policy->pull, trainer->model.tokens / loads->sources,
                       trainer->limited);
        return trainer->limited;
    }
    mp_replay_limit(loads->experts, trainer->replay_limit.inside,
                    trainer->replay_limit.tokens / loads->sources, trainer->limited);
    return trainer->limited;
}

int mp_trainer_force_choices(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    const struct mp_loads *loads = &trainer->loads;
    uint64_t turn = (uint64_t)trainer->iteration * 131 + (uint64_t)layer * 17;
    int top_k = trainer->model.shape.top_k, experts = trainer->job.experts;
    int tokens = trainer->model.tokens, code = MP_OK;
    if (trainer->job.routing == MP_ROUTING_GATE) {
        const struct mp_gate_sizes sizes = mp_job_gate_sizes(&trainer->job);
        mp_gate_kinds[trainer->job.gate]->choose(&sizes, trainer->job.gate_options.bytes, layer,
                                                 tokens, trainer->token_now, trainer->forced);
        return MP_OK;
    }
    tokens /= loads->sources;
    for (int s = 0; s < loads->sources && !code; s++)
        code =
            mp_replay_choices(tokens, top_k, experts, replayed_row(trainer, layer, s), turn,
                              trainer->forced + (size_t)s * (size_t)tokens * (size_t)top_k, error);
    return code;
}

int mp_trainer_counts(const struct mp_trainer *trainer) {
    return (2 + (trainer->distinct.chunk_routes ? trainer->paths.steps : 0)) * trainer->job.experts;
}

int mp_trainer_start_counts(struct mp_trainer *trainer, struct mp_error *error) {
    return mp_gather_counts_start(trainer->comm, trainer->counts, mp_trainer_counts(trainer),
                                  trainer->all_counts, trainer->gather, error);
}

/* How often an expert was chosen in a part of the batch: over all its choices, or as first. */
static double chosen_in(const struct mp_trainer *trainer, int part, int expert) {
    const struct mp_gate_rule *rule = &trainer->model.shape.gate;
    size_t experts = (size_t)trainer->job.experts;
    size_t at = (rule->loss_counts == MP_COUNT_ALL ? 0 : experts) + (size_t)expert;
    double chosen = 0;
    if (rule->loss_level != MP_BALANCE_BATCH)
        return mp_model_part_statistics(&trainer->model, part)[at];
    for (int r = 0; r < trainer->comm->ranks; r++)
        chosen += trainer->all_counts[(size_t)r * (size_t)mp_trainer_counts(trainer) + at];
    return chosen;
}

/* This rank's part of the losses, and the balancing one's slopes. */
static void balance(struct mp_trainer *trainer, int layer) {
    struct mp_model *model = &trainer->model;
    const struct mp_gate_rule *rule = &model->shape.gate;
    size_t experts = (size_t)trainer->job.experts, parts = (size_t)mp_model_loss_parts(model);
    double tokens = (double)trainer->global_tokens, loss = mp_model_gate_loss(model);
    double counted =
        rule->loss_level == MP_BALANCE_BATCH ? tokens : (double)model->tokens / (double)parts;
    double weight = rule->loss_counts == MP_COUNT_NONE ? 0 : trainer->job.auxiliary_weight;
    counted *= rule->loss_divisor;
    float *auxiliary = trainer->auxiliary + (size_t)layer * parts * experts;
    for (size_t part = 0; part < parts; part++) {
        const float *mass =
            (const float *)(mp_model_part_statistics(model, (int)part) + 2 * experts);
        for (size_t e = 0; e < experts; e++) {
            double chosen = chosen_in(trainer, (int)part, (int)e);
            double slope = weight * (double)experts * (chosen / counted) / tokens;
            slope *= trainer->loss_factor ? trainer->loss_factor[e] : 1;
            auxiliary[part * experts + e] = (float)slope;
            loss += slope * mass[e];
        }
    }
    trainer->auxiliary_loss[layer] = loss;
    trainer->device->operations->copy(trainer->device, model->stream, model->state[layer].auxiliary,
                                      auxiliary, parts * experts * sizeof(float));
}

int mp_trainer_wait_counts(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    size_t experts = (size_t)trainer->job.experts, ranks = (size_t)trainer->comm->ranks;
    size_t counts = (size_t)mp_trainer_counts(trainer), chunks = counts - 2 * experts;
    struct mp_load *load = &trainer->load[layer];
    int code = mp_request_wait(trainer->gather, error);
    if (code)
        return code;
    for (size_t r = 0; r < ranks; r++) {
        const uint32_t *count = trainer->all_counts + r * counts;
        memcpy(load->count + r * (size_t)load->experts, count, experts * sizeof *count);
        memcpy(load->first + r * (size_t)load->experts, count + experts, experts * sizeof *count);
        if (chunks > 0)
            memcpy(trainer->distinct.chunk_routes + ((size_t)layer * ranks + r) * chunks,
                   count + 2 * experts, chunks * sizeof *count);
    }
    mp_load_repeat(load, (int)experts);
    mp_trainer_read_choices(trainer, layer);
    balance(trainer, layer);
    return MP_OK;
}

/* Experts with fewer routes than the mean become a little likelier, those with more less likely. */
static void move_bias(struct mp_trainer *trainer, int layer) {
    struct mp_model *model = &trainer->model;
    const struct mp_load *load = &trainer->load[layer];
    size_t experts = (size_t)trainer->job.experts;
    float *step = trainer->bias_step + (size_t)layer * experts;
    float rate = model->shape.gate.bias_rate;
    int64_t all = mp_load_total(load);
    for (size_t e = 0; e < experts; e++) {
        int64_t own = 0;
        for (int r = 0; r < load->ranks; r++)
            own += (int64_t)load->experts * mp_load_at(load, r, (int)e);
        step[e] = own < all ? rate : own > all ? -rate : 0;
    }
    const struct mp_device_operations *operations = trainer->device->operations;
    operations->copy(trainer->device, model->stream, model->state[layer].auxiliary, step,
                     experts * sizeof *step);
    operations->accumulate(trainer->device, model->stream, experts, model->state[layer].auxiliary,
                           mp_dense_block(&model->dense, model->dense.parameter, layer).gate_bias);
}

void mp_trainer_move_biases(struct mp_trainer *trainer) {
    for (int l = 0; l < trainer->job.layers && trainer->model.shape.gate.bias_rate > 0; l++)
        move_bias(trainer, l);
}

/* The experts in this rank's node: those with a holder there when the gate runs; how many. */
static int find_inside(struct mp_trainer *trainer, const struct mp_plan *plan) {
    const struct mp_topology *topology = &plan->topology;
    int node = trainer->comm->rank / topology->ranks_per_node, insiders = 0;
    int first = mp_topology_node_begin(topology, node), end = mp_topology_node_end(topology, node);
    for (int e = 0; e < plan->experts; e++) {
        int holder = mp_placement_next(&plan->during, e, first);
        trainer->inside[e] = holder >= 0 && holder < end;
        insiders += trainer->inside[e];
    }
    return insiders;
}

/* How many of this rank's tokens may leave its node, and which experts are in the node. */
static int limit_gate(struct mp_trainer *trainer, int layer, struct mp_gate_limit *limit,
                      struct mp_error *error) {
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    int insiders = find_inside(trainer, plan);
    const struct mp_gate_rule *rule = &trainer->model.shape.gate;
    if (trainer->model.shape.top_k != 2 || insiders < 2 || mp_gate_has_own_choices(rule))
        return mp_fail(error, MP_EPLAN,
                       "iteration %lld, layer %d: the plan limits outgoing tokens of gate %s, "
                       "top-%d, with %d experts in the node; it takes a top-2 gate that chooses by "
                       "scores alone, and 2 experts",
                       (long long)plan->iteration, layer, mp_gate_kinds[trainer->job.gate]->name,
                       trainer->model.shape.top_k, insiders);
    int64_t most = trainer->model.tokens;
    *limit = (struct mp_gate_limit){
        (int)(plan->policy->outgoing_limit < most ? plan->policy->outgoing_limit : most),
        trainer->inside};
    return MP_OK;
}

/* What a gate draws depends on seed, iteration, layer and the token's number among all, so that it
 * is the same on any number of ranks; its temperature falls in a line. */
static void set_draws(struct mp_trainer *trainer, int layer) {
    struct mp_gate_rule *rule = &trainer->model.shape.gate;
    uint64_t layers =
        mp_random_bits((uint64_t)trainer->job.seed, (uint64_t)trainer->iteration, (uint64_t)layer);
    double done = rule->anneal > 0 ? (double)trainer->iteration / (double)rule->anneal : 1;
    rule->seed = mp_random_bits(layers, 1, 0); /* 0 draws for routes: mp_model_route_seed */
    rule->first_token = (int64_t)trainer->comm->rank * trainer->model.tokens;
    rule->temperature = rule->hot + (rule->cold - rule->hot) * (float)(done < 1 ? done : 1);
}

int mp_trainer_gate(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    int experts = trainer->job.experts;
    struct mp_gate_limit limit = {0};
    const struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    bool limited = plan->policy->outgoing_limit >= 0;
    int code = limited ? limit_gate(trainer, layer, &limit, error) : MP_OK;
    if (plan->policy->pull > 0) { /* of replayed loads: a gate that learns has its loss */
        find_inside(trainer, plan);
        limit.inside = trainer->inside;
    }
    trainer->replay_limit = limit;
    set_draws(trainer, layer);
    if (!code && trainer->forced)
        code = mp_trainer_force_choices(trainer, layer, error);
    if (!code)
        mp_model_gate(&trainer->model, layer, trainer->forced,
                      limited && !trainer->forced ? &limit : NULL, trainer->counts,
                      trainer->counts + experts);
    if (!code && trainer->distinct.chunk_routes)
        mp_distinct_rows_count_chunks(&trainer->distinct, layer, trainer->counts + 2 * experts);
    return code;
}

static int end_plan(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    struct mp_model *model = &trainer->model;
    int code = mp_spans_pause(&trainer->spans, error);
    if (!code)
        code = mp_planner_end_layer(&trainer->planner, layer, &trainer->load[layer], error);
    if (!code)
        code = mp_spans_resume(&trainer->spans, error);
    if (trainer->distinct.chunk_routes)
        plan->chunk_routes = trainer->distinct.chunk_routes +
                             (size_t)layer * (size_t)trainer->comm->ranks *
                                 ((size_t)mp_trainer_counts(trainer) - 2 * (size_t)plan->experts);
    if (!code)
        code = mp_routing_build(plan, &trainer->load[layer], trainer->comm->rank,
                                &model->state[layer].routing, error);
    if (!code)
        code = mp_trainer_reserve_rows(trainer, layer, error);
    if (!code)
        code = mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, error);
    return code;
}

int mp_trainer_plan(struct mp_trainer *trainer, int layer, bool before_gate,
                    struct mp_error *error) {
    return before_gate ? mp_planner_begin_layer(&trainer->planner, trainer->iteration, layer, error)
                       : end_plan(trainer, layer, error);
}
