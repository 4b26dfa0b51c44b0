/* One kernel for the products of all groups, in bf16 with sums in fp32.
 *
 * As many blocks run as there are multiprocessors.  Tiles of 128 x 256 of all results are numbered,
 * group by group, and block b takes the tiles b, b + blocks, ...  One thread of a block keeps
 * copies of tiles of a and b under way, 64 of k at a time, into STAGES places; two warpgroups
 * multiply 64 rows each of what has come, and write their results while the next tile's copies go
 * on.  Every result is summed over k in one order by one warpgroup: the same bits in every run.
 *
 * What a group's rows leave of a tile comes as zeros and is not written, since every group has maps
 * of its own, which end where it ends. */
#include "reference/device/cuda/grouped.h"

#include <stdlib.h>

#include <type_traits>

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
constexpr int MOST_GROUPS = 512;

/* Results in bf16 leave through shared memory, a place for each warpgroup's. */
template <typename T> constexpr bool leaves_by_copies = std::is_same<T, __nv_bfloat16>::value;
template <typename T> constexpr int STAGES = leaves_by_copies<T> ? 3 : 4;
constexpr int PART_BYTES = wg::ROWS * TILE_COLUMNS * 2;

struct group {
    CUtensorMap left, right, result; /* result: of bf16 */
    float *sums;                     /* of fp32 */
    int rows, depth;                 /* m and k */
    int first_tile;
};

/* What is the same for all groups. */
struct groups {
    const group *at;
    int count, tiles;
    int columns, leading; /* n and ldc */
    bool accumulate;
};

struct entry {
    int first_tile, rows, depth;
};

template <typename T> struct shared {
    uint8_t left[STAGES<T>][LEFT_BYTES];
    uint8_t right[STAGES<T>][RIGHT_BYTES];
    uint8_t result[leaves_by_copies<T> ? PARTS : 0][PART_BYTES];
    uint64_t full[STAGES<T>], empty[STAGES<T>];
    entry table[MOST_GROUPS + 1];
};
template <typename T> constexpr size_t SHARED_BYTES = sizeof(shared<T>) + wg::PATTERN_BYTES;

struct tile {
    int group, row, column, rows, depth;
};

/* The block's tiles, one after another. */
struct walk {
    int number, group;

    __device__ bool next(const entry *table, const groups &all, tile *to) {
        if (number >= all.tiles)
            return false;
        while (table[group + 1].first_tile <= number)
            group++;
        const entry now = table[group];
        int within = number - now.first_tile, high = (now.rows + TILE_ROWS - 1) / TILE_ROWS;
        *to = {group, within % high * TILE_ROWS, within / high * TILE_COLUMNS, now.rows, now.depth};
        number += (int)gridDim.x;
        return true;
    }
};

/* Which stage comes next, and which of its turns. */
template <int COUNT> struct turn {
    int stage = 0, parity = 0;

    __device__ void next() {
        stage++;
        if (stage == COUNT) {
            stage = 0;
            parity ^= 1;
        }
    }
};

__device__ __forceinline__ uint32_t address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

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

template <bool LEFT_TURNED, bool RIGHT_TURNED, typename T>
__device__ void bring(shared<T> *s, const groups &all) {
    walk at = {(int)blockIdx.x, 0};
    turn<STAGES<T>> now;
    tile t;
    int known = -1;
    while (at.next(s->table, all, &t)) {
        const group *g = &all.at[t.group];
        if (known != t.group) {
            wg::know_map(&g->left);
            wg::know_map(&g->right);
            known = t.group;
        }
        for (int depth = 0; depth < t.depth; depth += TILE_DEPTH, now.next()) {
            uint32_t full = address(&s->full[now.stage]);
            wg::wait_for(address(&s->empty[now.stage]), now.parity ^ 1);
            wg::arrive_expecting(full, LEFT_BYTES + RIGHT_BYTES);
            load<LEFT_TURNED>(address(s->left[now.stage]), &g->left, t.row, TILE_ROWS, depth, full);
            load<RIGHT_TURNED>(address(s->right[now.stage]), &g->right, t.column, TILE_COLUMNS,
                               depth, full);
        }
    }
}

