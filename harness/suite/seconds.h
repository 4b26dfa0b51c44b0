/* Seconds of CLOCK_MONOTONIC, for how long jobs take. */
#ifndef MOEPERF_HARNESS_SUITE_SECONDS_H
#define MOEPERF_HARNESS_SUITE_SECONDS_H

#include <time.h>

static inline double mp_seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
