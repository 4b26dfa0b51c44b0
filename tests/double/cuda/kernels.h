/* Kernels that the tests of the double launch, each with its launch. */
#ifndef MOEPERF_TESTS_DOUBLE_CUDA_KERNELS_H
#define MOEPERF_TESTS_DOUBLE_CUDA_KERNELS_H

#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = the number of thread i of the grid, made of all its indices; the grid is 3 x 2 x 2 of
 * 4 x 3 x 2 threads. */
enum { NUMBERED_THREADS = 3 * 2 * 2 * 4 * 3 * 2 };
cudaError_t launch_number(cudaStream_t stream, int *out);
/* out[i] += add for i < count; a grid of 256-thread blocks. */
cudaError_t launch_add(cudaStream_t stream, int count, int add, int *out);
/* out[i] = add + in[i], so that a stale `in` shows. */
cudaError_t launch_add_to(cudaStream_t stream, int count, int add, const int *in, int *out);

/* What lanes can exchange; of 32 * warps values. */
enum exchanged { BY_LANE, BY_XOR, UPWARDS, DOWNWARDS, EXCHANGES };
cudaError_t launch_exchange_int(cudaStream_t stream, enum exchanged how, int warps, int lane,
                                int width, const int *in, int *out);
cudaError_t launch_exchange_double(cudaStream_t stream, enum exchanged how, int warps, int lane,
                                   int width, const double *in, double *out);
/* Of each thread, with predicate in[i] > 0: out[4 * i] = ballot, then any, all, lanes with the same
 * value. */
cudaError_t launch_votes(cudaStream_t stream, int warps, const int *in, unsigned *out);
/* Two halves of each warp, with masks of their own: out[i] = sum over the half. */
cudaError_t launch_half_sums(cudaStream_t stream, int warps, const int *in, int *out);
/* out[b] = sum of in[b * 256 ...] by shuffles, shared memory and a barrier. */
cudaError_t launch_block_sums(cudaStream_t stream, int blocks, const float *in, float *out);
/* Reverses each block of 192 ints through shared memory, with its barrier or without. */
cudaError_t launch_reverse(cudaStream_t stream, int blocks, int barrier, int *values);
/* out[0..3] = threads with a positive value, whether any has, whether all have, per block. */
cudaError_t launch_barrier_votes(cudaStream_t stream, int blocks, int threads, const int *in,
                                 int *out);
/* counts[in[i]] += 1, largest = max, smallest = min, sum of floats; 32-bit, and one of 64 bits. */
struct tally {
    unsigned counts[16];
    int largest, smallest;
    float sum;
    unsigned long long total;
    unsigned once; /* threads that won a compare-and-swap */
    unsigned flag;
};
cudaError_t launch_tally(cudaStream_t stream, int count, const int *in, struct tally *tally);
/* out[i] = what the function makes of in[i]. */
struct mathematics {
    float reciprocal_root, exponential, logarithm, least, most;
    int ones, first, leading, rounded;
    unsigned reversed, high;
    unsigned short bfloat;
    float back;
};
cudaError_t launch_mathematics(cudaStream_t stream, int count, const float *in,
                               struct mathematics *out);
/* c [16][16] += a [16][16] b [16][16] in bf16 (bits), by one warp and the instructions of mma.cuh;
 * b as it is, or turned over in memory and back by how it is loaded. */
cudaError_t launch_warp_product(cudaStream_t stream, int turned, const uint16_t *a,
                                const uint16_t *b, float *c);
/* out[4][threads][4]: what 64 threads see of copies from in[2][threads][4], two groups of one each:
 * before they wait, after the first group, after both; then of a copy from `in` that is left out.
 */
enum { COPYING_THREADS = 64 };
cudaError_t launch_copies(cudaStream_t stream, const float *in, float *out);
/* A structure by value: out[0] = sum of its numbers. */
struct many {
    int number[100];
};
cudaError_t launch_many(cudaStream_t stream, struct many many, int *out);

/* Kernels that are wrong. */
enum mistake {
    SOME_END_BEFORE_BARRIER,
    SOME_AT_ANOTHER_BARRIER,
    SOME_END_BEFORE_SHUFFLE,
    SOME_AT_ANOTHER_SHUFFLE,
    BARRIER_AND_SHUFFLE,
    MASKS_THAT_DIFFER,
    LANE_NOT_IN_MASK,
    WIDTH_OF_THREE,
    TRAP,
    SOME_AT_ANOTHER_INSTRUCTION,
    FRAGMENT_NOT_ALIGNED,
    COPY_NOT_ALIGNED,
    COPY_NOT_WAITED_FOR,
    MISTAKES
};
cudaError_t launch_mistake(cudaStream_t stream, enum mistake mistake, int *out);
/* Reads 4 bytes behind `count` ints. */
cudaError_t launch_overrun(cudaStream_t stream, int count, int *memory);

/* cub::DeviceRadixSort; keys only where values_in is NULL. */
cudaError_t sort_ints(cudaStream_t stream, void *storage, size_t *bytes, const int *keys_in,
                      int *keys_out, const int *values_in, int *values_out, int count,
                      int begin_bit, int end_bit, int descending);
cudaError_t sort_floats(cudaStream_t stream, void *storage, size_t *bytes, const float *keys_in,
                        float *keys_out, const int *values_in, int *values_out, int count,
                        int begin_bit, int end_bit, int descending);
cudaError_t sort_unsigned_long(cudaStream_t stream, void *storage, size_t *bytes,
                               const uint64_t *keys_in, uint64_t *keys_out, const int *values_in,
                               int *values_out, int count, int begin_bit, int end_bit,
                               int descending);

#ifdef __cplusplus
}
#endif

#endif
