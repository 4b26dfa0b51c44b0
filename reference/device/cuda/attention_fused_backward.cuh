/* The kernels of fused attention in backward; the scheme is told in attention_fused.cu. */
#ifndef MOEPERF_REFERENCE_DEVICE_CUDA_ATTENTION_FUSED_BACKWARD_CUH
#define MOEPERF_REFERENCE_DEVICE_CUDA_ATTENTION_FUSED_BACKWARD_CUH

#include "reference/device/cuda/attention_tile.cuh"

namespace mp {
namespace attention {

/* The gradient of q for a block of queries. */
template <int WIDTH>
__device__ __forceinline__ void backward_q_tile(
    const uint32_t (&q)[tiles<WIDTH>::BANDS][tiles<WIDTH>::STEPS][4],
    const uint32_t (&dout)[tiles<WIDTH>::BANDS][tiles<WIDTH>::STEPS][4], const char *k,
    const char *v, int query, int key, float scale,
    const float (&logsumexp)[tiles<WIDTH>::BANDS][2], const float (&delta)[tiles<WIDTH>::BANDS][2],
    float (&dq)[tiles<WIDTH>::BANDS][tiles<WIDTH>::ACCESSES][4]) {
    typedef tiles<WIDTH> t;
#pragma unroll 1
    for (int n = 0; n < t::OTHER && key + n < query + t::WARP_ROWS; n += 16) {
        float score[t::BANDS][2][4], dscore[t::BANDS][2][4];
        set_zero(score);
        set_zero(dscore);
#pragma unroll
        for (int step = 0; step < t::STEPS; step++) {
            add_scores<WIDTH>(score, q, turned_at<WIDTH>(k, n, lane_of_warp()), step);
            add_scores<WIDTH>(dscore, dout, turned_at<WIDTH>(v, n, lane_of_warp()), step);
        }
        if (key + n + 15 > query)
            hide_keys(score, query, key + n);
        uint32_t left[t::BANDS][4];
#pragma unroll
        for (int band = 0; band < t::BANDS; band++) {
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float p =
                        power_of_two(fmaf(score[band][m][i], scale, -logsumexp[band][i / 2]));
                    dscore[band][m][i] = p * (dscore[band][m][i] - delta[band][i / 2]);
                }
            to_left(left[band], dscore[band][0], dscore[band][1]);
        }
        add_rows<WIDTH>(dq, left, rows_at<WIDTH>(k, n, lane_of_warp()));
    }
}

template <int WIDTH>
__global__ void __launch_bounds__(tiles<WIDTH>::THREADS, 2)
    fused_backward_q_kernel(fused_shape shape, int blocks, const element *__restrict__ qkv,
                            const element *__restrict__ dout, const float *__restrict__ logsumexp,
                            const float *__restrict__ delta, element *__restrict__ dqkv) {
    typedef tiles<WIDTH> t;
    static_assert(4 * t::OTHER_BYTES == 2 * t::OWN_BYTES, "own rows come through the same memory");
    __shared__ __align__(256) char other[2][2][t::OTHER_BYTES];
    const fused_work work = work_of<WIDTH>(shape, blocks, true);
    const int first = work.block * t::OWN, step = 3 * work.model;
    const int end = first + t::OWN < shape.sequence ? first + t::OWN : shape.sequence;
    const int row = (int)threadIdx.x / WARP * t::WARP_ROWS;
    const element *q = qkv + work.token * step + work.column;
    const element *k = q + work.model, *v = k + work.model;

    copy_rows<WIDTH, t::OWN>(other[0][0], q, step, first, shape.sequence);
    copy_rows<WIDTH, t::OWN>(other[1][0], dout + work.token * work.model + work.column, work.model,
                             first, shape.sequence);
    copy_async_commit();
    float row_logsumexp[t::BANDS][2], row_delta[t::BANDS][2], factor[t::BANDS][2];
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = first + row + band * 16 + half * 8 + lane_of_warp() / 4;
            const bool there = query < end;
            row_logsumexp[band][half] =
                there ? logsumexp[(int64_t)work.pair * shape.sequence + query] * LOG2_OF_E : 0;
            row_delta[band][half] =
                there ? delta[(int64_t)(work.pair - shape.first_pair) * shape.sequence + query] : 0;
            factor[band][half] = shape.scale;
        }
    uint32_t left_q[t::BANDS][t::STEPS][4], left_dout[t::BANDS][t::STEPS][4];
    copy_async_wait<0>();
    __syncthreads();
    load_own<WIDTH>(left_q, other[0][0], row);
    load_own<WIDTH>(left_dout, other[1][0], row);
    __syncthreads();

