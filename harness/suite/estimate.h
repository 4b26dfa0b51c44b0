/* Estimate: how much of a suite is done and how long the rest will take.
 *
 * A job's time is known after its first round; before, it is taken as the mean of those known.  The
 * running job's rest is its pace since its first iteration, which leaves the start out. */
#ifndef MOEPERF_HARNESS_SUITE_ESTIMATE_H
#define MOEPERF_HARNESS_SUITE_ESTIMATE_H

#include <stdint.h>

#include "reference/base/error.h"

struct mp_estimate;

int mp_estimate_create(int jobs, int rounds, struct mp_estimate **estimate, struct mp_error *error);
void mp_estimate_destroy(struct mp_estimate *estimate); /* accepts NULL */

/* Jobs run in turn, in the same order in every round. */
void mp_estimate_begin_job(struct mp_estimate *estimate);
void mp_estimate_end_job(struct mp_estimate *estimate);

/* Progress of the running job: iterations done and to do. */
void mp_estimate_update(struct mp_estimate *estimate, int64_t iteration, int64_t iterations);

/* share 0 .. 1; seconds_left negative while nothing is known. */
void mp_estimate_read(const struct mp_estimate *estimate, double *share, double *seconds_left);

#endif
