/* Fused attention (the scheme is told in attention_fused.cu) by the tensor cores' larger products,
 * of 64 x 64 x 16, which read shared memory themselves and run beside the threads.
 *
 * A block has PARTS warpgroups of 64 own rows each and one more, of which a thread keeps copies of
 * the other rows under way, 64 at a time, into STAGES places.  The warpgroups are not in step:
 * while one makes exponentials, another's products go on.  Probabilities and gradients of scores
 * stay in registers, where they are the left operand of the next product; a warpgroup waits for one
 * product before it writes what the next one reads.
 *
 * Own rows are read from shared memory by every product, although a block in forward has registers
 * for them: the assembler of CUDA 13.0 gave these to others once the first tile's products had
 * read them, and later tiles' products read what was left there. */
#include "reference/device/cuda/attention_warpgroups.h"

#include "reference/device/cuda/attention_fused_forward.cuh"
#include "reference/device/cuda/warpgroup.cuh"

namespace mp {
namespace attention {
namespace {

namespace wg = mp::warpgroup;

typedef tiles<64, wg::ROWS> t;
constexpr int ROWS = wg::ROWS, TILE_BYTES = t::OWN_BYTES;
static_assert(t::BANDS == 1 && t::OTHER == ROWS && t::ROW_BYTES == wg::LINE_BYTES, "as tiles come");
constexpr int STAGES = 4;

/* A product's result, or 64 x 64 scores: a thread's part, as warpgroup.cuh has it. */
typedef float sums_of[t::BANDS][t::ACCESSES][4];

/* OWN tiles for the own rows of each of PARTS warpgroups, two of the other rows a stage; barriers
 * for what has come, and for what no warp reads any more. */
template <int OWN_TILES, int WARPGROUPS> struct memory {
    static constexpr int OWN = OWN_TILES, PARTS = WARPGROUPS, THREADS = (1 + PARTS) * wg::THREADS;
    char own[PARTS][OWN][TILE_BYTES];
    char other[STAGES][2][TILE_BYTES];
    uint64_t full[STAGES], empty[STAGES], owned;
};
typedef memory<1, 4> forward_memory;
typedef memory<2, 3> backward_memory;
template <typename M> constexpr size_t SHARED_BYTES = sizeof(M) + wg::PATTERN_BYTES;

/* Where the block's rows are. */
struct places {
    int first;         /* own row */
    int begin, end;    /* tiles of other rows that it goes through */
    int batch, column; /* of the head, in maps */
    int model;
};

__device__ __forceinline__ int tiles_of(int rows) {
    return (rows + ROWS - 1) / ROWS;
}

__device__ __forceinline__ places places_of(const fused_shape &shape, const fused_work &work,
                                            int parts, bool of_keys) {
    places at;
    const int all = tiles_of(shape.sequence), own = work.block * parts;
    at.first = own * ROWS;
    at.begin = of_keys ? own : 0;
    at.end = of_keys || own + parts > all ? all : own + parts;
    at.batch = work.pair / shape.heads;
    at.column = work.column;
    at.model = work.model;
    return at;
}

template <typename M> __device__ __forceinline__ M *begin_block(uint8_t *shared) {
    M *s = wg::first_pattern<M>(shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            wg::create_barrier(wg::address_of(&s->full[i]), 1);
            wg::create_barrier(wg::address_of(&s->empty[i]), M::PARTS * t::WARPS);
        }
        wg::create_barrier(wg::address_of(&s->owned), 1);
        wg::barriers_are_there();
    }
    __syncthreads();
    return s;
}

/* Where 64 columns of a matrix begin. */
struct columns {
    const CUtensorMap *map;
    int first;
};

/* Own rows of OWN matrices, and then other rows of two. */
template <typename M>
__device__ __forceinline__ void bring(M *s, const places &at, const columns (&own)[M::OWN],
                                      const columns (&other)[2]) {
    const uint32_t owned = wg::address_of(&s->owned);
    wg::arrive_expecting(owned, M::PARTS * M::OWN * TILE_BYTES);
    for (int part = 0; part < M::PARTS; part++)
        for (int i = 0; i < M::OWN; i++)
            wg::load_tile(wg::address_of(s->own[part][i]), own[i].map, own[i].first,
                          at.first + part * ROWS, at.batch, owned);
    wg::turn<STAGES> now;
    for (int tile = at.begin; tile < at.end; tile++, now.next()) {
        const uint32_t full = wg::address_of(&s->full[now.stage]);
        wg::wait_for(wg::address_of(&s->empty[now.stage]), now.parity ^ 1);
        wg::arrive_expecting(full, 2 * TILE_BYTES);
        for (int i = 0; i < 2; i++)
            wg::load_tile(wg::address_of(s->other[now.stage][i]), other[i].map, other[i].first,
                          tile * ROWS, at.batch, full);
    }
}

template <typename M> __device__ __forceinline__ void await(M *s, wg::turn<STAGES> now) {
    wg::wait_for(wg::address_of(&s->full[now.stage]), now.parity);
}

/* The warp's products read nothing more of the stage. */
template <typename M> __device__ __forceinline__ void let_go(M *s, wg::turn<STAGES> now) {
    if (lane_of_warp() == 0)
        wg::arrive(wg::address_of(&s->empty[now.stage]));
    __syncwarp();
}

/* Tiles that others of the block need, and this warpgroup does not. */
template <typename M> __device__ __forceinline__ void pass(M *s, wg::turn<STAGES> *now, int count) {
    for (; count > 0; count--, now->next()) {
        await(s, *now);
        let_go(s, *now);
    }
}

__device__ __forceinline__ uint64_t describe(const char *tile) {
    return wg::describe(wg::address_of(tile), TILE_BYTES);
}

/* sums = own * turned(tile), over the width. */
__device__ __forceinline__ void multiply_turned(sums_of &sums, const char *own, const char *tile) {
    const uint64_t left = describe(own), right = describe(tile);
#pragma unroll
    for (int step = 0; step < t::STEPS; step++)
        wg::multiply<false>(sums[0], left + step * wg::DEPTH * 2 / 16,
                            right + step * wg::DEPTH * 2 / 16, step > 0);
}

/* sums += left * tile, over the tile's rows. */
__device__ __forceinline__ void multiply_add(sums_of &sums, const uint32_t (&left)[4][4],
                                             const char *tile) {
    const uint64_t right = describe(tile);
#pragma unroll
    for (int step = 0; step < ROWS / wg::DEPTH; step++)
        wg::multiply<true>(sums[0], left[step], right + step * wg::DEPTH * wg::LINE_BYTES / 16,
                           true);
}

__device__ __forceinline__ void tile_to_left(uint32_t (&left)[4][4], const sums_of &sums) {
#pragma unroll
    for (int step = 0; step < 4; step++)
        to_left(left[step], sums[0][2 * step], sums[0][2 * step + 1]);
}

__device__ __forceinline__ int part_of_thread() {
    return wg::number() - 1;
}
/* The first of the warp's rows among its warpgroup's. */
__device__ __forceinline__ int row_of_warp() {
    return (int)threadIdx.x % wg::THREADS / WARP * t::WARP_ROWS;
}

/* ---- Forward ---- */

__device__ __forceinline__ void forward_rows(forward_memory *s, const fused_shape &shape,
                                             const fused_work &work, const places &at, element *out,
                                             float *logsumexp) {
    const int part = part_of_thread(), row = row_of_warp(), first = at.first + part * ROWS;
    const int tiles = first < shape.sequence ? first / ROWS + 1 : 0;
    const float scale = shape.scale * LOG2_OF_E;
    softmax_state<t> state;
    sums_of sums;
    wg::turn<STAGES> now;

    wg::wait_for(wg::address_of(&s->owned), 0);
    begin_rows<t>(state, sums);
    for (int tile = 0; tile < tiles; tile++, now.next()) {
        sums_of score;
        float by[1][2];
        uint32_t p[4][4];
        await(s, now);
        wg::begin_products();
        multiply_turned(score, s->own[part][0], s->other[now.stage][0]);
        wg::end_products();
        wg::wait_for_products<0>();
        if (tile == tiles - 1)
            hide_keys(score, row, 0); /* the tile has the own rows' keys */
        soften<t>(score, scale, state, by);
        multiply_rows<t>(sums, by);
        tile_to_left(p, score);
        wg::begin_products();
        multiply_add(sums, p, s->other[now.stage][1]);
        wg::end_products();
        wg::wait_for_products<0>();
        let_go(s, now);
    }
    pass(s, &now, at.end - tiles);
    wg::meet(1 +
             part); /* all warps' products have read the own rows, whose places are used again */
    end_rows<t>(s->own[part][0], shape, work, first, row, shape.sequence, state, sums, out,
                logsumexp);
}

__global__ void __launch_bounds__(forward_memory::THREADS, 1)
    forward_kernel(fused_shape shape, int blocks, const __grid_constant__ CUtensorMap qkv,
                   element *__restrict__ out, float *__restrict__ logsumexp) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t shared[];
    auto *s = begin_block<forward_memory>(shared);
    const fused_work work = work_of<t>(shape, blocks, true);
    const places at = places_of(shape, work, s->PARTS, false);
    if (threadIdx.x < wg::THREADS) {
        wg::give_registers<24>();
        if (threadIdx.x == 0)
            bring(s, at, {{&qkv, at.column}},
                  {{&qkv, at.model + at.column}, {&qkv, 2 * at.model + at.column}});
    } else {
        wg::take_registers<112>();
        forward_rows(s, shape, work, at, out, logsumexp);
    }
#else
    __trap();
#endif
}

/* ---- The gradient of q ---- */

__device__ __forceinline__ void backward_q_rows(backward_memory *s, const fused_shape &shape,
                                                const fused_work &work, const places &at,
                                                const float *logsumexp, const float *delta,
                                                element *dqkv) {
    const int part = part_of_thread(), row = row_of_warp(), first = at.first + part * ROWS;
    const int tiles = first < shape.sequence ? first / ROWS + 1 : 0;
    const float scale = shape.scale * LOG2_OF_E;
    float row_logsumexp[2], row_delta[2];
    sums_of sums;
    wg::turn<STAGES> now;

    for (int half = 0; half < 2; half++) {
        const int query = first + row + half * 8 + lane_of_warp() / 4;
        const bool there = query < shape.sequence;
        row_logsumexp[half] = there ? logsumexp[query] * LOG2_OF_E : 0;
        row_delta[half] = there ? delta[query] : 0;
    }
    wg::wait_for(wg::address_of(&s->owned), 0);
    set_zero(sums);
    for (int tile = 0; tile < tiles; tile++, now.next()) {
        const char *k = s->other[now.stage][0], *v = s->other[now.stage][1];
        sums_of score, dscore;
        uint32_t ds[4][4];
        await(s, now);
        wg::begin_products();
        multiply_turned(score, s->own[part][0], k);
        wg::end_products();
        multiply_turned(dscore, s->own[part][1], v);
        wg::end_products();
        wg::wait_for_products<1>();
        if (tile == tiles - 1)
            hide_keys(score, row, 0);
#pragma unroll
        for (int n = 0; n < t::ACCESSES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[0][n][i] = power_of_two(fmaf(score[0][n][i], scale, -row_logsumexp[i / 2]));
        wg::wait_for_products<0>();
#pragma unroll
        for (int n = 0; n < t::ACCESSES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[0][n][i] *= dscore[0][n][i] - row_delta[i / 2];
        tile_to_left(ds, score);
        wg::begin_products();
        multiply_add(sums, ds, k);
        wg::end_products();
        wg::wait_for_products<0>();
        let_go(s, now);
    }
    pass(s, &now, at.end - tiles);
    wg::meet(1 + part);
    const float factor[1][2] = {{shape.scale, shape.scale}};
    store_rows<t>(s->own[part][0], sums, factor, row,
                  dqkv + work.token * 3 * work.model + at.column, 3 * work.model, first,
                  shape.sequence);
}

/* Numbers of the queries of the pair at hand, [query]. */
struct of_queries {
    const float *logsumexp, *delta;
};
__device__ __forceinline__ of_queries of_pair(const fused_shape &shape, const fused_work &work,
                                              const float *logsumexp, const float *delta) {
    return {logsumexp + (int64_t)work.pair * shape.sequence,
            delta + (int64_t)(work.pair - shape.first_pair) * shape.sequence};
}

__global__ void __launch_bounds__(backward_memory::THREADS, 1)
    backward_q_kernel(fused_shape shape, int blocks, const __grid_constant__ CUtensorMap qkv,
                      const __grid_constant__ CUtensorMap dout, const float *__restrict__ logsumexp,
                      const float *__restrict__ delta, element *__restrict__ dqkv) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t shared[];
    auto *s = begin_block<backward_memory>(shared);
    const fused_work work = work_of<t>(shape, blocks, true);
    const places at = places_of(shape, work, s->PARTS, false);
    if (threadIdx.x < wg::THREADS) {
        wg::give_registers<24>();
        if (threadIdx.x == 0)
            bring(s, at, {{&qkv, at.column}, {&dout, at.column}},
                  {{&qkv, at.model + at.column}, {&qkv, 2 * at.model + at.column}});
    } else {
        wg::take_registers<160>();
        const of_queries numbers = of_pair(shape, work, logsumexp, delta);
        backward_q_rows(s, shape, work, at, numbers.logsumexp, numbers.delta, dqkv);
    }
#else
    __trap();
#endif
}

/* ---- The gradients of k and v ---- */

/* Numbers of a tile's queries, of which lane l has those of 2 l and 2 l + 1; from `end` on zeros.
 */
__device__ __forceinline__ void read_pair(float (&pair)[2], const float *numbers, int tile,
                                          int end) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int query = tile * ROWS + 2 * lane_of_warp() + i;
        pair[i] = query < end ? numbers[query] : 0;
    }
}

