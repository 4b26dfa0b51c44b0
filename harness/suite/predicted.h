/* Predicted: a job that the predictor carries out instead of ranks, with the same end, reasons and
 * progress as a launched one. */
#pragma once

#include "harness/predict/job.h"
#include "harness/suite/launch.h"

struct mp_predicted {
    const struct mp_predict_job *job;     /* borrowed, with its ranks */
    const struct mp_cluster *cluster;     /* borrowed */
    const char *spools;                   /* folder to record into; NULL: nothing is recorded */
    double timeout;                       /* s; 0: none; looked at after every iteration */
    const volatile sig_atomic_t *signals; /* counts what the user sends to end it; NULL: none */
    struct mp_known_bounds *bounds;       /* recordings have theirs (job.h); borrowed; NULL: none */
    /* Called after every iteration; may be NULL.  There is no loss: it is 0. */
    void (*watch)(void *context, const struct mp_launch_progress *progress);
    void *context;
};

/* Runs to the end, the time-out or the user's signal.  What went wrong is in the result with its
 * sentence, and the code is returned.  A job that needs more memory than there is has failed, with
 * MP_OK: its recording and summary are whole. */
int mp_predicted_run(const struct mp_predicted *predicted, struct mp_launch_result *result,
                     struct mp_prediction_summary *summary, struct mp_error *error);

/* "rank 3 needs 43.1 of 36.0 GiB" */
const char *mp_predicted_memory_text(const struct mp_prediction_summary *summary, char *text,
                                     size_t size);
