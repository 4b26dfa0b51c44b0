/* Causal attention of any shape by matrix products of cuBLAS (tensor cores, where elements are
 * bf16) and kernels for what happens to the scores in between (attention_rows.cuh).  What the fused
 * kernels can do (attention_fused.h) is left to them.
 *
 * Queries come in blocks: block [first, end) meets the keys [0, end), so that most of the half of
 * the square that the mask hides is never touched.  Pairs of a sequence and a head are worked on
 * together, as many in a round as scratch holds: kernels are large and few.
 *
 *   forward, per block:   S = scale q k'        P = softmax(S), in place        out = P v
 *   backward, per block:  S = scale q k'        dP = dout v'
 *                         P = exp(S - logsumexp), dS = scale P (dP - delta), both in place
 *                         dq = dS k
 *   then per block of keys, with all the queries from its first on:
 *                         dv = P' dout          dk = dS' q
 *
 * Backward keeps P and dS of all queries of the round's pairs until the end.  Every block of dq, dk
 * and dv is therefore one product, whose sum is rounded to elements once; adding up dk and dv
 * block of queries by block would cost a rounding each time, or fp32 copies of both that are read
 * and written for every block (a sixth more memory traffic).  The price is scratch in the square of
 * the sequence: 16 MiB per pair for 2048 tokens in bf16.
 *
 * Scores have the device's element type.  In bf16 that is a choice for speed: scores in fp32 would
 * cost half as much traffic again (12 instead of 8 bytes per score in forward, 26 instead of 18 in
 * backward), and traffic is what limits all of this (below).  It rounds a score s by at most
 * s / 256, as the unfused attention of frameworks in mixed precision does; softmax, its sum and
 * the logsumexp are fp32.  Both directions round the same score the same way, so that the
 * probabilities of backward are those of forward.
 *
 * What an H200 (4.8 TB/s, 989 Tflop/s in bf16) needs at least for 16 sequences of 2048 tokens and
 * 12 heads of width 64: blocks of 256 queries make 192 * 256 * 256 * (1 + 2 + ... + 8) = 453e6
 * scores.
 *   forward:  8 bytes for each (written by the product, read and written by softmax, read by the
 *             product), 3.6 GB, and 0.6 GB of q, k, v and out: 0.9 ms.  4 * 64 flop for each,
 *             116 Gflop: 0.12 ms.
 *   backward: 18 bytes for each (S and dP written, read, written again; P read once, dS twice),
 *             8.2 GB, and 1.2 GB of the narrow matrices: 2.0 ms.  10 * 64 flop for each, 290 Gflop:
 *             0.3 ms.
 * So about 2.9 ms where products alone would take 0.4.  Only a kernel that keeps scores on the chip
 * could do better: attention_fused.cu. */
#include "reference/device/cuda/attention_fused.h"
#include "reference/device/cuda/attention_product.cuh"
#include "reference/device/cuda/attention_rows.cuh"

