/* The kernel of fused attention in forward; the scheme is told in attention_fused.cu. */
#pragma once

#include "reference/device/cuda/attention_tile.cuh"

namespace mp {
namespace attention {

/* Of the rows of a warp that a lane has a part of: lane / 4 of each half band. */
template <typename t> struct softmax_state { float largest[t::BANDS][2], sum[t::BANDS][2]; };

/* Over the four lanes that have parts of the same row. */
__device__ __forceinline__ float row_sum(float value) {
    value += __shfl_xor_sync(ALL_LANES, value, 1);
    return value + __shfl_xor_sync(ALL_LANES, value, 2);
}

__device__ __forceinline__ float row_largest(float value) {
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}

/* Scores become exp(scale (score - the row's largest)).  What was summed before is to be multiplied
 * with by[band][half], for the new largest.  Every row has a key in the first tile: its largest is
 * finite. */
template <typename t>
__device__ __forceinline__ void soften(float (&score)[t::BANDS][t::OTHER / 8][4], float scale,
                                       softmax_state<t> &state, float (&by)[t::BANDS][2]) {
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float largest = state.largest[band][half];
#pragma unroll
            for (int n = 0; n < t::OTHER / 8; n++)
                largest =
                    fmaxf(largest, fmaxf(score[band][n][half * 2], score[band][n][half * 2 + 1]));
            largest = row_largest(largest);
            by[band][half] = power_of_two((state.largest[band][half] - largest) * scale);
            const float from = -largest * scale;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < t::OTHER / 8; n++)
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++)
                    sum += score[band][n][i] = power_of_two(fmaf(score[band][n][i], scale, from));
            state.largest[band][half] = largest;
            state.sum[band][half] = fmaf(state.sum[band][half], by[band][half], sum);
        }
}

template <typename t>
__device__ __forceinline__ void multiply_rows(float (&out)[t::BANDS][t::ACCESSES][4],
                                              const float (&by)[t::BANDS][2]) {
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int n = 0; n < t::ACCESSES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[band][n][i] *= by[band][i / 2];
}

template <typename t>
__device__ __forceinline__ void begin_rows(softmax_state<t> &state,
                                           float (&out)[t::BANDS][t::ACCESSES][4]) {
    set_zero(out);
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            state.largest[band][half] = -INFINITY;
            state.sum[band][half] = 0;
        }
}

/* Writes out and logsumexp of the warp's rows, [row, ..) of those from `first` on, by way of `own`,
 * as store_rows does. */
template <typename t>
__device__ __forceinline__ void end_rows(char *own, const fused_shape &shape,
                                         const fused_work &work, int first, int row, int end,
                                         const softmax_state<t> &state,
                                         const float (&sums)[t::BANDS][t::ACCESSES][4],
                                         element *out, float *logsumexp) {
    float factor[t::BANDS][2];
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int lane = lane_of_warp(), query = first + row + band * 16 + half * 8 + lane / 4;
            const float sum = row_sum(state.sum[band][half]);
            factor[band][half] = 1 / sum;
            if (lane % 4 == 0 && query < end)
                logsumexp[(int64_t)work.pair * shape.sequence + query] =
                    fmaf(state.largest[band][half], shape.scale, logf(sum));
        }
    store_rows<t>(own, sums, factor, row, out + work.token * work.model + work.column, work.model,
                  first, end);
}

/* A tile of keys and values for the warp's queries from `query` on. */
template <typename t>
__device__ __forceinline__ void forward_tile(const uint32_t (&q)[t::BANDS][t::STEPS][4],
                                             const char *k, const char *v, int query, int key,
                                             float scale, softmax_state<t> &state,
                                             float (&out)[t::BANDS][t::ACCESSES][4]) {
    float score[t::BANDS][t::OTHER / 8][4];
    set_zero(score);
#pragma unroll
    for (int step = 0; step < t::STEPS; step++)
#pragma unroll
        for (int n = 0; n < t::OTHER / 16; n++) {
            uint32_t right[2][2];
            load_turned(right, turned_at<t>(k, n * 16, lane_of_warp()), step);
#pragma unroll
            for (int band = 0; band < t::BANDS; band++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    mma_m16n8k16(score[band][n * 2 + half], q[band][step], right[half]);
        }
    if (key + t::OTHER - 1 > query)
        hide_keys(score, query, key);
    float by[t::BANDS][2];
    soften<t>(score, scale, state, by);
    multiply_rows<t>(out, by);
#pragma unroll
    for (int n = 0; n < t::OTHER / 16; n++) {
        uint32_t p[t::BANDS][4];
#pragma unroll
        for (int band = 0; band < t::BANDS; band++)
            to_left(p[band], score[band][n * 2], score[band][n * 2 + 1]);
        add_rows<t>(out, p, rows_at<t>(v, n * 16, lane_of_warp()));
    }
}

/* out and logsumexp of a block of queries. */
template <typename t>
__global__ void __launch_bounds__(t::THREADS, 2)
    fused_forward_kernel(fused_shape shape, int blocks, const element *__restrict__ qkv,
                         element *__restrict__ out, float *__restrict__ logsumexp) {
    __shared__ __align__(256) char own[t::OWN_BYTES];
    __shared__ __align__(256) char other[2][2][t::OTHER_BYTES];
    const fused_work work = work_of<t>(shape, blocks, true);
    const int first = work.block * t::OWN, step = 3 * work.model;
    const int end = first + t::OWN < shape.sequence ? first + t::OWN : shape.sequence;
    const int row = (int)threadIdx.x / WARP * t::WARP_ROWS;
    const float scale = shape.scale * LOG2_OF_E;
    const element *q = qkv + work.token * step + work.column;
    const element *k = q + work.model, *v = k + work.model;

    copy_rows<t, t::OWN>(own, q, step, first, shape.sequence);
    copy_rows<t, t::OTHER>(other[0][0], k, step, 0, shape.sequence);
    copy_rows<t, t::OTHER>(other[0][1], v, step, 0, shape.sequence);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    uint32_t left[t::BANDS][t::STEPS][4];
    load_own<t>(left, own, row);

    softmax_state<t> state;
    float sums[t::BANDS][t::ACCESSES][4];
    begin_rows<t>(state, sums);
    for (int key = 0, stage = 0; key < end; key += t::OTHER, stage ^= 1) {
        copy_async_wait<0>();
        __syncthreads(); /* this tile is here, and all are done with the one before */
        if (key + t::OTHER < end) {
            copy_rows<t, t::OTHER>(other[stage ^ 1][0], k, step, key + t::OTHER, shape.sequence);
            copy_rows<t, t::OTHER>(other[stage ^ 1][1], v, step, key + t::OTHER, shape.sequence);
            copy_async_commit();
        }
        if (key < first + row + t::WARP_ROWS)
            forward_tile<t>(left, other[stage][0], other[stage][1], first + row, key, scale, state,
                            sums);
    }

    end_rows<t>(own, shape, work, first, row, end, state, sums, out, logsumexp);
}

} // namespace attention
} // namespace mp
