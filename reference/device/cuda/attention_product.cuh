/* The matrix products of attention: the same product for many pairs of a sequence and a head.
 *
 * A pair's q, k and v are matrices inside of qkv: heads of a sequence are head_width apart,
 * sequences S * 3D.  No single stride leads from pair to pair, so that a product over several
 * sequences names its matrices by pointers, which one small kernel has put into scratch for all
 * products of a round.  One call per sequence, strided over its heads, would do without pointers,
 * but takes as many times more calls as there are sequences: 256 instead of 16 in a forward pass
 * over 16 sequences of 2048 tokens, about as long to queue as to run, and each too small to fill a
 * large GPU.
 *
 * Calls per sequence are still right in two cases: where there is one sequence only, and where
 * matrices do not start at multiples of 16 bytes (head widths like 5).  cuBLAS cannot see that
 * through pointers in device memory; its documentation asks for aligned ones then. */
#pragma once

#include "reference/device/cuda/kernel.cuh"

namespace mp {
namespace attention {

/* A matrix of every pair and block of rows; steps are in bytes. */
struct operand {
    char *base;
    int64_t start; /* from base to where sequence 0, head 0, block 0 is or would be */
    int64_t sequence_step, head_step, block_step;
};

enum { MOST_OPERANDS = 12 };

/* Pairs `first` up to `first + pairs` of batch * heads, and what is multiplied for them. */
struct round_of_pairs {
    int heads, first, pairs, blocks;
    int operands;
    operand operand_of[MOST_OPERANDS];
};

/* One of the matrices of a product: `leading` elements from row to row. */
struct matrix {
    int operand;
    int leading;
    bool transposed;
};

struct multiplier {
    struct mp_cuda *cuda;
    mp_stream stream;
    cudaDataType_t type;
    struct round_of_pairs round;
    void **table; /* device [operands][blocks][pairs]; NULL: calls per sequence */
};

__host__ __device__ inline char *address(const round_of_pairs &round, int operand_id, int block,
                                         int pair) {
    const operand &operand = round.operand_of[operand_id];
    return operand.base + (operand.start + pair / round.heads * operand.sequence_step +
                           pair % round.heads * operand.head_step + block * operand.block_step);
}

__global__ void fill_table(round_of_pairs round, void **table) {
    int64_t entry = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (entry >= (int64_t)round.operands * round.blocks * round.pairs)
        return;
    int pair = (int)(entry % round.pairs);
    int64_t above = entry / round.pairs;
    table[entry] = address(round, (int)(above / round.blocks), (int)(above % round.blocks),
                           round.first + pair);
}

static bool is_aligned(const round_of_pairs &round) {
    const int64_t access = 16;
    for (int i = 0; i < round.operands; i++) {
        const operand &operand = round.operand_of[i];
        int64_t all = (int64_t)(uintptr_t)operand.base | operand.start | operand.sequence_step |
                      operand.head_step | operand.block_step;
        if (all % access)
            return false;
    }
    return true;
}

static size_t table_bytes(int operands, int blocks, int pairs) {
    return (size_t)operands * (size_t)blocks * (size_t)pairs * sizeof(void *);
}

/* Makes ready for products of this round; `table` is scratch of table_bytes. */
static multiplier begin_products(struct mp_cuda *cuda, mp_stream stream,
                                 const round_of_pairs &round, void *table) {
    const int threads = 256;
    bool several = round.first / round.heads != (round.first + round.pairs - 1) / round.heads;
    multiplier multiplier = {};
    multiplier.cuda = cuda;
    multiplier.stream = stream;
    multiplier.type = cuda->device.element == MP_FLOAT32 ? CUDA_R_32F : CUDA_R_16BF;
    multiplier.round = round;
    /* This also gives cuBLAS its own workspace back: scratch is full of scores. */
    mp_cuda_note_cublas(cuda, "attention",
                        cublasSetStream(cuda->cublas, mp_cuda_stream(cuda, stream)));
    if (several && is_aligned(round)) {
        int64_t entries = (int64_t)round.operands * round.blocks * round.pairs;
        multiplier.table = (void **)table;
        launch(cuda, "attention: pointers", stream, pieces_of(entries, threads), threads,
               fill_table, round, multiplier.table);
    }
    return multiplier;
}

static cublasOperation_t operation(const matrix &matrix) {
    return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* One strided call for each sequence of the round, over those of its heads that are in it. */
static void multiply_by_sequence(const multiplier &multiplier, const char *doing, int block, int m,
                                 int n, int k, float alpha, matrix a, matrix b, matrix c) {
    const round_of_pairs &round = multiplier.round;
    const float beta = 0;
    const int64_t bytes = multiplier.type == CUDA_R_32F ? 4 : 2;
    int end = round.first + round.pairs;
    for (int pair = round.first; pair < end;) {
        int heads = min(round.heads - pair % round.heads, end - pair);
        cublasStatus_t status = cublasGemmStridedBatchedEx(
            multiplier.cuda->cublas, operation(b), operation(a), n, m, k, &alpha,
            address(round, b.operand, block, pair), multiplier.type, b.leading,
            round.operand_of[b.operand].head_step / bytes, address(round, a.operand, block, pair),
            multiplier.type, a.leading, round.operand_of[a.operand].head_step / bytes, &beta,
            address(round, c.operand, block, pair), multiplier.type, c.leading,
            round.operand_of[c.operand].head_step / bytes, heads, CUBLAS_COMPUTE_32F,
            CUBLAS_GEMM_DEFAULT);
        if (!mp_cuda_note_cublas(multiplier.cuda, doing, status))
            return;
        pair += heads;
    }
}

/* c[m][n] = alpha * op(a) * op(b) for every pair of the round, row-major; cuBLAS, which counts by
 * columns, gets the transposed product.  Sums are formed in fp32. */
static void multiply(const multiplier &multiplier, const char *doing, int block, int m, int n,
                     int k, float alpha, matrix a, matrix b, matrix c) {
    const round_of_pairs &round = multiplier.round;
    const float beta = 0;
    if (!multiplier.table) {
        multiply_by_sequence(multiplier, doing, block, m, n, k, alpha, a, b, c);
        return;
    }
    void **at[3];
    const int operands[3] = {a.operand, b.operand, c.operand};
    for (int i = 0; i < 3; i++)
        at[i] = multiplier.table + ((int64_t)operands[i] * round.blocks + block) * round.pairs;
    cublasStatus_t status = cublasGemmBatchedEx(
        multiplier.cuda->cublas, operation(b), operation(a), n, m, k, &alpha, at[1],
        multiplier.type, b.leading, at[0], multiplier.type, a.leading, &beta, at[2],
        multiplier.type, c.leading, round.pairs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    mp_cuda_note_cublas(multiplier.cuda, doing, status);
}

} // namespace attention
} // namespace mp
