/* What the fuzzers of traces share. */
#pragma once

#include "harness/workload/trace.h"
#include "tests/fuzz/expect.h"

enum { BLOCKS_LIMIT = 4096 };

/* Reads a trace, whatever its rows are; returns its routes, or -1: an error has ended it. */
static inline int64_t walk(struct mp_trace_stream *stream) {
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    const struct mp_trace_block *block;
    int64_t routes = 0;
    mp_trace_allow_ragged(stream);
    for (int blocks = 0; blocks < BLOCKS_LIMIT; blocks++) {
        struct mp_error error = {0};
        int code = mp_trace_next(stream, &block, &error);
        expect_sentence(code, &error);
        if (code)
            return -1;
        if (!block)
            break;
        expect(block->load.ranks == info->shape.ranks &&
                   block->load.experts == info->shape.experts && block->layer < info->shape.layers,
               "blocks have the announced shape");
        routes += mp_load_total(&block->load);
    }
    return routes;
}
