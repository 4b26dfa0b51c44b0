/* LLEP: least-loaded expert parallelism (arXiv 2601.17111; SalesforceAIResearch/LeastLoadedEP).
 *
 * Experts have fixed owners.  Once the gate has spoken, and only if loads are skewed enough, the
 * experts that their owners can't compute within a cap spill routes to the least loaded ranks,
 * which get the parameters for this layer and send their gradients home.  Exact: nothing is dropped
 * and no token changes its expert.
 *
 * The source is known at second hand; where it is silent:
 *   trigger   largest over mean load of the experts, as in the paper; a port takes that of ranks
 *   cap       alpha * total / ranks rounded up, so that with alpha 1 there is room for everything
 *   order     experts by load, largest first, ties by lower id; helpers by what they have plus what
 *             their owners' experts not looked at yet will bring, ties by lower id
 *   room      of an owner: cap less what it has; of a helper: that less what is to come
 *   minimum   a piece below the smallest GEMM is not made: as the least loaded helper gets the
 *             largest piece, the search ends there and the rest stays with the owner, above the cap
 *   routes    an expert's routes, source after source, are cut where pieces end: the owner's first,
 *             then the helpers' in the order in which they were found
 * Any number of experts and ranks will do; that is our own, as is a limit of copies. */
#ifndef MOEPERF_BASELINES_LLEP_LLEP_H
#define MOEPERF_BASELINES_LLEP_LLEP_H

#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_llep;

enum mp_llep_trigger { MP_LLEP_PER_EXPERT, MP_LLEP_PER_RANK };

/* Named in the option table of llep.c. */
struct mp_llep_options {
    int trigger;           /* enum mp_llep_trigger */
    double threshold;      /* lambda, largest over mean load, from which on routes are spilled */
    double alpha;          /* cap of a rank over the mean load of ranks */
    int64_t smallest_gemm; /* m, fewest routes that are spilled to one helper */
    int copies;            /* most foreign experts of a layer on a rank, or MP_ALL */
};

/* A decision for one layer, and what it is made with.  Nothing allocates after create. */
struct mp_llep {
    int ranks, experts;
    struct mp_pieces pieces; /* who computes how many routes of which expert; filled if active */
    bool active;             /* loads were skewed enough */
    int64_t cap;             /* routes of a rank; helpers never get more */
    int64_t *load;           /* [ranks], routes that each rank computes; filled if active */
    struct mp_owned owned;
    int64_t *total;          /* [experts] */
    int32_t *order;          /* [experts], working memory as below */
    int32_t *foreign;        /* [ranks], experts of others on each rank */
    struct mp_queue helpers; /* ranks with room, by it */
};
/* Tables are the arena's, whose user looks whether there was memory. */
void mp_llep_create(struct mp_arena *memory, int ranks, int experts, struct mp_llep *state);

/* Decides on state->total, the routes of every expert over all sources, which the caller has filled
 * in; owner is [experts].  No rank gets more than `copies` foreign experts.  Takes
 * O((experts + ranks) log (experts + ranks)). */
int mp_llep_decide(struct mp_llep *state, const struct mp_llep_options *options,
                   const int32_t owner[], int copies, struct mp_error *error);

#endif
