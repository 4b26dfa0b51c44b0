/* Fused causal attention: the scheme of FlashAttention-2 (Dao, 2023) by tensor cores.
 *
 * Forward goes through the keys of a block of queries once.  It keeps of each query the largest
 * score m so far, the sum of exp(score - m) and the sum of exp(score - m) v; when m grows, the sums
 * are scaled down.  Backward has the scores' logsumexp and makes each probability again:
 *   P = exp(S - logsumexp)   dP = dout v'   dS = P (dP - delta)   delta = dot(dout, out)
 *   dq = scale dS k          dk = scale dS' q                     dv = P' dout
 * in one kernel for dk and dv, which goes through the queries of a block of keys, and in one for
 * dq, which goes through the keys of a block of queries.  Scores and dP are thus made twice: 7
 * products where 5 would do.  The 5 need sums over blocks that run in no order - atomics, whose
 * result would differ from run to run - or a copy of dS or of partial sums in memory: 4 bytes for
 * each score, which an H200 moves in about the time that it takes for the two products.
 *
 * Exponentials are powers of two, with scale * log2(e) multiplied into the scores beforehand. */
#include "reference/device/cuda/attention_fused.h"
#include "reference/device/cuda/attention_rows.cuh"
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

/* Hides the keys behind each query.  Scores of keys from `key` on, of the warp's queries from
 * `query` on. */
template <int BANDS, int COUNT>
__device__ __forceinline__ void hide_keys(float (&score)[BANDS][COUNT][4], int query, int key) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int band = 0; band < BANDS; band++)
#pragma unroll
        for (int n = 0; n < COUNT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key + n * 8 + lane % 4 * 2 + i % 2 > query + band * 16 + i / 2 * 8 + lane / 4)
                    score[band][n][i] = -INFINITY;
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

template <int WIDTH> static int blocks_of(const struct mp_attention_shape *shape) {
    return (shape->sequence + tiles<WIDTH>::OWN - 1) / tiles<WIDTH>::OWN;
}

static fused_shape all_pairs(const struct mp_attention_shape *shape) {
    fused_shape fused;
    fused.sequence = shape->sequence;
    fused.heads = shape->heads;
    fused.first_pair = 0;
    fused.pairs = shape->batch * shape->heads;
    fused.scale = 1.0f / sqrtf((float)shape->head_width);
    return fused;
}

template <int WIDTH>
static void forward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                    const void *qkv, void *out, float *logsumexp) {
    const int blocks = blocks_of<WIDTH>(shape);
    const fused_shape fused = all_pairs(shape);
    launch(cuda, "attention", stream, (int64_t)fused.pairs * blocks, tiles<WIDTH>::THREADS,
           fused_forward_kernel<WIDTH>, fused, blocks, (const element *)qkv, (element *)out,
           logsumexp);
}

/* delta: of the round's pairs. */
template <int WIDTH>
static void backward_round(struct mp_cuda *cuda, mp_stream stream, const fused_shape &shape,
                           int blocks, const void *qkv, const void *out, const float *logsumexp,
                           const void *dout, void *dqkv, float *delta) {
    constexpr int THREADS = 256, QUERIES = THREADS / DELTA_LANES;
    const int64_t queries = (int64_t)shape.pairs * shape.sequence;
    launch(cuda, "attention: delta", stream, (queries + QUERIES - 1) / QUERIES, THREADS,
           fill_delta<element, VECTOR_OF<element>, THREADS>, shape.first_pair, shape.pairs,
           shape.heads, shape.sequence, WIDTH, (const element *)out, (const element *)dout, delta);
    launch(cuda, "attention: gradients of k and v", stream, (int64_t)shape.pairs * blocks,
           tiles<WIDTH>::THREADS, fused_backward_kv_kernel<WIDTH>, shape, blocks,
           (const element *)qkv, (const element *)dout, logsumexp, (const float *)delta,
           (element *)dqkv);
    launch(cuda, "attention: gradient of q", stream, (int64_t)shape.pairs * blocks,
           tiles<WIDTH>::THREADS, fused_backward_q_kernel<WIDTH>, shape, blocks,
           (const element *)qkv, (const element *)dout, logsumexp, (const float *)delta,
           (element *)dqkv);
}

template <int WIDTH>
static void backward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                     const void *qkv, const void *out, const float *logsumexp, const void *dout,
                     void *dqkv) {
    fused_shape fused = all_pairs(shape);
    const int all = fused.pairs;
    const size_t room = cuda->scratch_bytes / ((size_t)shape->sequence * sizeof(float));
    const int most = room < (size_t)all ? (int)room : all;
    for (; fused.first_pair < all; fused.first_pair += most) {
        fused.pairs = most < all - fused.first_pair ? most : all - fused.first_pair;
        backward_round<WIDTH>(cuda, stream, fused, blocks_of<WIDTH>(shape), qkv, out, logsumexp,
                              dout, dqkv, (float *)cuda->scratch);
    }
}

static bool aligned(const void *matrix) {
    return (uintptr_t)matrix % 16 == 0;
}

bool fused_can(const struct mp_cuda *cuda, const struct mp_attention_shape *shape, const void *qkv,
               const void *out, const void *dout, const void *dqkv) {
    return cuda->device.element == MP_BFLOAT16 &&
           (shape->head_width == 64 || shape->head_width == 128) && aligned(qkv) && aligned(out) &&
           aligned(dout) && aligned(dqkv);
}

void fused_forward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                   const void *qkv, void *out, float *logsumexp) {
    if (shape->head_width == 64)
        forward<64>(cuda, stream, shape, qkv, out, logsumexp);
    else
        forward<128>(cuda, stream, shape, qkv, out, logsumexp);
}

void fused_backward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                    const void *qkv, const void *out, const float *logsumexp, const void *dout,
                    void *dqkv) {
    if (shape->head_width == 64)
        backward<64>(cuda, stream, shape, qkv, out, logsumexp, dout, dqkv);
    else
        backward<128>(cuda, stream, shape, qkv, out, logsumexp, dout, dqkv);
}

} // namespace attention
} // namespace mp