/* P of a tile, turned over: rows are keys. */
__device__ __forceinline__ void probabilities(sums_of &score, const float (&logsumexp)[2],
                                              float scale) {
#pragma unroll
    for (int n = 0; n < t::ACCESSES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float by =
                __shfl_sync(ALL_LANES, logsumexp[i] * LOG2_OF_E, n * 4 + lane_of_warp() % 4);
            score[0][n][i] = power_of_two(fmaf(score[0][n][i], scale, -by));
            score[0][n][i + 2] = power_of_two(fmaf(score[0][n][i + 2], scale, -by));
        }
}

/* dS, likewise. */
__device__ __forceinline__ void gradients(sums_of &dscore, const sums_of &p,
                                          const float (&delta)[2]) {
#pragma unroll
    for (int n = 0; n < t::ACCESSES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float by = __shfl_sync(ALL_LANES, delta[i], n * 4 + lane_of_warp() % 4);
            dscore[0][n][i] = p[0][n][i] * (dscore[0][n][i] - by);
            dscore[0][n][i + 2] = p[0][n][i + 2] * (dscore[0][n][i + 2] - by);
        }
}

/* Zeros for queries before each of the warp's keys, from `key` on, and for those from `end` on;
 * both are counted from the tile's first query. */
__device__ __forceinline__ void hide_queries(sums_of &p, int key, int end) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int n = 0; n < t::ACCESSES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = n * 8 + lane % 4 * 2 + i % 2;
            if (query < key + i / 2 * 8 + lane / 4 || query >= end)
                p[0][n][i] = 0;
        }
}

