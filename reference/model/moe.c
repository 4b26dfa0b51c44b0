/* The mixture-of-experts part of a block: gate, shared expert, permutation, experts, combination.
 */
#include <string.h>

#include "reference/base/random.h"
#include "reference/model/block.h"

#define QUEUE(model, name, ...)                                                                    \
    (model)->device->operations->name((model)->device, (model)->stream, __VA_ARGS__)

/* Statistics of one sequence, behind those of the batch. */
static void count_sequence(struct mp_model *model, const struct mp_block_state *state,
                           int sequence) {
    int n = model->attention.sequence, e = model->shape.experts, k = model->shape.top_k;
    size_t first = (size_t)sequence * (size_t)n;
    uint32_t *routes = model->routes + (size_t)(1 + sequence) * 3 * (size_t)e;
    QUEUE(model, gate_statistics, n, e, k, state->probability + first * (size_t)e,
          state->choice + first * (size_t)k, routes, routes + e, (float *)(routes + 2 * (size_t)e));
}

void mp_model_gate(struct mp_model *model, int layer, const int32_t *forced,
                   const struct mp_gate_limit *limit, uint32_t *routes, uint32_t *firsts) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors p = mp_dense_block(&model->dense, model->dense.parameter, layer);
    const struct mp_model_shape *shape = &model->shape;
    int n = model->tokens, d = shape->width, e = shape->experts, k = shape->top_k;
    QUEUE(model, layer_norm_forward, n, d, state->middle, p.norm2_gain, p.norm2_bias,
          state->normed2, state->mean2, state->rstd2);
    QUEUE(model, gemm_float, false, false, n, e, d, 1, state->normed2, d,
          mp_dense_matrices(&model->dense, layer).gate, e, 0, model->gate_logits, e);
    /* Choices that the gate does not make are read from the place of positions, which come later.
     */
    if (forced)
        QUEUE(model, copy, state->position, forced, (size_t)n * (size_t)k * sizeof *forced);
    else if (limit)
        QUEUE(model, limit_choices, n, e, model->gate_logits, limit->inside, limit->tokens,
              state->position);
    QUEUE(model, gate_forward, n, e, k, &shape->gate, model->gate_logits, p.gate_bias,
          forced || limit ? state->position : NULL, state->probability, state->kept, state->choice,
          state->weight);
    QUEUE(model, gate_statistics, n, e, k, state->probability, state->choice, model->routes,
          model->firsts, model->mass);
    int sequences = shape->gate.loss_level == MP_BALANCE_SEQUENCE ? model->attention.batch : 0;
    for (int b = 0; b < sequences; b++)
        count_sequence(model, state, b);
    if (model->host_kept)
        QUEUE(model, copy, model->host_kept, state->kept, (size_t)n * sizeof(float));
    size_t bytes = (size_t)e * sizeof *routes;
    QUEUE(model, copy_to_host, model->host_statistics, model->routes,
          (1 + (size_t)sequences) * 3 * bytes);
    memcpy(routes, model->host_statistics, bytes);
    memcpy(firsts, model->host_statistics + e, bytes);
}

double mp_model_gate_loss(const struct mp_model *model) {
    const struct mp_gate_rule *rule = &model->shape.gate;
    double sum = 0;
    for (int t = 0; model->host_kept && t < model->tokens; t++) {
        double kept = model->host_kept[t];
        sum += rule->z_slope > 0 ? rule->z_slope * kept * kept : rule->alignment_slope * kept;
    }
    return sum;
}

static size_t rows_bytes(const struct mp_model *model, int rows) {
    return (size_t)rows * (size_t)model->shape.width * mp_element_bytes(model->device);
}

static bool has_shared(const struct mp_model *model) {
    return model->shape.shared_width > 0;
}

void mp_model_shared(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_matrices matrix = mp_dense_matrices(&model->dense, layer);
    int n = model->tokens, d = model->shape.width, u = model->shape.shared_width;
    void *out = model->state[layer + 1].x;
    if (!has_shared(model))
        return;
    QUEUE(model, gemm, false, false, n, u, d, 1, state->normed2, d, matrix.shared1, u, 0,
          state->shared_hidden, u);
    QUEUE(model, gelu_forward, (size_t)n * (size_t)u, state->shared_hidden,
          model->shared_activated);
    QUEUE(model, copy, out, state->middle, rows_bytes(model, n));
    QUEUE(model, gemm, false, false, n, d, u, 1, model->shared_activated, u, matrix.shared2, d, 1,
          out, d);
}

