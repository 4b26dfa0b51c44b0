/* What one rank computes: the pieces of a block between which ranks talk, forward and backward.
 *
 * The trainer calls these in turn and moves rows between ranks in between:
 *
 *   embed                                                  embed_backward
 *   per block: attention, gate | dispatch | experts | combine   and the same backwards
 *   head (loss and its gradient)
 *
 * Activations that backward needs are kept per layer; everything else lives in one workspace.  What
 * has a place for every row that plans send grows with them (rows.h).
 * Matrices declared void are elements of the device's type (device.h). */
#pragma once

#include "reference/model/distinct.h"
#include "reference/model/experts.h"
#include "reference/model/model.h"
#include "reference/model/routing.h"
#include "reference/model/rows.h"

/* Kept of one block from forward to backward.  A model that serves has one such memory for all
 * blocks, but for routing and cache. */
struct mp_block_state {
    void *x;              /* [N][D] input of the block */
    float *mean1, *rstd1; /* [N] */
    void *normed1;        /* [N][D] */
    void *qkv;            /* [N][3D] */
    void *attended;       /* [N][D] */
    float *logsumexp;     /* [sequences][H][S] */
    void *middle;         /* [N][D] after the attention's residual */
    float *mean2, *rstd2; /* [N] */
    void *normed2;        /* [N][D] what experts see */
    float *probability;   /* [N][E] */
    int32_t *choice;      /* [N][K] */
    float *kept;          /* [N] as mp_gate_keeps has it, or NULL */
    float *weight;        /* [N][K] */
    int32_t *position;    /* [C][N * K] row of each route to a shard in send order */
    float *auxiliary;     /* [parts][E] gradient of the auxiliary loss per probability */
    void *shared_hidden;  /* [N][U] before GELU; NULL without a shared expert */
    void *cache;          /* [sequences][H][2][P][D / H] keys and values; NULL in training */
    struct mp_routing routing;
    struct mp_distinct distinct; /* where the routing is of such an exchange */
    /* As much as the layer's plans have needed so far, and what lies there.  Serving: those of the
     * first block, as they were when this one's turn began. */
    struct mp_rows sent, worked, index;
    void *combine_in; /* [sent] [D] expert outputs in send order; deduplicated: [worked] [D] those
                         of this rank's experts, in expert order */
    void *expert_in;  /* [worked] [D] expert order */
    void *hidden;     /* [worked] [F / C] before GELU */
    /* mp_routing_index of the routing [worked], where the device reads it: what `index` has, or on
     * a deferred device a copy of its own. */
    int32_t *receive_index;
};

struct mp_model {
    struct mp_model_shape shape;
    struct mp_attention_shape attention;
    struct mp_device *device; /* borrowed */
    mp_stream stream;         /* compute */
    int tokens;               /* N */
    int context;        /* serving: tokens of every sequence that are cached; the caller's to set */
    int answers;        /* rows of logits: N; serving: sequences */
    int64_t send_limit; /* most rows this rank may send, padding included */
    int64_t rows_limit; /* most rows its experts may work on, padding included */
    int64_t row_bytes;  /* that memory for rows has now: host's and device's, all layers */
    struct mp_dense dense;
    struct mp_experts experts;
    struct mp_block_state *state; /* [L + 1]; the last one only has x, the decoder's output */

    /* Workspace. */
    int32_t *token, *target;   /* [N] and [answers] behind it */
    int32_t *host_token;       /* the same, on their way to the device */
    float *mean, *rstd;        /* [N] final layer norm */
    int32_t *last;             /* [sequences] their last tokens; NULL in training */
    void *answering;           /* [answers][D] rows of the decoder's output; NULL in training */
    void *normed;              /* [answers][D] */
    float *logits;             /* [answers][V] */
    void *logits_gradient;     /* [N][V]; logits where elements are fp32 */
    float *loss;               /* [answers] */
    float *gate_logits;        /* [N][E] */
    void *gate_gradient;       /* [N][E]; gate_logits where elements are fp32 */
    uint32_t *routes, *firsts; /* [E] one after the other, */
    float *mass;               /* [E] and then the sum of probabilities; with a loss by sequence */
    uint32_t *host_statistics; /* the same of each.  All are copied here together */
    float *host_kept;          /* [N] of the last gate, NULL without losses made of it */
    int32_t *route_order;      /* [N * K] routes as they are handed out, if sorted */
    float *dweight;            /* [N][K] */
    float *shard_dweight;      /* [N][K] of one shard's rows, or NULL */
    void *dx;                  /* [N][D] gradient of the residual stream */
    void *dnormed;             /* [N][D] */
    void *dqkv;                /* [N][3D] */
    void *dattended;           /* [N][D] */
    void *shared_activated;    /* [N][U] gelu(hidden) of a shared expert, or NULL */
    void *shared_gradient;     /* [N][U] of hidden, or NULL */
    void **parameter;          /* [E C] elements of the layer at hand (host array) */
    float **gradient;          /* [E C] */
    void **group_weight;       /* [E C][shares] host, working memory */
    struct mp_weight_state *group_state; /* the same */
    /* All of the above, and what the trainer keeps beside it. */
    struct mp_device_memory memory;

