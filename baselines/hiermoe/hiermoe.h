/* HierMoE (arXiv 2508.09591): a deduplicated exchange as deep as pays, and
 * experts that swap places so that less has to travel. */
#ifndef MOEPERF_BASELINES_HIERMOE_HIERMOE_H
#define MOEPERF_BASELINES_HIERMOE_HIERMOE_H

#include "reference/plan/system.h"

extern const struct mp_system mp_system_hiermoe;

#endif
