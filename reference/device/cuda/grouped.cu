/* One kernel for the products of all groups, in bf16 with sums in fp32.
 *
 * As many blocks run as there are multiprocessors.  Tiles of 128 x 256 of all results are numbered,
 * group by group; a block begins with the tile of its own number, and takes the next that nobody
 * has when it has copied one.  One thread of a block keeps copies of tiles of a and b under way, 64
 * of k at a time, into STAGES places, and tells which tile they are of; two warpgroups multiply 64
 * rows each of what has come, and write their results while the next tile's copies go on.  Every
 * result is summed over k in one order by one warpgroup: the same bits in every run, whichever
 * block's it was.
 *
 * Gradients of weights need not get to memory: for AdamW, which takes longer than the product, a
 * third warpgroup reads them where the two have left them in shared memory, and all else that it
 * needs and makes goes by whole rows of the tile between memory and its registers.  So memory never
 * stands still, and products go on beside that.
 *
 * What a group's rows leave of a tile comes as zeros and is not written, since every group has maps
 * of its own, which end where it ends. */
#include "reference/device/cuda/grouped.h"

#include <stdlib.h>

#include "reference/device/cuda/adamw.cuh"
#include "reference/device/cuda/kernel.cuh"
#include "reference/device/cuda/warpgroup.cuh"

namespace {

using namespace mp;
namespace wg = mp::warpgroup;

constexpr int PARTS = 2; /* warpgroups that multiply */
constexpr int TILE_ROWS = PARTS * wg::ROWS, TILE_COLUMNS = wg::COLUMNS, TILE_DEPTH = 64;
constexpr int LEFT_BYTES = TILE_ROWS * TILE_DEPTH * 2, RIGHT_BYTES = TILE_COLUMNS * TILE_DEPTH * 2;
constexpr int BLOCK_BYTES = 64 * wg::LINE_BYTES; /* 64 lines: what maps of turned matrices copy */
constexpr int THREADS = (1 + PARTS) * wg::THREADS;
constexpr int SUMMING_WARPS = PARTS * wg::THREADS / WARP, UPDATING_WARPS = wg::THREADS / WARP - 1;
constexpr int MOST_GROUPS = 512;

constexpr int TOLD = 2; /* tiles that are told of before they are taken */

struct group {
    CUtensorMap left, right;
    void *result;
    struct mp_weight_state state; /* in its place */
    int rows, depth;              /* m and k */
    int first_tile;
};

/* What is the same for all groups. */
struct groups {
    const group *at;
    int *next; /* tiles that blocks have taken but for their first ones */
    int count, tiles;
    int columns, leading; /* n and ldc */
    bool accumulate;
    struct mp_adamw_factors by; /* of states */
};

struct entry {
    int first_tile, rows, depth;
};

/* What a block has of tiles in shared memory. */
template <int STAGES_OF_COPIES, int GROUPS> struct tiles {
    static constexpr int STAGES = STAGES_OF_COPIES;
    uint8_t left[STAGES][LEFT_BYTES];
    uint8_t right[STAGES][RIGHT_BYTES];
    uint64_t full[STAGES], empty[STAGES], told[TOLD], taken[TOLD];
    int number[TOLD];
    entry table[GROUPS + 1];
};

/* Two stages leave room for the sums of a tile. */
using shared = tiles<4, MOST_GROUPS>;
struct shared_with_sums {
    float sums[TILE_ROWS * TILE_COLUMNS];
    tiles<2, MP_CUDA_MOST_UPDATED> by;
    uint64_t summed, used; /* sums are there; and have been read */
};
template <typename T> constexpr size_t SHARED_BYTES = sizeof(T) + wg::PATTERN_BYTES;
static_assert(SHARED_BYTES<shared_with_sums> <= 227 << 10, "all that a block can have");

struct tile {
    int group, row, column, rows, depth;
};

/* From tile to tile of rising numbers. */
struct walk {
    int group = 0;

