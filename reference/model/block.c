/* Attention, embedding and head of the model: everything but the experts (moe.c). */
#include "reference/model/block.h"

#include <math.h>
#include <string.h>

/* operation(model, name, arguments...): queue a device operation on the model's stream. */
#define QUEUE(model, name, ...)                                                                    \
    (model)->device->operations->name((model)->device, (model)->stream, __VA_ARGS__)

/* Room for floats (or integers of their size), for elements, and the same of the host. */
static void *room(struct mp_model *model, int64_t count) {
    return mp_device_take(&model->memory, count, sizeof(float));
}
static void *elements(struct mp_model *model, int64_t count) {
    return mp_device_take(&model->memory, count, mp_element_bytes(model->device));
}
static void *host_room(struct mp_model *model, int64_t count) {
    return mp_device_take_host(&model->memory, count, sizeof(float));
}

/* What all blocks share where nothing waits for backward. */
static void allocate_activations(struct mp_model *model, struct mp_block_state *state) {
    int64_t n = model->tokens, d = model->shape.width, k = model->shape.top_k;
    state->mean1 = room(model, n);
    state->rstd1 = room(model, n);
    state->normed1 = elements(model, n * d);
    state->qkv = elements(model, n * 3 * d);
    state->attended = elements(model, n * d);
    if (!model->shape.serves)
        state->logsumexp = room(model, n * model->shape.heads);
    state->middle = elements(model, n * d);
    state->mean2 = room(model, n);
    state->rstd2 = room(model, n);
    state->normed2 = elements(model, n * d);
    state->probability = room(model, n * model->shape.experts);
    state->choice = room(model, n * k);
    state->weight = room(model, n * k);
    if (mp_gate_keeps(&model->shape.gate))
        state->kept = room(model, n);
    state->position = room(model, n * k * mp_model_shards(&model->shape));
    state->auxiliary = room(model, (int64_t)mp_model_loss_parts(model) * model->shape.experts);
    if (model->shape.shared_width > 0)
        state->shared_hidden = elements(model, n * model->shape.shared_width);
}

static void allocate_state(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    int64_t d = model->shape.width, end = model->shape.layers;
    bool serves = model->shape.serves;
    if (serves && layer > 0)
        *state = model->state[0];
    else
        state->x = elements(model, model->tokens * d);
    if (layer < end && (!serves || layer == 0))
        allocate_activations(model, state);
    if (layer == end || !serves)
        return;
    int64_t places = (int64_t)model->attention.batch * mp_model_positions(&model->shape);
    state->cache = elements(model, places * 2 * d);
    if (state->cache)
        QUEUE(model, zero, state->cache,
              (size_t)(places * 2 * d) * mp_element_bytes(model->device));
}

/* The rows of a block that logits are made of. */
static void allocate_answers(struct mp_model *model) {
    int sequences = model->attention.batch, each = model->attention.sequence;
    int32_t *host = model->shape.serves ? host_room(model, sequences) : NULL;
    model->answers = model->shape.serves ? sequences : model->tokens;
    if (!host)
        return;
    for (int b = 0; b < sequences; b++)
        host[b] = (b + 1) * each - 1;
    model->last = room(model, sequences);
    model->answering = elements(model, (int64_t)sequences * model->shape.width);
    if (model->last)
        QUEUE(model, copy_from_host, model->last, host, (size_t)sequences * sizeof *host);
}

/* Numbers of the batch, and with a loss by sequence of every sequence. */
static int64_t statistics_of(const struct mp_model *model) {
    bool of_each = model->shape.gate.loss_level == MP_BALANCE_SEQUENCE;
    return (of_each ? 1 + (int64_t)model->attention.batch : 1) * 3 * model->shape.experts;
}

static void allocate_gradients(struct mp_model *model) {
    int64_t n = model->tokens, d = model->shape.width;
    model->dweight = room(model, n * model->shape.top_k);
    if (mp_model_shards(&model->shape) > 1)
        model->shard_dweight = room(model, n * model->shape.top_k);
    model->dx = elements(model, n * d);
    model->dnormed = elements(model, n * d);
    model->dqkv = elements(model, n * 3 * d);
    model->dattended = elements(model, n * d);
    if (model->shape.shared_width > 0)
        model->shared_gradient = elements(model, n * model->shape.shared_width);
}

