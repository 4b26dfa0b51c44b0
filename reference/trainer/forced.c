#include "reference/trainer/forced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/model/replay.h"

/* This rank's part of the trace. */
static int read_trace(struct mp_forced *forced, struct mp_error *error) {
    const struct mp_job *job = forced->job;
    const struct mp_loads_shape shape = {.sources = job->ranks,
                                         .experts = job->experts,
                                         .layers = job->layers,
                                         .top_k = forced->model->shape.top_k,
                                         .tokens = forced->model->tokens,
                                         .fewer = mp_job_takes_fewer(job)};
    char digest[16];
    if (!*job->trace_loads)
        return mp_fail(error, MP_EINVAL,
                       "trace-loads: not given; moeperf run makes this file from a suite's trace");
    int code = mp_loads_read(job->trace_loads, &shape, forced->rank, &forced->loads, error);
    snprintf(digest, sizeof digest, "%08x", forced->loads.digest);
    if (!code && *job->trace_digest && strcmp(digest, job->trace_digest) != 0)
        code = mp_fail(error, MP_EINVAL, "%s: has loads of trace %s, the job's trace-digest is %s",
                       job->trace_loads, digest, job->trace_digest);
    return code;
}

static size_t routes_of(const struct mp_forced *forced) {
    return (size_t)forced->model->tokens * (size_t)forced->model->shape.top_k;
}

/* The same loads in all layers and iterations. */
static int repeat_loads(struct mp_forced *forced, struct mp_error *error) {
    struct mp_loads *loads = &forced->loads;
    const struct mp_job *job = forced->job;
    size_t experts = (size_t)job->experts;
    *loads = (struct mp_loads){1, job->experts, job->layers, 1, 0, NULL};
    MP_TRY(MP_NEW(loads->count, (size_t)job->layers * experts, error));
    for (int l = 0; l < job->layers; l++)
        MP_TRY(mp_job_replay(job, forced->rank, (int64_t)routes_of(forced),
                             loads->count + (size_t)l * experts, error));
    return MP_OK;
}

int mp_forced_create(struct mp_forced *forced, struct mp_arena *arena, struct mp_error *error) {
    static const struct mp_gate_limit none = {0};
    const struct mp_job *job = forced->job;
    struct mp_device_memory *memory = &forced->model->memory;
    bool replayed = job->routing != MP_ROUTING_GATE;
    if (!replayed && !mp_gate_kinds[job->gate]->choose)
        return MP_OK;
    MP_TAKE(arena, forced->limited, job->experts);
    forced->choice =
        mp_device_take_host(memory, (int64_t)routes_of(forced), sizeof *forced->choice);
    if (!forced->choice || !forced->limited)
        return mp_fail(error, MP_ENOMEM, "no memory for the choices of %zu routes",
                       routes_of(forced));
    if (!replayed)
        return MP_OK;
    MP_TRY(job->routing == MP_ROUTING_TRACE ? read_trace(forced, error)
                                            : repeat_loads(forced, error));
    return mp_forced_choose(forced, 0, 0, NULL, &none, NULL, error);
}

void mp_forced_destroy(struct mp_forced *forced) {
    mp_loads_destroy(&forced->loads);
}

/* What is replayed of a source here, as a gate with the plan's limit would leave it. */
static const uint32_t *replayed_row(struct mp_forced *forced, const uint32_t *row,
                                    const struct mp_plan *plan, const struct mp_gate_limit *limit) {
    const struct mp_loads *loads = &forced->loads;
    if (!limit->inside)
        return row;
    memcpy(forced->limited, row, (size_t)loads->experts * sizeof *row);
    if (plan->policy->pull > 0) {
        int node = mp_topology_node(&plan->topology, forced->rank);
        mp_replay_pull(loads->experts, limit->inside,
                       mp_topology_share_inside(&plan->topology, node, plan->policy->outside_cost),
                       plan->policy->pull, forced->model->tokens / loads->sources, forced->limited);
    } else {
        mp_replay_limit(loads->experts, limit->inside, limit->tokens / loads->sources,
                        forced->limited);
    }
    return forced->limited;
}

int mp_forced_choose(struct mp_forced *forced, int64_t iteration, int layer,
                     const struct mp_plan *plan, const struct mp_gate_limit *limit,
                     const int32_t *token, struct mp_error *error) {
    const struct mp_job *job = forced->job;
    const struct mp_loads *loads = &forced->loads;
    uint64_t turn = (uint64_t)iteration * 131 + (uint64_t)layer * 17;
    int top_k = forced->model->shape.top_k, tokens = forced->model->tokens;
    if (job->routing == MP_ROUTING_GATE) {
        const struct mp_gate_sizes sizes = mp_job_gate_sizes(job);
        mp_gate_kinds[job->gate]->choose(&sizes, job->gate_options.bytes, layer, tokens, token,
                                         forced->choice);
        return MP_OK;
    }
    tokens /= loads->sources;
    for (int s = 0; s < loads->sources; s++) {
        const uint32_t *row = mp_loads_row(loads, iteration, layer, s);
        MP_TRY(mp_replay_choices(
            tokens, top_k, job->experts, replayed_row(forced, row, plan, limit), turn,
            forced->choice + (size_t)s * (size_t)tokens * (size_t)top_k, error));
    }
    return MP_OK;
}