    __device__ bool to(int number, const entry *table, const groups &all, tile *tile) {
        if (number >= all.tiles)
            return false;
        while (table[group + 1].first_tile <= number)
            group++;
        const entry now = table[group];
        int within = number - now.first_tile, high = (now.rows + TILE_ROWS - 1) / TILE_ROWS;
        *tile = {group, within % high * TILE_ROWS, within / high * TILE_COLUMNS, now.rows,
                 now.depth};
        return true;
    }
};

/* A tile of lines along k, or of 64 x 64 blocks of lines of one k. */
template <bool TURNED>
__device__ __forceinline__ void load(uint32_t to, const CUtensorMap *map, int first, int lines,
                                     int depth, uint32_t barrier) {
    if (!TURNED)
        wg::load_tile(to, map, depth, first, barrier);
    else
        for (int i = 0; i < lines; i += 64)
            wg::load_tile(to + i / 64 * BLOCK_BYTES, map, first + i, depth, barrier);
}

/* Copies a tile's rows and columns, and tells which tile that is. */
template <bool LEFT_TURNED, bool RIGHT_TURNED, typename Tiles>
__device__ void bring(Tiles *s, const groups &all) {
    walk walk;
    wg::turn<Tiles::STAGES> now;
    wg::turn<TOLD> teller;
    tile t;
    int known = -1;
    for (int number = (int)blockIdx.x, after;; number = after, teller.next()) {
        wg::wait_for(wg::address_of(&s->taken[teller.stage]), teller.parity ^ 1);
        s->number[teller.stage] = number;
        wg::arrive(wg::address_of(&s->told[teller.stage]));
        if (!walk.to(number, s->table, all, &t))
            return;
        after = (int)gridDim.x + atomicAdd(all.next, 1);
        const group *g = &all.at[t.group];
        if (known != t.group) {
            wg::know_map(&g->left);
            wg::know_map(&g->right);
            known = t.group;
        }
        for (int depth = 0; depth < t.depth; depth += TILE_DEPTH, now.next()) {
            uint32_t full = wg::address_of(&s->full[now.stage]);
            wg::wait_for(wg::address_of(&s->empty[now.stage]), now.parity ^ 1);
            wg::arrive_expecting(full, LEFT_BYTES + RIGHT_BYTES);
            load<LEFT_TURNED>(wg::address_of(s->left[now.stage]), &g->left, t.row, TILE_ROWS, depth,
                              full);
            load<RIGHT_TURNED>(wg::address_of(s->right[now.stage]), &g->right, t.column,
                               TILE_COLUMNS, depth, full);
        }
    }
}

/* The tile that comes next; every warp asks once. */
template <typename Tiles> __device__ __forceinline__ int take(Tiles *s, wg::turn<TOLD> now) {
    wg::wait_for(wg::address_of(&s->told[now.stage]), now.parity);
    const int number = s->number[now.stage];
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        wg::arrive(wg::address_of(&s->taken[now.stage]));
    return number;
}

/* The sums over k of 64 rows; a warpgroup whose rows are beyond the group's end only lets go of
 * what has come. */
template <bool LEFT_TURNED, bool RIGHT_TURNED, typename Tiles>
__device__ __forceinline__ void sum(Tiles *s, int part, const tile &t, wg::turn<Tiles::STAGES> *now,
                                    float (&sums)[wg::SUMS]) {
    constexpr int left_step = LEFT_TURNED ? wg::DEPTH * wg::LINE_BYTES : wg::DEPTH * 2;
    constexpr int right_step = RIGHT_TURNED ? wg::DEPTH * wg::LINE_BYTES : wg::DEPTH * 2;
    const bool idle = t.row + part * wg::ROWS >= t.rows, speaks = threadIdx.x % wg::THREADS == 0;
    int before = -1;
    if (t.depth == 0)
        for (int i = 0; i < wg::SUMS; i++)
            sums[i] = 0;
    for (int depth = 0; depth < t.depth; depth += TILE_DEPTH, now->next()) {
        wg::wait_for(wg::address_of(&s->full[now->stage]), now->parity);
        if (!idle) {
            uint64_t left =
                wg::describe(wg::address_of(s->left[now->stage]) + part * BLOCK_BYTES, BLOCK_BYTES);
            uint64_t right = wg::describe(wg::address_of(s->right[now->stage]), BLOCK_BYTES);
            wg::begin_products();
#pragma unroll
            for (int i = 0; i < TILE_DEPTH / wg::DEPTH; i++)
                wg::multiply<LEFT_TURNED, RIGHT_TURNED>(sums, left + i * left_step / 16,
                                                        right + i * right_step / 16, depth + i > 0);
            wg::end_products();
            wg::wait_for_products<1>();
        }
        if (before >= 0 && speaks)
            wg::arrive(wg::address_of(&s->empty[before]));
        before = now->stage;
    }
    wg::wait_for_products<0>();
    if (before >= 0 && speaks)
        wg::arrive(wg::address_of(&s->empty[before]));
}

/* Turns over what four neighbouring lanes have in four registers: lane l gets register l of all. */
__device__ __forceinline__ void turn_over(uint32_t (&of_four)[4]) {
#pragma unroll
    for (int by = 1; by < 4; by *= 2) {
        const bool upper = threadIdx.x & by;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int low = by == 1 ? 2 * i : i, high = low + by;
            const uint32_t other =
                __shfl_xor_sync(ALL_LANES, upper ? of_four[low] : of_four[high], by);
            (upper ? of_four[low] : of_four[high]) = other;
        }
    }
}

