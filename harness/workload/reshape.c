/* Traces of another shape: blocks as they come, or an iteration of them where its micro-batches are
 * added up.  See reshape.h. */
#include "harness/workload/reshape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/order.h"
#include "harness/workload/reshape_load.h"
#include "reference/plan/routes.h"

struct reshaped {
    struct mp_trace_stream *source;
    struct mp_trace_shape from, to;
    double tilt;
    int64_t tokens; /* 0: not scaled */
    bool distinct;  /* check it */
    bool routes;    /* tokens stay what they were: their experts are kept */
    struct mp_scale scale;

    /* A load on its way; a step that does nothing has no load of its own. */
    struct mp_load by_ranks, by_experts;
    const struct mp_load *made; /* of source layer `layer`, steps before micro-batches done */
    int layer;                  /* -1: none */
    int64_t iteration;
    int micro_batch;
    int next; /* layer wanted */

    /* Where micro-batches are added up. */
    struct mp_load *sum; /* [layers of the source], zeroed: not kept */
    bool merges;
    struct mp_arena memory; /* of tables */
};

static void reshaped_destroy(void *self) {
    struct reshaped *reshaped = self;
    if (!reshaped)
        return;
    mp_trace_stream_destroy(reshaped->source);
    mp_load_destroy(&reshaped->by_ranks);
    mp_load_destroy(&reshaped->by_experts);
    for (int layer = 0; reshaped->sum && layer < reshaped->from.layers; layer++)
        mp_load_destroy(&reshaped->sum[layer]);
    mp_arena_release(&reshaped->memory);
    free(reshaped);
}

/* The layer of the source that layer `layer` is. */
static int source_layer(const struct reshaped *reshaped, int layer) {
    return (int)((int64_t)layer * reshaped->from.layers / reshaped->to.layers);
}

/* Neighbouring ranks' tokens together. */
static int fold_routes(const struct mp_load *from, struct mp_load *to, struct mp_error *error) {
    int each = from->ranks / to->ranks;
    mp_load_drop_routes(to);
    struct mp_load merged = {.ranks = from->ranks, .experts = from->experts};
    MP_TRY(mp_load_copy_routes(&merged, from, error));
    to->routes = merged.routes;
    for (int rank = 0; rank <= to->ranks; rank++)
        to->routes->begin[rank] = to->routes->begin[rank * each];
    return MP_OK;
}

static int reshape_load(struct reshaped *reshaped, const struct mp_load *load,
                        struct mp_error *error) {
    if (reshaped->by_ranks.count) {
        MP_TRY(mp_load_reshape_ranks(load, &reshaped->by_ranks, error));
        if (reshaped->routes)
            MP_TRY(fold_routes(load, &reshaped->by_ranks, error));
        load = &reshaped->by_ranks;
    }
    if (reshaped->by_experts.count) {
        MP_TRY(mp_load_reshape_experts(load, reshaped->tilt, &reshaped->by_experts, error));
        load = &reshaped->by_experts;
    }
    reshaped->made = load;
    return MP_OK;
}

/* Says where in the source a step failed. */
static int fail_here(const struct reshaped *reshaped, int code, struct mp_error *error) {
    mp_error_prefix(error, "reshaping iteration %lld, micro-batch %d, layer %d",
                    (long long)reshaped->iteration, reshaped->micro_batch, reshaped->layer);
    return code;
}

/* Reads the next block of the source; `made` holds it if it is of the layer `wanted`. */
static int advance(struct reshaped *reshaped, int wanted, bool *end, struct mp_error *error) {
    const struct mp_trace_block *block;
    int code = mp_trace_next(reshaped->source, &block, error);
    *end = !code && !block;
    reshaped->layer = -1;
    if (code || *end)
        return code;
    reshaped->iteration = block->iteration;
    reshaped->micro_batch = block->micro_batch;
    reshaped->layer = block->layer;
    if (block->layer != wanted)
        return MP_OK;
    code = reshape_load(reshaped, &block->load, error);
    return code ? fail_here(reshaped, code, error) : MP_OK;
}

/* Adds up the micro-batches of the next iteration, layer by layer. */
static int sum_iteration(struct reshaped *reshaped, bool *end, struct mp_error *error) {
    for (int micro_batch = 0; micro_batch < reshaped->from.micro_batches; micro_batch++)
        for (int layer = 0; layer < reshaped->from.layers; layer++) {
            struct mp_load *sum = &reshaped->sum[layer];
            const bool kept = sum->count;
            int code = advance(reshaped, kept ? layer : reshaped->from.layers, end, error);
            if (code || *end) /* the source lets none end inside an iteration */
                return code;
            if (kept && micro_batch == 0)
                mp_load_copy(sum, reshaped->made);
            else if (kept)
                code = mp_load_add(reshaped->made, sum, error);
            if (code)
                return fail_here(reshaped, code, error);
        }
    reshaped->micro_batch = 0;
    return MP_OK;
}