    copy_rows<WIDTH, t::OTHER>(other[0][0], k, step, 0, shape.sequence);
    copy_rows<WIDTH, t::OTHER>(other[0][1], v, step, 0, shape.sequence);
    copy_async_commit();
    float sums[t::BANDS][t::ACCESSES][4];
    set_zero(sums);
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
        backward_q_tile<WIDTH>(left_q, left_dout, other[stage][0], other[stage][1], first + row,
                               key, shape.scale * LOG2_OF_E, row_logsumexp, row_delta, sums);
    }
    __syncthreads();
    store_rows<WIDTH>(other[0][0], sums, factor, row, dqkv + work.token * step + work.column, step,
                      first, shape.sequence);
}

/* Of the queries of a tile: OTHER times logsumexp, OTHER times delta. */
template <int WIDTH> struct query_numbers { float value[2 * tiles<WIDTH>::OTHER]; };

/* Begins copying those of queries [query, query + OTHER), one for each of the first 2 OTHER
 * threads; from `end` on they are zeros, as q and dout are, with which dS is 0 and what P is
 * multiplied with, too. */
template <int WIDTH>
__device__ __forceinline__ void copy_numbers(query_numbers<WIDTH> &numbers, const float *logsumexp,
                                             const float *delta, int query, int end) {
    constexpr int OTHER = tiles<WIDTH>::OTHER;
    static_assert(2 * OTHER <= tiles<WIDTH>::THREADS, "a thread to each");
    const int thread = thread_read_again(), of_thread = query + thread % OTHER;
    if (thread < 2 * OTHER)
        copy_async_4(numbers.value + thread, (thread < OTHER ? logsumexp : delta) + of_thread,
                     of_thread < end);
}

/* A tile of queries, with the gradient of their out, for the warp's keys from `key` on.  Scores are
 * turned over: rows are keys. */
template <int WIDTH>
__device__ __forceinline__ void backward_kv_tile(
    const uint32_t (&k)[tiles<WIDTH>::BANDS][tiles<WIDTH>::STEPS][4],
    const uint32_t (&v)[tiles<WIDTH>::BANDS][tiles<WIDTH>::STEPS][4], const char *q,
    const char *dout, const query_numbers<WIDTH> &numbers, int key, int query, float scale,
    float (&dk)[tiles<WIDTH>::BANDS][tiles<WIDTH>::ACCESSES][4],
    float (&dv)[tiles<WIDTH>::BANDS][tiles<WIDTH>::ACCESSES][4]) {
    typedef tiles<WIDTH> t;
#pragma unroll 1
    for (int n = 0; n < t::OTHER; n += 16) {
        if (query + n + 15 < key)
            continue;                                /* all of these come before all of the keys */
        const int lane = thread_read_again() % WARP; /* no registers are left to keep places */
        float score[t::BANDS][2][4], dscore[t::BANDS][2][4];
        set_zero(score);
        set_zero(dscore);
#pragma unroll
        for (int step = 0; step < t::STEPS; step++) {
            add_scores<WIDTH>(score, k, turned_at<WIDTH>(q, n, lane), step);
            add_scores<WIDTH>(dscore, v, turned_at<WIDTH>(dout, n, lane), step);
        }
        const bool hidden = query + n < key + t::WARP_ROWS - 1;
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const int column = n + m * 8 + lane % 4 * 2;
            float2 logsumexp = *(const float2 *)(numbers.value + column);
            const float2 delta = *(const float2 *)(numbers.value + t::OTHER + column);
            logsumexp.x *= LOG2_OF_E;
            logsumexp.y *= LOG2_OF_E;
#pragma unroll
            for (int band = 0; band < t::BANDS; band++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float p = power_of_two(
                        fmaf(score[band][m][i], scale, -(i % 2 ? logsumexp.y : logsumexp.x)));
                    if (hidden && query + column + i % 2 < key + band * 16 + i / 2 * 8 + lane / 4)
                        p = 0;
                    score[band][m][i] = p;
                    dscore[band][m][i] = p * (dscore[band][m][i] - (i % 2 ? delta.y : delta.x));
                }
        }
        uint32_t p[t::BANDS][4], ds[t::BANDS][4];
#pragma unroll
        for (int band = 0; band < t::BANDS; band++) {
            to_left(p[band], score[band][0], score[band][1]);
            to_left(ds[band], dscore[band][0], dscore[band][1]);
        }
        add_rows<WIDTH>(dv, p, rows_at<WIDTH>(dout, n, lane));
        add_rows<WIDTH>(dk, ds, rows_at<WIDTH>(q, n, lane));
    }
}

