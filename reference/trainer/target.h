/* Target: the loss that ends a run.
 *
 * A batch's loss says little, so what counts is the mean over the last iterations. */
#pragma once

#include <stdbool.h>

#include "reference/trainer/job.h"

struct mp_target {
    double loss;    /* 0: none */
    int window;     /* iterations that the mean is taken over */
    int seen;       /* losses in the window so far */
    int next;       /* where the next one goes */
    double *recent; /* [window], owned */
};

/* The job's target.  MP_ENOMEM. */
int mp_target_create(const struct mp_job *job, struct mp_target *target, struct mp_error *error);
void mp_target_destroy(struct mp_target *target); /* accepts a zeroed one */

/* Takes the loss of one more iteration.  True once the window is full and its mean at or below the
 * target; a window with a loss that is no number has no mean. */
bool mp_target_reached(struct mp_target *target, double loss);