/* Eight columns of a row at a time, which four lanes have two of each. */
__device__ __forceinline__ void write(__nv_bfloat16 *to, const groups &all, int rows, int columns,
                                      const float (&sums)[wg::SUMS]) {
    const int mine = (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < wg::SUMS / 4; j += 4) {
            uint32_t eight[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                eight[i] = pack(sums[4 * (j + i) + 2 * half], sums[4 * (j + i) + 2 * half + 1]);
            turn_over(eight);
            const int column = j * 8 + mine;
            if (half * 8 < rows && column < columns)
                *reinterpret_cast<uint4 *>(to + (size_t)(half * 8) * (size_t)all.leading + column) =
                    make_uint4(eight[0], eight[1], eight[2], eight[3]);
        }
}

__device__ __forceinline__ void write(float *to, const groups &all, int rows, int columns,
                                      const float (&sums)[wg::SUMS]) {
    const int mine = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < wg::SUMS / 4; j++) {
            const int column = j * 8 + mine;
            if (half * 8 >= rows || column >= columns)
                continue;
            float2 *at =
                reinterpret_cast<float2 *>(to + (size_t)(half * 8) * (size_t)all.leading + column);
            const float2 value = {sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]};
            if (all.accumulate)
                atomicAdd(at, value); /* the memory adds, once to each: nobody waits for it */
            else
                *at = value;
        }
}

template <bool LEFT_TURNED, bool RIGHT_TURNED, typename T>
__device__ void multiply(shared *s, const groups &all) {
    const int thread = (int)threadIdx.x % wg::THREADS, part = wg::number() - 1;
    const int own = part * wg::ROWS + thread / WARP * 16 + thread % WARP / 4; /* row of a tile */
    walk walk;
    wg::turn<shared::STAGES> now;
    wg::turn<TOLD> told;
    for (tile t; walk.to(take(s, told), s->table, all, &t); told.next()) {
        float sums[wg::SUMS];
        sum<LEFT_TURNED, RIGHT_TURNED>(s, part, t, &now, sums);
        const int row = t.row + own;
        write((T *)all.at[t.group].result + (size_t)row * (size_t)all.leading + t.column, all,
              t.rows - row, all.columns - t.column, sums);
    }
}

/* The table, and barriers for so many warps that take tiles. */
template <typename Tiles>
__device__ __forceinline__ void prepare(Tiles *s, const groups &all, int takers) {
    for (int g = (int)threadIdx.x; g <= all.count; g += (int)blockDim.x) {
        if (g < all.count)
            s->table[g] = {all.at[g].first_tile, all.at[g].rows, all.at[g].depth};
        else
            s->table[g] = {all.tiles, 0, 0};
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < Tiles::STAGES; i++) {
            wg::create_barrier(wg::address_of(&s->full[i]), 1);
            wg::create_barrier(wg::address_of(&s->empty[i]), PARTS);
        }
        for (int i = 0; i < TOLD; i++) {
            wg::create_barrier(wg::address_of(&s->told[i]), 1);
            wg::create_barrier(wg::address_of(&s->taken[i]), takers);
        }
        wg::barriers_are_there();
    }
}

template <bool LEFT_TURNED, bool RIGHT_TURNED, typename T>
__global__ void __launch_bounds__(THREADS, 1) multiply_groups(groups all) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    auto *s = wg::first_pattern<shared>(memory);
    prepare(s, all, SUMMING_WARPS);
    __syncthreads();
    if (threadIdx.x < wg::THREADS) {
        wg::give_registers<40>();
        if (threadIdx.x == 0)
            bring<LEFT_TURNED, RIGHT_TURNED>(s, all);
    } else {
        wg::take_registers<232>();
        multiply<LEFT_TURNED, RIGHT_TURNED, T>(s, all);
    }