void mp_model_shared_backward(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors g = mp_dense_block(&model->dense, model->dense.gradient, layer);
    struct mp_block_matrices matrix = mp_dense_matrices(&model->dense, layer);
    int n = model->tokens, d = model->shape.width, u = model->shape.shared_width;
    if (!has_shared(model))
        return;
    QUEUE(model, gemm, false, true, n, u, d, 1, model->dx, d, matrix.shared2, d, 0,
          model->shared_gradient, u);
    QUEUE(model, gelu_backward, (size_t)n * (size_t)u, state->shared_hidden, model->shared_gradient,
          model->shared_gradient, model->shared_activated);
    QUEUE(model, gemm_float, true, false, u, d, n, 1, model->shared_activated, u, model->dx, d, 0,
          g.shared2, d);
    QUEUE(model, gemm_float, true, false, d, u, n, 1, state->normed2, d, model->shared_gradient, u,
          0, g.shared1, u);
    QUEUE(model, gemm, false, true, n, d, u, 1, model->shared_gradient, u, matrix.shared1, u, 0,
          model->dnormed, d);
}

uint64_t mp_model_route_seed(uint64_t seed, int64_t iteration, int layer, int rank) {
    uint64_t layers = mp_random_bits(seed, (uint64_t)iteration, (uint64_t)layer);
    return mp_random_bits(layers, 0, (uint64_t)rank);
}

/* The order in which routes are handed out, or NULL for token by token. */
static const int32_t *order_of_routes(struct mp_model *model, int layer, uint64_t seed) {
    static const enum mp_route_sort sort[MP_ROUTE_ORDERS] = {
        [MP_ROUTES_BY_CHOICE] = MP_SORT_BY_CHOICE,
        [MP_ROUTES_BY_PROBABILITY] = MP_SORT_BY_PROBABILITY,
        [MP_ROUTES_AT_RANDOM] = MP_SORT_AT_RANDOM,
    };
    struct mp_block_state *state = &model->state[layer];
    if (state->routing.order == MP_ROUTES_BY_TOKEN)
        return NULL;
    QUEUE(model, sort_routes, model->tokens, model->shape.top_k, model->shape.experts,
          sort[state->routing.order], state->probability, state->choice, seed, model->route_order);
    return model->route_order;
}

/* Queued behind what read the index before, and from memory that stays as it is until the layer's
 * next turn, so that nobody waits for it. */
static void upload_receive_index(struct mp_model *model, struct mp_block_state *state) {
    size_t bytes = (size_t)state->routing.receive_total * sizeof *state->receive_index;
    if (model->device->deferred && bytes > 0 && !state->routing.in_order)
        QUEUE(model, copy, state->receive_index, state->index.memory, bytes);
}

/* Rows of the routes to one shard of their experts. */
static int32_t *positions(const struct mp_model *model, const struct mp_block_state *state,
                          int shard) {
    return state->position + (size_t)shard * (size_t)model->tokens * (size_t)model->shape.top_k;
}

/* The matrix that policy.one_hot is about, with these weights. */
static void *one_hot(struct mp_model *model, const struct mp_block_state *state,
                     const float *weight) {
    size_t cells = (size_t)state->routing.send_total * (size_t)model->tokens;
    QUEUE(model, zero, model->one_hot.memory, cells * mp_element_bytes(model->device));
    for (int s = 0; s < mp_model_shards(&model->shape); s++)
        QUEUE(model, one_hot, model->tokens, model->shape.top_k, positions(model, state, s), weight,
              model->one_hot.memory);
    return model->one_hot.memory;
}

/* rows [sent][D] = matrix * tokens' [N][D]. */
static void tokens_into_rows(struct mp_model *model, const struct mp_block_state *state,
                             const float *weight, const void *tokens, void *rows) {
    int n = model->tokens, d = model->shape.width;
    QUEUE(model, gemm, false, false, state->routing.send_total, d, n, 1,
          one_hot(model, state, weight), n, tokens, d, 0, rows, d);
}