__device__ __forceinline__ void backward_kv_rows(backward_memory *s, const fused_shape &shape,
                                                 const fused_work &work, const places &at,
                                                 const of_queries &numbers, element *dqkv) {
    const int part = part_of_thread(), row = row_of_warp(), first = at.first + part * ROWS;
    const int own = first / ROWS, begin = own < at.end ? own : at.end;
    const float scale = shape.scale * LOG2_OF_E;
    sums_of dk, dv;
    wg::turn<STAGES> now;

    float pair_logsumexp[2], pair_delta[2]; /* of the next tile, once this one's are used */
    read_pair(pair_logsumexp, numbers.logsumexp, begin, shape.sequence);
    read_pair(pair_delta, numbers.delta, begin, shape.sequence);
    wg::wait_for(wg::address_of(&s->owned), 0);
    set_zero(dk);
    set_zero(dv);
    pass(s, &now, begin - at.begin);
    for (int tile = begin; tile < at.end; tile++, now.next()) {
        const char *q = s->other[now.stage][0], *dout = s->other[now.stage][1];
        const int there = shape.sequence - tile * ROWS;
        sums_of score, dscore;
        uint32_t p[4][4], ds[4][4];
        await(s, now);
        wg::begin_products();
        multiply_turned(score, s->own[part][0], q);
        wg::end_products();
        multiply_turned(dscore, s->own[part][1], dout);
        wg::end_products();
        wg::wait_for_products<1>();
        probabilities(score, pair_logsumexp, scale);
        read_pair(pair_logsumexp, numbers.logsumexp, tile + 1, shape.sequence);
        if (tile == own || there < ROWS)
            hide_queries(score, tile == own ? row : -ROWS, there);
        wg::wait_for_products<0>();
        gradients(dscore, score, pair_delta);
        read_pair(pair_delta, numbers.delta, tile + 1, shape.sequence);
        tile_to_left(p, score);
        tile_to_left(ds, dscore);
        wg::begin_products();
        multiply_add(dv, p, dout);
        multiply_add(dk, ds, q);
        wg::end_products();
        wg::wait_for_products<0>();
        let_go(s, now);
    }
    wg::meet(1 + part);
    const float of_k[1][2] = {{shape.scale, shape.scale}}, of_v[1][2] = {{1, 1}};
    element *to = dqkv + work.token * 3 * work.model + work.model + at.column;
    store_rows<t>(s->own[part][0], dk, of_k, row, to, 3 * work.model, first, shape.sequence);
    store_rows<t>(s->own[part][1], dv, of_v, row, to + work.model, 3 * work.model, first,
                  shape.sequence);
}

