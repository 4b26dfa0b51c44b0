/* The two halves of the compute benchmark: arithmetic (compute_bench.c) and memory
 * (compute_memory.c). */
#ifndef MOEPERF_TESTS_BENCH_COMPUTE_BENCH_H
#define MOEPERF_TESTS_BENCH_COMPUTE_BENCH_H

#include "profiler/record/record.h"
#include "reference/device/device.h"
#include "tests/bench/bench.h"

enum { COMPUTE_MOST_REPEATS = 1000 };

/* Seconds this thread has computed: with one thread, what other programs take does not count. */
static inline double compute_seconds(void) {
    return 1e-9 * (double)mp_clock_thread_cpu_ns();
}

/* Numbers in -1 .. 1; NULL when there is no memory. */
float *compute_random_floats(struct mp_device *device, size_t count);

/* Puts the array "memory" into the result: operations that only move bytes, beside a copy of as
 * many bytes. */
int compute_measure_memory(struct mp_device *device, int repeats, json_t *result,
                           struct mp_error *error);

#endif