static void allocate_workspace(struct mp_model *model) {
    int64_t n = model->tokens, d = model->shape.width, k = model->shape.top_k;
    int64_t e = model->shape.experts, all = statistics_of(model);
    allocate_answers(model);
    int64_t answers = model->answers;
    model->token = room(model, n + answers);
    model->target = model->token ? model->token + n : NULL;
    model->host_token = host_room(model, n + answers);
    model->mean = room(model, n);
    model->rstd = room(model, n);
    model->normed = elements(model, answers * d);
    model->logits = room(model, answers * MP_VOCABULARY);
    model->loss = room(model, answers);
    model->gate_logits = room(model, n * e);
    model->routes = room(model, all);
    if (model->routes) {
        model->firsts = model->routes + e;
        model->mass = (float *)(model->firsts + e);
    }
    model->host_statistics = host_room(model, all);
    if (model->shape.gate.z_slope > 0 || model->shape.gate.alignment_slope > 0)
        model->host_kept = host_room(model, n);
    if (model->device->element == MP_FLOAT32) {
        model->logits_gradient = model->logits;
        model->gate_gradient = model->gate_logits;
    } else {
        model->logits_gradient = elements(model, answers * MP_VOCABULARY);
        model->gate_gradient = elements(model, n * e);
    }
    model->route_order = room(model, n * k);
    if (model->shape.shared_width > 0)
        model->shared_activated = elements(model, n * model->shape.shared_width);
    if (!model->shape.serves)
        allocate_gradients(model);
}

/* ---- rows ---- */

static int64_t less(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* What of memory for rows a layer's turn uses, and how many of them. */
struct turn {
    struct mp_rows *rows;
    int64_t needed, limit;
};
enum { ROWS_OF_A_TURN = 6 };

/* Whose rows a block's are. */
static struct mp_block_state *with_rows(struct mp_model *model, int layer) {
    return &model->state[model->shape.serves ? 0 : layer];
}

/* How many there are. */
static int list_rows(struct mp_model *model, int layer, int64_t sent, int64_t worked,
                     struct turn turn[ROWS_OF_A_TURN]) {
    const struct mp_routing *routing = &model->state[layer].routing;
    struct mp_block_state *state = with_rows(model, layer);
    bool keeps_own = routing->deduplicated; /* what this rank's experts return */
    turn[0] = (struct turn){&state->sent, keeps_own ? worked : sent,
                            keeps_own ? model->rows_limit : model->send_limit};
    turn[1] = (struct turn){&model->sent, sent, model->send_limit};
    turn[2] = (struct turn){&state->index, worked, model->rows_limit};
    turn[3] = (struct turn){&state->worked, worked, model->rows_limit};
    turn[4] = (struct turn){&model->worked, worked, model->rows_limit};
    turn[5] = (struct turn){&model->one_hot, sent, model->send_limit};
    return routing->one_hot ? ROWS_OF_A_TURN : ROWS_OF_A_TURN - 1;
}

/* Bytes of a row in each of them. */
static void describe_rows(struct mp_model *model) {
    size_t element = mp_element_bytes(model->device), index = sizeof(int32_t);
    size_t row = (size_t)model->shape.width * element;
    size_t hidden = (size_t)mp_model_shard_width(&model->shape) * element;
    model->sent.bytes = row + index;
    model->worked.bytes = 2 * (row + hidden);
    model->one_hot.bytes = (size_t)model->tokens * sizeof(float);
    for (int l = 0; l < model->shape.layers; l++) {
        struct mp_block_state *state = &model->state[l];
        state->sent.bytes = row;
        state->worked.bytes = row + hidden + (model->device->deferred ? index : 0);
        state->index = (struct mp_rows){.bytes = index, .host = true};
        state->distinct.rows.bytes = index;
    }
}

/* Where the arrays lie: one after another in the order of block.h. */
static void place_rows(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer], *rows = with_rows(model, layer);
    size_t d = (size_t)model->shape.width, f = (size_t)mp_model_shard_width(&model->shape);
    state->sent = rows->sent;
    state->worked = rows->worked;
    state->index = rows->index;
    size_t sent = (size_t)model->sent.room, worked = (size_t)model->worked.room;
    size_t kept = (size_t)state->worked.room;
    const struct mp_device *device = model->device;
    state->combine_in = state->sent.memory;
    state->expert_in = state->worked.memory;
    state->hidden = mp_element_at(device, state->expert_in, kept * d);
    state->receive_index =
        device->deferred ? mp_element_at(device, state->hidden, kept * f) : state->index.memory;
    model->send = model->sent.memory;
    model->row_token = mp_element_at(device, model->send, sent * d);
    model->received = model->worked.memory;
    model->expert_rows = mp_element_at(device, model->received, worked * d);
    model->activated = mp_element_at(device, model->expert_rows, worked * d);
    model->hidden_gradient = mp_element_at(device, model->activated, worked * f);
}

