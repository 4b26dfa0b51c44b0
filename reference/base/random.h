/* Counter-based random numbers: a value depends on (seed, stream, index) alone, so every rank, rank
 * count and system draws the same parameters and the same batches. */
#ifndef MOEPERF_REFERENCE_BASE_RANDOM_H
#define MOEPERF_REFERENCE_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* 64 well-mixed bits of (seed, stream, index).  The mixing is that of SplitMix64 (Steele, Lea,
 * Flood, OOPSLA 2014) applied to each argument in turn. */
uint64_t mp_random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform integer below `bound` (> 0); the bias of at most bound / 2^64 is of no account here. */
uint64_t mp_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);

/* out[i] = deviation * N(0, 1), i < count, by Box and Muller over pairs of indices. */
void mp_random_normal(uint64_t seed, uint64_t stream, float deviation, size_t count, float *out);
/* Part of these as a matrix out [rows][columns], whose row r is what out[first + r * stride ...]
 * would be there.  Many numbers are drawn by threads, one for each core that the process may use:
 * the same bits all the same. */
void mp_random_normal_rows(uint64_t seed, uint64_t stream, float deviation, size_t first,
                           size_t stride, size_t rows, size_t columns, float *out);

#endif
