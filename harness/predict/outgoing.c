/* Loads as a gate leaves them that lets few tokens out of their node (policy.outgoing_limit), or
 * whose loss knows the topology (policy.pull); and those of experts that are cut into shards. */
#include <stdlib.h>
#include <string.h>

#include "harness/predict/engine.h"
#include "reference/model/replay.h"

int mp_predictor_create_copies(struct mp_predictor *predictor, struct mp_error *error) {
    int loads = predictor->layers * predictor->options.micro_batches, code = MP_OK;
    MP_TAKE(&predictor->memory, predictor->inside, predictor->experts);
    MP_TAKE(&predictor->memory, predictor->limited, loads);
    if (predictor->memory.lacking)
        return mp_arena_check(&predictor->memory, error);
    for (int i = 0; i < loads && !code; i++)
        code = mp_load_create(predictor->ranks, predictor->experts, &predictor->limited[i], error);
    return code;
}

void mp_predictor_destroy_copies(struct mp_predictor *predictor) {
    int loads = predictor->layers * predictor->options.micro_batches;
    for (int i = 0; predictor->limited && i < loads; i++)
        mp_load_destroy(&predictor->limited[i]);
}

const struct mp_load *mp_predictor_copy_loads(struct mp_predictor *predictor,
                                              const struct mp_load load[]) {
    int loads = predictor->layers * predictor->options.micro_batches;
    size_t experts = (size_t)predictor->job.experts;
    if (!predictor->limited)
        return load;
    for (int i = 0; i < loads; i++) {
        struct mp_load *copy = &predictor->limited[i];
        for (size_t r = 0; r < (size_t)predictor->ranks; r++)
            memcpy(copy->count + r * (size_t)copy->experts, load[i].count + r * experts,
                   experts * sizeof *copy->count);
        mp_load_repeat(copy, (int)experts);
    }
    return predictor->limited;
}

/* The experts with a holder in the node when the gate runs; how many. */
static int find_inside(struct mp_predictor *predictor, int node) {
    const struct mp_plan *plan = predictor->planner.plan;
    int begin = mp_topology_node_begin(&plan->topology, node), insiders = 0;
    int end = mp_topology_node_end(&plan->topology, node);
    for (int e = 0; e < predictor->experts; e++) {
        int holder = mp_placement_next(&plan->during, e, begin);
        predictor->inside[e] = holder >= 0 && holder < end;
        insiders += predictor->inside[e];
    }
    return insiders;
}

/* Of several micro-batches the sum changes with its parts. */
static void limit_row(struct mp_predictor *predictor, int layer, int rank) {
    const struct mp_plan *plan = predictor->planner.plan;
    size_t row = (size_t)rank * (size_t)predictor->experts;
    int number = predictor->micro_batch * predictor->layers + layer;
    uint32_t *count = predictor->limited[number].count + row;
    uint32_t *sum = predictor->sum ? predictor->sum[layer].count + row : NULL;
    for (int e = 0; sum && e < predictor->experts; e++)
        sum[e] -= count[e];
    if (plan->policy->outgoing_limit >= 0)
        mp_replay_limit(predictor->experts, predictor->inside, plan->policy->outgoing_limit, count);
    if (plan->policy->pull > 0) {
        int node = mp_topology_node(&plan->topology, rank);
        double share = mp_topology_share_inside(&plan->topology, node, plan->policy->outside_cost);
        mp_replay_pull(predictor->experts, predictor->inside, share, plan->policy->pull,
                       predictor->planner.setting.tokens_per_rank, count);
    }
    for (int e = 0; sum && e < predictor->experts; e++)
        sum[e] += count[e];
}

int mp_predictor_limit_gate(struct mp_predictor *predictor, int layer, struct mp_error *error) {
    const struct mp_plan *plan = predictor->planner.plan;
    const struct mp_topology *topology = &plan->topology;
    if ((plan->policy->outgoing_limit < 0 && !(plan->policy->pull > 0)) || !predictor->limited)
        return MP_OK;
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int insiders = find_inside(predictor, node);
        if (insiders < 2 && plan->policy->outgoing_limit >= 0)
            return mp_fail(error, MP_EPLAN,
                           "iteration %lld, layer %d: system %s limits how many tokens leave a "
                           "node, and node %d has %d experts for a token's two",
                           (long long)predictor->iteration, layer, predictor->planner.system->name,
                           node, insiders);
        for (int r = mp_topology_node_begin(topology, node);
             r < mp_topology_node_end(topology, node); r++)
            limit_row(predictor, layer, r);
    }
    return MP_OK;
}