/* tokens' [N][D] = transpose(matrix) * rows [sent][D], or that is added to them. */
static void rows_into_tokens(struct mp_model *model, const struct mp_block_state *state,
                             const float *weight, const void *rows, bool add, void *tokens) {
    int n = model->tokens, d = model->shape.width;
    QUEUE(model, gemm, true, false, n, d, state->routing.send_total, 1,
          one_hot(model, state, weight), n, rows, d, (float)add, tokens, d);
}

/* Whether survivors share the weight of the dropped: not with a gate whose weights always stay as
 * they are. */
static bool shares_survivors(const struct mp_model *model, const struct mp_routing *routing) {
    return routing->renormalise_survivors && !model->shape.gate.keeps_weights;
}

/* Of the routes to one shard.  Of overlaid rows first choices alone are placed, before second ones,
 * which then take the rows that both have. */
static void place_routes(struct mp_model *model, const struct mp_block_state *state,
                         const int32_t *order, int shard) {
    const struct mp_routing *routing = &state->routing;
    int n = model->tokens, k = model->shape.top_k, e = model->shape.experts;
    const int *begin = routing->part_begin + (size_t)shard * (size_t)e;
    int unset = routing->padding > 0 && shard == 0 ? routing->send_total : 0;
    QUEUE(model, route_positions, n * k, k, e, state->choice, order, begin, routing->part_count,
          routing->part_row, unset, positions(model, state, shard), model->row_token);
    if (routing->overlaid)
        QUEUE(model, route_positions, n * (k - 1), k, e, state->choice, order + n,
              begin + routing->experts, routing->part_count, routing->part_row, 0,
              positions(model, state, shard), model->row_token);
}

void mp_model_permute(struct mp_model *model, int layer, uint64_t route_seed) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing *routing = &state->routing;
    void *rows = routing->stays ? state->expert_in : model->send;
    const int32_t *order = order_of_routes(model, layer, route_seed);
    upload_receive_index(model, state);
    for (int s = 0; s < mp_model_shards(&model->shape); s++)
        place_routes(model, state, order, s);
    if (shares_survivors(model, routing))
        QUEUE(model, survivor_weights, model->tokens, model->shape.experts, model->shape.top_k,
              &model->shape.gate, state->probability, state->choice, state->position,
              state->weight);
    if (routing->deduplicated)
        return;
    if (routing->one_hot)
        tokens_into_rows(model, state, NULL, state->normed2, rows);
    else
        QUEUE(model, gather_rows, routing->send_total, model->shape.width, state->normed2,
              model->row_token, rows);
}

void mp_model_gather_sent(struct mp_model *model, int layer, const void *tokens) {
    const struct mp_fan *fan = &model->state[layer].distinct.fan[0];
    QUEUE(model, gather_rows, fan->out, model->shape.width, tokens, fan->gather, model->send);
}

/* Row `row` of a matrix with rows of the model's width, or of the experts'. */
static void *row_of(const struct mp_model *model, void *matrix, int row) {
    return mp_element_at(model->device, matrix, (size_t)row * (size_t)model->shape.width);
}
static void *hidden_row_of(const struct mp_model *model, void *matrix, int row) {
    return mp_element_at(model->device, matrix,
                         (size_t)row * (size_t)mp_model_shard_width(&model->shape));
}

static bool never_travels(const struct mp_routing *routing, int segment) {
    return segment == routing->steps && routing->local_rows > 0;
}

static void *last_rows(const struct mp_model *model, const struct mp_routing *routing,
                       void *matrix) {
    return row_of(model, matrix, routing->send_total - routing->local_rows);
}

void *mp_model_receive_buffer(struct mp_model *model, int layer, int segment) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing_segment *at = &state->routing.segment[segment];
    return row_of(model, at->in_expert_order ? state->expert_in : model->received, at->first);
}

/* Groups of a grouped GEMM over a segment: each expert's rows in as many shares as it has. */
static int products_of(const struct mp_routing *routing, const struct mp_routing_segment *segment) {
    return routing->groups * segment->shares;
}