/* What the turn's memory has, or would have with all that is needed. */
static int64_t bytes_of(const struct turn turn[], int count, bool needed) {
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += mp_rows_bytes(turn[i].rows, needed ? turn[i].needed : 0);
    return bytes;
}

/* What a rank sends, and works on, under even loads. */
static int64_t even_rows(const struct mp_model *model) {
    return (int64_t)model->tokens * model->shape.top_k * mp_model_shards(&model->shape);
}

bool mp_model_reserve_rows(struct mp_model *model, int64_t needed, int64_t wanted,
                           struct mp_rows *rows) {
    int64_t before = mp_rows_bytes(rows, 0);
    bool is_there = mp_rows_reserve(model->device, model->stream, needed, wanted, rows);
    model->row_bytes += mp_rows_bytes(rows, 0) - before;
    return is_there;
}

/* Room for so many rows of a layer, and with `spare` for a quarter more within the limits. */
static int reserve(struct mp_model *model, int layer, int64_t sent, int64_t worked, bool spare,
                   struct mp_error *error) {
    const double mebibyte = 1 << 20;
    struct turn turn[ROWS_OF_A_TURN];
    int count = list_rows(model, layer, sent, worked, turn);
    for (int i = 0; i < count; i++) {
        int64_t wanted = turn[i].needed + (spare ? turn[i].needed / 4 : 0);
        if (!mp_model_reserve_rows(model, turn[i].needed, less(wanted, turn[i].limit),
                                   turn[i].rows))
            return mp_fail(error, MP_ENOMEM,
                           "layer %d: no memory for %lld rows to work on and %lld to send (even "
                           "loads have %lld of each): %.2f MiB, beside %.2f MiB of other layers' "
                           "rows; a smaller batch or a system that spreads routes takes less",
                           layer, (long long)worked, (long long)sent, (long long)even_rows(model),
                           (double)bytes_of(turn, count, true) / mebibyte,
                           (double)(model->row_bytes - bytes_of(turn, count, false)) / mebibyte);
    }
    place_rows(model, layer);
    return MP_OK;
}

int mp_model_reserve(struct mp_model *model, int layer, struct mp_error *error) {
    struct mp_routing *routing = &model->state[layer].routing;
    MP_TRY(reserve(model, layer, routing->send_total, routing->receive_total, true, error));
    if (!routing->in_order)
        mp_routing_index(routing, model->state[layer].index.memory);
    return MP_OK;
}

static int create_all(struct mp_model *model, int ranks, uint64_t seed, struct mp_error *error) {
    const struct mp_model_shape *shape = &model->shape;
    size_t experts = (size_t)mp_model_plan_experts(shape);
    MP_TAKE(&model->arena, model->state, shape->layers + 1);
    MP_TAKE_EACH(&model->arena, experts, model->parameter, model->gradient);
    MP_TAKE_EACH(&model->arena, experts * MP_ROUTING_SHARES, model->group_weight,
                 model->group_state);
    MP_TRY(mp_arena_check(&model->arena, error));
    for (int l = 0; l <= shape->layers; l++)
        allocate_state(model, l);
    allocate_workspace(model);
    if (model->memory.lacking)
        return mp_fail(error, MP_ENOMEM, "no memory for the activations of %d tokens",
                       model->tokens);
    describe_rows(model);
    int64_t even = even_rows(model);
    for (int l = 0; l < shape->layers; l++) {
        MP_TRY(mp_routing_create(ranks, (int)experts, model->send_limit, model->rows_limit,
                                 &model->state[l].routing, error));
        MP_TRY(reserve(model, l, less(even, model->send_limit), less(even, model->rows_limit),
                       false, error));
    }
    return mp_dense_create(shape, model->device, seed, &model->dense, error);
}

