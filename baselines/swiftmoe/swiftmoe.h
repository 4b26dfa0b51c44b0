/* SYMI, called SwiftMoE in its first version (arXiv 2504.19925; systems.md 2.6, figures in 4.2).
 *
 * No rank keeps an expert's optimizer whole: it lies in uniform slices over all ranks, so that
 * weights are put together from everywhere after every step, and where they are put costs nothing
 * extra.  Every iteration therefore begins with a placement of its own: an expert gets slots in
 * proportion to its routes in the iteration before, and a capacity in proportion to its slots.
 *   placement.c  slots per expert from its popularity          (systems.md 2.6.2)
 *   costs.c      what the paper says the two phases cost       (systems.md 2.6.4)
 *   swiftmoe.c   options, layouts, plans and the descriptor that joins them
 *
 * No code of the authors is known.  Decided here where the text is silent: ties go to the lower
 * expert; differences are exact; without any route all goals are equal; a slot's capacity is
 * rounded down; an expert's routes are counted over all sources in ascending order, route j goes to
 * slot j mod n, and the first ones are kept.  The paper's gate is top-1: with more experts per
 * token its tokens are our routes. */
#ifndef MOEPERF_BASELINES_SWIFTMOE_SWIFTMOE_H
#define MOEPERF_BASELINES_SWIFTMOE_SWIFTMOE_H

#include <stdbool.h>
#include <stdint.h>

#include "reference/plan/slots.h"
#include "reference/plan/system.h"

extern const struct mp_system mp_system_swiftmoe;

/* Named in the option table of swiftmoe.c. */
struct mp_swiftmoe_options {
    int slots;              /* per rank and layer, or MP_AUTO: 2 ceil(E / R) */
    double capacity_factor; /* 0: nothing is dropped */
};

/* Slots per rank under these options.  The paper has 4 for 16 experts on 16 ranks, four times what
 * holding every expert once needs; auto is twice, since every slot is memory for an expert. */
int mp_swiftmoe_slots(const struct mp_setting *setting, const struct mp_swiftmoe_options *options);

/* Routes that one slot may take: floor(factor * tokens * k / slots), tokens and slots over all
 * ranks, in this order of operations; -1 with factor 0: no limit. */
int64_t mp_swiftmoe_slot_capacity(const struct mp_setting *setting,
                                  const struct mp_swiftmoe_options *options);

/* Slots of every expert: goals popularity / sum * slots, rounded down but at least 1; then slots
 * are taken where the count is most above its goal, or added where it is most below, until they add
 * up. The published loop also lets the difference of an expert with one slot fall when its turn to
 * lose one comes.  Nothing else depends on that difference, so such experts are passed over here:
 * the counts are the same. popularity  [experts], routes; all 0: equal goals difference  [experts],
 * working memory count       [experts], out; adds up to `slots` Errors: MP_EINVAL (more experts
 * than slots), MP_ELIMIT (routes * slots beyond 62 bits). */
int mp_swiftmoe_counts(const int64_t popularity[], int experts, int slots, int64_t difference[],
                       int32_t count[], struct mp_error *error);

/* Fills the slots expert by expert, rank by rank: expert 0 count[0] times, expert 1 ...  Replicas
 * lie on neighbouring ranks.  Indexed on return. */
void mp_swiftmoe_place(const int32_t count[], struct mp_slots *slots);

/* The paper's cost model.  "Static" is expert parallelism with equally many replicas of every
 * expert and their optimizer split over the ranks that hold it. */
struct mp_swiftmoe_cluster {
    double experts;         /* E, classes */
    double nodes;           /* N, of one GPU each */
    double slots;           /* s, per node */
    double local_bandwidth; /* between host and GPU (PCIe), B/s */
    double bandwidth;       /* of a node's network link, B/s */
};
/* Seconds of one phase on a rank: gradients to the optimizer, or weights back; `bytes` are those of
 * one instance's gradient or weights. */
double mp_swiftmoe_static_seconds(const struct mp_swiftmoe_cluster *cluster, double bytes);
double mp_swiftmoe_seconds(const struct mp_swiftmoe_cluster *cluster, double bytes);
/* How much longer its phases are than the static ones, as a share of those; without `offload` the
 * optimizer lies on the GPU and what is local costs nothing. */
double mp_swiftmoe_relative_extra(const struct mp_swiftmoe_cluster *cluster, bool offload);
/* Seconds that the network needs if the optimizer were split over `groups` groups of nodes instead
 * of all, on the rank of the hottest group at worst: why there is one group. */
double mp_swiftmoe_network_seconds(const struct mp_swiftmoe_cluster *cluster, double bytes,
                                   int groups);
/* Bytes that a phase moves over all ranks, and bytes of optimizer state: the same as static. */
double mp_swiftmoe_phase_bytes(const struct mp_swiftmoe_cluster *cluster, double bytes);
double mp_swiftmoe_state_bytes(const struct mp_swiftmoe_cluster *cluster,
                               double state_bytes_of_one);
/* Seconds to move one expert with its optimizer, as systems do that tie them (FlexMoE). */
double mp_swiftmoe_move_seconds(const struct mp_swiftmoe_cluster *cluster, double weight_bytes,
                                double state_bytes);

#endif
