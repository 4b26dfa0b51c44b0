/* Attention, embedding and head of the model: everything but the experts (moe.c). */
#include "reference/model/block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* operation(model, name, arguments...): queue a device operation on the model's stream. */
#define QUEUE(model, name, ...)                                                                    \
    (model)->device->operations->name((model)->device, (model)->stream, __VA_ARGS__)

struct allocation {
    struct mp_model *model;
    bool failed;
};

static void *bytes(struct allocation *allocation, int64_t count, size_t size) {
    struct mp_model *model = allocation->model;
    void *memory =
        model->device->operations->allocate(model->device, (size_t)(count > 0 ? count : 1) * size);
    if (!memory)
        allocation->failed = true;
    else
        model->memory[model->allocations++] = memory;
    return memory;
}

/* Room for floats (or integers of their size), and for elements. */
static void *room(struct allocation *allocation, int64_t count) {
    return bytes(allocation, count, sizeof(float));
}
static void *elements(struct allocation *allocation, int64_t count) {
    return bytes(allocation, count, mp_element_bytes(allocation->model->device));
}

static void *host_room(struct allocation *allocation, int64_t count) {
    struct mp_device *device = allocation->model->device;
    void *memory =
        device->operations->host_allocate(device, (size_t)(count > 0 ? count : 1) * sizeof(int));
    if (!memory)
        allocation->failed = true;
    return memory;
}

static void allocate_state(struct allocation *a, struct mp_block_state *state) {
    struct mp_model *model = a->model;
    int64_t n = model->tokens, d = model->shape.width, k = model->shape.top_k;
    state->mean1 = room(a, n);
    state->rstd1 = room(a, n);
    state->normed1 = elements(a, n * d);
    state->qkv = elements(a, n * 3 * d);
    state->attended = elements(a, n * d);
    state->logsumexp = room(a, n * model->shape.heads);
    state->middle = elements(a, n * d);
    state->mean2 = room(a, n);
    state->rstd2 = room(a, n);
    state->normed2 = elements(a, n * d);
    state->probability = room(a, n * model->shape.experts);
    state->choice = room(a, n * k);
    state->weight = room(a, n * k);
    state->position = room(a, n * k);
    state->expert_in = elements(a, model->rows_limit * d);
    state->hidden = elements(a, model->rows_limit * model->shape.expert_width);
    state->combine_in = elements(a, model->send_limit * d);
    state->auxiliary = room(a, model->shape.experts);
    if (model->device->deferred) {
        state->receive_index = room(a, model->rows_limit);
        state->receive_staging = host_room(a, model->rows_limit);
    }
}

static void allocate_workspace(struct allocation *a) {
    struct mp_model *model = a->model;
    int64_t n = model->tokens, d = model->shape.width, k = model->shape.top_k;
    int64_t e = model->shape.experts, f = model->shape.expert_width;
    model->token = room(a, n);
    model->target = room(a, n);
    model->mean = room(a, n);
    model->rstd = room(a, n);
    model->normed = elements(a, n * d);
    model->logits = room(a, n * MP_VOCABULARY);
    model->loss = room(a, n);
    model->gate_logits = room(a, n * e);
    model->routes = room(a, 3 * e);
    if (model->routes) {
        model->firsts = model->routes + e;
        model->mass = (float *)(model->firsts + e);
    }
    model->host_statistics = host_room(a, 3 * e);
    if (model->device->element == MP_FLOAT32) {
        model->logits_gradient = model->logits;
        model->gate_gradient = model->gate_logits;
    } else {
        model->logits_gradient = elements(a, n * MP_VOCABULARY);
        model->gate_gradient = elements(a, n * e);
    }
    model->route_order = room(a, n * k);
    model->row_token = room(a, model->send_limit);
    model->send = elements(a, model->send_limit * d);
    model->received = elements(a, model->rows_limit * d);
    model->expert_rows = elements(a, model->rows_limit * d);
    model->activated = elements(a, model->rows_limit * f);
    model->hidden_gradient = elements(a, model->rows_limit * f);
    model->dweight = room(a, n * k);
    model->dx = elements(a, n * d);
    model->dnormed = elements(a, n * d);
    model->dqkv = elements(a, n * 3 * d);
    model->dattended = elements(a, n * d);
}