__global__ void __launch_bounds__(backward_memory::THREADS, 1)
    backward_kv_kernel(fused_shape shape, int blocks, const __grid_constant__ CUtensorMap qkv,
                       const __grid_constant__ CUtensorMap dout,
                       const float *__restrict__ logsumexp, const float *__restrict__ delta,
                       element *__restrict__ dqkv) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t shared[];
    auto *s = begin_block<backward_memory>(shared);
    const fused_work work = work_of<t>(shape, blocks, false);
    const places at = places_of(shape, work, s->PARTS, true);
    if (threadIdx.x < wg::THREADS) {
        wg::give_registers<24>();
        if (threadIdx.x == 0)
            bring(s, at, {{&qkv, at.model + at.column}, {&qkv, 2 * at.model + at.column}},
                  {{&qkv, at.column}, {&dout, at.column}});
    } else {
        wg::take_registers<160>();
        backward_kv_rows(s, shape, work, at, of_pair(shape, work, logsumexp, delta), dqkv);
    }
#else
    __trap();
#endif
}

/* ---- On the host ---- */

/* Of a matrix [sequences][sequence][columns]; false and a failure kept if it can't be. */
bool map_of(struct mp_cuda *cuda, const fused_shape &shape, const void *matrix, int columns,
            CUtensorMap *map) {
    const int64_t sequences = (shape.first_pair + shape.pairs + shape.heads - 1) / shape.heads;
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)shape.sequence,
                               (cuuint64_t)sequences};
    const cuuint64_t line = (cuuint64_t)columns * sizeof(element);
    const cuuint64_t stride[] = {line, line * (cuuint64_t)shape.sequence};
    const cuuint32_t box[] = {t::WIDTH, ROWS, 1};
    if (wg::make_map(cuda, map, matrix, 3, size, stride, box))
        return true;
    mp_cuda_refuse(cuda, MP_EINVAL, "attention: no map of sequences of %d x %d", shape.sequence,
                   columns);
    return false;
}