#else
    __trap();
#endif
}

/* ---- Updates ---- */

/* Where four columns of sums begin: their place in a row is turned by the row, so that neither who
 * writes nor who reads meets itself at a bank. */
__device__ __forceinline__ int place_of(int row, int column) {
    return row * TILE_COLUMNS + ((column / 4) ^ (row % 8)) * 4;
}

/* Sums that wait in registers until those before them have been read. */
__device__ void leave_sums(shared_with_sums *s, const groups &all) {
    const int thread = (int)threadIdx.x % wg::THREADS, part = wg::number() - 1;
    const int own = part * wg::ROWS + thread / WARP * 16 + thread % WARP / 4; /* row of a tile */
    walk walk;
    wg::turn<decltype(s->by)::STAGES> now;
    wg::turn<TOLD> told;
    wg::turn<1> turn;
    int to[4]; /* of columns 8 apart; those 32 apart lie so in a row */
    for (int i = 0; i < 4; i++)
        to[i] = place_of(own, i * 8 + thread % 4 * 2) + thread % 2 * 2;
    for (tile t; walk.to(take(&s->by, told), s->by.table, all, &t); told.next(), turn.next()) {
        float sums[wg::SUMS];
        sum<true, true>(&s->by, part, t, &now, sums);
        wg::wait_for(wg::address_of(&s->used), turn.parity ^ 1);
#pragma unroll
        for (int j = 0; j < wg::SUMS / 4; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2 *>(
                    &s->sums[to[j % 4] + j / 4 * 32 + half * 8 * TILE_COLUMNS]) =
                    make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
        __syncwarp();
        if (thread % WARP == 0)
            wg::arrive(wg::address_of(&s->summed));
    }
}

/* By instructions for global memory, past the first-level cache: of pointers that come out of
 * memory the compiler would not know where they lead. */
__device__ __forceinline__ void load_four(const float *from, float (&to)[4]) {
    const float4 four = __ldcg(reinterpret_cast<const float4 *>(from));
    memcpy(to, &four, sizeof four);
}
__device__ __forceinline__ void store_four(float *to, const float (&from)[4]) {
    __stcg(reinterpret_cast<float4 *>(to), make_float4(from[0], from[1], from[2], from[3]));
}
__device__ __forceinline__ void store_four(__nv_bfloat16 *to, const float (&from)[4]) {
    __stcg(reinterpret_cast<uint2 *>(to),
           make_uint2(pack(from[0], from[1]), pack(from[2], from[3])));
}

/* What a lane has of a row: four columns, and four BEHIND them. */
constexpr int BEHIND = TILE_COLUMNS / 2;
struct of_row {
    float parameter[2][4], first[2][4], second[2][4];
};

/* The part of a matrix that a tile is, from a lane's first column on. */
struct place {
    float *parameter, *first, *second;
    __nv_bfloat16 *working; /* NULL: none */
    int rows, columns;
    int leading;

    __device__ __forceinline__ place(const groups &all, const tile &t)
        : rows(min(TILE_ROWS, t.rows - t.row)), leading(all.leading) {
        const struct mp_weight_state &state = all.at[t.group].state;
        const int column = t.column + (int)threadIdx.x % WARP * 4;
        const size_t at = (size_t)t.row * (size_t)leading + (size_t)column;
        columns = all.columns - column;
        parameter = state.parameter + at, first = state.first + at, second = state.second + at;
        working = state.working ? static_cast<__nv_bfloat16 *>(state.working) + at : NULL;
    }

    __device__ __forceinline__ void read(int row, of_row &to) const {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const size_t at = (size_t)row * (size_t)leading + k * BEHIND;
            if (row < rows && k * BEHIND < columns) {
                load_four(parameter + at, to.parameter[k]);
                load_four(first + at, to.first[k]);
                load_four(second + at, to.second[k]);
            }
        }
    }

    __device__ __forceinline__ void write(int row, const of_row &from) const {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const size_t at = (size_t)row * (size_t)leading + k * BEHIND;
            if (row < rows && k * BEHIND < columns) {
                store_four(parameter + at, from.parameter[k]);
                store_four(first + at, from.first[k]);
                store_four(second + at, from.second[k]);
                if (working)
                    store_four(working + at, from.parameter[k]);
            }
        }
    }
};

