/* Plain expert parallelism (FastMoE, arXiv 2103.13262; systems.md 2.1): every expert stays on its
 * rank, every token travels to its experts and back.  What all other systems are compared with. */
#ifndef MOEPERF_BASELINES_EP_EP_H
#define MOEPERF_BASELINES_EP_EP_H

#include "reference/plan/system.h"

extern const struct mp_system mp_system_ep;

#endif
