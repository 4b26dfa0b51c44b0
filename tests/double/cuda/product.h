/* Products of matrices, column by column, summed in fp32. */
#pragma once

#include <stdbool.h>

#include "library_types.h"

/* c[m][n] = alpha * op(a)[m][k] * op(b)[k][n] + beta * c; element (row, column) of c is at
 * row + column * ldc, likewise of a and b as they are stored.  c is not read where beta is 0. */
struct double_product {
    bool transpose_a, transpose_b;
    int m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const void *a, *b;
    void *c;
    cudaDataType type, type_c; /* fp32 or bfloat16 */
};
/* False: no memory to work in. */
bool double_multiply(const struct double_product *product);
