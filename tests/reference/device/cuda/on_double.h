/* What tests of the cuda back end ask of the double of CUDA (tests/double/cuda) where they run on
 * it. Built for a GPU (MOEPERF_ON_GPU) they link none of it, and what it would show stays unseen:
 * the rest of a test is the same. */
#ifndef MOEPERF_TESTS_REFERENCE_DEVICE_CUDA_ON_DOUBLE_H
#define MOEPERF_TESTS_REFERENCE_DEVICE_CUDA_ON_DOUBLE_H

#include "tests/double/cuda/double.h"

#ifdef MOEPERF_ON_GPU
enum { ON_DOUBLE = 0 };
#else
enum { ON_DOUBLE = 1 };
#endif

/* All zeros on a GPU. */
static inline struct cuda_double_counts double_counts(void) {
    struct cuda_double_counts counts = {0};
#ifndef MOEPERF_ON_GPU
    cuda_double_get_counts(&counts);
#endif
    return counts;
}

static inline void delay_streams(int microseconds) {
    (void)microseconds;
#ifndef MOEPERF_ON_GPU
    cuda_double_set_delay(microseconds);
#endif
}

/* Blocks and threads run in another order; on a GPU they take what order they like. */
static inline void reorder_blocks(uint64_t seed) {
    (void)seed;
#ifndef MOEPERF_ON_GPU
    cuda_double_set_seed(seed);
#endif
}

#endif