/* The sums over k of 64 rows; a warpgroup whose rows are beyond the group's end only lets go of
 * what has come. */
template <bool LEFT_TURNED, bool RIGHT_TURNED, typename T>
__device__ __forceinline__ void sum(shared<T> *s, int part, const tile &t, turn<STAGES<T>> *now,
                                    float (&sums)[wg::SUMS]) {
    constexpr int left_step = LEFT_TURNED ? wg::DEPTH * wg::LINE_BYTES : wg::DEPTH * 2;
    constexpr int right_step = RIGHT_TURNED ? wg::DEPTH * wg::LINE_BYTES : wg::DEPTH * 2;
    const bool idle = t.row + part * wg::ROWS >= t.rows, speaks = threadIdx.x % wg::THREADS == 0;
    int before = -1;
    for (int depth = 0; depth < t.depth; depth += TILE_DEPTH, now->next()) {
        wg::wait_for(address(&s->full[now->stage]), now->parity);
        if (!idle) {
            uint64_t left =
                wg::describe(address(s->left[now->stage]) + part * BLOCK_BYTES, BLOCK_BYTES);
            uint64_t right = wg::describe(address(s->right[now->stage]), BLOCK_BYTES);
            wg::begin_products();
#pragma unroll
            for (int i = 0; i < TILE_DEPTH / wg::DEPTH; i++)
                wg::multiply<LEFT_TURNED, RIGHT_TURNED>(sums, left + i * left_step / 16,
                                                        right + i * right_step / 16, depth + i > 0);
            wg::end_products();
            wg::wait_for_products<1>();
        }
        if (before >= 0 && speaks)
            wg::arrive(address(&s->empty[before]));
        before = now->stage;
    }
    wg::wait_for_products<0>();
    if (before >= 0 && speaks)
        wg::arrive(address(&s->empty[before]));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&both);
}

/* By blocks of 64 columns, as the map has it. */
__device__ __forceinline__ void write(shared<__nv_bfloat16> *s, const groups &all, int part,
                                      const tile &t, const float (&sums)[wg::SUMS]) {
    const int thread = threadIdx.x % wg::THREADS, lane = thread % WARP;
    const int line = thread / WARP * 16 + lane % 16;
    const uint32_t place = address(s->result[part]), at = place + line * wg::LINE_BYTES;
    if (thread == 0)
        wg::wait_until_stores_have_read();
    wg::meet(1 + part);
#pragma unroll
    for (int i = 0; i < wg::SUMS / 8; i++) {
        const int piece = i % 4 * 2 + lane / 16;
        const float *from = &sums[8 * i];
        wg::store_matrices(at + i / 4 * BLOCK_BYTES + ((piece ^ line % 8) * 16),
                           pack(from[0], from[1]), pack(from[2], from[3]), pack(from[4], from[5]),
                           pack(from[6], from[7]));
    }
    wg::tile_is_written();
    wg::meet(1 + part);
    if (thread != 0)
        return;
    const CUtensorMap *map = &all.at[t.group].result;
    wg::know_map(map);
    for (int i = 0; i < TILE_COLUMNS && t.column + i < all.columns; i += 64)
        wg::store_tile(map, t.column + i, t.row + part * wg::ROWS, place + i / 64 * BLOCK_BYTES);
    wg::end_stores();
}

