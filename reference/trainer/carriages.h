/* Carriages: what a plan moves between ranks beside tokens, on its way: parameters of experts
 * (spAG, or put together from slices) and their gradients (spRS, sums shared between replicas,
 * slices). */
#pragma once

#include "reference/model/block.h"
#include "reference/plan/planner.h"
#include "reference/schedule/schedule.h"
#include "reference/trainer/spans.h"

/* Parameters or gradients of a layer's experts. */
struct mp_transfer_in_flight {
    struct mp_flight flight;
    struct mp_request *request[2]; /* [1]: NULL but where two stages travel; the caller's */
};

struct mp_carriages {
    struct mp_spans *spans; /* borrowed, as are the others down to the planner */
    struct mp_comm *comm;
    struct mp_model *model;
    const struct mp_planner *planner;
    /* One for each layer that they may be ahead, and that layer itself. */
    struct mp_transfer_in_flight fetch[MP_MOST_AHEAD + 1], refetch[MP_MOST_AHEAD + 1];
    struct mp_transfer_in_flight late_fetch, sums[MP_SUMS_ON_THEIR_WAY];
    struct mp_transfer_in_flight *ahead;   /* [layers], or NULL without policy.updates_early */
    void **prefetch_chunk, **reduce_chunk; /* [E] where parameters come to, and gradients */
    float **prefetch_gradient, **reduce_gradient; /* [E] are */

    /* Of slices, if the policy has them: [most that a rank holds of a layer][keepers][slice] of
     * holders' own gradients, as they arrive; of which two layers' may be on their way. */
    float *arrivals[MP_SUMS_ON_THEIR_WAY];
    struct mp_transfer *list; /* [slices limit], and where each comes from and goes to */
    void **from, **to;
};

/* Borrowed members are set.  MP_ENOMEM. */
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

/* ---- slices.c: experts that are kept in slices, by all ranks or by their holders: parameters are
 * put together on holders, gradients taken apart again (SYMI, section 4; FSEP, LAER-MoE; ZeRO-1)
 * ---- */
int mp_slices_create(struct mp_carriages *carriages, struct mp_arena *arena,
                     struct mp_error *error);
/* Starts putting together the parameters of `layer` that `placement` says on its holders; chunk
 * [experts] is this rank's memory for them, NULL where it holds none.  MP_ELIMIT. */
int mp_slices_gather_start(struct mp_carriages *carriages, const struct mp_placement *placement,
                           int layer, void *const chunk[], struct mp_request *request,
                           struct mp_error *error);
/* Starts sending gradients, which are at gradient [experts], to the ranks that keep their slices;
 * and adds them up once the request is done. */
int mp_slices_send_start(struct mp_carriages *carriages, const struct mp_plan *plan,
                         float *const gradient[], struct mp_request *request,
                         struct mp_error *error);
void mp_slices_sum(struct mp_carriages *carriages, const struct mp_plan *plan);
