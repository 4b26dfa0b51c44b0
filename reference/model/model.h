/* The model: a GPT-style decoder whose every block has a mixture-of-experts feed-forward part.
 *
 *   x = token_table[token] + position_table[position]
 *   for each block:  x = x + attention(layer_norm(x)) * out
 *                    h = layer_norm(x);  x = x + shared(h)
 *                                              + sum over chosen experts of weight * expert(h)
 *   logits = layer_norm(x) * transpose(token_table);  mean cross-entropy
 *
 * Linear layers have no bias, layer norms have gain and bias; an expert is gelu(h * w1) * w2.  So
 * is what all tokens share, if anything: experts that every token goes through, on its own rank,
 * and that nobody weighs (DeepSeekMoE, arXiv 2401.06066, section 3.2).  Several are one of their
 * width together. Hecate's parameter counts are those of this block.
 *
 * An expert may be cut into C shards, of F / C hidden elements each, as its output is the sum of
 * theirs: shard s of expert e is expert s * E + e of plans, which have E C of them.  Gates know of
 * whole experts alone; a route leads to all shards of its expert, and has a row for each.
 *
 * Letters: N tokens of this rank (sequences * S), D width, F expert width, C shards, U width of
 * what all share, E experts, K routes per token, S sequence, V vocabulary, L layers, M rows that
 * this rank's experts work on.
 *
 * A model that serves goes forward only, with S tokens of every sequence in a step: it has neither
 * gradients nor moments, and keeps keys and values of all P tokens that a sequence has by then. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/arena.h"
#include "reference/device/memory.h"

enum { MP_VOCABULARY = 256 }; /* bytes */

struct mp_model_shape {
    int layers, width, heads, experts, expert_width, sequence;
    int shards;       /* C, a divisor of F; 0, 1: experts are whole */
    bool serves;      /* forward only */
    int context;      /* tokens of a sequence in its cache before a step; 0 in training */
    int shared_width; /* U; 0: tokens share no expert */
    int top_k;        /* K */
    struct mp_gate_rule gate;
    double auxiliary_weight; /* of E * sum over experts of mean probability * share of choices */
};

static inline int mp_model_shards(const struct mp_model_shape *shape) {
    return shape->shards > 1 ? shape->shards : 1;
}
/* Shards of a layer, E C, and hidden elements of one, F / C. */
static inline int mp_model_plan_experts(const struct mp_model_shape *shape) {
    return shape->experts * mp_model_shards(shape);
}
static inline int mp_model_shard_width(const struct mp_model_shape *shape) {
    return shape->expert_width / mp_model_shards(shape);
}

/* Floats of one shard: w1 [D][F / C], then w2 [F / C][D].  It travels as one chunk. */
static inline size_t mp_model_expert_floats(const struct mp_model_shape *shape) {
    return 2 * (size_t)shape->width * (size_t)mp_model_shard_width(shape);
}

/* Forward flop of one row through its shard, and of a token through what all share; backward
 * takes twice as much. */
static inline int64_t mp_model_route_flops(const struct mp_model_shape *shape) {
    return 4 * (int64_t)shape->width * mp_model_shard_width(shape);
}
static inline int64_t mp_model_shared_flops(const struct mp_model_shape *shape) {
    return 4 * (int64_t)shape->width * shape->shared_width;
}

/* P: rows of the position table, and of a sequence's cache. */
static inline int mp_model_positions(const struct mp_model_shape *shape) {
    return shape->context + shape->sequence;
}

/* Model flop of one iteration over `tokens` tokens, forward and backward, recomputation not
 * counted: 6 per matrix parameter that a token meets, and causal attention (half of S x S).  Of a
 * step of serving a third, attention to what is cached beside, and the head of each sequence's last
 * token alone. */
int64_t mp_model_iteration_flops(const struct mp_model_shape *shape, int64_t tokens);
/* All parameters, and those that one token uses. */
int64_t mp_model_parameters(const struct mp_model_shape *shape);
int64_t mp_model_active_parameters(const struct mp_model_shape *shape);