/* Pointers to one of the two matrices of every product's expert, or to their gradients. */
enum matrices { FIRST, SECOND, FIRST_GRADIENT, SECOND_GRADIENT };
static size_t matrix_offset(const struct mp_model *model, enum matrices which) {
    bool second = which == SECOND || which == SECOND_GRADIENT;
    return second ? mp_model_expert_floats(&model->shape) / 2 : 0;
}
static void *const *group_matrices(struct mp_model *model, const struct mp_routing *routing,
                                   const struct mp_routing_segment *segment, enum matrices which) {
    size_t offset = matrix_offset(model, which);
    for (int i = 0; i < products_of(routing, segment); i++) {
        int expert = routing->group_expert[i / segment->shares];
        model->group_weight[i] =
            which >= FIRST_GRADIENT
                ? model->gradient[expert] + offset
                : mp_element_at(model->device, model->parameter[expert], offset);
    }
    return model->group_weight;
}

/* A segment's rows from receive order in model->received to expert order in `rows`. */
static void into_expert_order(struct mp_model *model, const struct mp_block_state *state,
                              const struct mp_routing_segment *segment, void *rows) {
    QUEUE(model, gather_rows, segment->rows, model->shape.width, model->received,
          state->receive_index + segment->first, rows);
}

static void into_receive_order(struct mp_model *model, const struct mp_block_state *state,
                               const struct mp_routing_segment *segment, const void *rows) {
    QUEUE(model, scatter_rows, segment->rows, model->shape.width, rows,
          state->receive_index + segment->first, model->received);
}

void mp_model_experts(struct mp_model *model, int layer, int segment) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing *routing = &state->routing;
    const struct mp_routing_segment *at = &routing->segment[segment];
    int d = model->shape.width, f = mp_model_shard_width(&model->shape);
    int products = products_of(routing, at);
    void *in = row_of(model, state->expert_in, at->first);
    void *hidden = hidden_row_of(model, state->hidden, at->first);
    bool there = routing->deduplicated || routing->stays;
    void *out = row_of(model, there ? state->combine_in : model->received, at->first);
    if (never_travels(routing, segment)) {
        QUEUE(model, copy, in, last_rows(model, routing, model->send), rows_bytes(model, at->rows));
        out = last_rows(model, routing, state->combine_in);
    } else if (!at->in_expert_order) {
        into_expert_order(model, state, at, in);
        out = model->expert_rows;
    }
    QUEUE(model, grouped_gemm, MP_GROUPED_FORWARD, products, at->group_rows, d, f, in,
          group_matrices(model, routing, at, FIRST), hidden, false);
    QUEUE(model, gelu_forward, (size_t)at->rows * (size_t)f, hidden, model->activated);
    QUEUE(model, grouped_gemm, MP_GROUPED_FORWARD, products, at->group_rows, f, d, model->activated,
          group_matrices(model, routing, at, SECOND), out, false);
    if (!at->in_expert_order)
        into_receive_order(model, state, at, out);
}

/* What has come of tokens' rows, in model->send, added up. */
static void sum_rows_sent(struct mp_model *model, const struct mp_block_state *state,
                          const void *residual, void *out) {
    const struct mp_fan *fan = &state->distinct.fan[0];
    QUEUE(model, combine_forward, fan->in, fan->ways, model->shape.width, model->send, fan->sum,
          NULL, residual, out);
}

/* out = residual + what has come of tokens' rows, times weights: of all shards, one by one. */
static void sum_rows(struct mp_model *model, const struct mp_block_state *state, const void *rows,
                     const float *weight, const void *residual, void *out) {
    for (int s = 0; s < mp_model_shards(&model->shape); s++)
        QUEUE(model, combine_forward, model->tokens, model->shape.top_k, model->shape.width, rows,
              positions(model, state, s), weight, s == 0 ? residual : out, out);
}

void mp_model_combine(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    void *out = model->state[layer + 1].x;
    const void *residual = has_shared(model) ? out : state->middle;
    if (state->routing.deduplicated) {
        sum_rows_sent(model, state, residual, out);
        return;
    }
    if (state->routing.one_hot) {
        if (!has_shared(model))
            QUEUE(model, copy, out, residual, rows_bytes(model, model->tokens));
        rows_into_tokens(model, state, state->weight, state->combine_in, true, out);
        return;
    }
    sum_rows(model, state, state->combine_in, state->weight, residual, out);
}

