/* Steps: the rows of a layer's exchange, step by step, from one pass over a plan.  A flat exchange
 * is one step, or one for each chunk that the plan's degree cuts rows into.
 *
 * The rows of a step travel in one go, or in rounds.  A rank begins a round when its part of the
 * one before is over, so that ranks that are hot in different rounds hold all others up one after
 * the other.  Either the exchange has rounds, of which each that needs rows in another order has
 * one before it, in which ranks copy what they have; on the way back all of them come the other way
 * round.  Or in round i travel rows for the i-th of each rank's experts, by number.  Source of the
 * latter: FastMoE and FasterMoE, whose exchanges are one group of sends and receives per local
 * expert.
 *
 * Both directions and both ways of a layer take the same steps: what is worked out here in forward
 * serves until backward is through. */
#pragma once

#include "harness/predict/cost.h"
#include "harness/predict/network.h"
#include "reference/plan/distinct.h"

/* With rows of tokens travel, beside them, places and weights of their routes in forward, and back
 * in backward the weights' gradients; all else alone.  In this order. */
enum { MP_TRIP_FORTH, MP_TRIP_ALONE, MP_TRIP_BACK, MP_TRIPS };

/* Zeroed before first use; grows to what the largest plan needs, and never shrinks. */
struct mp_steps {
    int steps;                   /* mp_plan_steps of the plan */
    int rounds;                  /* of each; 1: in one go */
    int hops;                    /* those that a block takes: one, or all of them */
    int trips;                   /* that have traffic of their own: 1, or MP_TRIPS */
    struct mp_traffic **traffic; /* [trips][steps][rounds] towards the experts */
    double *alone; /* [steps][ranks] mp_network_alone of the step's traffic, all rounds together */
    /* Behind the last step are own rows of late copies, which never travel and are computed when
     * the copies are there.  [steps + 1][ranks] each, padding included: */
    double *expert[2]; /* seconds in experts by direction */
    int64_t *rows;
    int64_t *sent;                  /* [ranks] rows of a source, */
    int64_t *own;                   /* and of these that stay */
    int steps_limit, traffic_limit; /* there is room for */
    size_t bytes;                   /* of memory, all in all */
    struct mp_arena tables;
};

/* Working memory, zeroed before first use; one serves any number of steps. */
struct mp_steps_memory {
    int64_t *rows;  /* [steps + 1][places of plan.holder], of sources in each group of ranks, or in
                       each chunk; behind them own rows of late copies */
    bool *late;     /* [places] */
    int32_t *round; /* [places] in which its rows travel, if there are several */
    int64_t rows_limit, places_limit;
    uint32_t *row;     /* [ranks] rows of a source by destination; zero between sources */
    int32_t *receiver; /* [ranks] those that have some */
    struct mp_arena tables;
};

void mp_steps_destroy(struct mp_steps *steps); /* accepts a zeroed one */
void mp_steps_memory_destroy(struct mp_steps_memory *memory);

/* Fills steps from a plan whose dispatch is written.  late: [experts][plan.during.words] bits of
 * ranks with a late copy (mp_plan_next_late); NULL: there are none.  by_expert: in rounds.
 * distinct: mp_distinct_tokens, of an exchange that deduplicates; otherwise not read.
 * MP_EINVAL (by_expert of an exchange that has rounds), MP_ENOMEM; then steps may only be filled
 * again or destroyed. */
int mp_steps_fill(struct mp_steps *steps, struct mp_steps_memory *memory,
                  struct mp_network *network, struct mp_costs *costs, const struct mp_plan *plan,
                  const uint64_t *late, bool by_expert, const double distinct[],
                  struct mp_error *error);