namespace mp {
namespace attention {

/* Least queries of a block. */
constexpr int BLOCK = 256;
/* Scratch for as many pairs as this holds, or for one if that is more. */
constexpr size_t SCRATCH_BYTES = (size_t)1 << 30;
/* What padding the parts of scratch may take: there are fewer than 4. */
constexpr size_t PARTS_BYTES = 4 * 256;

/* Operands of both directions, then those of forward, then those of backward.  Blocks of S, dS, q,
 * dq, dout and out are blocks of queries; dk, dv and the panels, blocks of keys.  A panel is the
 * part of P or dS with the queries from the block's first key on. */
enum { Q, K, V, S, OUT, FORWARD_OPERANDS };
enum { DOUT = OUT, DS, S_PANEL, DS_PANEL, DQ, DK, DV, BACKWARD_OPERANDS };
static_assert((int)BACKWARD_OPERANDS <= (int)MOST_OPERANDS, "room for all of them");

/* Elements from row to row of scores: rows start at 16 bytes. */
static int row_elements(int keys) {
    return (int)pieces_of(keys, 8) * 8;
}

/* Scratch of one pair in backward, which needs more than forward. */
static size_t backward_pair_bytes(int sequence, size_t element_bytes) {
    size_t square = (size_t)sequence * (size_t)row_elements(sequence) * element_bytes;
    return 2 * square + (size_t)sequence * sizeof(float) +
           table_bytes(BACKWARD_OPERANDS, (int)pieces_of(sequence, BLOCK), 1);
}

/* Queries of a block, for products over `pairs` pairs.  Small blocks leave out more of what is
 * masked, but a product has few tiles of 128 rows then: with few pairs blocks grow until there are
 * about as many tiles as an H100 has multiprocessors, or four blocks are left. */
static int block_rows(int pairs, int sequence) {
    const int64_t enough_rows = 128 * 128;
    int rows = BLOCK;
    while ((int64_t)pairs * rows < enough_rows && rows * 8 <= sequence)
        rows *= 2;
    return rows;
}

/* One attention_forward or _backward. */
struct call {
    struct mp_cuda *cuda;
    mp_stream stream;
    struct mp_attention_shape shape;
    int model, pairs;
    int element_bytes;
    float scale;
};

/* False, and a failure kept, for sequences longer than the device was created for. */
static bool begin_call(struct call *call, struct mp_cuda *cuda, mp_stream stream,
                       const struct mp_attention_shape *shape) {
    call->cuda = cuda;
    call->stream = stream;
    call->shape = *shape;
    call->model = shape->heads * shape->head_width;
    call->pairs = shape->sequence > 0 ? shape->batch * shape->heads : 0;
    call->element_bytes = (int)mp_cuda_element_bytes(cuda);
    call->scale = 1.0f / sqrtf((float)shape->head_width);
    size_t least = PARTS_BYTES + backward_pair_bytes(shape->sequence, (size_t)call->element_bytes);
    if (shape->sequence <= cuda->limits.attention.sequence && least <= cuda->scratch_bytes)
        return true;
    mp_cuda_refuse(cuda, MP_ELIMIT,
                   "attention over sequences of %d tokens: the device was created for at "
                   "most %d",
                   shape->sequence, cuda->limits.attention.sequence);
    return false;
}

/* Pairs of each round but the last: as even as can be. */
static int pairs_of_round(const struct call *call, size_t pair_bytes) {
    int64_t fitting = (int64_t)((call->cuda->scratch_bytes - PARTS_BYTES) / pair_bytes);
    int most = fitting < call->pairs ? (int)fitting : call->pairs;
    return (int)pieces_of(call->pairs, pieces_of(call->pairs, most));
}

/* Rows of tokens: `columns` elements each, of which the first head has those from `column` on. */
static operand token_rows(const struct call *call, const void *base, int columns, int column,
                          int rows_of_block) {
    int64_t row = (int64_t)columns * call->element_bytes;
    operand operand;
    operand.base = (char *)base;
    operand.start = (int64_t)column * call->element_bytes;
    operand.sequence_step = call->shape.sequence * row;
    operand.head_step = (int64_t)call->shape.head_width * call->element_bytes;
    operand.block_step = rows_of_block * row;
    return operand;
}

/* Part `part` (q, k, v: 0, 1, 2) of qkv or its gradient. */
static operand qkv_part(const struct call *call, const void *qkv, int part, int rows_of_block) {
    return token_rows(call, qkv, 3 * call->model, part * call->model, rows_of_block);
}

/* Matrices of scratch, `pair_step` bytes apart, the first of them for pair `first`. */
static operand score_matrix(const struct call *call, char *base, int first, int64_t pair_step,
                            int64_t block_step) {
    operand operand;
    operand.base = base;
    operand.start = -first * pair_step;
    operand.sequence_step = call->shape.heads * pair_step;
    operand.head_step = pair_step;
    operand.block_step = block_step;
    return operand;
}

/* With as many registers as the rows ask for: ELEMENTS scores a lane or more, 64 at the most. */
template <int ELEMENTS, typename T>
static void softmax(const struct call *call, const row_block &rows, T *score, float *logsumexp) {
    constexpr int WARPS = 4, THREADS = 256;
    if constexpr (ELEMENTS > 64)
        launch(call->cuda, "attention: softmax", call->stream,
               (int64_t)rows.pairs * (rows.end - rows.first), THREADS,
               softmax_long_rows<T, THREADS>, rows, score, logsumexp);
    else if (rows.end > ELEMENTS * WARP)
        softmax<2 * ELEMENTS>(call, rows, score, logsumexp);
    else
        launch(call->cuda, "attention: softmax", call->stream,
               pieces_of((int64_t)rows.pairs * (rows.end - rows.first), WARPS), WARPS * WARP,
               softmax_rows<T, ELEMENTS / ACCESS_ELEMENTS<T>, WARPS>, rows, score, logsumexp);
}

/* The block's part of every forward product; logsumexp is that of the round's first pair. */
template <typename T>
static void forward_block(const struct call *call, const multiplier &products, int block, int first,
                          int end, int64_t pair_step, T *score, float *logsumexp) {
    const int count = end - first, width = call->shape.head_width, leading = row_elements(end);
    const matrix q = {Q, 3 * call->model, false}, k = {K, 3 * call->model, true};
    const matrix v = {V, 3 * call->model, false}, out = {OUT, call->model, false};
    const matrix scores = {S, leading, false};
    multiply(products, "attention: scores", block, count, end, width, call->scale, q, k, scores);
    const row_block rows = {
        products.round.pairs, call->shape.sequence, first, end, leading, pair_step};
    softmax<8>(call, rows, score, logsumexp);
    multiply(products, "attention: out", block, count, width, end, 1, scores, v, out);
}

/* Scratch: scores of a block, pointers. */
template <typename T>
static void forward(const struct call *call, const void *qkv, void *out, float *logsumexp) {
    const int sequence = call->shape.sequence;
    const int block = block_rows(call->pairs, sequence), blocks = (int)pieces_of(sequence, block);
    const int rows = block < sequence ? block : sequence;
    const int64_t pair_step = (int64_t)rows * row_elements(sequence) * call->element_bytes;
    const int most =
        pairs_of_round(call, (size_t)pair_step + table_bytes(FORWARD_OPERANDS, blocks, 1));
    char *score = (char *)call->cuda->scratch;
    char *table = score + part_bytes((size_t)(most * pair_step));

    for (int first = 0; first < call->pairs; first += most) {
        round_of_pairs round = {};
        round.heads = call->shape.heads;
        round.first = first;
        round.pairs = most < call->pairs - first ? most : call->pairs - first;
        round.blocks = blocks;
        round.operands = FORWARD_OPERANDS;
        round.operand_of[Q] = qkv_part(call, qkv, 0, block);
        round.operand_of[K] = qkv_part(call, qkv, 1, 0);
        round.operand_of[V] = qkv_part(call, qkv, 2, 0);
        round.operand_of[S] = score_matrix(call, score, first, pair_step, 0);
        round.operand_of[OUT] = token_rows(call, out, call->model, 0, block);
        const multiplier products = begin_products(call->cuda, call->stream, round, table);
        for (int i = 0; i < blocks; i++) {
            int end = (i + 1) * block < sequence ? (i + 1) * block : sequence;
            forward_block(call, products, i, i * block, end, pair_step / call->element_bytes,
                          (T *)score, logsumexp + (int64_t)first * sequence);
        }
    }
}

/* What backward has in scratch: [pairs][sequence][row_elements(sequence)] twice,
 * [pairs][sequence], pointers. */
struct backward_scratch {
    char *score, *dscore;
    float *delta;
    void *table;
};

static backward_scratch divide_scratch(const struct call *call, int pairs, size_t square_bytes) {
    size_t squares = part_bytes((size_t)pairs * square_bytes);
    size_t deltas = part_bytes((size_t)pairs * (size_t)call->shape.sequence * sizeof(float));
    backward_scratch scratch;
    scratch.score = (char *)call->cuda->scratch;
    scratch.dscore = scratch.score + squares;
    scratch.delta = (float *)(scratch.dscore + squares);
    scratch.table = scratch.dscore + squares + deltas;
    return scratch;
}

/* The operands' own 16-byte accesses where they allow them, element by element otherwise. */
template <typename T>
static void fill_deltas(const struct call *call, const round_of_pairs &round, const void *out,
                        const void *dout, float *delta) {
    constexpr int THREADS = 256, VECTOR = ACCESS_ELEMENTS<T>;
    const bool aligned =
        call->shape.head_width % VECTOR == 0 && are_aligned(ACCESS_BYTES, out, dout);
    const int64_t queries = (int64_t)round.pairs * call->shape.sequence;
    launch(call->cuda, "attention: delta", call->stream, pieces_of(queries, THREADS / DELTA_LANES),
           THREADS, aligned ? fill_delta<T, VECTOR, THREADS> : fill_delta<T, 1, THREADS>,
           round.first, round.pairs, round.heads, call->shape.sequence, call->shape.head_width,
           (const T *)out, (const T *)dout, delta);
}

/* P, dS and dq of a block of queries. */
template <typename T>
static void backward_queries(const struct call *call, const multiplier &products, int block,
                             int first, int end, const float *logsumexp,
                             const backward_scratch &scratch) {
    constexpr int WARPS = 8;
    const int sequence = call->shape.sequence, width = call->shape.head_width;
    const int count = end - first, leading = row_elements(sequence);
    const matrix q = {Q, 3 * call->model, false}, turned_k = {K, 3 * call->model, true};
    const matrix dout = {DOUT, call->model, false}, turned_v = {V, 3 * call->model, true};
    const matrix k = {K, 3 * call->model, false}, dq = {DQ, 3 * call->model, false};
    const matrix score = {S, leading, false}, dscore = {DS, leading, false};
    multiply(products, "attention: scores", block, count, end, width, call->scale, q, turned_k,
             score);
    multiply(products, "attention: gradient of probabilities", block, count, end, width, 1, dout,
             turned_v, dscore);
    const row_block rows = {products.round.pairs,       sequence, first, end, leading,
                            (int64_t)sequence * leading};
    const int64_t at = (int64_t)first * leading;
    launch(call->cuda, "attention: gradient of scores", call->stream,
           pieces_of((int64_t)rows.pairs * count, WARPS), WARPS * WARP, gradient_rows<T, WARPS>,
           rows, call->scale, logsumexp, (const float *)scratch.delta, (T *)scratch.score + at,
           (T *)scratch.dscore + at);
    multiply(products, "attention: gradient of q", block, count, width, end, 1, dscore, k, dq);
}

/* dk and dv of a block of keys. */
static void backward_keys(const struct call *call, const multiplier &products, int block, int first,
                          int end) {
    const int sequence = call->shape.sequence, width = call->shape.head_width;
    const int leading = row_elements(sequence);
    const matrix score = {S_PANEL, leading, true}, dscore = {DS_PANEL, leading, true};
    const matrix dout = {DOUT, call->model, false}, q = {Q, 3 * call->model, false};
    const matrix dk = {DK, 3 * call->model, false}, dv = {DV, 3 * call->model, false};
    multiply(products, "attention: gradient of v", block, end - first, width, sequence - first, 1,
             score, dout, dv);
    multiply(products, "attention: gradient of k", block, end - first, width, sequence - first, 1,
             dscore, q, dk);
}

static void backward_operands(const struct call *call, int block, const void *qkv, const void *dout,
                              void *dqkv, const backward_scratch &scratch, round_of_pairs *round) {
    const int leading = row_elements(call->shape.sequence), first = round->first;
    const int64_t row = (int64_t)leading * call->element_bytes;
    const int64_t square = call->shape.sequence * row;
    const int64_t panel = block * (row + call->element_bytes); /* along the diagonal */
    round->operands = BACKWARD_OPERANDS;
    round->operand_of[Q] = qkv_part(call, qkv, 0, block);
    round->operand_of[K] = qkv_part(call, qkv, 1, 0);
    round->operand_of[V] = qkv_part(call, qkv, 2, 0);
    round->operand_of[DQ] = qkv_part(call, dqkv, 0, block);
    round->operand_of[DK] = qkv_part(call, dqkv, 1, block);
    round->operand_of[DV] = qkv_part(call, dqkv, 2, block);
    round->operand_of[DOUT] = token_rows(call, dout, call->model, 0, block);
    round->operand_of[S] = score_matrix(call, scratch.score, first, square, block * row);
    round->operand_of[DS] = score_matrix(call, scratch.dscore, first, square, block * row);
    round->operand_of[S_PANEL] = score_matrix(call, scratch.score, first, square, panel);
    round->operand_of[DS_PANEL] = score_matrix(call, scratch.dscore, first, square, panel);
}

template <typename T>
static void backward(const struct call *call, const void *qkv, const void *out,
                     const float *logsumexp, const void *dout, void *dqkv) {
    const int sequence = call->shape.sequence;
    const size_t square = (size_t)sequence * (size_t)row_elements(sequence) * sizeof(T);
    const int most =
        pairs_of_round(call, backward_pair_bytes(sequence, (size_t)call->element_bytes));
    const int block = block_rows(most, sequence), blocks = (int)pieces_of(sequence, block);
    const backward_scratch scratch = divide_scratch(call, most, square);

    for (int first = 0; first < call->pairs; first += most) {
        round_of_pairs round = {};
        round.heads = call->shape.heads;
        round.first = first;
        round.pairs = most < call->pairs - first ? most : call->pairs - first;
        round.blocks = blocks;
        backward_operands(call, block, qkv, dout, dqkv, scratch, &round);
        const multiplier products = begin_products(call->cuda, call->stream, round, scratch.table);
        fill_deltas<T>(call, round, out, dout, scratch.delta);
        for (int i = 0; i < blocks; i++) {
            int end = (i + 1) * block < sequence ? (i + 1) * block : sequence;
            backward_queries<T>(call, products, i, i * block, end,
                                logsumexp + (int64_t)first * sequence, scratch);
        }
        for (int i = 0; i < blocks; i++) {
            int end = (i + 1) * block < sequence ? (i + 1) * block : sequence;
            backward_keys(call, products, i, i * block, end);
        }
    }
}

static void attention_forward(struct mp_device *device, mp_stream stream,
                              const struct mp_attention_shape *shape, const void *qkv, void *out,
                              float *logsumexp) {
    struct call call;
    if (!begin_call(&call, mp_cuda_of(device), stream, shape) || call.pairs == 0)
        return;
    if (fused_can(call.cuda, shape, qkv, out, NULL, NULL)) {
        fused_forward(call.cuda, stream, shape, qkv, out, logsumexp);
        return;
    }
    by_element(call.cuda,
               [&](auto element) { forward<decltype(element)>(&call, qkv, out, logsumexp); });
}

static void attention_backward(struct mp_device *device, mp_stream stream,
                               const struct mp_attention_shape *shape, const void *qkv,
                               const void *out, const float *logsumexp, const void *dout,
                               void *dqkv) {
    struct call call;
    if (!begin_call(&call, mp_cuda_of(device), stream, shape) || call.pairs == 0)
        return;
    if (fused_can(call.cuda, shape, qkv, out, dout, dqkv)) {
        fused_backward(call.cuda, stream, shape, qkv, out, logsumexp, dout, dqkv);
        return;
    }
    by_element(call.cuda, [&](auto element) {
        backward<decltype(element)>(&call, qkv, out, logsumexp, dout, dqkv);
    });
}

} // namespace attention
} // namespace mp

size_t mp_cuda_scratch_attention(const struct mp_device_limits *limits, enum mp_element element) {
    using namespace mp::attention;
    const struct mp_attention_shape *shape = &limits->attention;
    size_t pairs = (size_t)shape->batch * (size_t)shape->heads;
    if (pairs == 0 || shape->sequence == 0)
        return 0;
    size_t pair = backward_pair_bytes(shape->sequence, element == MP_FLOAT32 ? 4 : 2);
    size_t bytes = pairs * pair < SCRATCH_BYTES ? pairs * pair : SCRATCH_BYTES;
    return PARTS_BYTES + (bytes > pair ? bytes : pair);
}

void mp_cuda_install_attention(struct mp_device_operations *operations) {
    operations->attention_forward = mp::attention::attention_forward;
    operations->attention_backward = mp::attention::attention_backward;
}