/* Where the weights' gradient by one shard's rows goes, and its way into their sum. */
static float *weight_gradient(const struct mp_model *model, int shard) {
    return shard == 0 ? model->dweight : model->shard_dweight;
}
static void add_weight_gradient(struct mp_model *model, int shard) {
    if (shard > 0)
        QUEUE(model, add, (size_t)model->tokens * (size_t)model->shape.top_k, model->dweight,
              model->shard_dweight, model->dweight);
}

/* The weights' gradient is picked from that of the whole matrix, which takes its place. */
static void combine_one_hot_backward(struct mp_model *model, const struct mp_block_state *state) {
    int n = model->tokens, d = model->shape.width;
    float *dmatrix = model->one_hot.memory;
    tokens_into_rows(model, state, state->weight, model->dx, model->send);
    QUEUE(model, gemm_float, false, true, state->routing.send_total, n, d, 1, state->combine_in, d,
          model->dx, d, 0, dmatrix, n);
    for (int s = 0; s < mp_model_shards(&model->shape); s++) {
        QUEUE(model, one_hot_gradient, n, model->shape.top_k, positions(model, state, s), dmatrix,
              weight_gradient(model, s));
        add_weight_gradient(model, s);
    }
}

void mp_model_combine_backward(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing *routing = &state->routing;
    if (routing->one_hot) {
        combine_one_hot_backward(model, state);
        return;
    }
    if (routing->deduplicated) {
        mp_model_gather_sent(model, layer, model->dx);
        return;
    }
    if (routing->padding > 0) /* rows without a token have no gradient */
        QUEUE(model, zero, model->send, rows_bytes(model, routing->send_total));
    for (int s = 0; s < mp_model_shards(&model->shape); s++) {
        QUEUE(model, combine_backward, model->tokens, model->shape.top_k, model->shape.width,
              state->combine_in, positions(model, state, s), state->weight, model->dx,
              routing->overlaid, model->send, weight_gradient(model, s));
        add_weight_gradient(model, s);
    }
}

/* Gradients of a segment's outputs, in expert order; those of its inputs take their place. */
static void *gradient_rows(struct mp_model *model, const struct mp_block_state *state,
                           int segment) {
    const struct mp_routing *routing = &state->routing;
    const struct mp_routing_segment *at = &routing->segment[segment];
    if (never_travels(routing, segment))
        return last_rows(model, routing, model->send);
    if (at->in_expert_order)
        return row_of(model, routing->stays ? model->send : model->received, at->first);
    into_expert_order(model, state, at, model->expert_rows);
    return model->expert_rows;
}

/* Gradients of one of the two matrices, or what AdamW makes of them. */
static void weights_backward(struct mp_model *model, int layer, const struct mp_routing_segment *at,
                             enum matrices which, void *in, void *out, bool accumulate,
                             const struct mp_adamw *update) {
    const struct mp_routing *routing = &model->state[layer].routing;
    bool second = which == SECOND_GRADIENT;
    int d = model->shape.width, f = mp_model_shard_width(&model->shape);
    int columns_in = second ? f : d, columns_out = second ? d : f;
    int products = products_of(routing, at);
    if (!update) {
        QUEUE(model, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, products, at->group_rows, columns_in,
              columns_out, in, group_matrices(model, routing, at, which), out, accumulate);
        return;
    }
    for (int i = 0; i < products; i++) {
        int expert = routing->group_expert[i / at->shares];
        model->group_state[i] =
            mp_experts_weight(&model->experts, layer, expert, matrix_offset(model, which));
        if (!second) /* the last to be had */
            mp_experts_note_updated(&model->experts, layer, expert);
    }
    QUEUE(model, grouped_update, products, at->group_rows, columns_in, columns_out, in, out,
          model->group_state, update);
}

