/* DeepSpeed-MoE: fixed capacity, drops, padded exchange, data-parallel experts (arXiv 2201.05596;
 * DeepSpeed, deepspeed/moe/sharded_moe.py).
 *
 * Placement never changes: groups of `expert-parallel` ranks (reference/plan/groups.h).  The
 * released layer has groups of one rank unless told otherwise; here they are as large as can be,
 * min(R, E), which is what others mean by DeepSpeed as a baseline.
 *
 * Of each (source, expert) at most a capacity of routes is kept, whatever other sources send; the
 * rest is dropped.  Every pair takes as many rows in the exchange and in computing, used or not:
 * imbalance shows as drops and not as time.  With `drop-tokens` off the capacity is the largest
 * count of the layer, so that one hot expert sets the rows of all.
 *
 * ZeRO-1 (`zero: 1`) cuts an expert's optimizer state into as many slices as it has replicas.
 * DeepSpeed's configuration promises a reduce-scatter of gradients (reduce_scatter), and carries it
 * out as an all-reduce of which every rank uses its part, unless use_multi_rank_bucket_allreduce is
 * off; it is on by default (deepspeed/runtime/zero/config.py, stage_1_and_2.py).  Both are here.
 * offload_optimizer moves state and update to the host, which it allows from stage 1 on.
 *
 * Which gate of the source a plan stands for follows from top-k and `policy`:
 *   top-1  auto         random token selection, weights are probabilities as they are
 *          position     the same without random token selection.  That is a top-k over a column of
 *                       zeros and ones there, in whatever order; the earlier token wins here
 *   top-2  auto         slots for second choices begin after all first choices (dropped ones too);
 *                       tokens in their order; weights divided by the sum over survivors
 *   top-k  probability  drop policy "probs": the highest probabilities stay; auto for k > 2
 *          position     drop policy "position": token by token, all choices together
 * and survivors are renormalised for every k > 1.  The other combinations (a policy of top-k with
 * two choices is released code, probability with one and random with several are not) are
 * experiments that the released gates don't offer.
 *
 * Other frameworks' formulas (reference/plan/capacity.h) are there for comparison.  That of
 * FastMoE's Switch gate is of an expert for all ranks together: ranks are served in their order,
 * here.
 *
 * Differences to the released code:
 *   - Without drops it takes the largest count in each group of ranks; here it is the largest of
 *     all groups, as a plan has one.  They wait for each other in every step anyhow.
 *   - Its dispatch is the one-hot one unless Tutel is there; here rows are copied unless told
 *     otherwise, so that what is compared is the plan.
 *   - Padding to a multiple of tensor-parallel ranks does not arise: there is no such parallelism.
 *   - Its top-1 gate asserts at least min-capacity tokens on a rank.  Its top-k gate does not, and
 *     neither do we: a capacity may exceed the tokens.
 *   - Its own capacity factor for evaluation (1.0 too) is not told apart: validation batches are
 *     planned as training ones are. */
#ifndef MOEPERF_BASELINES_DEEPSPEED_DEEPSPEED_H
#define MOEPERF_BASELINES_DEEPSPEED_DEEPSPEED_H

#include <stdbool.h>
#include <stdint.h>

#include "reference/plan/capacity.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_deepspeed;

enum mp_deepspeed_policy {
    MP_DEEPSPEED_AUTO,
    MP_DEEPSPEED_POSITION,
    MP_DEEPSPEED_PROBABILITY,
    MP_DEEPSPEED_RANDOM
};

/* How tokens' rows become those of the exchange, and experts' rows tokens'.  ONE_HOT is what the
 * released code does without Tutel, GShard's einsums "sec,sm->ecm" and "sec,ecm->sm": matrices of
 * S tokens by E experts by a capacity of C rows, and 2 S E C M operations for each of two products
 * forward and three backward.  With a capacity that goes with the tokens they grow with their
 * square.  SPARSE copies rows, as Tutel's kernels do; both give the same numbers. */
enum mp_deepspeed_dispatch { MP_DEEPSPEED_SPARSE, MP_DEEPSPEED_ONE_HOT };

/* Named in the option table of deepspeed.c. */
struct mp_deepspeed_options {
    int expert_parallel; /* ranks of a group; MP_AUTO: min(R, E); MP_ALL: R */
    double capacity_factor;
    int min_capacity; /* of formula deepspeed.  4 in DeepSpeed's layer, 8 in its gate class, which
                         users don't create themselves */
    bool drop_tokens;
    int policy;   /* enum mp_deepspeed_policy */
    int formula;  /* enum mp_capacity_formula */
    bool padded;  /* false: the exchange carries what survives and nothing else (our own) */
    int dispatch; /* enum mp_deepspeed_dispatch */
    int zero;     /* stage: 0, 1 */
    bool all_reduce;
    bool offload;
};

#endif
