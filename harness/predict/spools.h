/* Recordings of predicted runs: the spools that a measured run of as many ranks would leave
 * (profiler/record), in model time, to be put into a database in the same way.
 *
 * Times count from the run's begin.  Loads and plans' facts of several micro-batches are added up,
 * as tables have one row per iteration and layer. */
#pragma once

#include "harness/predict/job.h"

enum { MP_PREDICT_SPOOL_RANKS = 512 }; /* each needs a file and a buffer */

struct mp_predict_spools;

/* Creates rank-0000.spool and so on in a folder that exists.  MP_ELIMIT for more ranks than above;
 * the recorder's errors.  What was created lies there still then. */
int mp_predict_spools_create(const char *folder, const struct mp_predict_job *job,
                             const struct mp_cluster *cluster, struct mp_predict_spools **recording,
                             struct mp_error *error);

/* To be given to mp_predict_job_run; valid until finish. */
const struct mp_predict_sink *mp_predict_spools_sink(struct mp_predict_spools *recording);

/* After every iteration: its numbers, and all that was recorded goes to the files.  The recorder's
 * errors; MP_ELIMIT for more spans than a database should be asked to take (20 million). */
int mp_predict_spools_step(struct mp_predict_spools *recording,
                           const struct mp_prediction *prediction, struct mp_error *error);

/* Ends all spools and frees the recording.  status and reason as in mp_recorder_finish; summary:
 * what is known at the end, or NULL.  Accepts a NULL recording. */
int mp_predict_spools_finish(struct mp_predict_spools **recording, int status, const char *reason,
                             const struct mp_prediction_summary *summary, struct mp_error *error);
