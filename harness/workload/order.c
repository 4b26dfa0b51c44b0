#include "harness/workload/order.h"

int trace_shape_check(const struct mp_trace_shape *shape, struct mp_error *error) {
    if (shape->ranks < 1 || shape->experts < 1 || shape->layers < 1 || shape->micro_batches < 1)
        return mp_fail(error, MP_EINVAL,
                       "a trace needs at least one of each: %d ranks, %d experts, %d layers, %d "
                       "micro-batches",
                       shape->ranks, shape->experts, shape->layers, shape->micro_batches);
    if ((int64_t)shape->ranks * shape->experts > TRACE_CELLS_LIMIT)
        return mp_fail(error, MP_EINVAL,
                       "%d ranks x %d experts are more than the %d counts that a block of a trace "
                       "can have",
                       shape->ranks, shape->experts, TRACE_CELLS_LIMIT);
    if (shape->top_k < 0 || shape->top_k > shape->experts)
        return mp_fail(error, MP_EINVAL,
                       "a token can't go to %d of %d experts; 0 stands for not known", shape->top_k,
                       shape->experts);
    return MP_OK;
}

bool trace_order_next(const struct trace_order *order, const struct mp_trace_shape *shape,
                      struct mp_trace_block *block) {
    bool same = order->blocks > 0 && order->layer + 1 < shape->layers;
    bool inside = same || (order->blocks > 0 && order->micro_batch + 1 < shape->micro_batches);
    block->iteration = order->blocks > 0 ? order->iteration + !inside : 0;
    block->micro_batch = inside ? order->micro_batch + !same : 0;
    block->layer = same ? order->layer + 1 : 0;
    return inside;
}

int trace_order_take(struct trace_order *order, const struct mp_trace_shape *shape,
                     const struct mp_trace_block *block, int code, struct mp_error *error) {
    struct mp_trace_block next;
    bool inside = trace_order_next(order, shape, &next);
    bool right_iteration =
        inside ? block->iteration == next.iteration : block->iteration >= next.iteration;
    if (!right_iteration || block->micro_batch != next.micro_batch || block->layer != next.layer)
        return mp_fail(error, code,
                       "block %lld is of iteration %lld, micro-batch %d, layer %d and should be of "
                       "iteration %lld%s, micro-batch %d, layer %d: blocks are in ascending order, "
                       "and of %d micro-batches x %d layers none may be missing",
                       (long long)order->blocks, (long long)block->iteration, block->micro_batch,
                       block->layer, (long long)next.iteration, inside ? "" : " or later",
                       next.micro_batch, next.layer, shape->micro_batches, shape->layers);
    if (block->iteration == INT64_MAX) /* so that there is one after it */
        return mp_fail(error, code, "block %lld is of iteration %lld, which is too large",
                       (long long)order->blocks, (long long)block->iteration);
    order->blocks++;
    order->iteration = block->iteration;
    order->micro_batch = block->micro_batch;
    order->layer = block->layer;
    return MP_OK;
}

int trace_order_end(const struct trace_order *order, const struct mp_trace_shape *shape, int code,
                    struct mp_error *error) {
    struct mp_trace_block next;
    if (!trace_order_next(order, shape, &next))
        return MP_OK;
    return mp_fail(error, code,
                   "the trace ends after %lld blocks, inside iteration %lld: micro-batch %d, layer "
                   "%d is missing",
                   (long long)order->blocks, (long long)order->iteration, next.micro_batch,
                   next.layer);
}
