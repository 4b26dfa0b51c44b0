/* TA-MoE (Chen et al., NeurIPS 2022, arXiv 2302.09915; Chen-Chang/TA-MoE): plain
 * expert parallelism whose gate is trained to send less to where a byte is dear.
 *
 * The loss is gate tamoe's (reference/gate/tamoe.c).  The target gives each rank a share of a
 * source's routes in proportion to 1 over the cost of a byte to it: 1 inside the node, outside-cost
 * to another.
 *
 * With a capacity factor an expert takes of a source at most
 *     ceil(factor * T * k * share / E_loc)
 * routes, share being its rank's target; the earlier token wins.  The released code computes such
 * capacities and does not use them.
 *
 * Loads that are replayed, or predicted with, were made without the loss: plans say how far it
 * brings them (policy.pull). */
#ifndef MOEPERF_BASELINES_TAMOE_TAMOE_H
#define MOEPERF_BASELINES_TAMOE_TAMOE_H

#include "reference/plan/system.h"

extern const struct mp_system mp_system_tamoe;

/* Named in the option table of tamoe.c. */
struct mp_tamoe_options {
    double outside_cost;
    double pull;
    double capacity_factor; /* 0: nothing is dropped */
};

#endif