static void inputs_backward(struct mp_model *model, int layer, int segment, bool accumulate,
                            const struct mp_adamw *update) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing *routing = &state->routing;
    const struct mp_routing_segment *at = &routing->segment[segment];
    int d = model->shape.width, f = mp_model_shard_width(&model->shape);
    int products = products_of(routing, at);
    const int *rows = at->group_rows;
    void *gradient = gradient_rows(model, state, segment);
    QUEUE(model, grouped_gemm, MP_GROUPED_INPUT_GRADIENT, products, rows, f, d,
          model->hidden_gradient, group_matrices(model, routing, at, SECOND), gradient, false);
    QUEUE(model, gelu_backward, (size_t)at->rows * (size_t)f,
          hidden_row_of(model, state->hidden, at->first), model->hidden_gradient,
          model->hidden_gradient, model->activated);
    weights_backward(model, layer, at, SECOND_GRADIENT, model->activated, gradient, accumulate,
                     update);
    QUEUE(model, grouped_gemm, MP_GROUPED_INPUT_GRADIENT, products, rows, d, f, gradient,
          group_matrices(model, routing, at, FIRST), model->hidden_gradient, false);
    if (!at->in_expert_order)
        into_receive_order(model, state, at, gradient);
}

static bool can_update(const struct mp_model *model, const struct mp_routing *routing) {
    const struct mp_device_operations *operations = model->device->operations;
    int d = model->shape.width, f = mp_model_shard_width(&model->shape);
    return operations->grouped_update &&
           operations->can_update_grouped(model->device, routing->groups, d, f) &&
           operations->can_update_grouped(model->device, routing->groups, f, d);
}

void mp_model_experts_backward(struct mp_model *model, int layer, int segment,
                               enum mp_products products, bool accumulate,
                               const struct mp_adamw *update) {
    const struct mp_block_state *state = &model->state[layer];
    const struct mp_routing_segment *at = &state->routing.segment[segment];
    if (!can_update(model, &state->routing))
        update = NULL;
    if (products != MP_WEIGHT_PRODUCTS)
        inputs_backward(model, layer, segment, accumulate, update);
    if (products != MP_INPUT_PRODUCTS)
        weights_backward(model, layer, at, FIRST_GRADIENT,
                         row_of(model, state->expert_in, at->first), model->hidden_gradient,
                         accumulate, update);
}

/* The gradient of one part of the batch: gate_backward has one slope per expert. */
static void part_backward(struct mp_model *model, const struct mp_block_state *state, int part) {
    const struct mp_model_shape *shape = &model->shape;
    int n = model->tokens / mp_model_loss_parts(model), e = shape->experts, k = shape->top_k;
    size_t token = (size_t)part * (size_t)n, row = token * (size_t)e, route = token * (size_t)k;
    const int32_t *position =
        shares_survivors(model, &state->routing) ? state->position + route : NULL;
    QUEUE(model, gate_backward, n, e, k, &shape->gate, state->probability + row,
          state->kept ? state->kept + token : NULL, state->choice + route, position,
          state->weight + route, model->dweight + route,
          state->auxiliary + (size_t)part * (size_t)e,
          mp_element_at(model->device, model->gate_gradient, row));
}

void mp_model_gate_backward(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors p = mp_dense_block(&model->dense, model->dense.parameter, layer);
    struct mp_block_tensors g = mp_dense_block(&model->dense, model->dense.gradient, layer);
    const struct mp_model_shape *shape = &model->shape;
    int n = model->tokens, d = shape->width, e = shape->experts;
    if (state->routing.one_hot)
        rows_into_tokens(model, state, NULL, model->send, has_shared(model), model->dnormed);
    else if (state->routing.deduplicated)
        sum_rows_sent(model, state, has_shared(model) ? model->dnormed : NULL, model->dnormed);
    else
        sum_rows(model, state, model->send, NULL, has_shared(model) ? model->dnormed : NULL,
                 model->dnormed);
    for (int part = 0; part < mp_model_loss_parts(model); part++)
        part_backward(model, state, part);
    QUEUE(model, gemm_float, true, false, d, e, n, 1, state->normed2, d, model->gate_gradient, e, 0,
          g.gate, e);
    QUEUE(model, gemm, false, true, n, d, e, 1, model->gate_gradient, e,
          mp_dense_matrices(&model->dense, layer).gate, e, 1, model->dnormed, d);
    QUEUE(model, layer_norm_backward, n, d, state->middle, p.norm2_gain, state->mean2, state->rstd2,
          model->dnormed, model->dx, g.norm2_gain, g.norm2_bias);
}