__device__ __forceinline__ void write(shared<float> *, const groups &all, int part, const tile &t,
                                      const float (&sums)[wg::SUMS]) {
    const int thread = threadIdx.x % wg::THREADS;
    const int row = t.row + part * wg::ROWS + thread / WARP * 16 + thread % WARP / 4;
    float *to = all.at[t.group].sums + (size_t)row * (size_t)all.leading + t.column;
#pragma unroll
    for (int i = 0; i < wg::SUMS / 2; i++) { /* pairs; odd ones are 8 rows further down */
        const int column = i / 2 * 8 + thread % 4 * 2;
        if (t.column + column >= all.columns || row + i % 2 * 8 >= t.rows)
            continue;
        float2 *at =
            reinterpret_cast<float2 *>(to + (size_t)(i % 2 * 8) * (size_t)all.leading + column);
        float2 value = {sums[2 * i], sums[2 * i + 1]};
        if (all.accumulate) {
            value.x += at->x;
            value.y += at->y;
        }
        *at = value;
    }
}

template <bool LEFT_TURNED, bool RIGHT_TURNED, typename T>
__device__ void multiply(shared<T> *s, const groups &all) {
    const int part = (int)threadIdx.x / wg::THREADS - 1;
    walk at = {(int)blockIdx.x, 0};
    turn<STAGES<T>> now;
    tile t;
    while (at.next(s->table, all, &t)) {
        float sums[wg::SUMS];
        if (t.depth == 0)
            for (int i = 0; i < wg::SUMS; i++)
                sums[i] = 0;
        sum<LEFT_TURNED, RIGHT_TURNED>(s, part, t, &now, sums);
        if (t.row + part * wg::ROWS < t.rows)
            write(s, all, part, t, sums);
    }
    if (leaves_by_copies<T> && threadIdx.x % wg::THREADS == 0)
        wg::wait_until_stores_have_read();
}

template <bool LEFT_TURNED, bool RIGHT_TURNED, typename T>
__global__ void __launch_bounds__(THREADS, 1) multiply_groups(groups all) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    const uint32_t beyond = address(memory) % wg::PATTERN_BYTES;
    auto *s = reinterpret_cast<shared<T> *>(memory + (beyond ? wg::PATTERN_BYTES - beyond : 0));
    for (int g = (int)threadIdx.x; g <= all.count; g += THREADS) {
        if (g < all.count)
            s->table[g] = {all.at[g].first_tile, all.at[g].rows, all.at[g].depth};
        else
            s->table[g] = {all.tiles, 0, 0};
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES<T>; i++) {
            wg::create_barrier(address(&s->full[i]), 1);
            wg::create_barrier(address(&s->empty[i]), PARTS);
        }
        wg::barriers_are_there();
    }
    __syncthreads();
    if (threadIdx.x < wg::THREADS) {
        wg::give_registers<40>();
        if (threadIdx.x == 0)
            bring<LEFT_TURNED, RIGHT_TURNED>(s, all);
    } else {
        wg::take_registers<232>();
        multiply<LEFT_TURNED, RIGHT_TURNED>(s, all);
    }
#else
    __trap();
#endif
}

/* ---- On the host ---- */

template <typename Use> void by_kind(const struct mp_cuda_product *p, Use use) {
    if (p->transpose_a)
        use(multiply_groups<true, true, float>, SHARED_BYTES<float>);
    else if (p->transpose_b)
        use(multiply_groups<false, false, __nv_bfloat16>, SHARED_BYTES<__nv_bfloat16>);
    else
        use(multiply_groups<false, true, __nv_bfloat16>, SHARED_BYTES<__nv_bfloat16>);
}

int tiles_of(const struct mp_cuda_product *p) {
    return (p->m + TILE_ROWS - 1) / TILE_ROWS * ((p->n + TILE_COLUMNS - 1) / TILE_COLUMNS);
}

} // namespace

struct mp_cuda_grouped {
    decltype(&cuTensorMapEncodeTiled) encode;
    group at[MOST_GROUPS]; /* of the call at hand */
};