    /* Workspace for rows: as much as any layer's plan has needed so far, and what lies there. */
    struct mp_rows sent, worked;
    struct mp_rows one_hot; /* [sent] [N] elements, or floats; no memory before plans ask for it */
    void *send;             /* [sent] [D] */
    int32_t *row_token;     /* [sent] token of each row in send order, or -1 */
    void *received;         /* [worked] [D] receive order */
    void *expert_rows;      /* [worked] [D] expert order */
    void *activated;        /* [worked] [F / C] gelu(hidden) */
    void *hidden_gradient;  /* [worked] [F / C] */
    struct mp_arena arena;  /* of the tables */
};

/* Buffers for `sequences` sequences per rank of `ranks` ranks, and non-expert parameters from the
 * seed.  `send_limit` is the most rows that a rank may send in a layer, N * K * C or with a padded
 * exchange more; `rows_limit` is the most that its experts may work on: the routes of all ranks, or
 * with a padded exchange more.  There is room for even loads, N * K * C rows each, and where the
 * limit lets more come for a quarter more.  Experts are the caller's to create in model->experts.
 */
int mp_model_create(const struct mp_model_shape *shape, struct mp_device *device, int sequences,
                    int ranks, int64_t send_limit, int64_t rows_limit, uint64_t seed,
                    struct mp_model *model, struct mp_error *error);
void mp_model_destroy(struct mp_model *model); /* accepts a zeroed one; experts included */

/* Room for the rows that the layer's routing has been built for, and their order for the device: to
 * be called between mp_routing_build (or _single) and whatever touches rows of this layer.
 * Allocates nothing unless there are more rows than the layer, or any layer, has had before.
 *
 * Where memory grows, its contents are lost: of this layer what its last turn left (expert_in,
 * hidden, combine_in and the index are needed from its forward to its backward), and the workspace
 * for rows.  That is free: a layer's gate, which comes before its plan, has waited for the stream,
 * and the layer before has combined rows that its last exchange had to bring first, in steps or
 * at once.  An exchange that was to be under way here would have to keep its rows elsewhere.
 * Nothing else of a device that gives memory back only when all its streams stand still can
 * block: all ranks have gathered the layer's loads, so what is under way on one has been started
 * on all.  The address of anything said to be [sent] or [worked] may change.
 *
 * MP_ENOMEM, with what is needed and what is there; the model has then no such rows. */
int mp_model_reserve(struct mp_model *model, int layer, struct mp_error *error);

/* Room for `needed` rows, and where there is memory for `wanted`, counted in model->row_bytes:
 * false without memory (rows.h). */
bool mp_model_reserve_rows(struct mp_model *model, int64_t needed, int64_t wanted,
                           struct mp_rows *rows);

/* x of block 0 from token ids (host [N]) and keeps the targets (host [answers]); serving: tokens
 * behind model->context of their sequence.  Both are read during the call, and nobody waits for
 * them: a gate comes before the next ones. */
void mp_model_embed(struct mp_model *model, const int32_t *token, const int32_t *target);
void mp_model_embed_backward(struct mp_model *model);

/* state.middle = x + attention(layer_norm(x)) * out; serving: with the cache, which gets these
 * tokens' keys and values. */
void mp_model_attention(struct mp_model *model, int layer);
/* dx: gradient of middle on entry, of x on return.  MP_INPUT_PRODUCTS leaves the gradient of its
 * first projections to MP_WEIGHT_PRODUCTS, before the next layer's. */
void mp_model_attention_backward(struct mp_model *model, int layer, enum mp_products products);

/* A gate that sends few tokens outside; see limit_choices in device.h.  Top-2 gates only that
 * choose the largest of all logits. */
struct mp_gate_limit {
    int tokens;         /* of this rank, that may choose an expert outside first */
    const bool *inside; /* host [E], at least two of them */
};
/* What the balancing loss is computed of, each for itself: sequences, or the whole batch. */
static inline int mp_model_loss_parts(const struct mp_model *model) {
    return model->shape.gate.loss_level == MP_BALANCE_SEQUENCE ? model->attention.batch : 1;
}
/* Layer norm and gate; counts into routes and firsts (host [E] each), for which the host waits.
 * `forced` is [N][K] in memory of host_allocate, or NULL; `limit` is NULL for the gate's own
 * choices, and without effect on forced ones. */
