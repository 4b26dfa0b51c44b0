/* Double of the instructions in reference/device/cuda/mma.cuh: products of small matrices by a
 * warp, loading their fragments, copies that run beside the thread.
 *
 * Fragments are put together from whole matrices, by the formulas of the PTX ISA for the element i
 * of a lane: with groupID = lane >> 2 and threadID_in_group = lane % 4, A, 16 x 16, i < 8:  row =
 * groupID for i in {0, 1, 4, 5}, else groupID + 8; column = threadID_in_group * 2 + (i & 1), + 8
 * for i >= 4 B, 16 x 8, i < 4:   row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2;  column =
 * groupID C, 16 x 8, i < 4:   row = groupID for i < 2, else groupID + 8; column = threadID_in_group
 * * 2 + (i & 1) */
#pragma once

#include <stdint.h>
#include <string.h>

#include "device_functions.h"

namespace mp {

typedef uintptr_t shared_address;

inline shared_address address_of(const void *shared) {
    return (shared_address)shared;
}

namespace warp_matrix {

/* Of fragments, whose sizes are their types': with every access looked at, products would take most
 * of a sanitized test's time. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* Element i of the two to a register, lower half first. */
UNCHECKED inline uint16_t half_of(const uint32_t *registers, int i) {
    return (uint16_t)(registers[i / 2] >> (i % 2 * 16));
}

UNCHECKED inline float value_of(uint16_t bits) {
    return __uint_as_float((unsigned)bits << 16);
}

struct product {
    cuda_double_together together;
    float *sums;
    const uint32_t *left, *right;
};

/* Products of bf16 are exact in fp32; sums are rounded one by one. */
UNCHECKED inline void multiply(cuda_double_together *const lanes[32]) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const product *p = (const product *)lanes[lane];
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 8; i++) {
            const bool upper = i == 0 || i == 1 || i == 4 || i == 5;
            const int row = upper ? group : group + 8;
            const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            a[row][column] = value_of(half_of(p->left, i));
        }
        for (int i = 0; i < 4; i++) {
            const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            b[row][group] = value_of(half_of(p->right, i));
        }
    }
    float c[16][8] = {};
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++)
                c[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < 32; lane++) {
        product *p = (product *)lanes[lane];
        for (int i = 0; i < 4; i++) {
            const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
            p->sums[i] += c[row][lane % 4 * 2 + (i & 1)];
        }
    }
}

#undef UNCHECKED

struct loading {
    cuda_double_together together;
    uint32_t *fragment;
    shared_address row;
};

/* Lanes 8 m .. 8 m + 7 give the rows of matrix m; lane 4 r + c gets its elements 2 c and 2 c + 1 of
 * row r, or of the transpose's row r. */
template <bool TURNED> inline void load(cuda_double_together *const lanes[32]) {
    uint16_t matrix[4][8][8];
    for (int lane = 0; lane < 32; lane++)
        memcpy(matrix[lane / 8][lane % 8], (const void *)((const loading *)lanes[lane])->row, 16);
    for (int lane = 0; lane < 32; lane++) {
        loading *l = (loading *)lanes[lane];
        const int row = lane / 4, column = lane % 4 * 2;
        for (int m = 0; m < 4; m++) {
            const uint32_t low = TURNED ? matrix[m][column][row] : matrix[m][row][column];
            const uint32_t high = TURNED ? matrix[m][column + 1][row] : matrix[m][row][column + 1];
            l->fragment[m] = low | high << 16;
        }
    }
}

/* Rows of matrices start at 16 bytes. */
template <bool TURNED>
inline void load_together(uint32_t *fragment, shared_address row, const char *file, int line) {
    loading mine = {{load<TURNED>}, fragment, row};
    if (row % 16 != 0)
        cuda_double_trap(file, line);
    cuda_double_do_together(&mine.together, file, line);
}

} // namespace warp_matrix

inline void mma_m16n8k16(float (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2],
                         CUDA_DOUBLE_PLACE) {
    warp_matrix::product mine = {{warp_matrix::multiply}, sums, left, right};
    cuda_double_do_together(&mine.together, file, line);
}

inline void ldmatrix_x4(uint32_t (&fragment)[4], shared_address row, CUDA_DOUBLE_PLACE) {
    warp_matrix::load_together<false>(fragment, row, file, line);
}

inline void ldmatrix_x4_trans(uint32_t (&fragment)[4], shared_address row, CUDA_DOUBLE_PLACE) {
    warp_matrix::load_together<true>(fragment, row, file, line);
}

inline void copy_async_16(void *to, const void *from, bool there, CUDA_DOUBLE_PLACE) {
    cuda_double_begin_copy(to, there ? from : nullptr, 16, file, line);
}

inline void copy_async_4(void *to, const void *from, bool there, CUDA_DOUBLE_PLACE) {
    cuda_double_begin_copy(to, there ? from : nullptr, 4, file, line);
}

inline void copy_async_commit() {
    cuda_double_end_group();
}

template <int PENDING> inline void copy_async_wait() {
    cuda_double_wait_groups(PENDING);
}

inline int thread_read_again() {
    return (int)threadIdx.x;
}

inline float power_of_two(float x) {
    return exp2f(x);
}

/* A GPU would pass over what it can't reach. */
inline void prefetch(const void *from, CUDA_DOUBLE_PLACE) {
    if (!cuda_double_is_device(from, 1))
        cuda_double_trap(file, line);
}

} // namespace mp
