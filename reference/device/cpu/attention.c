/* Causal attention in blocks of query rows, after FlashAttention (Dao et al., NeurIPS 2022): the
 * scores of one block are computed, used and forgotten; backward computes them again from the
 * saved logsumexp.  A block only meets the keys up to its own end, so that about half of the
 * square is never touched.  Unlike on a GPU a whole row of scores fits the cache, and therefore
 * the softmax needs no rescaling.
 *
 * Behind cached tokens the keys and values of a head are those of its part of the cache, where they
 * lie together; few queries read keys as they are, since turning them would read and write them
 * all.
 *
 * Sequences and heads are independent and are shared out among the threads.  Scratch of a thread:
 * two blocks of scores, [QUERY_BLOCK][sequence] each, keys and values turned,
 * [head_width][sequence] each, and a value per query.  Turning them once per head is cheaper than
 * leaving it to the matrix product of every block. */
#include "reference/device/cpu/cpu.h"
#include "reference/device/cpu/transpose.h"
#include "reference/device/cpu/vector.h"

#include <math.h>
#include <string.h>

enum { QUERY_BLOCK = MP_CPU_QUERY_BLOCK, FEW_QUERIES = 8 };

/* One head of one sequence: where its rows start, and how far apart they are. */
struct head {
    struct mp_device *device;
    int sequence, width;
    int context, keys; /* cached tokens before these; with these */
    int stride;        /* of q, k, v and their gradients: 3 * D */
    int key_stride;    /* of k and v: the same, or a cache's */
    int out_stride;    /* of out and its gradient: D */
    float scale;
    const float *q, *k, *v, *dout;
    float *out, *dq, *dk, *dv, *logsumexp; /* a value per query */
    float *scores, *dscores;               /* [QUERY_BLOCK][keys] */
    float *turned_k, *turned_v;            /* [width][keys] */
    float *delta;                          /* [keys] */
};

struct arguments {
    struct mp_device *device;
    struct mp_attention_shape shape;
    const float *qkv, *out, *dout;
    float *write_out, *dqkv, *logsumexp;
    float *cache; /* NULL: none */
    int context, places;
};

/* This head's part of the cache, with the keys and values of these tokens put there. */
static void take_cache(const struct arguments *a, size_t index, struct head *head) {
    size_t width = (size_t)head->width, part = (size_t)a->places * width;
    float *keys = a->cache + 2 * index * part;
    for (int i = 0; i < head->sequence; i++) {
        size_t from = (size_t)i * (size_t)head->stride, to = (size_t)(a->context + i) * width;
        memcpy(keys + to, head->k + from, width * sizeof *keys);
        memcpy(keys + part + to, head->v + from, width * sizeof *keys);
    }
    head->k = keys;
    head->v = keys + part;
    head->key_stride = head->width;
}

static struct head head_at(const struct arguments *a, size_t index) {
    const struct mp_attention_shape *shape = &a->shape;
    size_t sequence = (size_t)shape->sequence, heads = (size_t)shape->heads;
    size_t width = (size_t)shape->head_width, model = heads * width;
    size_t first_token = index / heads * sequence, column = index % heads * width;
    size_t from = first_token * 3 * model + column, to = first_token * model + column;
    size_t keys = sequence + (size_t)a->context;
    float *scratch = mp_cpu_scratch(mp_cpu_of(a->device), mp_cpu_thread());

    struct head head = {
        .device = a->device,
        .sequence = shape->sequence,
        .width = shape->head_width,
        .context = a->context,
        .keys = (int)keys,
        .stride = (int)(3 * model),
        .key_stride = (int)(3 * model),
        .out_stride = (int)model,
        .scale = 1.0f / sqrtf((float)shape->head_width),
        .q = a->qkv + from,
        .k = a->qkv + from + model,
        .v = a->qkv + from + 2 * model,
        .scores = scratch,
        .dscores = scratch + QUERY_BLOCK * keys,
        .turned_k = scratch + 2 * QUERY_BLOCK * keys,
        .turned_v = scratch + (2 * QUERY_BLOCK + width) * keys,
        .delta = scratch + (2 * QUERY_BLOCK + 2 * width) * keys,
    };
    head.logsumexp = a->logsumexp ? a->logsumexp + index * sequence : head.delta;
    if (a->dqkv) {
        head.out = (float *)a->out + to;
        head.dout = a->dout + to;
        head.dq = a->dqkv + from;
        head.dk = head.dq + model;
        head.dv = head.dk + model;
    } else {
        head.out = a->write_out + to;
    }
    if (a->cache)
        take_cache(a, index, &head);
    return head;
}

