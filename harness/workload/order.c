#include "harness/workload/order.h"

#include <limits.h>
#include <stdbool.h>

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

/* The micro-batch and layer that follow; false if the iteration is through. */
static bool find_next(const struct trace_order *order, const struct mp_trace_shape *shape,
                      int *micro_batch, int *layer) {
    *micro_batch = *layer = 0;
    if (order->blocks == 0)
        return false;
    if (order->layer + 1 < shape->layers) {
        *micro_batch = order->micro_batch;
        *layer = order->layer + 1;
        return true;
    }
    *micro_batch = (order->micro_batch + 1) % shape->micro_batches;
    return *micro_batch > 0;
}

int trace_order_take(struct trace_order *order, const struct mp_trace_shape *shape,
                     const struct mp_trace_block *block, int code, struct mp_error *error) {
    int micro_batch, layer;
    bool inside = find_next(order, shape, &micro_batch, &layer);
    int64_t least = order->blocks == 0 ? 0 : order->iteration + !inside;
    bool right_iteration =
        inside ? block->iteration == order->iteration : block->iteration >= least;
    if (!right_iteration || block->micro_batch != micro_batch || block->layer != layer)
        return mp_fail(error, code,
                       "block %lld is of iteration %lld, micro-batch %d, layer %d and should be of "
                       "iteration %lld%s, micro-batch %d, layer %d: blocks are in ascending order, "
                       "and of %d micro-batches x %d layers none may be missing",
                       (long long)order->blocks, (long long)block->iteration, block->micro_batch,
                       block->layer, (long long)least, inside ? "" : " or later", micro_batch,
                       layer, shape->micro_batches, shape->layers);
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
    int micro_batch, layer;
    if (!find_next(order, shape, &micro_batch, &layer))
        return MP_OK;
    return mp_fail(error, code,
                   "the trace ends after %lld blocks, inside iteration %lld: micro-batch %d, layer "
                   "%d is missing",
                   (long long)order->blocks, (long long)order->iteration, micro_batch, layer);
}