/* Brings the load of the wanted layer into `made`. */
static int find_load(struct reshaped *reshaped, bool *end, struct mp_error *error) {
    const int wanted = source_layer(reshaped, reshaped->next);
    *end = false;
    if (reshaped->merges) {
        if (reshaped->next == 0)
            MP_TRY(sum_iteration(reshaped, end, error));
        reshaped->made = &reshaped->sum[wanted];
        reshaped->layer = wanted;
        return MP_OK;
    }
    bool again = reshaped->next > 0 && reshaped->layer == wanted;
    while (!*end && !again) {
        MP_TRY(advance(reshaped, wanted, end, error));
        again = reshaped->layer == wanted;
    }
    return MP_OK;
}

static int reshaped_next(void *self, struct mp_trace_block *block, bool *end,
                         struct mp_error *error) {
    struct reshaped *reshaped = self;
    int code = find_load(reshaped, end, error);
    if (code || *end)
        return code;
    mp_load_copy(&block->load, reshaped->made);
    block->iteration = reshaped->iteration;
    block->micro_batch = reshaped->micro_batch;
    block->layer = reshaped->next;
    if (reshaped->routes)
        code = mp_load_copy_routes(&block->load, reshaped->made, error);
    if (reshaped->tokens > 0)
        code = mp_load_scale(&block->load, reshaped->tokens, reshaped->to.top_k, &reshaped->scale,
                             error);
    else if (reshaped->distinct)
        code = mp_load_check_distinct(&block->load, reshaped->to.top_k, error);
    reshaped->next = (reshaped->next + 1) % reshaped->to.layers;
    return code ? fail_here(reshaped, code, error) : MP_OK;
}

/* ---- what is asked for ---- */

static bool divides(int have, int wanted) {
    return have % wanted == 0 || wanted % have == 0;
}

static int check_divides(const char *what, int have, int wanted, struct mp_error *error) {
    if (divides(have, wanted))
        return MP_OK;
    int below = wanted, above = wanted;
    while (!divides(have, below)) /* 1 does */
        below--;
    while (!divides(have, above) && above - wanted < have) /* a multiple is among the next */
        above++;
    return mp_fail(error, MP_EINVAL,
                   "the trace has %d %s and %d are wanted: neither number divides the other; the "
                   "nearest that can be made are %d and %d",
                   have, what, wanted, below, above);
}

static int check_wanted(const struct mp_trace_shape *have, const struct mp_reshape *wanted,
                        struct mp_error *error) {
    const int top_k = wanted->top_k > 0 ? wanted->top_k : have->top_k;
    if (wanted->micro_batches > 1 && wanted->micro_batches != have->micro_batches)
        return mp_fail(error, MP_EINVAL,
                       "the trace has %d micro-batches and %d are wanted; 1 (all added up) or %d "
                       "can be made",
                       have->micro_batches, wanted->micro_batches, have->micro_batches);
    if (wanted->top_k > 0 && have->top_k > 0 && wanted->top_k != have->top_k)
        return mp_fail(error, MP_EINVAL,
                       "the trace's tokens take %d experts each, not %d: that can't be reshaped",
                       have->top_k, wanted->top_k);
    if (wanted->tokens > 0 && top_k == 0)
        return mp_fail(error, MP_EINVAL,
                       "%lld tokens are wanted, but the trace does not say how many experts a "
                       "token takes, which has to be given with them",
                       (long long)wanted->tokens);
    if (wanted->tokens > 0 && wanted->tokens > INT32_MAX / top_k)
        return mp_fail(error, MP_EINVAL,
                       "%lld tokens of top %d are more than %d routes of a source",
                       (long long)wanted->tokens, top_k, INT32_MAX);
    return MP_OK;
}

static int find_shape(struct reshaped *reshaped, const struct mp_reshape *wanted,
                      struct mp_error *error) {
    const struct mp_trace_shape *have = &reshaped->from;
    MP_TRY(check_wanted(have, wanted, error));
    reshaped->to = (struct mp_trace_shape){
        .ranks = wanted->ranks ? wanted->ranks : have->ranks,
        .experts = wanted->experts ? wanted->experts : have->experts,
        .layers = wanted->layers ? wanted->layers : have->layers,
        .micro_batches = wanted->micro_batches ? wanted->micro_batches : have->micro_batches,
        .top_k = wanted->top_k ? wanted->top_k : have->top_k};
    reshaped->tilt = wanted->tilt != 0 ? wanted->tilt : 0.5;
    reshaped->tokens = wanted->tokens;
    reshaped->distinct = wanted->top_k > 0;
    reshaped->merges = reshaped->to.micro_batches < have->micro_batches;
    reshaped->layer = -1;
    reshaped->routes = mp_trace_stream_info(reshaped->source)->routes && !reshaped->merges &&
                       reshaped->tokens == 0 && reshaped->to.ranks <= have->ranks &&
                       reshaped->to.experts == have->experts && reshaped->to.layers <= have->layers;
    MP_TRY(check_divides("ranks", have->ranks, reshaped->to.ranks, error));
    MP_TRY(check_divides("experts", have->experts, reshaped->to.experts, error));
    MP_TRY(trace_shape_check(&reshaped->to, error));
    struct mp_trace_shape between = reshaped->to;
    between.experts = have->experts;
    between.top_k = 0;
    return trace_shape_check(&between, error);
}