static void multiply(const struct head *head, bool transpose_a, bool transpose_b, int m, int n,
                     int k, float alpha, const float *a, int lda, const float *b, int ldb,
                     float beta, float *c, int ldc) {
    head->device->operations->gemm(head->device, NULL, transpose_a, transpose_b, m, n, k, alpha, a,
                                   lda, b, ldb, beta, c, ldc);
}

static void turn(const struct head *head, const float *from, float *to) {
    transpose((size_t)head->keys, (size_t)head->width, from, (size_t)head->key_stride, to,
              (size_t)head->keys);
}

static bool turns_keys(const struct head *head) {
    return head->context == 0 || head->sequence > FEW_QUERIES;
}

/* Softmax of the first `count` scores; the rest of the row up to `width` becomes 0.  Returns the
 * logsumexp. */
static float softmax_row(size_t count, size_t width, float *restrict row) {
    float largest = vector_largest(count, row);
    float sum = vector_exponentials(count, row, largest, row);
    float inverse = 1.0f / sum;
    for (size_t i = 0; i < count; i++)
        row[i] *= inverse;
    memset(row + count, 0, (width - count) * sizeof *row);
    return largest + logf(sum);
}

static void forward_block(const struct head *head, int begin, int end) {
    int rows = end - begin, width = head->width, stride = head->stride;
    int before = head->context + begin, keys = head->context + end;
    bool turned = turns_keys(head);
    const float *q = head->q + (size_t)begin * (size_t)stride;
    multiply(head, false, !turned, rows, keys, width, head->scale, q, stride,
             turned ? head->turned_k : head->k, turned ? head->keys : head->key_stride, 0,
             head->scores, keys);
    for (int row = 0; row < rows; row++)
        head->logsumexp[begin + row] = softmax_row((size_t)(before + row + 1), (size_t)keys,
                                                   head->scores + (size_t)row * (size_t)keys);
    multiply(head, false, false, rows, width, keys, 1, head->scores, keys, head->v,
             head->key_stride, 0, head->out + (size_t)begin * (size_t)head->out_stride,
             head->out_stride);
}

static void forward_range(const void *argument, size_t first, size_t last) {
    for (size_t index = first; index < last; index++) {
        struct head head = head_at(argument, index);
        if (turns_keys(&head))
            turn(&head, head.k, head.turned_k);
        for (int begin = 0; begin < head.sequence; begin += QUERY_BLOCK) {
            int end = begin + QUERY_BLOCK;
            forward_block(&head, begin, end < head.sequence ? end : head.sequence);
        }
    }
}

/* delta[i] = dot(dout[i], out[i]) = sum over keys of probability * its gradient. */
static void fill_delta(const struct head *head) {
    for (int i = 0; i < head->sequence; i++) {
        const float *restrict out = head->out + (size_t)i * (size_t)head->out_stride;
        const float *restrict dout = head->dout + (size_t)i * (size_t)head->out_stride;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int d = 0; d < head->width; d++)
            sum += out[d] * dout[d]; /* backward has dout.  NOLINT(clang-analyzer-core.*) */
        head->delta[i] = sum;
    }
}

/* scores -> probabilities; gradient of probabilities -> gradient of the scaled product q k. */
static void backward_row(size_t count, size_t width, float logsumexp, float delta, float scale,
                         float *restrict score, float *restrict dscore) {
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float probability = vector_exp(score[i] - logsumexp);
        score[i] = probability;
        dscore[i] = probability * (dscore[i] - delta) * scale;
    }
    memset(score + count, 0, (width - count) * sizeof *score);
    memset(dscore + count, 0, (width - count) * sizeof *dscore);
}

