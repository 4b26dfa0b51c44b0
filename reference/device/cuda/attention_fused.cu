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
 * Exponentials are powers of two, with scale * log2(e) multiplied into the scores beforehand.
 *
 * 16 sequences of 2048 tokens and 12 heads of width 64 have 430e6 scores in the blocks that are
 * touched: 110 Gflop in forward, 385 Gflop in backward.  An H200 can do 989e12 a second, of which
 * mma.sync reaches 60 % or so: 0.2 and 0.65 ms at least.  Instructions that are no products take
 * about as many issue slots as forward's products take time, and less than those in backward.  Two
 * blocks of four warps run on a multiprocessor, as many as registers allow. */
#include "reference/device/cuda/attention_fused.h"
#include "reference/device/cuda/attention_fused_backward.cuh"
#include "reference/device/cuda/attention_fused_forward.cuh"
#include "reference/device/cuda/attention_rows.cuh"
#include "reference/device/cuda/attention_warpgroups.h"

namespace mp {
namespace attention {

template <typename t> static int blocks_of(const struct mp_attention_shape *shape) {
    return (int)pieces_of(shape->sequence, t::OWN);
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

template <typename t>
static void forward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                    const void *qkv, void *out, float *logsumexp) {
    const int blocks = blocks_of<t>(shape);
    const fused_shape fused = all_pairs(shape);
    if (warpgroups_can(cuda, t::WIDTH))
        return warpgroups_forward(cuda, stream, fused, qkv, out, logsumexp);
    launch(cuda, "attention", stream, (int64_t)fused.pairs * blocks, t::THREADS,
           fused_forward_kernel<t>, fused, blocks, (const element *)qkv, (element *)out, logsumexp);
}

/* delta: of the round's pairs. */
template <typename t>
static void backward_round(struct mp_cuda *cuda, mp_stream stream, const fused_shape &shape,
                           int blocks, const void *qkv, const void *out, const float *logsumexp,
                           const void *dout, void *dqkv, float *delta) {
    constexpr int THREADS = 256, QUERIES = THREADS / DELTA_LANES;
    const int64_t queries = (int64_t)shape.pairs * shape.sequence;
    launch(cuda, "attention: delta", stream, pieces_of(queries, QUERIES), THREADS,
           fill_delta<element, ACCESS_ELEMENTS<element>, THREADS>, shape.first_pair, shape.pairs,
           shape.heads, shape.sequence, t::WIDTH, (const element *)out, (const element *)dout,
           delta);
    if (warpgroups_can(cuda, t::WIDTH))
        return warpgroups_backward(cuda, stream, shape, qkv, logsumexp, dout, delta, dqkv);
    launch(cuda, "attention: gradients of k and v", stream, (int64_t)shape.pairs * blocks,
           t::THREADS, fused_backward_kv_kernel<t>, shape, blocks, (const element *)qkv,
           (const element *)dout, logsumexp, (const float *)delta, (element *)dqkv);
    launch(cuda, "attention: gradient of q", stream, (int64_t)shape.pairs * blocks, t::THREADS,
           fused_backward_q_kernel<t>, shape, blocks, (const element *)qkv, (const element *)dout,
           logsumexp, (const float *)delta, (element *)dqkv);
}

template <typename t>
static void backward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                     const void *qkv, const void *out, const float *logsumexp, const void *dout,
                     void *dqkv) {
    fused_shape fused = all_pairs(shape);
    const int all = fused.pairs;
    const size_t room = cuda->scratch_bytes / ((size_t)shape->sequence * sizeof(float));
    const int most = room < (size_t)all ? (int)room : all;
    for (; fused.first_pair < all; fused.first_pair += most) {
        fused.pairs = most < all - fused.first_pair ? most : all - fused.first_pair;
        backward_round<t>(cuda, stream, fused, blocks_of<t>(shape), qkv, out, logsumexp, dout, dqkv,
                          (float *)cuda->scratch);
    }
}

bool fused_can(const struct mp_cuda *cuda, const struct mp_attention_shape *shape, const void *qkv,
               const void *out, const void *dout, const void *dqkv) {
    return cuda->device.element == MP_BFLOAT16 &&
           (shape->head_width == 64 || shape->head_width == 128) &&
           are_aligned(ACCESS_BYTES, qkv, out, dout, dqkv);
}

void fused_forward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                   const void *qkv, void *out, float *logsumexp) {
    if (shape->head_width == 64)
        forward<tiles<64>>(cuda, stream, shape, qkv, out, logsumexp);
    else
        forward<tiles<128>>(cuda, stream, shape, qkv, out, logsumexp);
}

void fused_backward(struct mp_cuda *cuda, mp_stream stream, const struct mp_attention_shape *shape,
                    const void *qkv, const void *out, const float *logsumexp, const void *dout,
                    void *dqkv) {
    if (shape->head_width == 64)
        backward<tiles<64>>(cuda, stream, shape, qkv, out, logsumexp, dout, dqkv);
    else
        backward<tiles<128>>(cuda, stream, shape, qkv, out, logsumexp, dout, dqkv);
}

} // namespace attention
} // namespace mp