int mp_model_create(const struct mp_model_shape *shape, struct mp_device *device, int sequences,
                    int ranks, int64_t send_limit, int64_t rows_limit, uint64_t seed,
                    struct mp_model *model, struct mp_error *error) {
    enum { STATE_BUFFERS = 19, WORKSPACE_BUFFERS = 23 };
    size_t experts = (size_t)shape->experts;
    *model = (struct mp_model){.shape = *shape,
                               .device = device,
                               .tokens = sequences * shape->sequence,
                               .send_limit = send_limit,
                               .rows_limit = rows_limit};
    model->attention = (struct mp_attention_shape){sequences, shape->sequence, shape->heads,
                                                   shape->width / shape->heads};
    size_t layers = (size_t)shape->layers;
    model->state = calloc(layers + 1, sizeof *model->state);
    model->memory =
        calloc((layers + 1) * (STATE_BUFFERS + 1) + WORKSPACE_BUFFERS, sizeof *model->memory);
    model->parameter = calloc(experts, sizeof *model->parameter);
    model->gradient = calloc(experts, sizeof *model->gradient);
    model->group_weight = calloc(experts * MP_ROUTING_SHARES, sizeof *model->group_weight);
    struct allocation allocation = {model, false};
    int code = MP_OK;
    if (!model->state || !model->memory || !model->parameter || !model->gradient ||
        !model->group_weight) {
        code = mp_fail(error, MP_ENOMEM, "no memory for the model's tables");
    } else {
        for (size_t l = 0; l <= layers; l++) {
            model->state[l].x = elements(&allocation, (int64_t)model->tokens * shape->width);
            if (l < layers)
                allocate_state(&allocation, &model->state[l]);
        }
        allocate_workspace(&allocation);
        if (allocation.failed)
            code = mp_fail(error, MP_ENOMEM, "no memory for the activations of %d tokens",
                           model->tokens);
    }
    for (size_t l = 0; !code && l < layers; l++)
        code = mp_routing_create(ranks, shape->experts, send_limit, rows_limit,
                                 &model->state[l].routing, error);
    if (!code)
        code = mp_dense_create(shape, device, seed, &model->dense, error);
    if (code)
        mp_model_destroy(model);
    return code;
}

void mp_model_destroy(struct mp_model *model) {
    if (!model)
        return;
    for (int i = 0; model->memory && i < model->allocations; i++)
        model->device->operations->release(model->device, model->memory[i]);
    for (int l = 0; model->state && l < model->shape.layers; l++) {
        mp_routing_destroy(&model->state[l].routing);
        model->device->operations->host_release(model->device, model->state[l].receive_staging);
    }
    if (model->device)
        model->device->operations->host_release(model->device, model->host_statistics);
    mp_dense_destroy(&model->dense);
    mp_experts_destroy(&model->experts);
    free(model->state);
    free(model->memory);
    free(model->parameter);
    free(model->gradient);
    free(model->group_weight);
    *model = (struct mp_model){0};
}

void mp_model_embed(struct mp_model *model, const int32_t *token, const int32_t *target) {
    const struct mp_dense *dense = &model->dense;
    size_t bytes = (size_t)model->tokens * sizeof *token;
    QUEUE(model, copy_from_host, model->token, token, bytes);
    QUEUE(model, copy_from_host, model->target, target, bytes);
    QUEUE(model, embedding_forward, model->tokens, model->shape.sequence, model->shape.width,
          model->token, mp_dense_shared(dense, dense->parameter, MP_TOKEN_TABLE),
          mp_dense_shared(dense, dense->parameter, MP_POSITION_TABLE), model->state[0].x);
}

void mp_model_embed_backward(struct mp_model *model) {
    const struct mp_dense *dense = &model->dense;
    QUEUE(model, embedding_backward, model->tokens, model->shape.sequence, model->shape.width,
          model->token, model->dx, mp_dense_shared(dense, dense->gradient, MP_TOKEN_TABLE),
          mp_dense_shared(dense, dense->gradient, MP_POSITION_TABLE));
}

void mp_model_attention(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors p = mp_dense_block(&model->dense, model->dense.parameter, layer);
    struct mp_block_matrices matrix = mp_dense_matrices(&model->dense, layer);
    int n = model->tokens, d = model->shape.width;
    QUEUE(model, layer_norm_forward, n, d, state->x, p.norm1_gain, p.norm1_bias, state->normed1,
          state->mean1, state->rstd1);
    QUEUE(model, gemm, false, false, n, 3 * d, d, 1, state->normed1, d, matrix.qkv, 3 * d, 0,
          state->qkv, 3 * d);
    QUEUE(model, attention_forward, &model->attention, state->qkv, state->attended,
          state->logsumexp);
    /* The residual is copied first, so that the projection adds to it. */
    QUEUE(model, copy, state->middle, state->x,
          (size_t)n * (size_t)d * mp_element_bytes(model->device));
    QUEUE(model, gemm, false, false, n, d, d, 1, state->attended, d, matrix.out, d, 1,
          state->middle, d);
}

