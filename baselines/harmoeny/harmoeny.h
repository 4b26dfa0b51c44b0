/* HarMoEny: the hottest experts of overloaded ranks, piece by piece to the least loaded ones
 * (arXiv 2506.12417; sacs-epfl/HarMoEny, src/harmonymoe/scheduler.py, schedule_harmony).
 *
 * Experts have fixed owners.  Once the gate has spoken, as long as a rank has more than the mean,
 * rounded down:
 *
 *   from       the rank with most routes, to the one with fewest; unless that would then have above
 *              the mean with `least` more
 *   expert     of the former's own the one that most of its routes are for, if these are `least`
 *   sources    who sends most of them first, until the one rank is not above the mean or the other
 *              one is at it; what moves of a source is limited by the latter alone
 *
 * so that a rank may end up below the mean by what its last source sent, and then take from others.
 * Ties go to the lower id.  Exact: nothing is dropped and no token changes its expert.
 *
 * The source serves inference: every rank has all experts in host memory and loads those it lacks
 * while it computes others.  Here a rank gets the experts that it lacks from their owners, for this
 * layer (after the gate: experts wait for them), and sends their gradients home.  Uneven numbers of
 * experts are our own.
 *
 * 256 experts on 32 ranks: about 110 us in all (moeperf-bench plan). */
#ifndef MOEPERF_BASELINES_HARMOENY_HARMOENY_H
#define MOEPERF_BASELINES_HARMOENY_HARMOENY_H

#include "reference/plan/owned.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_harmoeny;

/* Named in the option table of harmoeny.c. */
struct mp_harmoeny_options {
    int64_t least; /* q, fewest routes for which an expert moves */
};

/* Routes of a source to an expert that another rank than the owner computes. */
struct mp_harmoeny_move {
    int64_t routes;
    int32_t rank;
    int32_t next; /* of the same source and expert, an index, or -1 */
};

/* A decision for one layer, and what it is made with.  Nothing allocates after create. */
struct mp_harmoeny {
    int ranks, experts;
    uint32_t *kept; /* [ranks][experts], routes of a source that the owner computes */
    int32_t *first; /* [ranks][experts], index into move, or -1 */
    struct mp_harmoeny_move *move; /* [ranks * (experts + 1)] */
    int moves;
    int64_t *total;          /* [experts], routes that the owner computes */
    struct mp_owned owned;   /* with the routes that each rank computes */
    struct mp_queue sources; /* of an expert */
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_harmoeny_create(struct mp_arena *memory, int ranks, int experts, struct mp_harmoeny *state);

/* Decides; owner is [experts]. */
void mp_harmoeny_decide(struct mp_harmoeny *state, const struct mp_harmoeny_options *options,
                        const int32_t owner[], const struct mp_load *load);

#endif
