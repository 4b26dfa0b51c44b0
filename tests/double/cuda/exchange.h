/* What threads of a block ask the double for, from device_functions.h to grid.c. */
#ifndef MOEPERF_TESTS_DOUBLE_CUDA_EXCHANGE_H
#define MOEPERF_TESTS_DOUBLE_CUDA_EXCHANGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What lanes of a warp do together. */
enum cuda_double_exchange_kind {
    CUDA_DOUBLE_SYNC_WARP,
    CUDA_DOUBLE_SHUFFLE,
    CUDA_DOUBLE_SHUFFLE_XOR,
    CUDA_DOUBLE_SHUFFLE_UP,
    CUDA_DOUBLE_SHUFFLE_DOWN,
    CUDA_DOUBLE_BALLOT,
    CUDA_DOUBLE_MATCH_ANY
};

/* Waits until all threads of the block are here; the number of those with a predicate. */
int cuda_double_barrier(int predicate, const char *file, int line);
/* Waits until all lanes of the mask are here.  `lane` is the source, mask or distance of a shuffle,
 * which stays within neighbours of `width`. */
uint64_t cuda_double_exchange(int kind, unsigned mask, uint64_t value, int lane, int width,
                              const char *file, int line);
void cuda_double_trap(const char *file, int line);

#ifdef __cplusplus
}
#endif

#endif
