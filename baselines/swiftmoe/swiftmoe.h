/* SYMI, called SwiftMoE in its first version (arXiv 2504.19925).
 *
 * No rank keeps an expert's optimizer whole: it lies in uniform slices over all ranks, so that
 * weights are put together from everywhere after every step, and where they are put costs nothing
 * extra.  Every iteration therefore begins with a placement of its own: an expert gets slots in
 * proportion to its routes in the iteration before, and a capacity in proportion to its slots.
 *   placement.c  slots per expert from its popularity
 *   swiftmoe.c   options, layouts, plans and the descriptor that joins them
 *
 * The paper's optimizer lies in host memory.  Here it does so if asked to: who compares systems on
 * a cluster of his own wants all of them to keep their state in the same place.
 *
 * No code of the authors is known.  Decided here where the text is silent: ties go to the lower
 * expert; differences are exact; without any route all goals are equal; a slot's capacity is
 * rounded down; the lowest rank with an expert sums its gradients; an expert's routes are counted
 * over all sources in ascending order, route j goes to slot j mod n, and the first ones are kept.
 * The paper's gate is top-1: with more experts per token its tokens are our routes. */
#ifndef MOEPERF_BASELINES_SWIFTMOE_SWIFTMOE_H
#define MOEPERF_BASELINES_SWIFTMOE_SWIFTMOE_H

#include <stdbool.h>
#include <stdint.h>

#include "reference/plan/slots.h"
#include "reference/plan/system.h"

/* Named in the option table of swiftmoe.c. */
struct mp_swiftmoe_options {
    int slots;              /* per rank and layer, or MP_AUTO: 2 ceil(E / R) */
    double capacity_factor; /* 0: nothing is dropped */
    bool offload;
};

/* Slots per rank under these options.  The paper has 4 for 16 experts on 16 ranks, four times what
 * holding every expert once needs; auto is twice, since every slot is memory for an expert. */
int mp_swiftmoe_slots(const struct mp_setting *setting, const struct mp_swiftmoe_options *options);

/* Slots of every expert, as many at least as there are experts: goals popularity / sum * slots,
 * rounded down but at least 1; then slots are taken where the count is most above its goal, or
 * added where it is most below, until they add up.  The published loop also lets the difference of
 * an expert with one slot fall when its turn to lose one comes.  Nothing else depends on that
 * difference, so such experts are passed over here: the counts are the same.
 *   popularity  [experts], routes; all 0: equal goals
 *   difference  [experts], working memory
 *   count       [experts], out; adds up to `slots`
 * MP_ELIMIT (routes * slots beyond 62 bits). */
int mp_swiftmoe_counts(const int64_t popularity[], int experts, int slots, int64_t difference[],
                       int32_t count[], struct mp_error *error);

/* Fills the slots expert by expert, rank by rank: expert 0 count[0] times, expert 1 ...  Replicas
 * lie on neighbouring ranks.  Indexed on return. */
void mp_swiftmoe_place(const int32_t count[], struct mp_slots *slots);

#endif