/* With the gradients at a row of sums. */
__device__ __forceinline__ void update_row(const float *sums, int row,
                                           const struct mp_adamw_factors &by, of_row &v) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float gradient[4];
        mp::load(&sums[place_of(row, (int)threadIdx.x % WARP * 4 + k * BEHIND)], gradient);
#pragma unroll
        for (int i = 0; i < 4; i++)
            update(by, gradient[i], v.parameter[k][i], v.first[k][i], v.second[k][i]);
    }
}

/* Every warp has each third row of a tile, and the next AHEAD of them on their way from memory. */
__device__ void update_weights(shared_with_sums *s, const groups &all) {
    constexpr int AHEAD = 4;
    const int warp = (int)threadIdx.x / WARP - 1;
    walk walk;
    wg::turn<TOLD> told;
    wg::turn<1> turn;
    for (tile t; walk.to(take(&s->by, told), s->by.table, all, &t); told.next(), turn.next()) {
        const place here(all, t);
        of_row ahead[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            here.read(warp + i * UPDATING_WARPS, ahead[i]);
        wg::wait_for(wg::address_of(&s->summed), turn.parity);
#pragma unroll 1
        for (int begin = warp; begin < here.rows; begin += AHEAD * UPDATING_WARPS)
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const int row = begin + i * UPDATING_WARPS;
                if (row < here.rows)
                    update_row(s->sums, row, all.by, ahead[i]);
                here.write(row, ahead[i]);
                here.read(row + AHEAD * UPDATING_WARPS, ahead[i]);
            }
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            wg::arrive(wg::address_of(&s->used));
    }
}

__global__ void __launch_bounds__(THREADS, 1) update_groups(groups all) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    auto *s = wg::first_pattern<shared_with_sums>(memory);
    if (threadIdx.x == 0) {
        wg::create_barrier(wg::address_of(&s->summed), SUMMING_WARPS);
        wg::create_barrier(wg::address_of(&s->used), UPDATING_WARPS);
    }
    prepare(&s->by, all, SUMMING_WARPS + UPDATING_WARPS);
    __syncthreads();
    if (wg::number() > 0)
        leave_sums(s, all);
    else if (threadIdx.x >= WARP)
        update_weights(s, all);
    else if (threadIdx.x == 0)
        bring<true, true>(&s->by, all);
#else
    __trap();
#endif
}

/* ---- On the host ---- */

template <typename Use> void by_kind(const struct mp_cuda_product *p, Use use) {
    if (p->transpose_a)
        use(multiply_groups<true, true, float>);
    else if (p->transpose_b)
        use(multiply_groups<false, false, __nv_bfloat16>);
    else
        use(multiply_groups<false, true, __nv_bfloat16>);
}

int tiles_of(const struct mp_cuda_product *p) {
    return (p->m + TILE_ROWS - 1) / TILE_ROWS * ((p->n + TILE_COLUMNS - 1) / TILE_COLUMNS);
}

} // namespace

struct mp_cuda_grouped {
    group at[MOST_GROUPS]; /* of the call at hand */
};

namespace {

/* Of a matrix of bf16 whose rows are `columns` long and `leading` apart, for copies of so many rows
 * of 64 columns. */
bool map_of(const struct mp_cuda *cuda, CUtensorMap *map, const void *matrix, int rows, int columns,
            int leading, int copied_rows) {
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t stride = (cuuint64_t)leading * 2;
    const cuuint32_t box[] = {64, (cuuint32_t)copied_rows};
    return wg::make_map(cuda, map, matrix, 2, size, &stride, box);
}

bool describe(const struct mp_cuda *cuda, const struct mp_cuda_product *p, int first_tile,
              group *to) {
    *to = {};
    to->result = p->c;
    if (p->state)
        to->state = *p->state;
    to->rows = p->m;
    to->depth = p->k;
    to->first_tile = first_tile;
    if (p->k == 0) /* nothing will be read, and c is fp32 */
        return true;
    return (p->transpose_a ? map_of(cuda, &to->left, p->a, p->k, p->m, p->lda, TILE_DEPTH)
                           : map_of(cuda, &to->left, p->a, p->m, p->k, p->lda, TILE_ROWS)) &&
           (p->transpose_b ? map_of(cuda, &to->right, p->b, p->n, p->k, p->ldb, TILE_COLUMNS)
                           : map_of(cuda, &to->right, p->b, p->k, p->n, p->ldb, TILE_DEPTH));
}

} // namespace