static void backward_block(const struct head *head, int begin, int end, float beta) {
    int rows = end - begin, width = head->width, stride = head->stride;
    const float *q = head->q + (size_t)begin * (size_t)stride;
    const float *dout = head->dout + (size_t)begin * (size_t)head->out_stride;
    multiply(head, false, false, rows, end, width, head->scale, q, stride, head->turned_k,
             head->sequence, 0, head->scores, end);
    multiply(head, false, false, rows, end, width, 1, dout, head->out_stride, head->turned_v,
             head->sequence, 0, head->dscores, end);
    for (int row = 0; row < rows; row++)
        backward_row((size_t)(begin + row + 1), (size_t)end, head->logsumexp[begin + row],
                     head->delta[begin + row], head->scale,
                     head->scores + (size_t)row * (size_t)end,
                     head->dscores + (size_t)row * (size_t)end);
    multiply(head, true, false, end, width, rows, 1, head->scores, end, dout, head->out_stride,
             beta, head->dv, stride);
    multiply(head, true, false, end, width, rows, 1, head->dscores, end, q, stride, beta, head->dk,
             stride);
    multiply(head, false, false, rows, width, end, 1, head->dscores, end, head->k, stride, 0,
             head->dq + (size_t)begin * (size_t)stride, stride);
}

/* From the last block to the first: the last meets every key and so overwrites all of dk and dv,
 * to which the others add. */
static void backward_range(const void *argument, size_t first, size_t last) {
    for (size_t index = first; index < last; index++) {
        struct head head = head_at(argument, index);
        turn(&head, head.k, head.turned_k);
        turn(&head, head.v, head.turned_v);
        fill_delta(&head);
        int begin = (head.sequence - 1) / QUERY_BLOCK * QUERY_BLOCK;
        backward_block(&head, begin, head.sequence, 0);
        for (begin -= QUERY_BLOCK; begin >= 0; begin -= QUERY_BLOCK)
            backward_block(&head, begin, begin + QUERY_BLOCK, 1);
    }
}

static void attend(const struct arguments *a, mp_cpu_range *range) {
    struct mp_cpu *cpu = mp_cpu_of(a->device);
    struct mp_attention_shape met = a->shape;
    met.sequence += a->context;
    if (mp_cpu_attention_floats(&met) <= cpu->scratch_floats)
        mp_cpu_parallel(cpu, (size_t)met.batch * (size_t)met.heads, 1, range, a);
    else
        mp_fail(&a->device->error, MP_ELIMIT,
                "attention of sequence %d and head width %d: the device was created for %d and %d",
                met.sequence, met.head_width, cpu->limits.attention.sequence,
                cpu->limits.attention.head_width);
}

static void attention_forward(struct mp_device *device, mp_stream stream,
                              const struct mp_attention_shape *shape, const void *qkv, void *out,
                              float *logsumexp) {
    (void)stream;
    struct arguments arguments = {
        .device = device, .shape = *shape, .qkv = qkv, .write_out = out, .logsumexp = logsumexp};
    attend(&arguments, forward_range);
}

static void attention_cached(struct mp_device *device, mp_stream stream,
                             const struct mp_attention_shape *shape, int context, int places,
                             const void *qkv, void *cache, void *out) {
    (void)stream;
    struct arguments arguments = {.device = device,
                                  .shape = *shape,
                                  .qkv = qkv,
                                  .write_out = out,
                                  .cache = cache,
                                  .context = context,
                                  .places = places};
    attend(&arguments, forward_range);
}

static void attention_backward(struct mp_device *device, mp_stream stream,
                               const struct mp_attention_shape *shape, const void *qkv,
                               const void *out, const float *logsumexp, const void *dout,
                               void *dqkv) {
    (void)stream;
    struct arguments arguments = {.device = device,
                                  .shape = *shape,
                                  .qkv = qkv,
                                  .out = out,
                                  .dout = dout,
                                  .dqkv = dqkv,
                                  .logsumexp = (float *)logsumexp};
    attend(&arguments, backward_range);
}

void MP_CPU_NAME(install_attention)(struct mp_device_operations *operations) {
    operations->attention_forward = attention_forward;
    operations->attention_cached = attention_cached;
    operations->attention_backward = attention_backward;
}
