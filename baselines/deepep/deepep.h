/* DeepEP (deepseek-ai/DeepEP, normal kernels): plain expert parallelism whose tokens travel once to
 * every node and from there once to every rank that needs them; what production trains with. */
#ifndef MOEPERF_BASELINES_DEEPEP_DEEPEP_H
#define MOEPERF_BASELINES_DEEPEP_DEEPEP_H

#include "reference/plan/system.h"

extern const struct mp_system mp_system_deepep;

#endif
