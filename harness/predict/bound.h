/* Bound: the least time in which any system could run an iteration's loads on a cluster.
 *
 * Of systems that drop nothing, keep the gate's choices, leave experts whole (a shard of one takes
 * less to read and to copy), send a token's row once for each of its routes, unless the job's
 * exchange deduplicates, and compute exact gradients; under the
 * schedule of reference/schedule, at the costs of cost.h, over the gates of network.h.  Who holds
 * which expert, what is copied when, and which holder computes which route is free, decided with
 * all loads known and in no time; homes may be others in every iteration and move at no cost.
 *
 * Places.  Ranks are pooled in N places: the nodes, or, with one node, the ranks.  A place's ranks
 * share work and gates perfectly, and what travels inside it costs nothing.  Whatever a system
 * does then makes, of every layer and expert, a set S of places where routes of it are computed,
 * and a split of each source's routes over S.  Time is not below what follows, since:
 *
 * 1. Passes.  Ranks wait for each other in every gate's counts and at the end, and nowhere else for
 *    all others: an iteration takes at least the longest way to the first counts, counts, and the
 *    sum over layers of P_l, what there is from a layer's counts to the next ones: planning, rows,
 *    experts, the next layer's attention and gate; with the last layer head, backward and update,
 *    and the way to the next micro-batch's first counts.  P_l is the longest of
 *    - any place's own work: all that is its ranks' (two times their rows put in order, the shared
 *      expert, ...), and its routes' products.  An expert of r rows takes at least
 *      `once` + r * `row`, a line below its cost at every number of rows, `once` for each expert
 *      that the place computes.  The longest of its ranks takes at least any mean of them.  All
 *      ranks together make the update of every expert once.
 *    - any place's gates: a route that is computed elsewhere than where its token is crosses the
 *      borders of both places, one way to its expert and the other way back, so that in either
 *      direction both gates carry a row of it, forward and again backward; if the job's exchange
 *      deduplicates, of tokens with K routes at least one K-th of a row, as it may send a token
 *      once for all of them, and loads do not say which routes are one token's.  What the
 *      least busy of the place's ranks does before its rows set out and when all are there comes
 *      on top, but for what of attention's backward may be left for when rows travel
 *      (policy.weights_behind); where ranks share a gate and backward follows, only before the
 *      first, as a rank goes on to it without waiting for the others' rows.  (Work and travel: the
 *      longer one, not the sum, as chunks can hide one under the other.)
 * 2. Of a recorded run (fitted.h).  Own work is as it was recorded, of each rank.  An expert takes
 *    a rank its speed times f(r), which all have in common.  f is concave: the chord from one row
 *    to the most routes that an expert has in these loads is below it at all of them, `once` is not
 *    negative, and neither several calls nor padding make it less.  With shares a_r of ranks in
 *    their place's mean, which sum to one, a route takes at least the least a_r * speed_r of its
 *    place, whichever rank computes it.  That holds for any shares; in inverse proportion to speeds
 *    it is most.  The update is counted with the least share.
 * 3. The whole iteration.  A place's gates carry all rows of forward and backward, the sums of
 *    non-expert gradients, counts, and the experts.  Say that n places compute an expert, with B
 *    bytes of parameters and D of gradient, and that place i has share h_i of its state at home,
 *    all places together no more than 1.
 *    - 1 - h_i of the new parameters come in at holder i, and 1 - h_i of its gradient goes out:
 *      together n - 1 times as much.
 *    - Whatever way the n gradients of an element take, somebody adds two of them, of which one
 *      has come in: n - 1 times, at whatever places.  Likewise new parameters are given out
 *      n - 1 times.
 *    So in one direction 1 - h_i of D at each holder and n - 1 times B anywhere, in the other B at
 *    each holder and D anywhere.  The first is counted, with the lesser of B and D in the place of
 *    B, so that it holds where D is less, too.  Tied replicas send no parameters, but each has to
 *    know of every other's gradient: D goes out at every one of them, and 2 n - 2 one-way messages
 *    are needed (gossiping: Harary and Schwenk, J. Franklin Institute 297, 1974), so that n - 2
 *    come on top.  So it is for copies, replicas and slices alike, whenever they travel and
 *    whatever hides them; in serving nothing is updated, and holding is free.  (What a system
 *    gathers behind the step before, or sends ahead in it, is counted in the iteration that uses
 *    it: a bound on sums over iterations, of which the first may owe it to none.)
 *
 * In serving: forward with the head.  Micro-batches: each has its forward and backward; an expert
 * travels once for all.  Memory is not a limit: a system may take more than there is.
 *
 * The least over all S and splits of the longest of all that is bounded from below by any weights
 * of the maxima that are not negative and sum to one (weak duality).  With fixed weights the least
 * falls apart by layer and expert and is found exactly, S being whole places: routes stay where
 * they are, if their place holds the expert, or go to the holder with the least price, the hub; for
 * each hub, every other place holds the expert if what it saves is more than what it costs, and of
 * the holder that brings nothing over its gate no more than the largest cost of all is taken off.
 * So every value is a proven bound, with no error but rounding of sums (relative 1e-12), and no
 * solver is needed; weights are improved by regret matching (choice.h), which is a two-player
 * game's way to its value, and the best of the values is the bound.  Half of the rounds are for
 * weights with all places alike, which are few, and the best of all where places are.
 *
 * What is proven of whom.  This holds of any system on such a cluster.  Of the predictor's times
 * they hold where every rank has a gate of its own at the level between places.  Where ranks share
 * one, the predictor estimates when each is done by fair sharing (network.h), and takes no account
 * of what else is still in the gate when one of them goes on: it may let more through than the gate
 * carries, and a time may be below the bound for that. */
