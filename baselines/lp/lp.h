/* LP: routes are split over fixed, overlapping replicas so that the largest load is least, every
 * step (FineEP of FineMoE, first called MicroEP of MicroMoE, arXiv 2511.16947; LPLB,
 * deepseek-ai/LPLB).
 *
 * Experts lie on several ranks for good.  Once the gate has spoken, a linear program says how many
 * routes of an expert each of its ranks computes:
 *
 *     minimise z,  sum over ranks of x[expert][rank] = routes of the expert,
 *                  sum over experts of x[expert][rank] <= z
 *
 * Nothing is copied, nothing dropped.  Replicas are tied: their gradients are summed, and all of
 * them make the same update.
 *   balance.c  the program: a pure function of one layer's holders and load
 *   place.c    which ranks hold which expert
 *   lp.c       options and the descriptor
 *
 * The sources solve the program in real numbers (FineEP by HiGHS on a processor, LPLB by an
 * interior-point method on a GPU) and round.  Here it is solved in whole routes, exactly: a flow
 * from ranks above a bound to ranks below it, along experts that both hold, and where none is left
 * the ranks reached say by how much the bound was too low, as their routes can't leave them.  So
 *
 *     z = max over sets of experts of ceil(their routes / ranks that hold any of them)
 *
 * Locality is FineEP's: given x, a rank's own routes fill its part first; then those of its node
 * do.  Among all optimal x ours starts from every route at the nearest replica and moves what has
 * to; the sources take what their solvers give.
 *
 * Placement:
 *   cyclic                of FineEP (symmetric, known at second hand: a Cayley graph).  Ours, of
 *                         the ranks as a cycle: the i-th expert of rank r lies on r and on the
 *                         ranks behind it by offsets that go on from expert to expert through 1 ..
 *                         R - 1, so that a rank shares experts with as many others as can be.
 *                         That it is planned anew "about every 50 iterations when predicted
 *                         useful" is not modelled: how is not known
 *   cube hypercube ring   of LPLB: the matrices of its tests, for every 8, 16, 8 neighbouring ranks
 *   torus                 likewise, of all ranks: the next one of the node, and that of the next
 *                         node
 * LPLB replicates the experts that were hottest on each rank, after EPLB gave every rank as many
 * experts without replicas; when, its user says (option interval).
 *
 * 256 experts on 32 ranks take about 130 us in all (moeperf-bench plan), 64 about 30; LPLB says 100
 * on a GPU. */
#pragma once

#include "reference/base/arena.h"
#include "reference/plan/pieces.h"
#include "reference/plan/system.h"

enum mp_lp_placement { MP_LP_CYCLIC, MP_LP_CUBE, MP_LP_HYPERCUBE, MP_LP_RING, MP_LP_TORUS };

/* Named in the option table of lp.c. */
struct mp_lp_options {
    int placement; /* enum mp_lp_placement */
    int replicas;  /* ranks of every expert, with placement cyclic */
    int redundant; /* experts of a rank that have a replica, with the others; MP_AUTO */
    int interval;  /* iterations between placements; 0: never */
    int window;    /* iterations averaged */
};

/* Experts of a rank that have replicas.  MP_EINVAL, with the numbers, if this placement can't be
 * had on these ranks. */
int mp_lp_replicated(const struct mp_lp_options *options, const struct mp_topology *topology,
                     int experts, int *replicated, struct mp_error *error);
/* Adds every replica to the owners that `home` holds already.  `place` [experts]: 0, 1, ... of the
 * experts of one owner. */
void mp_lp_add_replicas(const struct mp_lp_options *options, const struct mp_topology *topology,
                        int replicated, const int32_t place[], struct mp_placement *home);

/* A split for one layer, and what it is made with.  Nothing allocates after create. */
struct mp_lp {
    int ranks, experts;
    struct mp_pieces pieces; /* who computes how many routes of which expert, ranks ascending */
    int64_t most;            /* z: routes of the fullest rank */
    int64_t *load;           /* [ranks], routes that each rank computes */
    /* A pair is an expert on a rank that holds it; those of an expert are begin[expert] ..
     * begin[expert + 1] - 1, ranks ascending. */
    int32_t *begin;                  /* [experts + 1] */
    int32_t *rank, *expert;          /* [pairs] */
    int64_t *routes;                 /* [pairs], x */
    int32_t *first_pair, *next_pair; /* [ranks], [pairs], a rank's pairs, ending with -1 */
    int32_t *by_expert;              /* [experts], the pair by which it was reached, or -1 */
    int32_t *by_rank;                /* [ranks], likewise; -2: begun with */
    int32_t *reached;                /* [ranks] */
    int64_t *of_node, *total;        /* [nodes][experts], [experts], routes */
};
/* Pairs are at most INT32_MAX.  Tables are the arena's, whose user looks whether there was memory.
 */
void mp_lp_create(struct mp_arena *memory, const struct mp_topology *topology, int experts,
                  struct mp_lp *state);

/* Splits the load over those that hold its experts.  Deterministic.  MP_EPLAN for an expert that
 * nobody holds. */
int mp_lp_balance(struct mp_lp *state, const struct mp_topology *topology,
                  const struct mp_placement *holders, const struct mp_load *load,
                  struct mp_error *error);
