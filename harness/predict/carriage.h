/* What plans move beside rows, as bytes between ranks and seconds of their streams.
 *
 * Experts travel along the hops of reference/schedule/hops.h; sums of gradients travel them
 * backwards. The time is that of the busiest port; pieces are taken to be small, so that filling a
 * chain costs its messages' latency alone.  With `gather: broadcasts` an expert that all ranks get
 * goes the ring of NCCL's broadcast, in the order of ranks; that of a machine may pass its nodes in
 * another. */
#pragma once

#include "harness/predict/cost.h"
#include "harness/predict/timeline.h"
#include "reference/plan/planner.h"
#include "reference/schedule/hops.h"

/* How gradients come to those who keep their sums (reference/trainer/transfers.c). */
enum { MP_SUM_COPIES, MP_SHARE_SUMS, MP_SEND_SLICES, MP_GRADIENT_STAGES };

/* What of a layer travels when its plan may be gone. */
struct mp_layer_carriages {
    struct mp_carriage prefetch, ahead, gradient[MP_GRADIENT_STAGES];
};

/* Copies of a plan that are fetched after the gate. */
struct mp_late_copies {
    bool any;
    int words;      /* of an expert's bits, as in placements */
    uint64_t *rank; /* [experts][words] bits of ranks (mp_plan_next_late) */
};
void mp_late_copies_mark(struct mp_late_copies *late, const struct mp_plan *plan);
bool mp_is_late(const struct mp_late_copies *late, int expert, int rank);

struct mp_carrier {
    /* Borrowed. */
    const struct mp_job *job;
    const struct mp_planner *planner;
    const struct mp_costs *costs;
    struct mp_network *network;
    int ranks;
    struct mp_carriage fetch, late_fetch; /* of the layer at hand */
    struct mp_carriage ahead;             /* what sets out before its layer is planned */
    struct mp_layer_carriages *layer;     /* [layers] */
    struct mp_late_copies late;           /* of the plan at hand */
    double bytes[MP_STAGES];              /* of this iteration's plans, all ranks */
    struct mp_traffic *traffic;           /* what was measured last; owned */
    /* Working memory. */
    const double *zero; /* [ranks] zeros */
    double *holds;      /* [ranks] experts of a layer that the rank holds */
    uint64_t *wanted;   /* [experts][words] ranks that a transfer list sends an expert to */
    uint64_t *entries;  /* [experts][words] those where it comes into their node */
    bool *listed;       /* [experts] has bits in `wanted` */
    int32_t *touched;   /* [experts] those that have */
    int touched_count;
    struct mp_receiver *receiver; /* [ranks] */
    struct mp_hop *hop;           /* [ranks] */
};

/* Of a carrier whose borrowed members and ranks are set; tables are the arena's.  MP_ENOMEM; then,
 * too, mp_traffic_destroy(carrier->traffic). */
int mp_carrier_create(struct mp_arena *memory, int experts, int layers, bool spans,
                      struct mp_carrier *carrier, struct mp_error *error);

/* What travels in this stage before the experts compute; a micro-batch is the iteration's `first`
 * or not. */
void mp_carrier_fetch(struct mp_carrier *carrier, enum mp_stage stage, bool first,
                      struct mp_carriage *carriage);
/* What follows from a complete plan: both fetches again for backward; and gradients, which are
 * summed copies, shared sums, slices.  A micro-batch is the iteration's `last` or not. */
void mp_carrier_gradients(struct mp_carrier *carrier, int layer, bool last);
/* Experts to new homes: in an exchange that all ranks wait for, or for the background.  State that
 * lies in host memory goes from host to host, and its parameters on to the device; or, if it moves
 * in the background, with the update, which comes before they are used. */
void mp_carrier_move(struct mp_carrier *carrier, struct mp_timeline *timeline);
void mp_carrier_moves(struct mp_carrier *carrier, struct mp_carriage *carriage);
/* Slices put together at a layer's homes, planned or not yet.  Returns all bytes, which don't count
 * among the iteration's. */
double mp_carrier_homes(struct mp_carrier *carrier, int layer, struct mp_carriage *carriage);

/* holds[r]: experts of the placement that rank r holds. */
void mp_count_held(const struct mp_placement *placement, double holds[]);
