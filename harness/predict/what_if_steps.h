/* Steps of a pipelined exchange in seconds by a run's rates, in the schedule's order
 * (reference/schedule/schedule.h).
 *
 * A rank's exchanges pass one after the other: all steps towards the experts, then every step's
 * return.  Its experts work on a step when its rows are there and the step before is done; on its
 * own rows behind the last step, in backward before the first.  Where nothing passes beside what is
 * computed, steps follow each other. */
#ifndef MOEPERF_HARNESS_PREDICT_WHAT_IF_STEPS_H
#define MOEPERF_HARNESS_PREDICT_WHAT_IF_STEPS_H

#include "harness/predict/what_if_rates.h"
#include "reference/plan/plan.h"

/* Of the plan split last. */
struct mp_what_if_steps {
    int ranks, steps;
    struct mp_what_if_step {
        double sent, received; /* rows */
        double routes;         /* that the rank computes in it */
        bool waits;            /* some of them with a copy fetched after the gate */
    } * step;                  /* [ranks][steps] */
    double *own;               /* [ranks] routes of copies fetched after the gate that stay, and
                                  at the owner those of experts whose routes all stay */
    bool *is_late;             /* [experts][ranks] */
};
/* Room for any plan of these sizes.  MP_ENOMEM. */
int mp_what_if_steps_create(int ranks, int experts, struct mp_what_if_steps *steps,
                            struct mp_error *error);
void mp_what_if_steps_destroy(struct mp_what_if_steps *steps); /* accepts a zeroed one */

void mp_what_if_steps_split(const struct mp_plan *plan, struct mp_what_if_steps *steps);
/* Calls of a rank's experts (steps with routes, and own ones), and its steps with rows. */
void mp_what_if_steps_count(const struct mp_what_if_steps *steps, int rank, int *calls,
                            int *exchanges);

struct mp_stepped_seconds {
    double there;  /* until the first step's rows have arrived */
    double expert; /* from then until the last route is computed */
    double back;   /* from then until all rows are back */
};
/* `copies`: seconds from the gate until copies fetched after it are there, where they pass beside
 * the experts; else 0. */
void mp_what_if_steps_time(const struct mp_what_if_steps *steps, int rank, int direction,
                           const struct mp_other_rates *rates, double copies,
                           struct mp_stepped_seconds *seconds);

#endif
