/* What the kernels of fused attention share: tiles of rows in shared memory, and fragments of them.
 *
 * A block of four warps has `own` rows of one head, a quarter of them to each warp, and goes
 * through tiles of `other` rows: forward and the gradient of q own queries and go through keys, the
 * gradient of k and v owns keys and goes through queries.  128 own and 64 other rows of 64 elements
 * take as many bytes as 64 and 32 rows of 128 elements, and registers likewise.
 *
 * A warp takes its own rows in bands of 16, the rows of one product of fragments.  With two bands
 * each fragment of the other rows that is read from shared memory serves two products: at one,
 * shared memory (128 bytes a cycle) would limit the tensor cores of an H100 to half their speed.
 *
 * Rows in shared memory are WIDTH elements, in accesses of 16 bytes; access a of row r lies in the
 * place of access a ^ (r % 8).  The eight rows of a matrix of ldmatrix therefore lie in different
 * banks. */
#pragma once

#include "reference/device/cuda/kernel.cuh"
#include "reference/device/cuda/mma.cuh"

namespace mp {
namespace attention {

typedef __nv_bfloat16 element;

constexpr float LOG2_OF_E = 1.44269504f, LN_OF_2 = 0.69314718f;

template <int HEAD_WIDTH, int OWN_ROWS = 128 * 64 / HEAD_WIDTH> struct tiles {
    static_assert(HEAD_WIDTH == 64 || HEAD_WIDTH == 128,
                  "registers and shared memory are sized for these");
    static constexpr int WIDTH = HEAD_WIDTH, WARPS = 4, THREADS = WARPS * WARP;
    static constexpr int OWN = OWN_ROWS, OTHER = 64 * 64 / WIDTH; /* rows */
    static constexpr int WARP_ROWS = OWN / WARPS, BANDS = WARP_ROWS / 16;
    static constexpr int STEPS = WIDTH / 16;   /* of a product over the width */
    static constexpr int ACCESSES = WIDTH / 8; /* of a row */
    static constexpr int ROW_BYTES = 2 * WIDTH;
    static constexpr int OWN_BYTES = OWN * ROW_BYTES, OTHER_BYTES = OTHER * ROW_BYTES;
};

/* Heads of `sequence` tokens; scores are scale * q k'. */
struct fused_shape {
    int sequence, heads;
    int first_pair, pairs; /* of a sequence and a head */
    float scale;
};

/* What a block works on. */
struct fused_work {
    int block; /* of own rows */
    int pair;
    int64_t token;     /* the sequence's first */
    int column, model; /* of the head's first element among those of a token */
};

/* Blocks with the same pair of a sequence and a head run at about the same time, since they read
 * the same rows: there is room in the L2 cache for those of a good number of pairs.  Among the
 * blocks of these pairs those that come first have most work, whichever way they are counted. */
template <typename t>
__device__ __forceinline__ fused_work work_of(const fused_shape &shape, int blocks,
                                              bool backwards) {
    constexpr int TOGETHER = 32;
    const int index = (int)blockIdx.x, group = index / (TOGETHER * blocks);
    const int rest = shape.pairs - group * TOGETHER, pairs = rest < TOGETHER ? rest : TOGETHER;
    const int in_group = index - group * (TOGETHER * blocks), block = in_group / pairs;
    fused_work work;
    work.block = backwards ? blocks - 1 - block : block;
    work.pair = shape.first_pair + group * TOGETHER + in_group % pairs;
    work.token = (int64_t)(work.pair / shape.heads) * shape.sequence;
    work.column = work.pair % shape.heads * t::WIDTH;
    work.model = shape.heads * t::WIDTH;
    return work;
}

__device__ __forceinline__ int lane_of_warp() {
    return (int)threadIdx.x % WARP;
}

/* The first of the warp's rows among those of the block. */
template <typename t> __device__ __forceinline__ int own_row() {
    return thread_read_again() / WARP * t::WARP_ROWS;
}

/* Bytes from the start of a tile. */
template <typename t> __device__ __forceinline__ int place_of(int row, int access) {
    return row * t::ROW_BYTES + ((access ^ (row & 7)) << 4);
}

/* Begins copying rows [first, first + ROWS) of a matrix whose rows are `step` elements apart; rows
 * from `end` on become zeros. */
template <typename t, int ROWS>
__device__ __forceinline__ void copy_rows(char *tile, const element *from, int step, int first,
                                          int end) {
    constexpr int ROUND = t::THREADS / t::ACCESSES; /* rows that all threads copy at once */
    static_assert(ROUND % 8 == 0, "a thread's accesses have the same place in their rows");
    const int thread = thread_read_again();
    const int row = thread / t::ACCESSES, access = thread % t::ACCESSES;
    const element *here = from + (int64_t)first * step + (row * step + access * 8);
    tile += place_of<t>(row, access);
#pragma unroll
    for (int i = 0; i < ROWS; i += ROUND)
        copy_async_16(tile + i * t::ROW_BYTES, here + i * step, first + row + i < end);
}

/* Where this lane's row of the first matrices lies for ldmatrix, in rows [row, row + 16) of a tile:
 * of fragments that are loaded as the rows are, and of those that are turned over.  Accesses of
 * step s, which are elements [16 s, 16 s + 16), are at this address with s << 5 exchanged: one
 * instruction where tables of places would take registers. */
template <typename t>
__device__ __forceinline__ shared_address rows_at(const char *tile, int row, int lane) {
    return address_of(tile) + place_of<t>(lane % 16, lane / 16) + row * t::ROW_BYTES;
}

template <typename t>
__device__ __forceinline__ shared_address turned_at(const char *tile, int row, int lane) {
    return address_of(tile) + place_of<t>(lane / 16 * 8 + lane % 8, lane / 8 % 2) +
           row * t::ROW_BYTES;
}

/* 16 rows, turned over, as two right operands: the first 8 rows become columns, the next 8. */
__device__ __forceinline__ void load_turned(uint32_t (&right)[2][2], shared_address turned,
                                            int step) {
    uint32_t both[4];
    ldmatrix_x4(both, turned ^ (shared_address)(step << 5));
    right[0][0] = both[0];
    right[0][1] = both[1];
    right[1][0] = both[2];
    right[1][1] = both[3];
}

/* 16 rows, as they are, as two right operands: the first 8 columns of the step, the next 8. */
__device__ __forceinline__ void load_right(uint32_t (&right)[2][2], shared_address rows, int step) {
    uint32_t both[4];
    ldmatrix_x4_trans(both, rows ^ (shared_address)(step << 5));
    right[0][0] = both[0];
    right[0][1] = both[1];
    right[1][0] = both[2];
    right[1][1] = both[3];
}

/* A warp's own rows, from `row` on, as left operands of products over the width. */
template <typename t>
__device__ __forceinline__ void load_own(uint32_t (&left)[t::BANDS][t::STEPS][4], const char *tile,
                                         int row) {
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int step = 0; step < t::STEPS; step++)
            ldmatrix_x4(left[band][step], rows_at<t>(tile, row + band * 16, lane_of_warp()) ^
                                              (shared_address)(step << 5));
}

/* sums += own * turned(16 rows), of one step. */
template <typename t>
__device__ __forceinline__ void add_scores(float (&sums)[t::BANDS][2][4],
                                           const uint32_t (&own)[t::BANDS][t::STEPS][4],
                                           shared_address turned, int step) {
    uint32_t right[2][2];
    load_turned(right, turned, step);
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            mma_m16n8k16(sums[band][half], own[band][step], right[half]);
}

/* sums += left * 16 rows. */
template <typename t>
__device__ __forceinline__ void add_rows(float (&sums)[t::BANDS][t::ACCESSES][4],
                                         const uint32_t (&left)[t::BANDS][4], shared_address rows) {
#pragma unroll
    for (int step = 0; step < t::STEPS; step++) {
        uint32_t right[2][2];
        load_right(right, rows, step);
#pragma unroll
        for (int band = 0; band < t::BANDS; band++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                mma_m16n8k16(sums[band][step * 2 + half], left[band], right[half]);
    }
}

template <int BANDS, int COUNT>
__device__ __forceinline__ void set_zero(float (&sums)[BANDS][COUNT][4]) {
#pragma unroll
    for (int band = 0; band < BANDS; band++)
#pragma unroll
        for (int n = 0; n < COUNT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sums[band][n][i] = 0;
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

/* Sums of 16 neighbouring columns as the left operand of a product over these columns: lanes have
 * the elements already that they need. */
__device__ __forceinline__ void to_left(uint32_t (&left)[4], const float (&first)[4],
                                        const float (&second)[4]) {
    left[0] = pack(first[0], first[1]);
    left[1] = pack(first[2], first[3]);
    left[2] = pack(second[0], second[1]);
    left[3] = pack(second[2], second[3]);
}

/* Writes the warp's own rows: [row, row + WARP_ROWS) of the block's, which are [first, first + OWN)
 * of a matrix whose rows are `step` elements apart; those from `end` on are left out.  sums[band]
 * [..][2 half ..] are multiplied by factor[band][half].  The tile's rows of this warp are written
 * over: accesses of 16 bytes are put together there. */
template <typename t>
__device__ __forceinline__ void store_rows(char *tile,
                                           const float (&sums)[t::BANDS][t::ACCESSES][4],
                                           const float (&factor)[t::BANDS][2], int row, element *to,
                                           int step, int first, int end) {
    const int lane = lane_of_warp();
    __syncwarp();
#pragma unroll
    for (int band = 0; band < t::BANDS; band++)
#pragma unroll
        for (int n = 0; n < t::ACCESSES; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at = place_of<t>(row + band * 16 + half * 8 + lane / 4, n);
                const float by = factor[band][half];
                *(uint32_t *)(tile + at + lane % 4 * 4) =
                    pack(sums[band][n][half * 2] * by, sums[band][n][half * 2 + 1] * by);
            }
    __syncwarp();
    constexpr int ROUND = WARP / t::ACCESSES; /* rows that the warp writes at once */
    const int access = lane % t::ACCESSES;
#pragma unroll
    for (int i = 0; i < t::WARP_ROWS / ROUND; i++) {
        const int own = row + i * ROUND + lane / t::ACCESSES;
        if (first + own < end)
            *(uint4 *)(to + (int64_t)(first + own) * step + access * 8) =
                *(const uint4 *)(tile + place_of<t>(own, access));
    }
}

} // namespace attention
} // namespace mp