int mp_model_create(const struct mp_model_shape *shape, struct mp_device *device, int sequences,
                    int ranks, int64_t send_limit, int64_t rows_limit, uint64_t seed,
                    struct mp_model *model, struct mp_error *error) {
    *model = (struct mp_model){.shape = *shape,
                               .device = device,
                               .memory = {.device = device},
                               .tokens = sequences * shape->sequence,
                               .context = shape->context,
                               .send_limit = send_limit,
                               .rows_limit = rows_limit};
    model->attention = (struct mp_attention_shape){sequences, shape->sequence, shape->heads,
                                                   shape->width / shape->heads};
    int code = create_all(model, ranks, seed, error);
    if (code)
        mp_model_destroy(model);
    return code;
}

void mp_model_destroy(struct mp_model *model) {
    if (!model)
        return;
    mp_device_memory_release(&model->memory);
    for (int l = 0; model->state && l < model->shape.layers; l++) {
        struct mp_block_state *state = &model->state[l];
        struct mp_rows *rows[] = {&state->sent, &state->worked, &state->index,
                                  &state->distinct.rows};
        for (int i = l > 0 && model->shape.serves ? 3 : 0; i < 4; i++)
            mp_rows_release(model->device, rows[i]);
        mp_routing_destroy(&state->routing);
    }
    if (model->device) {
        mp_rows_release(model->device, &model->sent);
        mp_rows_release(model->device, &model->worked);
        mp_rows_release(model->device, &model->one_hot);
    }
    mp_dense_destroy(&model->dense);
    mp_experts_destroy(&model->experts);
    mp_arena_release(&model->arena);
    *model = (struct mp_model){0};
}

void mp_model_embed(struct mp_model *model, const int32_t *token, const int32_t *target) {
    const struct mp_dense *dense = &model->dense;
    size_t before = (size_t)model->context * (size_t)model->shape.width;
    size_t tokens = (size_t)model->tokens, answers = (size_t)model->answers;
    memcpy(model->host_token, token, tokens * sizeof *token);
    memcpy(model->host_token + tokens, target, answers * sizeof *target);
    QUEUE(model, copy, model->token, model->host_token, (tokens + answers) * sizeof *token);
    QUEUE(model, embedding_forward, model->tokens, model->shape.sequence, model->shape.width,
          model->token, mp_dense_common(dense, dense->parameter, MP_TOKEN_TABLE),
          mp_dense_common(dense, dense->parameter, MP_POSITION_TABLE) + before, model->state[0].x);
}

void mp_model_embed_backward(struct mp_model *model) {
    const struct mp_dense *dense = &model->dense;
    QUEUE(model, embedding_backward, model->tokens, model->shape.sequence, model->shape.width,
          model->token, model->dx, mp_dense_common(dense, dense->gradient, MP_TOKEN_TABLE),
          mp_dense_common(dense, dense->gradient, MP_POSITION_TABLE));
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
    if (state->cache)
        QUEUE(model, attention_cached, &model->attention, model->context,
              mp_model_positions(&model->shape), state->qkv, state->cache, state->attended);
    else
        QUEUE(model, attention_forward, &model->attention, state->qkv, state->attended,
              state->logsumexp);
    /* The residual is copied first, so that the projection adds to it. */
    QUEUE(model, copy, state->middle, state->x,
          (size_t)n * (size_t)d * mp_element_bytes(model->device));
    QUEUE(model, gemm, false, false, n, d, d, 1, state->attended, d, matrix.out, d, 1,
          state->middle, d);
}

