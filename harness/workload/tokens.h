/* What the experts of tokens say beside loads: how well a token's next experts can be told from its
 * present ones, and on how many ranks its experts are.  Of traces that have them. */
#pragma once

#include "harness/workload/trace.h"

/* Of a layer, over all iterations.  Transitions are those of reference/plan/load.h, from the layer
 * before to this one, each counted alike; NAN where there are none, as in the first layer.  Ranks
 * are those where plain expert parallelism has the experts. */
struct mp_token_summary {
    double most; /* share of transitions to the expert most frequent after the present */
    double
        most_independent; /* share of the most frequent expert: what is told without the present */
    double information;   /* bits that the present expert tells of the next (mutual information) */
    double entropy;       /* bits of the next expert: what is to be told */
    double ranks;         /* means of a token; NAN where ranks don't divide experts */
    double ranks_independent; /* as counts alone let one think (reference/plan/distinct.h) */
};

struct mp_token_statistics;
/* The shape's top_k is known.  MP_ENOMEM. */
int mp_token_statistics_create(const struct mp_trace_shape *shape,
                               struct mp_token_statistics **statistics, struct mp_error *error);
void mp_token_statistics_destroy(struct mp_token_statistics *statistics); /* accepts NULL */
MP_END(token_statistics, struct mp_token_statistics *, mp_token_statistics_destroy(*it))
/* The trace's next block, which has routes.  MP_ENOMEM. */
int mp_token_statistics_add(struct mp_token_statistics *statistics,
                            const struct mp_trace_block *block, struct mp_error *error);
void mp_token_statistics_summarise(const struct mp_token_statistics *statistics, int layer,
                                   struct mp_token_summary *summary);

/* [experts][experts]: transitions from an expert of the layer before to one of this layer, over all
 * iterations; NULL for the first layer. */
const uint64_t *mp_token_statistics_transitions(const struct mp_token_statistics *statistics,
                                                int layer);
