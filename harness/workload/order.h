/* What every trace keeps, whoever reads or writes it: a possible shape, blocks in order. */
#pragma once

#include "harness/workload/trace.h"

enum { TRACE_CELLS_LIMIT = 1 << 26 }; /* counts of a block: 256 MiB, 65,536 ranks x 1,024 experts */

/* MP_EINVAL for a shape that no trace can have. */
int trace_shape_check(const struct mp_trace_shape *shape, struct mp_error *error);

/* The block that came last; zeroed: none yet. */
struct trace_order {
    int64_t blocks; /* so far */
    int64_t iteration;
    int micro_batch, layer;
};

/* Numbers a block as the one that comes next, in the next iteration unless the one before goes on;
 * whether it does. */
bool trace_order_next(const struct trace_order *order, const struct mp_trace_shape *shape,
                      struct mp_trace_block *block);

/* Takes the next block, or says what should have come and returns `code`. */
int trace_order_take(struct trace_order *order, const struct mp_trace_shape *shape,
                     const struct mp_trace_block *block, int code, struct mp_error *error);

/* At the end: the last iteration has all its micro-batches and layers, or `code`. */
int trace_order_end(const struct trace_order *order, const struct mp_trace_shape *shape, int code,
                    struct mp_error *error);
