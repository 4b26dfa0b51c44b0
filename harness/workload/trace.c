/* Streams of blocks: what all sources share.  See trace.h. */
#include "harness/workload/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/order.h"
#include "reference/plan/routes.h"

struct mp_trace_stream {
    const struct mp_trace_stream_operations *operations;
    void *self;
    struct mp_trace_info info;
    struct mp_trace_block block;
    struct trace_order order;
    uint64_t routes; /* of a rank, in this micro-batch */
    int32_t *begin;  /* [ranks + 1] where a rank's tokens begin in it; NULL: they are not known */
    bool ended;
    int failed; /* code of the failure that stopped it */
};

void mp_trace_info_destroy(struct mp_trace_info *info) {
    free(info->source);
    free(info->notes);
    *info = (struct mp_trace_info){0};
}

int mp_trace_stream_create(int code, const struct mp_trace_stream_operations *operations,
                           void *self, struct mp_trace_info *info, struct mp_trace_stream **stream,
                           struct mp_error *error) {
    *stream = NULL;
    if (!code)
        code = trace_shape_check(&info->shape, error);
    struct mp_trace_stream *made = code ? NULL : calloc(1, sizeof *made);
    if (!code && !made)
        code = mp_no_memory(error);
    if (!code && info->routes) {
        made->begin = calloc((size_t)info->shape.ranks + 1, sizeof *made->begin);
        code = made->begin ? MP_OK : mp_no_memory(error);
    }
    if (!code)
        code = mp_load_create(info->shape.ranks, info->shape.experts, &made->block.load, error);
    if (code) {
        free(made ? made->begin : NULL);
        free(made);
        operations->destroy(self);
        mp_trace_info_destroy(info);
        return code;
    }
    made->operations = operations;
    made->self = self;
    made->info = *info;
    *info = (struct mp_trace_info){0};
    *stream = made;
    return MP_OK;
}

void mp_trace_stream_destroy(struct mp_trace_stream *stream) {
    if (!stream)
        return;
    stream->operations->destroy(stream->self);
    mp_trace_info_destroy(&stream->info);
    mp_load_destroy(&stream->block.load);
    free(stream->begin);
    free(stream);
}

const struct mp_trace_info *mp_trace_stream_info(const struct mp_trace_stream *stream) {
    return &stream->info;
}

void mp_trace_allow_ragged(struct mp_trace_stream *stream) {
    stream->info.ragged = true;
}

/* Every rank has as many routes as the first one had in the first layer of the micro-batch. */
static int check_sums(struct mp_trace_stream *stream, struct mp_error *error) {
    const struct mp_trace_block *block = &stream->block;
    for (int rank = 0; rank < block->load.ranks; rank++) {
        const uint32_t *row = block->load.count + (long)rank * block->load.experts;
        uint64_t routes = 0;
        for (int expert = 0; expert < block->load.experts; expert++)
            routes += row[expert];
        if (block->layer == 0 && rank == 0)
            stream->routes = routes;
        if (routes != stream->routes)
            return mp_fail(error, MP_EFORMAT,
                           "block %lld (iteration %lld, micro-batch %d, layer %d): rank %d has "
                           "%llu routes, rank 0 in layer 0 has %llu; they may differ only in a "
                           "ragged trace, as moeperf import --ragged writes it",
                           (long long)stream->order.blocks - 1, (long long)block->iteration,
                           block->micro_batch, block->layer, rank, (unsigned long long)routes,
                           (unsigned long long)stream->routes);
    }
    return MP_OK;
}

/* Names the block that was read last. */
static int fail_block(const struct mp_trace_stream *stream, const char *what,
                      struct mp_error *error) {
    const struct mp_trace_block *block = &stream->block;
    return mp_fail(error, MP_EFORMAT, "block %lld (iteration %lld, micro-batch %d, layer %d): %s",
                   (long long)stream->order.blocks - 1, (long long)block->iteration,
                   block->micro_batch, block->layer, what);
}

/* Tokens' experts make the counts, and tokens are those of the micro-batch's first layer. */
static int check_tokens(struct mp_trace_stream *stream, struct mp_error *error) {
    const struct mp_load *load = &stream->block.load;
    const struct mp_routes *routes = load->routes;
    size_t bytes = ((size_t)load->ranks + 1) * sizeof *stream->begin;
    struct mp_error own = {0};
    if (!routes)
        return fail_block(stream, "has no experts of tokens, as the trace says it has", error);
    if (routes->top_k != stream->info.shape.top_k)
        return fail_block(stream, "tokens have another number of experts than the trace says",
                          error);
    if (stream->block.layer == 0)
        memcpy(stream->begin, routes->begin, bytes);
    if (memcmp(stream->begin, routes->begin, bytes) != 0)
        return fail_block(stream, "ranks have other numbers of tokens than in layer 0", error);
    int code = mp_load_check_routes(load, &own);
    return code == MP_EFORMAT ? fail_block(stream, own.text, error)
           : code             ? mp_fail(error, code, "%s", own.text)
                              : MP_OK;
}

/* Fetches a block into the stream, checked. */
static int advance(struct mp_trace_stream *stream, struct mp_error *error) {
    const struct mp_trace_shape *shape = &stream->info.shape;
    trace_order_next(&stream->order, shape, &stream->block);
    MP_TRY(stream->operations->next(stream->self, &stream->block, &stream->ended, error));
    if (stream->ended)
        return trace_order_end(&stream->order, shape, MP_EFORMAT, error);
    int code = trace_order_take(&stream->order, shape, &stream->block, MP_EFORMAT, error);
    if (!code && !stream->info.ragged)
        code = check_sums(stream, error);
    return code || !stream->info.routes ? code : check_tokens(stream, error);
}

int mp_trace_next(struct mp_trace_stream *stream, const struct mp_trace_block **block,
                  struct mp_error *error) {
    *block = NULL;
    if (stream->failed)
        return mp_fail(error, stream->failed, "the trace failed before, after %lld blocks",
                       (long long)stream->order.blocks);
    if (stream->ended)
        return MP_OK;
    stream->failed = advance(stream, error);
    if (!stream->failed && !stream->ended)
        *block = &stream->block;
    return stream->failed;
}

bool mp_trace_shape_fits(const struct mp_trace_shape *given, const struct mp_trace_shape *wanted) {
    return given->ranks == wanted->ranks && given->experts == wanted->experts &&
           given->layers == wanted->layers && given->micro_batches == wanted->micro_batches &&
           (given->top_k == 0 || given->top_k == wanted->top_k);
}

const char *mp_trace_shape_describe(const struct mp_trace_shape *shape, char *text, size_t size) {
    char chosen[32] = "an unknown number of";
    if (shape->top_k > 0)
        snprintf(chosen, sizeof chosen, "%d", shape->top_k);
    snprintf(text, size,
             "%d rank%s, %d layer%s, %d expert%s, %d micro-batch%s and %s expert%s per token",
             shape->ranks, shape->ranks == 1 ? "" : "s", shape->layers,
             shape->layers == 1 ? "" : "s", shape->experts, shape->experts == 1 ? "" : "s",
             shape->micro_batches, shape->micro_batches == 1 ? "" : "es", chosen,
             shape->top_k == 1 ? "" : "s");
    return text;
}
