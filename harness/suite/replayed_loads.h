/* Loads of a job that replays a trace: checked when its suite is read, and turned into the file
 * that its ranks read (reference/trainer/loads_file.h) when it starts. */
#ifndef MOEPERF_HARNESS_SUITE_REPLAYED_LOADS_H
#define MOEPERF_HARNESS_SUITE_REPLAYED_LOADS_H

#include "reference/trainer/job.h"

/* Reads the whole trace and sets job->trace_digest.  Does nothing for other routings.
 * Errors: MP_EINVAL where the trace has not the job's layers, experts, ranks and top-k, more than
 * one micro-batch, no iteration, or loads that its tokens can't make; those of named.h. */
int mp_suite_check_loads(struct mp_job *job, struct mp_error *error);

/* Writes the iterations that the job needs to `path` and sets job->trace_loads to it.  The same
 * errors, and those of mp_loads_writer_create. */
int mp_suite_write_loads(struct mp_job *job, const char *path, struct mp_error *error);

#endif
