/* Reason: why a job failed, in one sentence, from its log and how it ended. */
#ifndef MOEPERF_HARNESS_SUITE_REASON_H
#define MOEPERF_HARNESS_SUITE_REASON_H

#include <stddef.h>

/* Looks at the end of the log file for, in this order: mpirun's word on a rank that a signal ended,
 * the last line "moeperf-train: ...", any last line.  `wait_status` is waitpid's.  `log` need not
 * exist.  Control characters become '?'. */
void mp_reason_find(const char *log, int wait_status, char *reason, size_t size);

#endif
