/* Steps: the rows of a pipelined exchange (plan.h), step by step, from one pass over a plan.
 *
 * Both directions and both ways of a layer take the same steps: what is worked out here in forward
 * serves until backward is through. */
#ifndef MOEPERF_HARNESS_PREDICT_STEPS_H
#define MOEPERF_HARNESS_PREDICT_STEPS_H

#include "harness/predict/cost.h"
#include "harness/predict/network.h"

/* Zeroed before first use; grows to what the largest plan needs, and never shrinks. */
struct mp_steps {
    int steps;                   /* ranks / group_size of the plan */
    bool late;                   /* a rank has own rows of copies that are fetched after the gate */
    bool *waits;                 /* [steps] has others' rows of such copies */
    struct mp_traffic **traffic; /* [steps] towards the experts */
    double *alone;               /* [steps][ranks] mp_network_alone of the step's traffic */
    /* Behind the last step are own rows of late copies, which never travel and are computed when
     * the copies are there.  [steps + 1][ranks] each. */
    double *expert[2]; /* seconds in experts by direction */
    int64_t *tokens;   /* rows */
    int steps_limit;   /* there is room for */
};

/* Working memory, zeroed before first use; one serves any number of steps. */
struct mp_steps_memory {
    int64_t *rows;  /* [places of plan.holder][steps + 1] */
    int32_t *group; /* [places] of the holder */
    bool *late;     /* [places] fetched after the gate */
    int64_t rows_limit, places_limit;
    uint32_t *row;    /* [ranks] rows of a source by destination; zero between sources */
    int32_t *touched; /* [ranks + 1] those that have some */
};

void mp_steps_destroy(struct mp_steps *steps); /* accepts a zeroed one */
void mp_steps_memory_destroy(struct mp_steps_memory *memory);

/* Fills steps from a plan with the exchange MP_EXCHANGE_PIPELINED, whose dispatch is written.
 * late: [experts][plan.during.words] bits of ranks whose copy is fetched after the gate; NULL: none
 * is.  MP_ENOMEM; then steps may only be filled again or destroyed. */
int mp_steps_fill(struct mp_steps *steps, struct mp_steps_memory *memory,
                  struct mp_network *network, struct mp_costs *costs, const struct mp_plan *plan,
                  const uint64_t *late, struct mp_error *error);

#endif
