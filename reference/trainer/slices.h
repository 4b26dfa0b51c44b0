/* Slices: experts that are kept in slices, by all ranks or by their holders: parameters are put
 * together on holders, gradients taken apart again (SYMI, section 4; FSEP, LAER-MoE; ZeRO-1). */
#ifndef MOEPERF_REFERENCE_TRAINER_SLICES_H
#define MOEPERF_REFERENCE_TRAINER_SLICES_H

#include "reference/comm/comm.h"
#include "reference/model/block.h"
#include "reference/plan/planner.h"
#include "reference/schedule/schedule.h"

struct mp_slices {
    struct mp_comm *comm; /* borrowed, as are model and planner */
    struct mp_model *model;
    const struct mp_planner *planner;
    /* [most that a rank holds of a layer][keepers][slice] slices of holders' own gradients, as they
     * arrive; owned */
    float *arrivals[MP_SUMS_ON_THEIR_WAY];
    struct mp_transfer *list; /* [slices limit], and where each comes from and goes to */
    void **from, **to;
};

/* Room for every holder's share of every keeper, if the policy has slices, and twice for gradients,
 * of which two layers' may be on their way.  Borrowed members are set.  MP_ENOMEM. */
int mp_slices_create(struct mp_slices *slices, struct mp_arena *arena, struct mp_error *error);
void mp_slices_destroy(struct mp_slices *slices); /* accepts a zeroed one */

/* Starts putting together the parameters of `layer` that `placement` says on its holders; chunk
 * [experts] is this rank's memory for them, NULL where it holds none.  MP_ELIMIT. */
int mp_slices_gather_start(struct mp_slices *slices, const struct mp_placement *placement,
                           int layer, void *const chunk[], struct mp_request *request,
                           struct mp_error *error);
/* Starts sending gradients, which are at gradient [experts], to the ranks that keep their slices;
 * and adds them up once the request is done. */
int mp_slices_send_start(struct mp_slices *slices, const struct mp_plan *plan,
                         float *const gradient[], struct mp_request *request,
                         struct mp_error *error);
void mp_slices_sum(struct mp_slices *slices, const struct mp_plan *plan);

#endif