void mp_model_attention_backward(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors p = mp_dense_block(&model->dense, model->dense.parameter, layer);
    struct mp_block_tensors g = mp_dense_block(&model->dense, model->dense.gradient, layer);
    struct mp_block_matrices matrix = mp_dense_matrices(&model->dense, layer);
    int n = model->tokens, d = model->shape.width;
    QUEUE(model, gemm_float, true, false, d, d, n, 1, state->attended, d, model->dx, d, 0, g.out,
          d);
    QUEUE(model, gemm, false, true, n, d, d, 1, model->dx, d, matrix.out, d, 0, model->dattended,
          d);
    QUEUE(model, attention_backward, &model->attention, state->qkv, state->attended,
          state->logsumexp, model->dattended, model->dqkv);
    QUEUE(model, gemm_float, true, false, d, 3 * d, n, 1, state->normed1, d, model->dqkv, 3 * d, 0,
          g.qkv, 3 * d);
    QUEUE(model, gemm, false, true, n, d, 3 * d, 1, model->dqkv, 3 * d, matrix.qkv, 3 * d, 0,
          model->dnormed, d);
    QUEUE(model, zero, g.norm1_gain, (size_t)d * sizeof(float));
    QUEUE(model, zero, g.norm1_bias, (size_t)d * sizeof(float));
    QUEUE(model, layer_norm_backward, n, d, state->x, p.norm1_gain, state->mean1, state->rstd1,
          model->dnormed, model->dx, g.norm1_gain, g.norm1_bias);
}

void mp_model_logits(struct mp_model *model) {
    const struct mp_dense *dense = &model->dense;
    const void *table = mp_dense_token_table(dense);
    int n = model->tokens, d = model->shape.width, v = MP_VOCABULARY;
    QUEUE(model, layer_norm_forward, n, d, model->state[model->shape.layers].x,
          mp_dense_shared(dense, dense->parameter, MP_FINAL_GAIN),
          mp_dense_shared(dense, dense->parameter, MP_FINAL_BIAS), model->normed, model->mean,
          model->rstd);
    QUEUE(model, gemm_float, false, true, n, v, d, 1, model->normed, d, table, d, 0, model->logits,
          v);
}

void mp_model_head(struct mp_model *model, float scale, bool backward) {
    const struct mp_dense *dense = &model->dense;
    const float *gain = mp_dense_shared(dense, dense->parameter, MP_FINAL_GAIN);
    const void *table = mp_dense_token_table(dense);
    const void *x = model->state[model->shape.layers].x;
    int n = model->tokens, d = model->shape.width, v = MP_VOCABULARY;
    mp_model_logits(model);
    QUEUE(model, cross_entropy, n, v, model->logits, model->target, scale, model->loss,
          model->logits_gradient);
    if (!backward)
        return;
    float *dgain = mp_dense_shared(dense, dense->gradient, MP_FINAL_GAIN);
    float *dbias = mp_dense_shared(dense, dense->gradient, MP_FINAL_BIAS);
    float *dtable = mp_dense_shared(dense, dense->gradient, MP_TOKEN_TABLE);
    float *dposition = mp_dense_shared(dense, dense->gradient, MP_POSITION_TABLE);
    QUEUE(model, gemm_float, true, false, v, d, n, 1, model->logits_gradient, v, model->normed, d,
          0, dtable, d);
    QUEUE(model, gemm, false, false, n, d, v, 1, model->logits_gradient, v, table, d, 0,
          model->dnormed, d);
    QUEUE(model, zero, dgain, (size_t)d * sizeof(float));
    QUEUE(model, zero, dbias, (size_t)d * sizeof(float));
    QUEUE(model, zero, dposition, (size_t)model->shape.sequence * (size_t)d * sizeof(float));
    QUEUE(model, zero, model->dx, (size_t)n * (size_t)d * mp_element_bytes(model->device));
    QUEUE(model, layer_norm_backward, n, d, x, gain, model->mean, model->rstd, model->dnormed,
          model->dx, dgain, dbias);
}

double mp_model_loss_sum(struct mp_model *model, float *host) {
    QUEUE(model, copy_to_host, host, model->loss, (size_t)model->tokens * sizeof(float));
    double sum = 0;
    for (int n = 0; n < model->tokens; n++)
        sum += host[n];
    return sum;
}
