/* The job that a command line's settings mean: of predict and place. */
#ifndef MOEPERF_HARNESS_CLI_PREDICT_JOB_H
#define MOEPERF_HARNESS_CLI_PREDICT_JOB_H

#include "harness/predict/job.h"

/* The job that all systems get: usual sizes, those of a trace, those that were set ("key=value" of
 * mp_predict_job_set; "options.key=value", of each system, is left out).  job: created; its system
 * is ep. */
int cli_prepare_job(const struct mp_systems *systems, const char *const item[], int count,
                    struct mp_predict_job *job, struct mp_error *error);

#endif
