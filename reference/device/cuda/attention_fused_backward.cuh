/* The kernels of fused attention in backward; the scheme is told in attention_fused.cu. */
#pragma once

#include "reference/device/cuda/attention_tile.cuh"

namespace mp {
namespace attention {

/* The gradient of q for a block of queries. */
template <typename t>
__device__ __forceinline__ void backward_q_tile(const uint32_t (&q)[t::BANDS][t::STEPS][4],
                                                const uint32_t (&dout)[t::BANDS][t::STEPS][4],
                                                const char *k, const char *v, int query, int key,
                                                float scale, const float (&logsumexp)[t::BANDS][2],
                                                const float (&delta)[t::BANDS][2],
                                                float (&dq)[t::BANDS][t::ACCESSES][4]) {
#pragma unroll 1
    for (int n = 0; n < t::OTHER && key + n < query + t::WARP_ROWS; n += 16) {
        float score[t::BANDS][2][4], dscore[t::BANDS][2][4];
        set_zero(score);
        set_zero(dscore);
#pragma unroll
        for (int step = 0; step < t::STEPS; step++) {
            add_scores<t>(score, q, turned_at<t>(k, n, lane_of_warp()), step);
            add_scores<t>(dscore, dout, turned_at<t>(v, n, lane_of_warp()), step);
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
        add_rows<t>(dq, left, rows_at<t>(k, n, lane_of_warp()));
    }
}

template <typename t>
__global__ void __launch_bounds__(t::THREADS, 2)
    fused_backward_q_kernel(fused_shape shape, int blocks, const element *__restrict__ qkv,
                            const element *__restrict__ dout, const float *__restrict__ logsumexp,
                            const float *__restrict__ delta, element *__restrict__ dqkv) {
    static_assert(4 * t::OTHER_BYTES == 2 * t::OWN_BYTES, "own rows come through the same memory");
    __shared__ __align__(256) char other[2][2][t::OTHER_BYTES];
    const fused_work work = work_of<t>(shape, blocks, true);
    const int first = work.block * t::OWN, step = 3 * work.model;
    const int end = first + t::OWN < shape.sequence ? first + t::OWN : shape.sequence;
    const int row = (int)threadIdx.x / WARP * t::WARP_ROWS;
    const element *q = qkv + work.token * step + work.column;
    const element *k = q + work.model, *v = k + work.model;

    copy_rows<t, t::OWN>(other[0][0], q, step, first, shape.sequence);
    copy_rows<t, t::OWN>(other[1][0], dout + work.token * work.model + work.column, work.model,
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
    load_own<t>(left_q, other[0][0], row);
    load_own<t>(left_dout, other[1][0], row);
    __syncthreads();

    copy_rows<t, t::OTHER>(other[0][0], k, step, 0, shape.sequence);
    copy_rows<t, t::OTHER>(other[0][1], v, step, 0, shape.sequence);
    copy_async_commit();
    float sums[t::BANDS][t::ACCESSES][4];
    set_zero(sums);
    for (int key = 0, stage = 0; key < end; key += t::OTHER, stage ^= 1) {
        copy_async_wait<0>();
        __syncthreads(); /* this tile is here, and all are done with the one before */
        if (key + t::OTHER < end) {
            copy_rows<t, t::OTHER>(other[stage ^ 1][0], k, step, key + t::OTHER, shape.sequence);
            copy_rows<t, t::OTHER>(other[stage ^ 1][1], v, step, key + t::OTHER, shape.sequence);
            copy_async_commit();
        }
        backward_q_tile<t>(left_q, left_dout, other[stage][0], other[stage][1], first + row, key,
                           shape.scale * LOG2_OF_E, row_logsumexp, row_delta, sums);
    }
    __syncthreads();
    store_rows<t>(other[0][0], sums, factor, row, dqkv + work.token * step + work.column, step,
                  first, shape.sequence);
}

/* Of the queries of a tile: OTHER times logsumexp, OTHER times delta. */
template <typename t> struct query_numbers { float value[2 * t::OTHER]; };

/* Begins copying those of queries [query, query + OTHER), one for each of the first 2 OTHER
 * threads; from `end` on they are zeros, as q and dout are, with which dS is 0 and what P is
 * multiplied with, too. */
template <typename t>
__device__ __forceinline__ void copy_numbers(query_numbers<t> &numbers, const float *logsumexp,
                                             const float *delta, int query, int end) {
    constexpr int OTHER = t::OTHER;
    static_assert(2 * OTHER <= t::THREADS, "a thread to each");
    const int thread = thread_read_again(), of_thread = query + thread % OTHER;
    if (thread < 2 * OTHER)
        copy_async_4(numbers.value + thread, (thread < OTHER ? logsumexp : delta) + of_thread,
                     of_thread < end);
}

/* A tile of queries, with the gradient of their out, for the warp's keys from `key` on.  Scores are
 * turned over: rows are keys. */
template <typename t>
__device__ __forceinline__ void backward_kv_tile(
    const uint32_t (&k)[t::BANDS][t::STEPS][4], const uint32_t (&v)[t::BANDS][t::STEPS][4],
    const char *q, const char *dout, const query_numbers<t> &numbers, int key, int query,
    float scale, float (&dk)[t::BANDS][t::ACCESSES][4], float (&dv)[t::BANDS][t::ACCESSES][4]) {
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
            add_scores<t>(score, k, turned_at<t>(q, n, lane), step);
            add_scores<t>(dscore, v, turned_at<t>(dout, n, lane), step);
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
        add_rows<t>(dv, p, rows_at<t>(dout, n, lane));
        add_rows<t>(dk, ds, rows_at<t>(q, n, lane));
    }
}

/* Where a block of keys finds what it needs, [query or key][width] with the steps of all tokens. */
struct kv_places {
    const element *q, *k, *v, *dout;
    const float *logsumexp, *delta;
    element *dk, *dv;
    int first; /* key */
};

template <typename t>
__device__ __forceinline__ void copy_queries(char *q, char *dout, query_numbers<t> &numbers,
                                             const kv_places &places, int model, int query,
                                             int end) {
    copy_rows<t, t::OTHER>(q, places.q, 3 * model, query, end);
    copy_rows<t, t::OTHER>(dout, places.dout, model, query, end);
    copy_numbers<t>(numbers, places.logsumexp, places.delta, query, end);
    copy_async_commit();
}

/* The gradients of k and v for a block of keys.  Registers are full: sums and own rows take 192 of
 * 255.  What all threads have in common therefore lies in shared memory. */
template <typename t>
__global__ void __launch_bounds__(t::THREADS, 2)
    fused_backward_kv_kernel(fused_shape shape, int blocks, const element *__restrict__ qkv,
                             const element *__restrict__ dout, const float *__restrict__ logsumexp,
                             const float *__restrict__ delta, element *__restrict__ dqkv) {
    __shared__ __align__(256) char other[2][2][t::OTHER_BYTES];
    __shared__ __align__(16) query_numbers<t> numbers[2];
    __shared__ kv_places places;
    const int model = shape.heads * t::WIDTH, end = shape.sequence;
    if (threadIdx.x == 0) {
        const fused_work work = work_of<t>(shape, blocks, false);
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
    copy_rows<t, t::OWN>(other[0][0], places.k, 3 * model, places.first, end);
    copy_rows<t, t::OWN>(other[1][0], places.v, 3 * model, places.first, end);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    uint32_t left_k[t::BANDS][t::STEPS][4], left_v[t::BANDS][t::STEPS][4];
    load_own<t>(left_k, other[0][0], own_row<t>());
    load_own<t>(left_v, other[1][0], own_row<t>());
    __syncthreads();

    copy_queries<t>(other[0][0], other[0][1], numbers[0], places, model, places.first, end);
    float dk[t::BANDS][t::ACCESSES][4], dv[t::BANDS][t::ACCESSES][4];
    set_zero(dk);
    set_zero(dv);
    for (int query = places.first, stage = 0; query < end; query += t::OTHER, stage ^= 1) {
        copy_async_wait<0>();
        __syncthreads(); /* this tile is here, and all are done with the one before */
        if (query + t::OTHER < end)
            copy_queries<t>(other[stage ^ 1][0], other[stage ^ 1][1], numbers[stage ^ 1], places,
                            model, query + t::OTHER, end);
        backward_kv_tile<t>(left_k, left_v, other[stage][0], other[stage][1], numbers[stage],
                            places.first + own_row<t>(), query, shape.scale * LOG2_OF_E, dk, dv);
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
    store_rows<t>(other[0][0], dk, of_k, own_row<t>(), places.dk, 3 * model, places.first, end);
    store_rows<t>(other[1][0], dv, of_v, own_row<t>(), places.dv, 3 * model, places.first, end);
}

} // namespace attention
} // namespace mp
