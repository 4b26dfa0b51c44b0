/* The mixture-of-experts part of a block: gate, permutation, experts, combination. */
#include <string.h>

#include "reference/model/block.h"

#define QUEUE(model, name, ...)                                                                    \
    (model)->device->operations->name((model)->device, (model)->stream, __VA_ARGS__)

void mp_model_gate(struct mp_model *model, int layer, const int32_t *forced, uint32_t *routes,
                   uint32_t *firsts, float *mass) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors p = mp_dense_block(&model->dense, model->dense.parameter, layer);
    const struct mp_model_shape *shape = &model->shape;
    int n = model->tokens, d = shape->width, e = shape->experts, k = shape->top_k;
    QUEUE(model, layer_norm_forward, n, d, state->middle, p.norm2_gain, p.norm2_bias,
          state->normed2, state->mean2, state->rstd2);
    QUEUE(model, gemm, false, false, n, e, d, 1, state->normed2, d, p.gate, e, 0,
          model->gate_logits, e);
    if (forced) /* read from the place where the choice goes */
        QUEUE(model, copy_from_host, state->position, forced,
              (size_t)n * (size_t)k * sizeof *forced);
    QUEUE(model, gate_forward, n, e, k, shape->renormalise, model->gate_logits,
          forced ? state->position : NULL, state->probability, state->choice, state->weight);
    QUEUE(model, gate_statistics, n, e, k, state->probability, state->choice, model->routes,
          model->firsts, model->mass);
    QUEUE(model, copy_to_host, routes, model->routes, (size_t)e * sizeof *routes);
    QUEUE(model, copy_to_host, firsts, model->firsts, (size_t)e * sizeof *firsts);
    QUEUE(model, copy_to_host, mass, model->mass, (size_t)e * sizeof *mass);
}

void mp_model_permute(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing *routing = &state->routing;
    QUEUE(model, route_positions, model->tokens, model->shape.top_k, model->shape.experts,
          state->choice, routing->part_begin, routing->part_count, routing->part_row,
          state->position, model->row_token);
    QUEUE(model, gather_rows, routing->send_total, model->shape.width, state->normed2,
          model->row_token, model->send);
}

float *mp_model_receive_buffer(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    return state->routing.in_expert_order ? state->expert_in : model->received;
}

/* Pointers to one of the two matrices of every group's expert. */
static float *const *group_matrices(struct mp_model *model, const struct mp_routing *routing,
                                    float *const chunk[], bool second) {
    size_t offset = second ? mp_model_expert_floats(&model->shape) / 2 : 0;
    for (int g = 0; g < routing->groups; g++)
        model->group_weight[g] = chunk[routing->group_expert[g]] + offset;
    return model->group_weight;
}

static void into_expert_order(struct mp_model *model, const struct mp_routing *routing,
                              const float *received, float *rows) {
    QUEUE(model, gather_rows, routing->receive_total, model->shape.width, received,
          routing->receive_index, rows);
}

static void into_receive_order(struct mp_model *model, const struct mp_routing *routing,
                               const float *rows, float *received) {
    QUEUE(model, scatter_rows, routing->receive_total, model->shape.width, rows,
          routing->receive_index, received);
}

void mp_model_experts(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing *routing = &state->routing;
    int d = model->shape.width, f = model->shape.expert_width;
    if (!routing->in_expert_order)
        into_expert_order(model, routing, model->received, state->expert_in);
    QUEUE(model, grouped_gemm, MP_GROUPED_FORWARD, routing->groups, routing->group_rows, d, f,
          state->expert_in, group_matrices(model, routing, model->parameter, false), state->hidden,
          false);
    QUEUE(model, gelu_forward, (size_t)routing->receive_total * (size_t)f, state->hidden,
          model->activated);
    float *out = routing->in_expert_order ? model->received : model->expert_rows;
    QUEUE(model, grouped_gemm, MP_GROUPED_FORWARD, routing->groups, routing->group_rows, f, d,
          model->activated, group_matrices(model, routing, model->parameter, true), out, false);
    if (!routing->in_expert_order)
        into_receive_order(model, routing, model->expert_rows, model->received);
}

void mp_model_combine(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    QUEUE(model, combine_forward, model->tokens, model->shape.top_k, model->shape.width,
          state->combine_in, state->position, state->weight, state->middle,
          model->state[layer + 1].x);
}

void mp_model_combine_backward(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    QUEUE(model, combine_backward, model->tokens, model->shape.top_k, model->shape.width,
          state->combine_in, state->position, state->weight, model->dx, model->send,
          model->dweight);
}

void mp_model_experts_backward(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    const struct mp_routing *routing = &state->routing;
    int d = model->shape.width, f = model->shape.expert_width;
    const int *rows = routing->group_rows;
    float *dout = model->received;
    if (!routing->in_expert_order) {
        into_expert_order(model, routing, model->received, model->expert_rows);
        dout = model->expert_rows;
    }
    QUEUE(model, grouped_gemm, MP_GROUPED_INPUT_GRADIENT, routing->groups, rows, f, d,
          model->hidden_gradient, group_matrices(model, routing, model->parameter, true), dout,
          false);
    QUEUE(model, gelu_backward, (size_t)routing->receive_total * (size_t)f, state->hidden,
          model->hidden_gradient, model->hidden_gradient, model->activated);
    QUEUE(model, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, routing->groups, rows, f, d,
          model->activated, group_matrices(model, routing, model->gradient, true), dout, false);
    QUEUE(model, grouped_gemm, MP_GROUPED_WEIGHT_GRADIENT, routing->groups, rows, d, f,
          state->expert_in, group_matrices(model, routing, model->gradient, false),
          model->hidden_gradient, false);
    QUEUE(model, grouped_gemm, MP_GROUPED_INPUT_GRADIENT, routing->groups, rows, d, f, dout,
          group_matrices(model, routing, model->parameter, false), model->hidden_gradient, false);
    if (!routing->in_expert_order)
        into_receive_order(model, routing, model->expert_rows, model->received);
}

void mp_model_gate_backward(struct mp_model *model, int layer) {
    struct mp_block_state *state = &model->state[layer];
    struct mp_block_tensors p = mp_dense_block(&model->dense, model->dense.parameter, layer);
    struct mp_block_tensors g = mp_dense_block(&model->dense, model->dense.gradient, layer);
    const struct mp_model_shape *shape = &model->shape;
    int n = model->tokens, d = shape->width, e = shape->experts, k = shape->top_k;
    QUEUE(model, combine_forward, n, k, d, model->send, state->position, NULL, NULL,
          model->dnormed);
    QUEUE(model, gate_backward, n, e, k, shape->renormalise, state->probability, state->choice,
          state->weight, model->dweight, state->auxiliary, model->gate_logits);
    QUEUE(model, gemm, true, false, d, e, n, 1, state->normed2, d, model->gate_logits, e, 0, g.gate,
          e);
    QUEUE(model, gemm, false, true, n, d, e, 1, model->gate_logits, e, p.gate, e, 1, model->dnormed,
          d);
    QUEUE(model, zero, g.norm2_gain, (size_t)d * sizeof(float));
    QUEUE(model, zero, g.norm2_bias, (size_t)d * sizeof(float));
    QUEUE(model, layer_norm_backward, n, d, state->middle, p.norm2_gain, state->mean2, state->rstd2,
          model->dnormed, model->dx, g.norm2_gain, g.norm2_bias);
}
