/* Transposition of a matrix in vector registers. */
#pragma once

#include <stddef.h>
#include <string.h>

/* Eight floats.  Both compilers lower it to what the instruction set has. */
typedef float transpose_row __attribute__((vector_size(32)));

/* One step of the three: neighbours at distance 1, 2 and 4 exchange halves of halves. */
#define TRANSPOSE_EXCHANGE(a, b, ...)                                                              \
    {                                                                                              \
        transpose_row low = __builtin_shufflevector(a, b, TRANSPOSE_LOW_##__VA_ARGS__);            \
        b = __builtin_shufflevector(a, b, TRANSPOSE_HIGH_##__VA_ARGS__);                           \
        a = low;                                                                                   \
    }
#define TRANSPOSE_LOW_1 0, 8, 2, 10, 4, 12, 6, 14
#define TRANSPOSE_HIGH_1 1, 9, 3, 11, 5, 13, 7, 15
#define TRANSPOSE_LOW_2 0, 1, 8, 9, 4, 5, 12, 13
#define TRANSPOSE_HIGH_2 2, 3, 10, 11, 6, 7, 14, 15
#define TRANSPOSE_LOW_4 0, 1, 2, 3, 8, 9, 10, 11
#define TRANSPOSE_HIGH_4 4, 5, 6, 7, 12, 13, 14, 15

static inline void transpose_block(const float *from, size_t from_stride, float *to,
                                   size_t to_stride) {
    transpose_row row[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        memcpy(&row[i], from + (size_t)i * from_stride, sizeof row[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2)
        TRANSPOSE_EXCHANGE(row[i], row[i + 1], 1)
    for (int i = 0; i < 8; i += 4) {
        TRANSPOSE_EXCHANGE(row[i], row[i + 2], 2)
        TRANSPOSE_EXCHANGE(row[i + 1], row[i + 3], 2)
    }
    for (int i = 0; i < 4; i++)
        TRANSPOSE_EXCHANGE(row[i], row[i + 4], 4)
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        memcpy(to + (size_t)i * to_stride, &row[i], sizeof row[i]);
}

/* to[column][row] = from[row][column]; strides are the distances of rows. */
static inline void transpose(size_t rows, size_t columns, const float *from, size_t from_stride,
                             float *to, size_t to_stride) {
    size_t row = 0;
    for (; row + 8 <= rows; row += 8) {
        size_t column = 0;
        for (; column + 8 <= columns; column += 8)
            transpose_block(from + row * from_stride + column, from_stride,
                            to + column * to_stride + row, to_stride);
        for (; column < columns; column++)
            for (size_t i = row; i < row + 8; i++)
                to[column * to_stride + i] = from[i * from_stride + column];
    }
    for (; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            to[column * to_stride + row] = from[row * from_stride + column];
}
