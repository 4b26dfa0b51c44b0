/* The kernels of attention: what happens to rows of scores between the matrix products.  Each is
 * one pass over memory, in accesses of 16 bytes, with a warp to a row.
 *
 * Rows of scores belong to queries, columns to keys.  A launch handles queries [first, end) of a
 * number of pairs: the row of query i has the keys 0 .. i, and zeros up to `end`, which is as far
 * as products read. */
#pragma once

#include "reference/device/cuda/kernel.cuh"

namespace mp {
namespace attention {

/* exp(value - from).  expf takes eight instructions, which would keep a warp of bf16 scores busy
 * for as long as memory does; this takes half of that, and its error of 2^-21 or so is lost when
 * the result is rounded to bf16. */
template <typename T> __device__ __forceinline__ float exponential(float value, float from);
template <> __device__ __forceinline__ float exponential<float>(float value, float from) {
    return expf(value - from);
}
template <> __device__ __forceinline__ float exponential<__nv_bfloat16>(float value, float from) {
    constexpr float LOG2_E = 1.44269504f;
    return exp2f(fmaf(value, LOG2_E, -from * LOG2_E));
}

/* Rows of queries [first, end) of `pairs` pairs; steps count elements. */
struct row_block {
    int pairs, sequence;
    int first, end;
    int row_step;      /* multiple of 16 bytes, as is pair_step */
    int64_t pair_step; /* from the row of query `first` to that of the next pair */
};

/* Where one warp works. */
struct score_row {
    int64_t at;    /* its first score */
    int64_t query; /* among [pairs][sequence] */
    int count;     /* keys: 1 more than the query's number */
};

__device__ __forceinline__ score_row row_of(const row_block &rows, unsigned index) {
    unsigned in_pair = (unsigned)(rows.end - rows.first);
    int pair = (int)(index / in_pair), number = (int)(index % in_pair);
    score_row row;
    row.at = pair * rows.pair_step + (int64_t)number * rows.row_step;
    row.query = (int64_t)pair * rows.sequence + rows.first + number;
    row.count = rows.first + number + 1;
    return row;
}

/* Scores become probabilities; logsumexp [pairs][sequence].  A lane keeps its ACCESSES of the row
 * in registers, so that memory is read once. */
template <typename T, int ACCESSES, int WARPS>
__global__ void softmax_rows(row_block rows, T *score, float *logsumexp) {
    constexpr int VECTOR = ACCESS_ELEMENTS<T>;
    const int lane = (int)threadIdx.x % WARP;
    const unsigned index = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (index >= (unsigned)rows.pairs * (unsigned)(rows.end - rows.first))
        return;
    const score_row row = row_of(rows, index);
    score += row.at;

    float value[ACCESSES][VECTOR], largest = -INFINITY;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
        int column = (a * WARP + lane) * VECTOR;
        if (column < row.count)
            load(score + column, value[a]);
        if ((a + 1) * WARP * VECTOR > row.count) { /* the same for all lanes, mostly false */
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                value[a][i] = column + i < row.count ? value[a][i] : -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            largest = fmaxf(largest, value[a][i]);
    }
    largest = warp_largest(largest);

    float sum = 0;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            sum += value[a][i] = exponential<T>(value[a][i], largest);
    }
    sum = warp_sum(sum);
    if (lane == 0)
        logsumexp[row.query] = largest + logf(sum);

    const float inverse = 1.0f / sum;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
        int column = (a * WARP + lane) * VECTOR;
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            value[a][i] *= inverse;
        if (column < rows.end)
            store(score + column, value[a]);
    }
}

/* softmax_rows for rows that registers cannot hold: a block to a row, which it reads twice (the
 * second time mostly from cache).  The sum follows the largest score seen so far (Milakov and
 * Gimelshein, 2018, "Online normalizer calculation for softmax"). */
