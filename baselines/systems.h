/* All systems that this build knows, in the order in which they are listed. */
#ifndef MOEPERF_BASELINES_SYSTEMS_H
#define MOEPERF_BASELINES_SYSTEMS_H

#include "reference/plan/system.h"

/* Registers every system; `systems` starts zeroed.  Errors: those of mp_systems_register, which
 * mean that a system was written wrongly. */
int mp_systems_register_all(struct mp_systems *systems, struct mp_error *error);

#endif
