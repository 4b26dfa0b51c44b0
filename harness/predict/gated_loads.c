#include "harness/predict/gated_loads.h"

#include <limits.h>
#include <string.h>

#include "reference/model/replay.h"
#include "reference/plan/routes.h"

/* ---- tables ---- */

/* Of one layer to the next. */
static size_t cells_of(const struct mp_gated_loads *loads) {
    return (size_t)loads->experts * (size_t)loads->experts;
}

static int create_transitions(struct mp_arena *memory, struct mp_gated_loads *loads,
                              struct mp_error *error) {
    size_t all = ((size_t)loads->layers - 1) * cells_of(loads);
    if (all > INT_MAX)
        return mp_fail(error, MP_ELIMIT,
                       "%zu transitions between %d experts of %d layers; at most %d are summed",
                       all, loads->experts, loads->layers, INT_MAX);
    MP_TAKE(memory, loads->told, loads->layers);
    MP_TAKE(memory, loads->transitions, all + 1);
    MP_TAKE(memory, loads->totals, 2 * loads->experts);
    return MP_OK;
}

int mp_gated_loads_create(struct mp_arena *memory, bool copies, bool transitions,
                          struct mp_gated_loads *loads, struct mp_error *error) {
    if (transitions)
        MP_TRY(create_transitions(memory, loads, error));
    MP_TAKE(memory, loads->inside, loads->experts);
    if (copies)
        loads->copy = mp_loads_take(memory, loads->layers * loads->micro_batches, loads->ranks,
                                    loads->experts);
    if (loads->micro_batches > 1)
        loads->sums = mp_loads_take(memory, loads->layers, loads->ranks, loads->experts);
    return mp_arena_check(memory, error);
}

/* ---- an iteration ---- */

static int check(const struct mp_gated_loads *loads, const struct mp_load load[], int64_t number,
                 struct mp_error *error) {
    for (int i = 0; i < loads->layers * loads->micro_batches; i++)
        if (load[i].ranks != loads->ranks || load[i].experts != loads->chosen)
            return mp_fail(error, MP_EINVAL,
                           "iteration %lld, micro-batch %d, layer %d: loads of %d ranks and %d "
                           "experts, the job has %d and %d",
                           (long long)number, i / loads->layers, i % loads->layers, load[i].ranks,
                           load[i].experts, loads->ranks, loads->chosen);
    return MP_OK;
}

static void copy(struct mp_load *to, const struct mp_load *from) {
    size_t experts = (size_t)from->experts;
    for (size_t r = 0; r < (size_t)from->ranks; r++)
        memcpy(to->count + r * (size_t)to->experts, from->count + r * experts,
               experts * sizeof *to->count);
    mp_load_repeat(to, from->experts);
}

static void add_up(struct mp_gated_loads *loads) {
    for (int l = 0; l < loads->layers; l++) {
        struct mp_load *sum = &loads->sums[l];
        mp_load_copy(sum, mp_gated_load(loads, 0, l));
        for (int m = 1; m < loads->micro_batches; m++)
            for (int64_t i = 0; i < (int64_t)sum->ranks * sum->experts; i++)
                sum->count[i] += mp_gated_load(loads, m, l)->count[i];
    }
}

int mp_gated_loads_begin(struct mp_gated_loads *loads, const struct mp_load given[], int64_t number,
                         struct mp_error *error) {
    MP_TRY(check(loads, given, number, error));
    for (int i = 0; loads->copy && i < loads->layers * loads->micro_batches; i++)
        copy(&loads->copy[i], &given[i]);
    loads->given = given;
    loads->current = loads->copy ? loads->copy : given;
    if (loads->sums)
        add_up(loads);
    loads->sum = loads->sums ? loads->sums : loads->current;
    return MP_OK;
}

/* ---- gates that let few tokens out of their node, or are drawn into it ---- */

/* The experts with a holder in the node when the gate runs; how many. */
static int find_inside(struct mp_gated_loads *loads, const struct mp_plan *plan, int node) {
    int begin = mp_topology_node_begin(&plan->topology, node), insiders = 0;
    int end = mp_topology_node_end(&plan->topology, node);
    for (int e = 0; e < loads->experts; e++) {
        int holder = mp_placement_next(&plan->during, e, begin);
        loads->inside[e] = holder >= 0 && holder < end;
        insiders += loads->inside[e];
    }
    return insiders;
}

/* Of several micro-batches the sum changes with its parts. */
static void limit_row(struct mp_gated_loads *loads, const struct mp_planner *planner,
                      int micro_batch, int rank) {
    const struct mp_plan *plan = planner->plan;
    size_t row = (size_t)rank * (size_t)loads->experts;
    uint32_t *count = loads->copy[micro_batch * loads->layers + plan->layer].count + row;
    uint32_t *sum = loads->sums ? loads->sums[plan->layer].count + row : NULL;
    for (int e = 0; sum && e < loads->experts; e++)
        sum[e] -= count[e];
    if (plan->policy->outgoing_limit >= 0)
        mp_replay_limit(loads->experts, loads->inside, plan->policy->outgoing_limit, count);
    if (plan->policy->pull > 0) {
        int node = mp_topology_node(&plan->topology, rank);
        double share = mp_topology_share_inside(&plan->topology, node, plan->policy->outside_cost);
        mp_replay_pull(loads->experts, loads->inside, share, plan->policy->pull,
                       planner->setting.tokens_per_rank, count);
    }
    for (int e = 0; sum && e < loads->experts; e++)
        sum[e] += count[e];
}

int mp_gated_loads_limit(struct mp_gated_loads *loads, const struct mp_planner *planner,
                         int micro_batch, struct mp_error *error) {
    const struct mp_plan *plan = planner->plan;
    const struct mp_topology *topology = &plan->topology;
    if (!mp_gated_loads_change(loads, plan->policy))
        return MP_OK;
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int insiders = find_inside(loads, plan, node);
        if (insiders < 2 && plan->policy->outgoing_limit >= 0)
            return mp_fail(error, MP_EPLAN,
                           "iteration %lld, layer %d: system %s limits how many tokens leave a "
                           "node, and node %d has %d experts for a token's two",
                           (long long)plan->iteration, plan->layer, planner->system->name, node,
                           insiders);
        for (int r = mp_topology_node_begin(topology, node);
             r < mp_topology_node_end(topology, node); r++)
            limit_row(loads, planner, micro_batch, r);
    }
    return MP_OK;
}

/* ---- what the system learns from ---- */

const struct mp_load *mp_gated_loads_learnt(struct mp_gated_loads *loads, int64_t tokens) {
    int layers = loads->layers;
    size_t cells = cells_of(loads);
    if (!loads->told)
        return loads->sum;
    memset(loads->transitions, 0, (size_t)(layers - 1) * cells * sizeof *loads->transitions);
    for (int l = 0; l < layers; l++) {
        loads->told[l] = loads->sum[l];
        loads->told[l].next = l + 1 < layers ? loads->transitions + (size_t)l * cells : NULL;
    }
    for (int m = 0; m < loads->micro_batches; m++)
        for (int l = 0; l + 1 < layers; l++)
            mp_load_transitions(mp_gated_load(loads, m, l), mp_gated_load(loads, m, l + 1), tokens,
                                loads->totals, loads->told[l].next);
    return loads->told;
}

double mp_gated_loads_summed_bytes(const struct mp_gated_loads *loads) {
    size_t between = (size_t)loads->layers - 1;
    return loads->told ? (double)(between * cells_of(loads)) * sizeof(double) : 0;
}