template <typename T, int THREADS>
__global__ void softmax_long_rows(row_block rows, T *score, float *logsumexp) {
    constexpr int VECTOR = ACCESS_ELEMENTS<T>;
    const score_row row = row_of(rows, blockIdx.x);
    score += row.at;

    float largest = -INFINITY, sum = 0, value[VECTOR];
    for (int column = (int)threadIdx.x * VECTOR; column < row.count; column += THREADS * VECTOR) {
        load(score + column, value);
        float before = largest;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            value[i] = column + i < row.count ? value[i] : -INFINITY;
            largest = fmaxf(largest, value[i]);
        }
        sum *= exponential<T>(before, largest);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            sum += exponential<T>(value[i], largest);
    }
    const float of_row = block_largest<THREADS>(largest);
    sum = block_sum<THREADS>(sum * exponential<T>(largest, of_row));
    if (threadIdx.x == 0)
        logsumexp[row.query] = of_row + logf(sum);

    const float inverse = 1.0f / sum;
    for (int column = (int)threadIdx.x * VECTOR; column < rows.end; column += THREADS * VECTOR) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            value[i] = 0;
        if (column < row.count)
            load(score + column, value);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            value[i] = column + i < row.count ? exponential<T>(value[i], of_row) * inverse : 0;
        store(score + column, value);
    }
}

/* What backward does to the rows: score -> probability, and dscore, which holds the gradient of the
 * probability -> gradient of the product of q and k.  Both matrices have the same steps;
 * logsumexp, delta [pairs][sequence]. */
template <typename T, int WARPS>
__global__ void gradient_rows(row_block rows, float scale, const float *logsumexp,
                              const float *delta, T *score, T *dscore) {
    constexpr int VECTOR = ACCESS_ELEMENTS<T>;
    constexpr int ACCESSES = 2; /* of each matrix in flight */
    const int lane = (int)threadIdx.x % WARP;
    const unsigned index = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (index >= (unsigned)rows.pairs * (unsigned)(rows.end - rows.first))
        return;
    const score_row row = row_of(rows, index);
    const float row_logsumexp = logsumexp[row.query], row_delta = delta[row.query];
    score += row.at;
    dscore += row.at;

    for (int from = lane * VECTOR; from < rows.end; from += ACCESSES * WARP * VECTOR) {
        float p[ACCESSES][VECTOR] = {}, dp[ACCESSES][VECTOR] = {};
#pragma unroll
        for (int a = 0; a < ACCESSES; a++) {
            int column = from + a * WARP * VECTOR;
            if (column < row.count) {
                load(score + column, p[a]);
                load(dscore + column, dp[a]);
            }
        }
#pragma unroll
        for (int a = 0; a < ACCESSES; a++) {
            int column = from + a * WARP * VECTOR;
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                bool seen = column + i < row.count; /* beyond is what the product made there */
                p[a][i] = seen ? exponential<T>(p[a][i], row_logsumexp) : 0;
                dp[a][i] = seen ? p[a][i] * (dp[a][i] - row_delta) * scale : 0;
            }
            if (column < rows.end) {
                store(score + column, p[a]);
                store(dscore + column, dp[a]);
            }
        }
    }
}

/* delta [pairs][sequence] = dot(dout, out) of the query and head = sum over its keys of probability
 * times gradient of the probability.  LANES lanes to a dot product of `width` elements, in accesses
 * of VECTOR: 8 lanes are 128 bytes, a head of 64 in bf16. */
constexpr int DELTA_LANES = 8;

template <typename T, int VECTOR, int THREADS>
__global__ void fill_delta(int first_pair, int pairs, int heads, int sequence, int width,
                           const T *out, const T *dout, float *delta) {
    const unsigned query = blockIdx.x * (THREADS / DELTA_LANES) + threadIdx.x / DELTA_LANES;
    const int lane = (int)threadIdx.x % DELTA_LANES;
    const bool exists = query < (unsigned)pairs * (unsigned)sequence;
    float sum = 0;
    if (exists) {
        int pair = first_pair + (int)(query / (unsigned)sequence);
        int64_t token = (int64_t)(pair / heads) * sequence + query % (unsigned)sequence;
        int64_t at = (token * heads + pair % heads) * width;
        for (int column = lane * VECTOR; column < width; column += DELTA_LANES * VECTOR) {
            float a[VECTOR], b[VECTOR];
            load(out + at + column, a);
            load(dout + at + column, b);
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                sum += a[i] * b[i];
        }
    }
#pragma unroll
    for (int distance = DELTA_LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    if (exists && lane == 0)
        delta[query] = sum;
}

} // namespace attention
} // namespace mp