#pragma once

#include "harness/cluster/cluster.h"
#include "harness/predict/cost.h"
#include "harness/predict/known_bounds.h"
#include "reference/plan/load.h"
#include "reference/trainer/job.h"

struct mp_bound;

/* `costs`: what a run took (mp_costs_create_fitted) of experts that are whole, on the cluster of
 * its links: for the iteration that the costs are at; borrowed until destroy.  NULL: by formula.
 * `rounds`: how often weights are improved; 0: the usual number.  All else is borrowed during the
 * call only.  The job's system is not read.  Errors: those of mp_costs_create and
 * mp_network_create; MP_ENOMEM. */
int mp_bound_create(struct mp_costs *costs, const struct mp_cluster *cluster,
                    const struct mp_job *job, const struct mp_predict_options *options, int rounds,
                    struct mp_bound **bound, struct mp_error *error);
void mp_bound_destroy(struct mp_bound *bound); /* accepts NULL */
/* What is known need not be worked out, and what is worked out is known then, to other bounds, too:
 * the same bits.  Borrowed until destroy; NULL, as at first: nothing is known. */
void mp_bound_remember(struct mp_bound *bound, struct mp_known_bounds *known);

/* Seconds that no system takes less than for these loads, [micro_batches][layers], each
 * [ranks][experts].  The same bits every time.  MP_EINVAL for loads of another shape. */
int mp_bound_seconds(struct mp_bound *bound, const struct mp_load load[], double *seconds,
                     struct mp_error *error);

/* Whether so many iterations take about a second at most. */
bool mp_bound_is_quick(const struct mp_cluster *cluster, const struct mp_job *job,
                       int64_t iterations);

/* Whether a system's times are bounded by the bound of a job with this exchange: every route went
 * to the expert that the loads say (as_chosen), none was dropped; it can be had, had whole experts
 * (shards 1), and sends as many rows: a system with a deduplicating exchange of its own is bounded
 * by the bound of a job that has one. */
bool mp_bound_covers(const struct mp_system *system, int exchange, bool as_chosen, int shards);