namespace {

/* Of a matrix of bf16 whose rows are `columns` long and `leading` apart, for copies of so many rows
 * of 64 columns. */
bool map_of(const struct mp_cuda_grouped *grouped, CUtensorMap *map, const void *matrix, int rows,
            int columns, int leading, int copied_rows) {
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t stride = (cuuint64_t)leading * 2;
    const cuuint32_t box[] = {64, (cuuint32_t)copied_rows}, step[] = {1, 1};
    return grouped->encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(matrix),
                           size, &stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool describe(const struct mp_cuda_grouped *grouped, const struct mp_cuda_product *p,
              int first_tile, group *to) {
    *to = {};
    to->sums = (float *)p->c;
    to->rows = p->m;
    to->depth = p->k;
    to->first_tile = first_tile;
    if (p->k == 0) /* nothing will be read, and c is fp32 */
        return true;
    return (p->transpose_a ? map_of(grouped, &to->left, p->a, p->k, p->m, p->lda, TILE_DEPTH)
                           : map_of(grouped, &to->left, p->a, p->m, p->k, p->lda, TILE_ROWS)) &&
           (p->transpose_b ? map_of(grouped, &to->right, p->b, p->n, p->k, p->ldb, TILE_COLUMNS)
                           : map_of(grouped, &to->right, p->b, p->k, p->n, p->ldb, TILE_DEPTH)) &&
           (p->transpose_a || map_of(grouped, &to->result, p->c, p->m, p->n, p->ldc, wg::ROWS));
}

} // namespace

int mp_cuda_create_grouped(struct mp_cuda *cuda, struct mp_error *error) {
    const char *doing = "preparing grouped products";
    int major = 0;
    cudaDriverEntryPointQueryResult found;
    void *encode = NULL;
    cudaError_t status =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, doing, status, error);
    status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                              cudaEnableDefault, &found);
    if (major != 9 || status != cudaSuccess || found != cudaDriverEntryPointSuccess)
        return MP_OK; /* another kind of GPU, or an old driver */
    for (int kind = 0; kind < 3 && status == cudaSuccess; kind++) {
        struct mp_cuda_product p = {};
        p.transpose_a = kind == 2;
        p.transpose_b = kind == 1;
        by_kind(&p, [&](auto kernel, size_t bytes) {
            status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)bytes);
        });
    }
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, doing, status, error);
    cuda->grouped = (struct mp_cuda_grouped *)aligned_alloc(alignof(struct mp_cuda_grouped),
                                                            sizeof *cuda->grouped);
    if (!cuda->grouped)
        return mp_cuda_fail(cuda, doing, cudaErrorMemoryAllocation, error);
    cuda->grouped->encode = (decltype(&cuTensorMapEncodeTiled))encode;
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
    }
    return true;
}

void mp_cuda_grouped_multiply(struct mp_cuda *cuda, mp_stream stream,
                              const struct mp_cuda_product product[], const int order[], int count,
                              bool accumulate) {
    const char *doing = "grouped matrix product";
    struct mp_cuda_grouped *grouped = cuda->grouped;
    groups all = {};
    for (int i = 0; i < count; i++) {
        const struct mp_cuda_product *p = &product[order[i]];
        if (!describe(grouped, p, all.tiles, &grouped->at[i])) {
            mp_cuda_refuse(cuda, MP_EINVAL, "%s: no map of %d x %d x %d", doing, p->m, p->n, p->k);
            return;
        }
        all.tiles += tiles_of(p);
    }
    const void *host = grouped->at;
    const size_t bytes = (size_t)count * sizeof *grouped->at;
    all.at = (const group *)mp_cuda_upload(cuda, mp_cuda_stream(cuda, stream), 1, &host, &bytes);
    all.count = count;
    all.columns = product->n;
    all.leading = product->ldc;
    all.accumulate = accumulate;
    if (!all.at || all.tiles == 0)
        return;
    by_kind(product, [&](auto kernel, size_t shared_bytes) {
        cudaLaunchConfig_t config = {};
        config.gridDim =
            dim3((unsigned)(all.tiles < cuda->multiprocessors ? all.tiles : cuda->multiprocessors));
        config.blockDim = dim3(THREADS);
        config.dynamicSmemBytes = shared_bytes;
        config.stream = mp_cuda_stream(cuda, stream);
        mp_cuda_note(cuda, doing, cudaLaunchKernelEx(&config, kernel, all));
    });
}
