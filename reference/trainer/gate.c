/* A layer's gate, and the plan made of the loads that all ranks have learnt of. */
#include "reference/base/random.h"
#include "reference/trainer/internal.h"

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
    if (limited)
        MP_TRY(limit_gate(trainer, layer, &limit, error));
    if (plan->policy->pull > 0) { /* of replayed loads: a gate that learns has its loss */
        find_inside(trainer, plan);
        limit.inside = trainer->inside;
    }
    set_draws(trainer, layer);
    const int32_t *forced = trainer->forced.choice;
    uint32_t *counts = trainer->counts.own;
    if (forced)
        MP_TRY(mp_forced_choose(&trainer->forced, trainer->iteration, layer, plan, &limit,
                                trainer->batch.token_now, error));
    mp_model_gate(&trainer->model, layer, forced, limited && !forced ? &limit : NULL, counts,
                  counts + experts);
    if (trainer->distinct.chunk_routes)
        mp_distinct_rows_count_chunks(&trainer->distinct, layer, counts + 2 * experts);
    return MP_OK;
}

int mp_trainer_agree(struct mp_trainer *trainer, uint64_t digest, const char *what,
                     struct mp_error *error) {
    const double own = (double)(digest >> 12); /* with all its bits */
    double ends[] = {own, -own};
    MP_TRY(mp_comm_maximum(trainer->comm, ends, 2, error));
    if (ends[0] == -ends[1])
        return MP_OK;
    return mp_fail(error, MP_EPLAN,
                   "iteration %lld: ranks have different %s: a hook of system %s decides by "
                   "something else than its arguments and the seed",
                   (long long)trainer->iteration, what, trainer->planner.system->name);
}

static int end_plan(struct mp_trainer *trainer, int layer, struct mp_error *error) {
    struct mp_plan *plan = mp_planner_plan(&trainer->planner, layer);
    struct mp_model *model = &trainer->model;
    MP_TRY(mp_spans_pause(&trainer->spans, error));
    MP_TRY(mp_planner_end_layer(&trainer->planner, layer, &trainer->load[layer], error));
    if (trainer->job.check_plans)
        MP_TRY(mp_trainer_agree(trainer, mp_plan_digest(plan), "plans", error));
    MP_TRY(mp_spans_resume(&trainer->spans, error));
    plan->chunk_routes = mp_distinct_rows_chunks(&trainer->distinct, layer);
    MP_TRY(mp_routing_build(plan, &trainer->load[layer], trainer->comm->rank,
                            &model->state[layer].routing, error));
    MP_TRY(mp_trainer_reserve_rows(trainer, layer, error));
    return mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, error);
}

int mp_trainer_plan(struct mp_trainer *trainer, int layer, bool before_gate,
                    struct mp_error *error) {
    return before_gate ? mp_planner_begin_layer(&trainer->planner, trainer->iteration, layer, error)
                       : end_plan(trainer, layer, error);
}
