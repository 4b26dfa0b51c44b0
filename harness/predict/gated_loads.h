/* The loads of a predicted iteration: as they are given; as they stand where experts are cut into
 * shards, or where plans change what the gate chooses (policy.outgoing_limit, policy.pull); and as
 * the system learns from them. */
#pragma once

#include "reference/plan/planner.h"

struct mp_gated_loads {
    int ranks, layers, micro_batches;
    int chosen;  /* experts that the gate chooses from */
    int experts; /* of plans: each a shard, if they are cut */
    /* Of the iteration, [micro_batches][layers]. */
    const struct mp_load *given;   /* borrowed */
    const struct mp_load *current; /* those, or copies that change with plans, layer by layer */
    const struct mp_load *sum;     /* [layers] of `current` over micro-batches */
    /* The arena's: copies, and sums of several micro-batches; NULL where there is no need. */
    struct mp_load *copy, *sums;
    bool *inside; /* [experts] working memory */
    /* For systems that look at transitions, else NULL: sums with them [layers], what they are
     * [layers - 1][experts][experts], and working memory [2][experts]. */
    struct mp_load *told;
    uint32_t *transitions;
    int64_t *totals;
};

/* Of loads whose numbers are set; tables are the arena's.  MP_ENOMEM; MP_ELIMIT for more
 * transitions than are summed. */
int mp_gated_loads_create(struct mp_arena *memory, bool copies, bool transitions,
                          struct mp_gated_loads *loads, struct mp_error *error);

/* An iteration begins, which messages give this number.  given is borrowed until the next one.
 * MP_EINVAL for loads of another shape. */
int mp_gated_loads_begin(struct mp_gated_loads *loads, const struct mp_load given[], int64_t number,
                         struct mp_error *error);

static inline const struct mp_load *mp_gated_load(const struct mp_gated_loads *loads,
                                                  int micro_batch, int layer) {
    return &loads->current[micro_batch * loads->layers + layer];
}

/* Whether plans of such a policy, whose shards are none then, change them. */
static inline bool mp_gated_loads_change(const struct mp_gated_loads *loads,
                                         const struct mp_policy *policy) {
    return loads->copy && mp_policy_changes_gate(policy);
}

/* Keeps the limits of the plan that is begun, if it has some, in its layer's loads, by
 * mp_replay_limit and mp_replay_pull.  MP_EPLAN for a node with fewer than 2 experts. */
int mp_gated_loads_limit(struct mp_gated_loads *loads, const struct mp_planner *planner,
                         int micro_batch, struct mp_error *error);

/* What the system learns from, [layers]: the sums, with transitions where it looks at them: of
 * tokens whose experts the loads have, or of layers taken for independent.  `tokens`: of all ranks,
 * of a micro-batch. */
const struct mp_load *mp_gated_loads_learnt(struct mp_gated_loads *loads, int64_t tokens);
/* Bytes of transitions that all ranks sum for that, a double each as in the trainer; 0: none. */
double mp_gated_loads_summed_bytes(const struct mp_gated_loads *loads);