/* Where a block of keys finds what it needs, [query or key][WIDTH] with the steps of all tokens. */
struct kv_places {
    const element *q, *k, *v, *dout;
    const float *logsumexp, *delta;
    element *dk, *dv;
    int first; /* key */
};

template <int WIDTH>
__device__ __forceinline__ void copy_queries(char *q, char *dout, query_numbers<WIDTH> &numbers,
                                             const kv_places &places, int model, int query,
                                             int end) {
    copy_rows<WIDTH, tiles<WIDTH>::OTHER>(q, places.q, 3 * model, query, end);
    copy_rows<WIDTH, tiles<WIDTH>::OTHER>(dout, places.dout, model, query, end);
    copy_numbers<WIDTH>(numbers, places.logsumexp, places.delta, query, end);
    copy_async_commit();
}

/* The gradients of k and v for a block of keys.  Registers are full: sums and own rows take 192 of
 * 255.  What all threads have in common therefore lies in shared memory. */
template <int WIDTH>
__global__ void __launch_bounds__(tiles<WIDTH>::THREADS, 2)
    fused_backward_kv_kernel(fused_shape shape, int blocks, const element *__restrict__ qkv,
                             const element *__restrict__ dout, const float *__restrict__ logsumexp,
                             const float *__restrict__ delta, element *__restrict__ dqkv) {
    typedef tiles<WIDTH> t;
    __shared__ __align__(256) char other[2][2][t::OTHER_BYTES];
    __shared__ __align__(16) query_numbers<WIDTH> numbers[2];
    __shared__ kv_places places;
    const int model = shape.heads * WIDTH, end = shape.sequence;
    if (threadIdx.x == 0) {
        const fused_work work = work_of<WIDTH>(shape, blocks, false);
        const int64_t at = work.token * 3 * model + work.column;
        places.q = qkv + at;
        places.k = places.q + model;
        places.v = places.k + model;
        places.dout = dout + work.token * model + work.column;
        places.logsumexp = logsumexp + (int64_t)work.pair * end;
        places.delta = delta + (int64_t)(work.pair - shape.first_pair) * end;
        places.dk = dqkv + at + model;
        places.dv = places.dk + model;
        places.first = work.block * t::OWN;
    }
    __syncthreads();
    copy_rows<WIDTH, t::OWN>(other[0][0], places.k, 3 * model, places.first, end);
    copy_rows<WIDTH, t::OWN>(other[1][0], places.v, 3 * model, places.first, end);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    uint32_t left_k[t::BANDS][t::STEPS][4], left_v[t::BANDS][t::STEPS][4];
    load_own<WIDTH>(left_k, other[0][0], own_row<WIDTH>());
    load_own<WIDTH>(left_v, other[1][0], own_row<WIDTH>());
    __syncthreads();

    copy_queries<WIDTH>(other[0][0], other[0][1], numbers[0], places, model, places.first, end);
    float dk[t::BANDS][t::ACCESSES][4], dv[t::BANDS][t::ACCESSES][4];
    set_zero(dk);
    set_zero(dv);
    for (int query = places.first, stage = 0; query < end; query += t::OTHER, stage ^= 1) {
        copy_async_wait<0>();
        __syncthreads(); /* this tile is here, and all are done with the one before */
        if (query + t::OTHER < end)
            copy_queries<WIDTH>(other[stage ^ 1][0], other[stage ^ 1][1], numbers[stage ^ 1],
                                places, model, query + t::OTHER, end);
        backward_kv_tile<WIDTH>(left_k, left_v, other[stage][0], other[stage][1], numbers[stage],
                                places.first + own_row<WIDTH>(), query, shape.scale * LOG2_OF_E, dk,
                                dv);
    }
    __syncthreads();
    float of_k[t::BANDS][2], of_v[t::BANDS][2];
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            of_k[band][half] = shape.scale;
            of_v[band][half] = 1;
        }
    store_rows<WIDTH>(other[0][0], dk, of_k, own_row<WIDTH>(), places.dk, 3 * model, places.first,
                      end);
    store_rows<WIDTH>(other[1][0], dv, of_v, own_row<WIDTH>(), places.dv, 3 * model, places.first,
                      end);
}

} // namespace attention
} // namespace mp

#endif
