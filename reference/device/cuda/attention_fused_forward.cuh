/* The kernel of fused attention in forward; the scheme is told in attention_fused.cu. */
#ifndef MOEPERF_REFERENCE_DEVICE_CUDA_ATTENTION_FUSED_FORWARD_CUH
#define MOEPERF_REFERENCE_DEVICE_CUDA_ATTENTION_FUSED_FORWARD_CUH

#include "reference/device/cuda/attention_tile.cuh"

namespace mp {
namespace attention {

/* Of the rows of a warp that a lane has a part of: lane / 4 of each half band. */
template <int WIDTH> struct softmax_state {
    float largest[tiles<WIDTH>::BANDS][2], sum[tiles<WIDTH>::BANDS][2];
};

/* Over the four lanes that have parts of the same row. */
__device__ __forceinline__ float row_sum(float value) {
    value += __shfl_xor_sync(ALL_LANES, value, 1);
    return value + __shfl_xor_sync(ALL_LANES, value, 2);
}

__device__ __forceinline__ float row_largest(float value) {
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}

/* Scores become exp(scale (score - the row's largest)); what was summed before is scaled to the new
 * largest.  Every row has a key in the first tile: its largest is finite. */
template <int WIDTH>
__device__ __forceinline__ void soften(
    float (&score)[tiles<WIDTH>::BANDS][tiles<WIDTH>::OTHER / 8][4], float scale,
    softmax_state<WIDTH> &state, float (&out)[tiles<WIDTH>::BANDS][tiles<WIDTH>::ACCESSES][4]) {
    typedef tiles<WIDTH> t;
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
            const float by = power_of_two((state.largest[band][half] - largest) * scale);
            const float from = -largest * scale;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < t::OTHER / 8; n++)
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++)
                    sum += score[band][n][i] = power_of_two(fmaf(score[band][n][i], scale, from));
            state.largest[band][half] = largest;
            state.sum[band][half] = fmaf(state.sum[band][half], by, sum);
#pragma unroll
            for (int n = 0; n < t::ACCESSES; n++) {
                out[band][n][half * 2] *= by;
                out[band][n][half * 2 + 1] *= by;
            }
        }
}

/* A tile of keys and values for the warp's queries from `query` on. */
template <int WIDTH>
__device__ __forceinline__ void forward_tile(
    const uint32_t (&q)[tiles<WIDTH>::BANDS][tiles<WIDTH>::STEPS][4], const char *k, const char *v,
    int query, int key, float scale, softmax_state<WIDTH> &state,
    float (&out)[tiles<WIDTH>::BANDS][tiles<WIDTH>::ACCESSES][4]) {
    typedef tiles<WIDTH> t;
    float score[t::BANDS][t::OTHER / 8][4];
    set_zero(score);
#pragma unroll
    for (int step = 0; step < t::STEPS; step++)
#pragma unroll
        for (int n = 0; n < t::OTHER / 16; n++) {
            uint32_t right[2][2];
            load_turned(right, turned_at<WIDTH>(k, n * 16, lane_of_warp()), step);
#pragma unroll
            for (int band = 0; band < t::BANDS; band++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    mma_m16n8k16(score[band][n * 2 + half], q[band][step], right[half]);
        }
    if (key + t::OTHER - 1 > query)
        hide_keys(score, query, key);
    soften<WIDTH>(score, scale, state, out);
#pragma unroll
    for (int n = 0; n < t::OTHER / 16; n++) {
        uint32_t p[t::BANDS][4];
#pragma unroll
        for (int band = 0; band < t::BANDS; band++)
            to_left(p[band], score[band][n * 2], score[band][n * 2 + 1]);
        add_rows<WIDTH>(out, p, rows_at<WIDTH>(v, n * 16, lane_of_warp()));
    }
}

/* out and logsumexp of a block of queries. */
template <int WIDTH>
__global__ void __launch_bounds__(tiles<WIDTH>::THREADS, 2)
    fused_forward_kernel(fused_shape shape, int blocks, const element *__restrict__ qkv,
                         element *__restrict__ out, float *__restrict__ logsumexp) {
    typedef tiles<WIDTH> t;
    __shared__ __align__(256) char own[t::OWN_BYTES];
    __shared__ __align__(256) char other[2][2][t::OTHER_BYTES];
    const fused_work work = work_of<WIDTH>(shape, blocks, true);
    const int first = work.block * t::OWN, step = 3 * work.model;
    const int end = first + t::OWN < shape.sequence ? first + t::OWN : shape.sequence;
    const int row = (int)threadIdx.x / WARP * t::WARP_ROWS;
    const float scale = shape.scale * LOG2_OF_E;
    const element *q = qkv + work.token * step + work.column;
    const element *k = q + work.model, *v = k + work.model;

    copy_rows<WIDTH, t::OWN>(own, q, step, first, shape.sequence);
    copy_rows<WIDTH, t::OTHER>(other[0][0], k, step, 0, shape.sequence);
    copy_rows<WIDTH, t::OTHER>(other[0][1], v, step, 0, shape.sequence);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    uint32_t left[t::BANDS][t::STEPS][4];
    load_own<WIDTH>(left, own, row);

    softmax_state<WIDTH> state;
    float sums[t::BANDS][t::ACCESSES][4];
    set_zero(sums);
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            state.largest[band][half] = -INFINITY;
            state.sum[band][half] = 0;
        }
    for (int key = 0, stage = 0; key < end; key += t::OTHER, stage ^= 1) {
        copy_async_wait<0>();
        __syncthreads(); /* this tile is here, and all are done with the one before */
        if (key + t::OTHER < end) {
            copy_rows<WIDTH, t::OTHER>(other[stage ^ 1][0], k, step, key + t::OTHER,
                                       shape.sequence);
            copy_rows<WIDTH, t::OTHER>(other[stage ^ 1][1], v, step, key + t::OTHER,
                                       shape.sequence);
            copy_async_commit();
        }
        if (key < first + row + t::WARP_ROWS)
            forward_tile<WIDTH>(left, other[stage][0], other[stage][1], first + row, key, scale,
                                state, sums);
    }

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
    store_rows<WIDTH>(own, sums, factor, row, out + work.token * work.model + work.column,
                      work.model, first, shape.sequence);
}

} // namespace attention
} // namespace mp

#endif
