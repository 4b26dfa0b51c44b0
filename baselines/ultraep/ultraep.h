/* UltraEP: quotas for copies of hot experts, on the actual loads (arXiv 2606.04101, version 3;
 * Dots-Infra/UltraEP, 1.0.0, csrc/kernels/placement.cu).
 *
 * Experts have fixed owners.  Once the gate has spoken, in every layer and micro-batch, ranks above
 * a bound give routes to ranks of their node (NVLink domain) that are below it, with copies of the
 * experts in a few slots of every rank.  Exact: nothing is dropped and no token changes its expert.
 *
 *   a try     with one bound: the fullest rank first, its experts from the hottest on: each gives
 *             what its rank has too much to the rank of the node that has most room and a slot, as
 *             long as that gets the least quota, and keeps at least one route itself
 *   first     the bound is the mean of the node's ranks times (1 + tolerance), and up to twice a
 *             hundredth of the fullest rank more.  The least quota is then what the rank still has
 *             too much over how many could take some
 *   then      if all that failed, `least-quota` is, and the bound is searched: four at a time
 *             between the mean and the fullest rank.  What fails with one bound may do with a
 *             smaller one: the same four as the released kernel's are tried
 *   routes    a rank's own routes to its own copy first; the others where there is room.  (The
 *             source cuts each rank's in proportion, here they are cut in order: as many for every
 *             copy, from other sources)
 *
 * Copies lie in buffers that all layers share, and are fetched again for backward; gradients go
 * home.  Ties go to the lower id.  Means are taken in double precision (the source: single).  Ours
 * are uneven numbers of experts and nodes.
 *
 * 256 experts on 32 ranks: about 90 us in all (moeperf-bench plan). */
#ifndef MOEPERF_BASELINES_ULTRAEP_ULTRAEP_H
#define MOEPERF_BASELINES_ULTRAEP_ULTRAEP_H

#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_ultraep;

/* Named in the option table of ultraep.c. */
struct mp_ultraep_options {
    int redundant;       /* slots for copies of a layer's experts on every rank */
    double threshold;    /* bound over the mean from which on is searched, >= 1 */
    double tolerance;    /* that the first bounds have above it */
    int64_t least_quota; /* routes, of the bounds searched */
    bool empty_owners;   /* owners may give away all routes of an expert */
    bool locality;       /* a rank's own routes first to its own copy */
};

/* Routes of an expert that another rank computes. */
struct mp_ultraep_quota {
    int64_t routes;
    int32_t expert, rank;
};

/* A decision for one layer, and what it is made with.  Nothing allocates after create. */
struct mp_ultraep {
    int ranks, experts;
    struct mp_pieces pieces;        /* who computes how many routes of which expert, owners first */
    int64_t *total;                 /* [experts], less the quotas of ranks but the owner */
    int32_t *order;                 /* [experts], hottest first */
    struct mp_owned owned;          /* in that order */
    int32_t *copies;                /* [ranks] */
    struct mp_queue fullest, room;  /* ranks of a node */
    struct mp_ultraep_quota *quota; /* [experts + 2 * ranks], of the node */
    int quotas;
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_ultraep_create(struct mp_arena *memory, int ranks, int experts, struct mp_ultraep *state);

/* Decides on state->total, the routes of every expert over all sources, which the caller has filled
 * in and which is used up; owner is [experts]. */
int mp_ultraep_decide(struct mp_ultraep *state, const struct mp_ultraep_options *options,
                      const struct mp_topology *topology, const int32_t owner[],
                      struct mp_error *error);

#endif
