/* Counter-based random numbers: a value depends on (seed, stream, index) alone, so every rank, rank
 * count and system draws the same parameters and the same batches. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) makes of its state, which it first moves on by
 * a step. */
#define MP_SPLITMIX_STEP UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t mp_random_splitmix(uint64_t state) {
    state += MP_SPLITMIX_STEP;
    state = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    state = (state ^ (state >> 27)) * UINT64_C(0x94d049bb133111eb);
    return state ^ (state >> 31);
}

/* 64 well-mixed bits of (seed, stream, index): that is done to each argument in turn. */
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
