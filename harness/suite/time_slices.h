/* Slices: when a job had the machine for itself, while it was measured beside another one.
 *
 * A text file, a line "START END" per slice, in ns of CLOCK_MONOTONIC, in order.  A line without
 * its end, from a moeperf that was killed, is none. */
#ifndef MOEPERF_HARNESS_SUITE_TIME_SLICES_H
#define MOEPERF_HARNESS_SUITE_TIME_SLICES_H

#include "results/store/store.h"

#define MP_SLICES_NAME "slices" /* in the job's folder */

/* `slice` is to be freed.  A file that is not there has none.  MP_EFORMAT names path and line;
 * MP_EIO; MP_ENOMEM. */
int mp_slices_read(const char *path, struct mp_store_slice **slice, int *count,
                   struct mp_error *error);

#endif