/* ---- Non-expert parameters: the same on every rank, gradients summed over ranks ---- */

struct mp_tensor {
    char name[40]; /* "token_table", "layer.0.qkv", ... */
    size_t offset; /* floats from the start of the buffers below */
    size_t count;
    float deviation; /* of the normal initial values; gains start at 1, biases at 0 */
    bool decays;     /* weight decay: matrices and tables, not gains and biases */
};

/* One block's tensors within a flat buffer of floats. */
struct mp_block_tensors {
    float *norm1_gain, *norm1_bias; /* [D] */
    float *qkv;                     /* [D][3D] */
    float *out;                     /* [D][D] */
    float *norm2_gain, *norm2_bias; /* [D] */
    float *gate;                    /* [D][E] */
    float *shared1, *shared2;       /* [D][U], [U][D]; NULL without a shared expert */
    float *gate_bias;               /* [E], not trained by gradient; NULL: the gate has none */
};

/* Flat buffers, one after another: block 0, block 1, ..., then what all blocks share.  A block is
 * one bucket of the gradient all-reduce, the rest the last bucket. */
struct mp_dense {
    struct mp_tensor *tensor; /* [tensors], owned */
    int tensors, per_block;
    int shared, gate_bias;                        /* their places in a block; 0: it has none */
    size_t count;                                 /* floats of each buffer */
    size_t *bucket;                               /* [layers + 2] first float of each bucket, end */
    float *parameter, *gradient, *first, *second; /* [count] device memory, owned; but for
                                                     parameters NULL in a model that serves */
    /* [count] elements that products read: parameters rounded to the device's element type, or
     * `parameter` itself where that is fp32. */
    void *working;
    struct mp_device *device;       /* borrowed */
    struct mp_device_memory memory; /* of the buffers */
    struct mp_arena arena;          /* of the tables */
};

int mp_dense_create(const struct mp_model_shape *shape, struct mp_device *device, uint64_t seed,
                    struct mp_dense *dense, struct mp_error *error);
void mp_dense_destroy(struct mp_dense *dense); /* accepts a zeroed one */

/* Views of layer `layer` in `buffer` (one of the four). */
struct mp_block_tensors mp_dense_block(const struct mp_dense *dense, float *buffer, int layer);
/* The matrices of a block among the working elements. */
struct mp_block_matrices {
    const void *qkv, *out, *gate;
    const void *shared1, *shared2; /* NULL without a shared expert */
};
struct mp_block_matrices mp_dense_matrices(const struct mp_dense *dense, int layer);
/* The tensor of this name, or NULL. */
const struct mp_tensor *mp_dense_find(const struct mp_dense *dense, const char *name);

/* Tensors behind the blocks, as offsets. */
enum mp_common_tensor {
    MP_FINAL_GAIN,
    MP_FINAL_BIAS,
    MP_POSITION_TABLE,
    MP_TOKEN_TABLE,
    MP_COMMON_TENSORS
};
float *mp_dense_common(const struct mp_dense *dense, float *buffer, enum mp_common_tensor which);
/* The token table among the working elements. */
const void *mp_dense_token_table(const struct mp_dense *dense);

/* Makes the working elements those of the parameters, after these were written by others than
 * mp_dense_update. */
void mp_dense_refresh(struct mp_dense *dense, mp_stream stream);

/* AdamW over all tensors with the gradients as they are. */
void mp_dense_update(struct mp_dense *dense, mp_stream stream, const struct mp_adamw *settings);

/* Initial parameters of an expert of plans, the same wherever it is drawn and into however many
 * shards experts are cut: w1, w2 ~ N(0, 0.02), w2 divided by sqrt(2 L) like every matrix that ends
 * in the residual stream (GPT-2).  Host memory. */
void mp_expert_initialise(const struct mp_model_shape *shape, uint64_t seed, int layer, int expert,
                          float *chunk);
