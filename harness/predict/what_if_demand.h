/* Demands: what a system's plans for a recorded run's loads ask of every rank. */
#ifndef MOEPERF_HARNESS_PREDICT_WHAT_IF_DEMAND_H
#define MOEPERF_HARNESS_PREDICT_WHAT_IF_DEMAND_H

#include "harness/predict/what_if_steps.h"
#include "reference/plan/planner.h"
#include "results/store/store.h"

/* Of a rank in a layer. */
struct mp_demand {
    double routes;   /* computed */
    double rows;     /* sent or received, whichever are more */
    double bytes[2]; /* of copies: forward, and backward with their gradients */
    double early;    /* of forward's: asked for before the gate */
    bool pipelined;
    int calls, exchanges; /* of a pipelined exchange: of its experts, steps with rows */
    struct mp_stepped_seconds stepped[2]; /* of a pipelined exchange, if there were rates for it */
};

struct mp_demands {
    int iterations, layers, ranks;
    struct mp_demand *demand; /* [iterations][layers][ranks] */
    double *moved;            /* [iterations] most bytes of a rank after the step */
};
int mp_demands_create(int iterations, int layers, int ranks, struct mp_demands *demands,
                      struct mp_error *error);       /* MP_ENOMEM */
void mp_demands_destroy(struct mp_demands *demands); /* accepts a zeroed one */
static inline size_t mp_demands_count(const struct mp_demands *demands) {
    return (size_t)demands->iterations * (size_t)demands->layers * (size_t)demands->ranks;
}

/* A recorded run with its loads; all borrowed. */
struct mp_demand_run {
    const struct mp_recorded *recorded;
    struct mp_store *store;
    const char *database; /* for messages */
};
struct mp_trace_stream;
int mp_demand_loads(const struct mp_demand_run *run, struct mp_trace_stream **stream,
                    struct mp_error *error);

/* Plans all iterations that have loads, and notes what is asked in the steady ones.  `rates` give
 * steps their seconds; NULL: they get none.  MP_ENOTFOUND where loads are missing; errors of the
 * planner and of reading; MP_ENOMEM. */
int mp_demands_plan(struct mp_demands *demands, const struct mp_demand_run *run,
                    const struct mp_planner_config *config, const struct mp_other_rates *rates,
                    struct mp_error *error);

#endif
