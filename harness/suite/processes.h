/* Processes: the family of a started job, from /proc. */
#ifndef MOEPERF_HARNESS_SUITE_PROCESSES_H
#define MOEPERF_HARNESS_SUITE_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

/* Sends `signal` to all descendants of `root`, and to `root` itself if `with_root`; when root has
 * no descendants it gets the signal in any case.  Returns how many processes got it. */
int mp_processes_signal(pid_t root, int signal, bool with_root);

#endif
