/* What TA-MoE makes of a topology: the released loss (Chen-Chang/TA-MoE).  A byte costs 1 inside
 * a node and `outside` beyond. */
#pragma once

#include "reference/plan/topology.h"

/* What the released code multiplies the loss of the other rank's experts by: softmax of the costs
 * over all ranks, times ranks^2. */
double mp_tamoe_released_scale(const struct mp_topology *topology, double outside, int rank,
                               int other);