/* ---- what was done, in words ---- */

static void note_axis(FILE *text, const char *what, int have, int made, const char *less,
                      const char *more) {
    if (have != made)
        fprintf(text, "%s%s %d %s into %d", ftell(text) ? "; " : "", made < have ? less : more,
                have, what, made);
}

static char *write_notes(const struct reshaped *reshaped, const struct mp_reshape *wanted,
                         const char *before) {
    const struct mp_trace_shape *from = &reshaped->from, *to = &reshaped->to;
    char *notes = NULL;
    size_t size;
    FILE *text = open_memstream(&notes, &size);
    if (!text)
        return NULL;
    fputs(before, text);
    fflush(text);
    note_axis(text, "ranks", from->ranks, to->ranks, "folded", "split");
    note_axis(text, "experts", from->experts, to->experts, "folded", "split");
    if (to->experts > from->experts && reshaped->tilt > 0.5)
        fprintf(text, " with a tilt of %g", reshaped->tilt);
    note_axis(text, "layers", from->layers, to->layers, "thinned", "repeated");
    note_axis(text, "micro-batches", from->micro_batches, to->micro_batches, "added up", "");
    if (reshaped->tokens > 0)
        fprintf(text, "%sscaled every source to %lld tokens of top %d", ftell(text) ? "; " : "",
                (long long)reshaped->tokens, to->top_k);
    if (wanted->top_k > 0 && from->top_k == 0)
        fprintf(text, "%stop %d as it was given", ftell(text) ? "; " : "", to->top_k);
    if (mp_trace_stream_info(reshaped->source)->routes && !reshaped->routes)
        fprintf(text, "%sexperts of tokens left out", ftell(text) ? "; " : "");
    if (fclose(text)) {
        free(notes);
        return NULL;
    }
    return notes;
}

static int describe(const struct reshaped *reshaped, const struct mp_reshape *wanted,
                    struct mp_trace_info *info, struct mp_error *error) {
    const struct mp_trace_info *have = mp_trace_stream_info(reshaped->source);
    info->shape = reshaped->to;
    info->routes = reshaped->routes;
    info->ragged = have->ragged || reshaped->to.ranks > reshaped->from.ranks; /* by a route */
    info->of_run = have->of_run;
    info->dense_layers = reshaped->to.layers == reshaped->from.layers ? have->dense_layers : 0;
    info->source = strdup(have->source ? have->source : "");
    info->notes = write_notes(reshaped, wanted, have->notes ? have->notes : "");
    return info->source && info->notes ? MP_OK : mp_no_memory(error);
}

static int create_loads(struct reshaped *reshaped, struct mp_error *error) {
    const struct mp_trace_shape *from = &reshaped->from, *to = &reshaped->to;
    if (to->ranks != from->ranks)
        MP_TRY(mp_load_create(to->ranks, from->experts, &reshaped->by_ranks, error));
    if (to->experts != from->experts)
        MP_TRY(mp_load_create(to->ranks, to->experts, &reshaped->by_experts, error));
    if (reshaped->tokens > 0)
        mp_scale_create(&reshaped->memory, to->experts, &reshaped->scale);
    if (reshaped->merges)
        MP_TAKE(&reshaped->memory, reshaped->sum, from->layers);
    MP_TRY(mp_arena_check(&reshaped->memory, error));
    for (int layer = 0; reshaped->merges && layer < to->layers; layer++) {
        struct mp_load *sum = &reshaped->sum[source_layer(reshaped, layer)];
        if (!sum->count)
            MP_TRY(mp_load_create(to->ranks, to->experts, sum, error));
    }
    return MP_OK;
}

int mp_trace_reshape(struct mp_trace_stream *source, const struct mp_reshape *wanted,
                     struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {reshaped_next, reshaped_destroy};
    struct reshaped *reshaped = calloc(1, sizeof *reshaped);
    if (!reshaped) {
        *stream = NULL;
        mp_trace_stream_destroy(source);
        return mp_no_memory(error);
    }
    reshaped->source = source;
    reshaped->from = mp_trace_stream_info(source)->shape;
    struct mp_trace_info info = {0};
    int code = find_shape(reshaped, wanted, error);
    if (!code)
        code = create_loads(reshaped, error);
    if (!code)
        code = describe(reshaped, wanted, &info, error);
    return mp_trace_stream_create(code, &operations, reshaped, &info, stream, error);
}
