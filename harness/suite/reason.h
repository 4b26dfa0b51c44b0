/* Reason: why a job failed, in one sentence, from its log and how it ended. */
#ifndef MOEPERF_HARNESS_SUITE_REASON_H
#define MOEPERF_HARNESS_SUITE_REASON_H

#include <stddef.h>

/* Looks in the end of the job's log for, in this order: mpirun's word on a rank that a signal
 * ended, the last line "moeperf-train: ...", any last line.  `tail` is cut into lines in the course
 * of it. `wait_status` is waitpid's.  Control characters become '?'. */
void mp_reason_find(char *tail, int wait_status, char *reason, size_t size);

#endif