void mp_model_attention_backward(struct mp_model *model, int layer, enum mp_products products) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors p = mp_dense_block(&model->dense, model->dense.parameter, layer);
    struct mp_block_tensors g = mp_dense_block(&model->dense, model->dense.gradient, layer);
    struct mp_block_matrices matrix = mp_dense_matrices(&model->dense, layer);
    int n = model->tokens, d = model->shape.width;
    if (products != MP_WEIGHT_PRODUCTS) {
        QUEUE(model, gemm_float, true, false, d, d, n, 1, state->attended, d, model->dx, d, 0,
              g.out, d);
        QUEUE(model, gemm, false, true, n, d, d, 1, model->dx, d, matrix.out, d, 0,
              model->dattended, d);
        QUEUE(model, attention_backward, &model->attention, state->qkv, state->attended,
              state->logsumexp, model->dattended, model->dqkv);
        QUEUE(model, gemm, false, true, n, d, 3 * d, 1, model->dqkv, 3 * d, matrix.qkv, 3 * d, 0,
              model->dnormed, d);
        QUEUE(model, layer_norm_backward, n, d, state->x, p.norm1_gain, state->mean1, state->rstd1,
              model->dnormed, model->dx, g.norm1_gain, g.norm1_bias);
    }
    if (products != MP_INPUT_PRODUCTS)
        QUEUE(model, gemm_float, true, false, d, 3 * d, n, 1, state->normed1, d, model->dqkv, 3 * d,
              0, g.qkv, 3 * d);
}

void mp_model_logits(struct mp_model *model) {
    const struct mp_dense *dense = &model->dense;
    const void *table = mp_dense_token_table(dense);
    int n = model->answers, d = model->shape.width, v = MP_VOCABULARY;
    const void *x = model->state[model->shape.layers].x;
    if (model->answering) {
        QUEUE(model, gather_rows, n, d, x, model->last, model->answering);
        x = model->answering;
    }
    QUEUE(model, layer_norm_forward, n, d, x,
          mp_dense_common(dense, dense->parameter, MP_FINAL_GAIN),
          mp_dense_common(dense, dense->parameter, MP_FINAL_BIAS), model->normed, model->mean,
          model->rstd);
    QUEUE(model, gemm_float, false, true, n, v, d, 1, model->normed, d, table, d, 0, model->logits,
          v);
}

void mp_model_head(struct mp_model *model, float scale, bool backward) {
    const struct mp_dense *dense = &model->dense;
    const float *gain = mp_dense_common(dense, dense->parameter, MP_FINAL_GAIN);
    const void *table = mp_dense_token_table(dense);
    const void *x = model->state[model->shape.layers].x;
    int n = model->answers, d = model->shape.width, v = MP_VOCABULARY;
    mp_model_logits(model);
    QUEUE(model, cross_entropy, n, v, model->logits, model->target, scale, model->loss,
          model->logits_gradient);
    if (!backward)
        return;
    float *dgain = mp_dense_common(dense, dense->gradient, MP_FINAL_GAIN);
    float *dbias = mp_dense_common(dense, dense->gradient, MP_FINAL_BIAS);
    float *dtable = mp_dense_common(dense, dense->gradient, MP_TOKEN_TABLE);
    float *dposition = mp_dense_common(dense, dense->gradient, MP_POSITION_TABLE);
    QUEUE(model, gemm_float, true, false, v, d, n, 1, model->logits_gradient, v, model->normed, d,
          0, dtable, d);
    QUEUE(model, gemm, false, false, n, d, v, 1, model->logits_gradient, v, table, d, 0,
          model->dnormed, d);
    QUEUE(model, zero, dposition, (size_t)model->shape.sequence * (size_t)d * sizeof(float));
    QUEUE(model, zero, model->dx, (size_t)n * (size_t)d * mp_element_bytes(model->device));
    QUEUE(model, layer_norm_backward, n, d, x, gain, model->mean, model->rstd, model->dnormed,
          model->dx, dgain, dbias);
}

double mp_model_loss_sum(struct mp_model *model, float *host) {
    QUEUE(model, copy_to_host, host, model->loss, (size_t)model->answers * sizeof(float));
    double sum = 0;
    for (int n = 0; n < model->answers; n++)
        sum += host[n];
    return sum;
}
