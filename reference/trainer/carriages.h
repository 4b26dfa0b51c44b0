/* Carriages: what a plan moves between ranks beside tokens, on its way: parameters of experts
 * (spAG, or put together from slices) and their gradients (spRS, sums shared between replicas,
 * slices). */
#ifndef MOEPERF_REFERENCE_TRAINER_CARRIAGES_H
#define MOEPERF_REFERENCE_TRAINER_CARRIAGES_H

#include "reference/trainer/slices.h"
#include "reference/trainer/spans.h"

/* Parameters or gradients of a layer's experts. */
struct mp_transfer_in_flight {
    struct mp_flight flight;
    struct mp_request *request[2]; /* [1]: NULL but where two stages travel; the caller's */
};

struct mp_carriages {
    struct mp_spans *spans; /* borrowed, as are all of slices' */
    struct mp_slices slices;
    /* One for each layer that they may be ahead, and that layer itself. */
    struct mp_transfer_in_flight fetch[MP_MOST_AHEAD + 1], refetch[MP_MOST_AHEAD + 1];
    struct mp_transfer_in_flight late_fetch, sums[MP_SUMS_ON_THEIR_WAY];
    void **prefetch_chunk, **reduce_chunk;        /* [E] where parameters come to, and gradients */
    float **prefetch_gradient, **reduce_gradient; /* [E] are */
};

/* With its slices.  Borrowed members are set.  MP_ENOMEM. */
int mp_carriages_create(struct mp_carriages *carriages, struct mp_arena *arena,
                        struct mp_error *error);

/* What of a layer is in the background lane, but for moves, homes and non-expert gradients. */
int mp_carriages_start(struct mp_carriages *carriages, const struct mp_operation *operation,
                       struct mp_error *error);
int mp_carriages_wait(struct mp_carriages *carriages, const struct mp_operation *operation,
                      struct mp_error *error);
/* Slices of a layer put together at its homes: after a step, and before the first. */
int mp_carriages_start_homes(struct mp_carriages *carriages, int layer, struct mp_error *error);
int mp_carriages_wait_homes(struct mp_carriages *carriages, int layer, struct mp_error *error);

#endif
