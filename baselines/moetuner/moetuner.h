/* MoETuner (arXiv 2502.06643): experts placed by two integer programs over a window
 * of observed loads and transitions.
 *   clusters.c       ILP 1: a layer's experts in clusters of even load, one for each rank
 *   links.c          ILP 2: clusters on ranks so that what goes on from layer to layer crosses few
 *   links_program.c  slow links; its program
 *   moetuner.c       the window, options and the descriptor
 *
 * The source profiles a run, solves both with Gurobi (gap .025) and starts serving with the result.
 * Here a run is its own profile: the first `window` iterations run on contiguous owners, then
 * experts move, once or every `interval` iterations.
 *
 * Local search comes first. What it finds is held against bounds that need no solver; only where
 * that leaves more than the gap, and `solver` is ilp, a program goes on from there. What is
 * recorded with the iteration that decides says how far off the placement can be.
 *
 * What ILP 2 saves is not what a step takes, here or wherever attention has every token back on its
 * own rank between layers: rows go from there to experts and back, never from expert to expert.  On
 * 8 experts and 32 layers of which one tells 0, 0.25 and 1.16 bits of the next, on 4 ranks of 2
 * nodes, its program carries 0, 3.1 and 5.6 % less over the fullest links than the search does, and
 * predicted steps differ by at most 0.05 %.  What they gain over contiguous owners (7 %) is ILP
 * 1's.
 *
 * Decided here, since the source is silent or can't be carried out:
 *   size      The printed ILP 1 lets clusters have any number of experts of a layer, and ILP 2
 *             then wants as many on every rank over all layers, which may have no solution (one
 *             layer, clusters of 3 and 1).  Here every cluster has experts / ranks.
 *   own rank  A link has no bandwidth where nothing travels: what stays on a rank takes no time.
 *   exact     ILP 1 falls apart into layers, and is exact.  ILP 2 is exact in one program of all
 *             layers; where that is too large (option program-layers) it is solved for some
 *             layers at a time, nodes around them fixed, and its bound is that of pairs of
 *             layers alone.
 *   even      The gap is a share of the objective, so that clusters that deviate by three routes
 *             of a million may be far from the best.  Such have no program (option even).
 *   limits    Nodes of the search tree, not seconds: all ranks must find the same. */
#pragma once

#include "reference/plan/system.h"

/* What a placement was found to be, as it is recorded. */
struct mp_moetuner_facts {
    double deviation, deviation_bound; /* ILP 1: summed over layers and clusters, routes */
    double links, links_bound;         /* ILP 2: summed over layers, s */
    double clusters_gap, links_gap;    /* by which objectives may be larger than the best */
    int programs;                      /* given to the solver */
    int programs_limited;              /* of them, ended by the node limit */
    int64_t nodes;                     /* of their search trees */
};
