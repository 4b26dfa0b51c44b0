/* Statistics of a trace: how uneven its loads are, layer by layer, and how fast they change.
 *
 * Measures are those of the view v_imbalance (results/store), of every block: a layer of a
 * micro-batch of an iteration.  Ranks have the experts that plain expert parallelism gives them,
 * E/R neighbours each (reference/plan/placement.h), where that divides.  A block without routes has
 * no measures. */
#pragma once

#include "harness/workload/trace.h"

enum mp_trace_measure {
    MP_EXPERT_MAX_OVER_MEAN,
    MP_RANK_MAX_OVER_MEAN, /* NAN where experts do not divide by ranks */
    MP_EFFECTIVE_EXPERTS,
    MP_DEAD_FRACTION,
    MP_TRACE_MEASURES
};

/* Iterations apart, as they are numbered. */
enum { MP_TRACE_LAGS = 3 };
extern const int mp_trace_lags[MP_TRACE_LAGS]; /* 1, 10, 100 */

struct mp_trace_statistics;

/* MP_ENOMEM. */
int mp_trace_statistics_create(const struct mp_trace_shape *shape,
                               struct mp_trace_statistics **statistics, struct mp_error *error);
void mp_trace_statistics_destroy(struct mp_trace_statistics *statistics); /* accepts NULL */
MP_END(statistics, struct mp_trace_statistics *, mp_trace_statistics_destroy(*it))

/* The next block of the trace, in its order.  MP_ENOMEM. */
int mp_trace_statistics_add(struct mp_trace_statistics *statistics,
                            const struct mp_trace_block *block, struct mp_error *error);

struct mp_trace_summary {
    int64_t blocks, empty; /* without routes */
    int64_t routes;
    int64_t iterations, first, last;  /* how many, and their numbers */
    double median[MP_TRACE_MEASURES]; /* over blocks, exact; NAN: there is none */
    double worst;                     /* MP_EXPERT_MAX_OVER_MEAN; NAN: there is none */
    struct mp_trace_place {
        int64_t iteration;
        int micro_batch, layer;
    } worst_at;
    /* Pearson's, over the experts of a layer, between their routes (micro-batches added up) in
     * iterations so far apart: mean over layers and pairs of iterations.  NAN: there is no pair, or
     * none in which both differ among experts. */
    double correlation[MP_TRACE_LAGS];
};
/* Of one layer; -1: of all.  MP_ENOMEM. */
int mp_trace_statistics_summarise(const struct mp_trace_statistics *statistics, int layer,
                                  struct mp_trace_summary *summary, struct mp_error *error);

/* How many blocks were added, and the measures of one. */
int64_t mp_trace_statistics_blocks(const struct mp_trace_statistics *statistics);
const double *mp_trace_statistics_block(const struct mp_trace_statistics *statistics, int64_t block,
                                        struct mp_trace_place *place);
