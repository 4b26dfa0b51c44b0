/* Both factors are copied as fp32 into strips of ROWS rows and COLUMNS columns, all of k one after
 * another; then each pair of strips is multiplied in registers. */
#include "product.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, VECTORS = 2, ROWS = LANES * VECTORS, COLUMNS = 6 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef lanes unaligned_lanes __attribute__((aligned(4), may_alias));

/* Matrices have been found to be in device memory before; with every access looked at products
 * would take most of a sanitized test's time. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

UNCHECKED static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even. */
UNCHECKED static uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return isnan(value) ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

UNCHECKED static float element(const void *matrix, cudaDataType type, int64_t at) {
    return type == CUDA_R_16BF ? float_of((uint32_t)((const uint16_t *)matrix)[at] << 16)
                               : ((const float *)matrix)[at];
}

/* strip[k][width]: `count` rows from `first` on, each of k elements `along` apart, `across` to the
 * next row; zeros behind them. */
UNCHECKED static void pack(const struct double_product *p, const void *matrix, int first, int count,
                           int width, int64_t across, int64_t along, float *strip) {
    for (int i = 0; i < width; i++)
        for (int k = 0; k < p->k; k++)
            strip[(int64_t)k * width + i] =
                i < count ? element(matrix, p->type, (first + i) * across + k * along) : 0;
}

/* sum[column][row] of two strips. */
UNCHECKED static inline __attribute__((always_inline)) void multiply_strips(int k,
                                                                            const float *restrict a,
                                                                            const float *restrict b,
                                                                            float *restrict sum) {
    lanes total[COLUMNS][VECTORS] = {0};
    for (int i = 0; i < k; i++) {
        const unaligned_lanes *rows = (const unaligned_lanes *)(a + (int64_t)i * ROWS);
        for (int column = 0; column < COLUMNS; column++)
            for (int v = 0; v < VECTORS; v++)
                total[column][v] += rows[v] * b[(int64_t)i * COLUMNS + column];
    }
    memcpy(sum, total, sizeof total);
}

UNCHECKED static void multiply_anywhere(int k, const float *a, const float *b, float *sum) {
    multiply_strips(k, a, b, sum);
}

#if defined(__x86_64__)
UNCHECKED __attribute__((target("avx2,fma"))) static void multiply_fused(int k, const float *a,
                                                                         const float *b,
                                                                         float *sum) {
    multiply_strips(k, a, b, sum);
}
#endif

static void (*best_multiply(void))(int, const float *, const float *, float *) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return multiply_fused;
#endif
    return multiply_anywhere;
}

UNCHECKED static void put(const struct double_product *p, int row, int column, float sum) {
    int64_t at = row + (int64_t)column * p->ldc;
    float value = p->alpha * sum;
    if (p->beta != 0)
        value += p->beta * element(p->c, p->type_c, at);
    if (p->type_c == CUDA_R_16BF)
        ((uint16_t *)p->c)[at] = rounded(value);
    else
        ((float *)p->c)[at] = value;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

bool double_multiply(const struct double_product *p) {
    void (*multiply)(int, const float *, const float *, float *) = best_multiply();
    int strips = (p->m + ROWS - 1) / ROWS;
    size_t strip = (size_t)p->k * ROWS;
    float *a = malloc(((size_t)strips * strip + 1) * sizeof *a);
    float *b = malloc(((size_t)p->k * COLUMNS + 1) * sizeof *b);
    bool done = a && b;
    for (int s = 0; s < strips && done; s++)
        pack(p, p->a, s * ROWS, least(ROWS, p->m - s * ROWS), ROWS, p->transpose_a ? p->lda : 1,
             p->transpose_a ? 1 : p->lda, a + (size_t)s * strip);
    for (int column = 0; column < p->n && done; column += COLUMNS) {
        int columns = least(COLUMNS, p->n - column);
        pack(p, p->b, column, columns, COLUMNS, p->transpose_b ? 1 : p->ldb,
             p->transpose_b ? p->ldb : 1, b);
        for (int s = 0; s < strips; s++) {
            float sum[COLUMNS * ROWS];
            multiply(p->k, a + (size_t)s * strip, b, sum);
            for (int i = 0; i < columns; i++)
                for (int row = 0; row < least(ROWS, p->m - s * ROWS); row++)
                    put(p, s * ROWS + row, column + i, sum[i * ROWS + row]);
        }
    }
    free(a);
    free(b);
    return done;
}