void mp_model_gate(struct mp_model *model, int layer, const int32_t *forced,
                   const struct mp_gate_limit *limit, uint32_t *routes, uint32_t *firsts);
/* Routes [E], firsts [E] and mass [E, floats] of a part of the batch in the last gate. */
static inline const uint32_t *mp_model_part_statistics(const struct mp_model *model, int part) {
    size_t own = model->shape.gate.loss_level == MP_BALANCE_SEQUENCE ? (size_t)part + 1 : 0;
    return model->host_statistics + own * 3 * (size_t)model->shape.experts;
}
/* This rank's part of the last gate's losses beside that which counts choices, weighted; 0 where
 * the gate has none. */
double mp_model_gate_loss(const struct mp_model *model);
/* Seed of what a rank draws for its routes of a layer and iteration, under MP_ROUTES_AT_RANDOM:
 * random.h's bits of (bits of (seed, iteration, layer), 0, rank). */
uint64_t mp_model_route_seed(uint64_t seed, int64_t iteration, int layer, int rank);
/* Permutes the tokens' rows into model->send, as state.routing says, with zeros in rows without a
 * token.  Where the routing stays they lie as its experts read them and as combine does at once, so
 * that nothing is to be exchanged from here to the end of backward.  If the plan says so, weights
 * are changed to those of the surviving routes. */
void mp_model_permute(struct mp_model *model, int layer, uint64_t route_seed);
/* The shared expert's part, without which these do nothing, while rows of tokens travel.
 * Forward, behind the gate: x of the next block = middle + shared expert.  Backward, before the
 * gate's: dx is that of the next block's x; the gradient of what it has read is kept for the gate's
 * backward to add to, and its matrices' gradients are written. */
void mp_model_shared(struct mp_model *model, int layer);
void mp_model_shared_backward(struct mp_model *model, int layer);
/* Where the exchange deduplicates, mp_model_permute only finds the routes' places and weights. Once
 * state.distinct is made of them: tokens' rows [N][D] into model->send, one for each group. */
void mp_model_gather_sent(struct mp_model *model, int layer, const void *tokens);
/* Where the exchange towards the experts must put the rows of a segment: in expert order if
 * they arrive so, otherwise in model->received.  Not for a last segment, which never travels. */
void *mp_model_receive_buffer(struct mp_model *model, int layer, int segment);
/* The rows of a segment through this rank's experts.  Results are in model->received in receive
 * order (from the segment's first row on), to be returned; those of a last segment are in
 * state.combine_in.  model->parameter says where each held expert is. */
void mp_model_experts(struct mp_model *model, int layer, int segment);
/* x of the next block = middle + weighted sum of the rows in state.combine_in, + what the shared
 * expert has left there. */
void mp_model_combine(struct mp_model *model, int layer);

/* Backward of combine: rows to send to the experts' ranks in model->send (send order). */
void mp_model_combine_backward(struct mp_model *model, int layer);
/* model->received holds the gradients of a segment's expert outputs in receive order (for a last
 * segment model->send has them); on return there is that of their inputs.  Weight gradients are
 * written to model->gradient of every group, or added with `accumulate`: a layer's first segment
 * writes them, zeros for groups without rows.  MP_INPUT_PRODUCTS leaves those of first matrices to
 * MP_WEIGHT_PRODUCTS, before the next segment's.
 *
 * `update` says that this rank keeps all experts of the layer that it has, and that no other
 * gradients come to them in this step: where a device can, AdamW by these settings takes the place
 * of the gradients (grouped_update in device.h), and mp_experts_update skips them.  Otherwise NULL.
 */
void mp_model_experts_backward(struct mp_model *model, int layer, int segment,
                               enum mp_products products, bool accumulate,
                               const struct mp_adamw *update);
/* Gradients of the tokens' rows are in model->send; dx: of the next block's x on entry, of middle
 * on return.  Gate and layer norm gradients are written. */
void mp_model_gate_backward(struct mp_model *model, int layer);

/* Final layer norm and logits of the tokens in model->logits; serving: of the last of every
 * sequence, whose next one is asked for. */
void mp_model_logits(struct mp_model *model);
/* The same, then loss per row of logits into model->loss; with `scale` > 0 the gradient too:
 * dx becomes that of the decoder's output, table and norm gradients are written. */
void mp_model_head(struct mp_model *model, float scale, bool backward);
/* Sum of model->loss; host [answers]. */
double mp_model_loss_sum(struct mp_model *model, float *host);
