/* Kernels that the tests of the double launch, each with its launch. */
#pragma once

#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = the number of thread i of the grid. */
enum { NUMBERED_BLOCKS = 12, NUMBERED_THREADS = NUMBERED_BLOCKS * 24 };
cudaError_t launch_number(cudaStream_t stream, int *out);
/* out[i] += add for i < count; a grid of 256-thread blocks. */
cudaError_t launch_add(cudaStream_t stream, int count, int add, int *out);
/* out[i] = add + in[i], so that a stale `in` shows. */
cudaError_t launch_add_to(cudaStream_t stream, int count, int add, const int *in, int *out);

/* Reverses each block of 192 ints through shared memory, with its barrier or without. */
cudaError_t launch_reverse(cudaStream_t stream, int blocks, int barrier, int *values);

/* Kernels that are wrong. */
enum mistake {
    SOME_END_BEFORE_BARRIER,
    SOME_AT_ANOTHER_BARRIER,
    SOME_END_BEFORE_SHUFFLE,
    SOME_AT_ANOTHER_SHUFFLE,
    BARRIER_AND_SHUFFLE,
    MASKS_THAT_DIFFER,
    LANE_NOT_IN_MASK,
    TRAP,
    SOME_AT_ANOTHER_INSTRUCTION,
    FRAGMENT_NOT_ALIGNED,
    COPY_NOT_ALIGNED,
    COPY_NOT_WAITED_FOR,
    PREFETCH_ASTRAY,
    MISTAKES
};
cudaError_t launch_mistake(cudaStream_t stream, enum mistake mistake, int *out);
/* Reads 4 bytes behind `count` ints. */
cudaError_t launch_overrun(cudaStream_t stream, int count, int *memory);

/* cub::DeviceRadixSort of pairs. */
cudaError_t sort_pairs(cudaStream_t stream, void *storage, size_t *bytes, const unsigned *keys_in,
                       unsigned *keys_out, const int *values_in, int *values_out, int count);

#ifdef __cplusplus
}
#endif