template <typename M> int blocks_of(const fused_shape &shape) {
    return (int)pieces_of(shape.sequence, M::PARTS * ROWS);
}

} // namespace

bool warpgroups_can(const struct mp_cuda *cuda, int head_width) {
    return cuda->make_map && head_width == t::WIDTH;
}

void warpgroups_forward(struct mp_cuda *cuda, mp_stream stream, const fused_shape &shape,
                        const void *qkv, void *out, float *logsumexp) {
    typedef forward_memory M;
    const int blocks = blocks_of<M>(shape), model = shape.heads * t::WIDTH;
    CUtensorMap map;
    if (map_of(cuda, shape, qkv, 3 * model, &map))
        wg::launch(cuda, "attention", stream, shape.pairs * blocks, M::THREADS, SHARED_BYTES<M>,
                   forward_kernel, shape, blocks, map, (element *)out, logsumexp);
}

void warpgroups_backward(struct mp_cuda *cuda, mp_stream stream, const fused_shape &shape,
                         const void *qkv, const float *logsumexp, const void *dout,
                         const float *delta, void *dqkv) {
    typedef backward_memory M;
    const int blocks = blocks_of<M>(shape), model = shape.heads * t::WIDTH;
    CUtensorMap map, dout_map;
    if (!map_of(cuda, shape, qkv, 3 * model, &map) || !map_of(cuda, shape, dout, model, &dout_map))
        return;
    wg::launch(cuda, "attention: gradients of k and v", stream, shape.pairs * blocks, M::THREADS,
               SHARED_BYTES<M>, backward_kv_kernel, shape, blocks, map, dout_map, logsumexp, delta,
               (element *)dqkv);
    wg::launch(cuda, "attention: gradient of q", stream, shape.pairs * blocks, M::THREADS,
               SHARED_BYTES<M>, backward_q_kernel, shape, blocks, map, dout_map, logsumexp, delta,
               (element *)dqkv);
}

} // namespace attention
} // namespace mp
