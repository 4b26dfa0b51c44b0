/* Another system on a recorded run: its planner meets the loads that the run recorded, and what its
 * plans ask for takes the time that the run took for such things.
 *
 * Everything outside the experts (attention, gate, planning, gradients of the rest, the optimizer)
 * stays as every rank did it.  The rest comes from rates fitted to the run's own spans by least
 * squares, against what the run's own system planned:
 *
 *   experts    of a layer and rank: fixed seconds, and seconds per route
 *   exchanges  transfers of dispatch and combine: fixed seconds, and seconds per row that the rank
 *              sends or gets, whichever are more; without any, or where steps hide them, the run's
 *              bandwidth says
 *   copies     experts' parameters and gradients: fixed seconds, and seconds per byte that the rank
 *              sends or gets, as far as it stood still for them; without any, the bandwidth says
 *   moves      of experts after a step: seconds per byte; without any, the bandwidth says
 *
 * On a run of processors nothing passes beside work, since what computes also copies.  On one of
 * GPUs, or a predicted one, copies hide behind the layer's attention, and exchanges in steps
 * (pipelined) behind the experts of other steps (what_if_steps.h).
 *
 * Points far from their line (beyond 4 median distances and the median itself) are left out: ranks
 * of a busy machine lose their processor now and then. */
#ifndef MOEPERF_HARNESS_PREDICT_OTHER_SYSTEM_H
#define MOEPERF_HARNESS_PREDICT_OTHER_SYSTEM_H

#include "harness/predict/what_if_rates.h"

struct mp_other_system;

/* Reads the run's job and loads from the database and fits the rates.  All but error is borrowed
 * until destroy.  MP_ENOTFOUND for a run without its job file, loads, or expert spans; errors of
 * the planner; MP_ENOMEM. */
int mp_other_system_create(struct mp_what_if *what_if, const struct mp_recorded *recorded,
                           struct mp_store *store, const char *database,
                           const struct mp_systems *systems, struct mp_other_system **other,
                           struct mp_error *error);
void mp_other_system_destroy(struct mp_other_system *other); /* accepts NULL */
const struct mp_other_rates *mp_other_system_rates(const struct mp_other_system *other);
/* What planners are told. */
const struct mp_setting *mp_other_system_setting(const struct mp_other_system *other);

struct mp_other_request {
    const char *system;
    const char *const (*option)[2]; /* [options] of the system: name and value */
    int options;
};
struct mp_other_answer {
    double seconds;     /* median of an iteration */
    char options[1024]; /* that it planned with, all of them: "memory=2 overlap=auto" */
};
/* A system with its default options (the run's own system with the run's), but for those that are
 * given: what every rank took, and what its rates add for asking for more or less.  The run's own
 * system as it was: from the rates alone, which says what they are worth.  MP_ENOTFOUND for an
 * unknown system, MP_EINVAL for an option that it does not have, and what it refuses. */
int mp_other_system_ask(struct mp_other_system *other, const struct mp_other_request *request,
                        struct mp_other_answer *answer, struct mp_error *error);

#endif
