/* Seconds of CLOCK_MONOTONIC, for how long jobs take. */
#pragma once

#include <time.h>

static inline double mp_seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
