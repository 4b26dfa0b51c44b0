#include "profiler/record/record.h"

int64_t mp_clock_thread_cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void mp_clock_offset(int64_t t0, int64_t t1, int64_t t2, int64_t t3, int64_t *offset_ns,
                     int64_t *round_trip_ns) {
    *offset_ns = ((t1 - t0) + (t2 - t3)) / 2;
    *round_trip_ns = (t3 - t0) - (t2 - t1);
}
