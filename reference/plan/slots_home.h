/* Slots for homes that a planner did not make: those of a checkpoint taken with other slots. */
#ifndef MOEPERF_REFERENCE_PLAN_SLOTS_HOME_H
#define MOEPERF_REFERENCE_PLAN_SLOTS_HOME_H

#include "reference/plan/slots.h"

/* `slots` (indexed) if the ranks with a slot of an expert are its holders in `home`, expert by
 * expert.  Otherwise `other`, in which every holder gets one slot; its per_rank must be the number
 * of experts, and it is indexed for nodes of `ranks_per_node` (see mp_slots_index). */
struct mp_slots *mp_slots_for_home(struct mp_slots *slots, struct mp_slots *other,
                                   const struct mp_placement *home, int ranks_per_node);

#endif