int mp_cuda_create_grouped(struct mp_cuda *cuda, struct mp_error *error) {
    const char *doing = "preparing grouped products";
    int major = 0;
    cudaDriverEntryPointQueryResult found;
    void *make_map = NULL;
    cudaError_t status =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, doing, status, error);
    status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &make_map, 12000,
                                              cudaEnableDefault, &found);
    if (major != 9 || status != cudaSuccess || found != cudaDriverEntryPointSuccess)
        return MP_OK; /* another kind of GPU, or an old driver */
    cuda->grouped = (struct mp_cuda_grouped *)aligned_alloc(alignof(struct mp_cuda_grouped),
                                                            sizeof *cuda->grouped);
    if (!cuda->grouped)
        return mp_cuda_fail(cuda, doing, cudaErrorMemoryAllocation, error);
    cuda->make_map = make_map;
    return MP_OK;
}

void mp_cuda_destroy_grouped(struct mp_cuda *cuda) {
    free(cuda->grouped);
}

bool mp_cuda_grouped_can(const struct mp_cuda *cuda, const struct mp_cuda_product product[],
                         int count) {
    if (!cuda->grouped || cuda->device.element != MP_BFLOAT16 || count > MOST_GROUPS)
        return false;
    for (int i = 0; i < count; i++) {
        const struct mp_cuda_product *p = &product[i];
        bool of_bytes = p->lda % 8 == 0 && p->ldb % 8 == 0 && p->ldc % 8 == 0;
        if (!of_bytes || !are_aligned(16, p->a, p->b, p->c) || (p->k == 0 && !p->transpose_a))
            return false;
        const struct mp_weight_state *of = p->state;
        if (of && (count > MP_CUDA_MOST_UPDATED ||
                   !are_aligned(16, of->parameter, of->first, of->second, of->working)))
            return false;
    }
    return true;
}

/* What all groups share, and theirs on the device; false if a failure was kept. */
static bool queue_groups(struct mp_cuda *cuda, const char *doing, mp_stream stream,
                         const struct mp_cuda_product product[], const int order[], int count,
                         groups *all) {
    struct mp_cuda_grouped *grouped = cuda->grouped;
    for (int i = 0; i < count; i++) {
        const struct mp_cuda_product *p = &product[order[i]];
        if (!describe(cuda, p, all->tiles, &grouped->at[i])) {
            mp_cuda_refuse(cuda, MP_EINVAL, "%s: no map of %d x %d x %d", doing, p->m, p->n, p->k);
            return false;
        }
        all->tiles += tiles_of(p);
    }
    const int none = 0;
    const void *const host[] = {grouped->at, &none};
    const size_t bytes[] = {(size_t)count * sizeof *grouped->at, sizeof none};
    group *at = (group *)mp_cuda_upload(cuda, mp_cuda_stream(cuda, stream), 2, host, bytes);
    all->at = at;
    all->next = (int *)(at + count);
    all->count = count;
    all->columns = product->n;
    all->leading = product->ldc;
    return at && all->tiles > 0;
}

void mp_cuda_grouped_multiply(struct mp_cuda *cuda, mp_stream stream,
                              const struct mp_cuda_product product[], const int order[], int count,
                              bool accumulate) {
    const char *doing = "grouped matrix product";
    groups all = {};
    all.accumulate = accumulate;
    if (queue_groups(cuda, doing, stream, product, order, count, &all))
        by_kind(product, [&](auto kernel) {
            wg::launch(cuda, doing, stream, min(all.tiles, cuda->multiprocessors), THREADS,
                       SHARED_BYTES<shared>, kernel, all);
        });
}

void mp_cuda_grouped_update(struct mp_cuda *cuda, mp_stream stream,
                            const struct mp_cuda_product product[], const int order[], int count,
                            const struct mp_adamw *settings) {
    const char *doing = "grouped update";
    groups all = {};
    all.by = mp_adamw_factors_of(settings);
    if (queue_groups(cuda, doing, stream, product, order, count, &all))
        wg::launch(cuda, doing, stream, min(all.tiles, cuda->multiprocessors), THREADS,
                   SHARED_BYTES<shared_with_sums>, update_groups, all);
}
