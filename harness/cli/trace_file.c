#include "harness/cli/trace_file.h"

#include <inttypes.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "reference/base/characters.h"
#include "results/report/table.h"

enum { NAMES = 13 };

static void print_row(FILE *out, const char *name, const char *text) {
    if (!*text)
        return;
    fprintf(out, "%-*s", NAMES, name);
    table_filled(out, NAMES, NAMES, text);
}

void cli_print_trace(FILE *out, const struct mp_trace_info *info,
                     const struct mp_trace_summary *summary) {
    const struct mp_trace_shape *shape = &info->shape;
    const struct mp_trace_place *worst = &summary->worst_at;
    char text[200];
    print_row(out, "source", info->source ? info->source : "");
    print_row(out, "notes", info->notes ? info->notes : "");
    snprintf(text, sizeof text,
             "ranks %d, experts %d, layers %d, micro-batches %d, experts per token ", shape->ranks,
             shape->experts, shape->layers, shape->micro_batches);
    if (shape->top_k > 0)
        mp_text_add(text, sizeof text, "", "%d", shape->top_k);
    else
        mp_text_add(text, sizeof text, "", "not known");
    print_row(out, "shape", text);
    snprintf(text, sizeof text, "%" PRId64 ", numbered %" PRId64 " .. %" PRId64,
             summary->iterations, summary->first, summary->last);
    print_row(out, "iterations", text);
    snprintf(text, sizeof text, "%" PRId64 " in %" PRId64 " block%s", summary->routes,
             summary->blocks, summary->blocks == 1 ? "" : "s");
    if (summary->empty)
        mp_text_add(text, sizeof text, ", ", "%" PRId64 " of them without any", summary->empty);
    if (info->ragged)
        mp_text_add(text, sizeof text, "; ", "ragged");
    print_row(out, "routes", text);
    snprintf(text, sizeof text, "fullest expert / mean of a layer: ");
    if (summary->empty == summary->blocks) {
        mp_text_add(text, sizeof text, "", "there are no routes");
    } else {
        mp_text_add(text, sizeof text, "", "median %.2f, worst %.2f (iteration %" PRId64,
                    summary->median[MP_EXPERT_MAX_OVER_MEAN], summary->worst, worst->iteration);
        if (shape->micro_batches > 1)
            mp_text_add(text, sizeof text, ", ", "micro-batch %d", worst->micro_batch);
        mp_text_add(text, sizeof text, ", ", "layer %d)", worst->layer);
    }
    print_row(out, "imbalance", text);
}

/* `writer`, `statistics` and `tokens`: NULL for none. */
static int copy_blocks(struct mp_trace_stream *stream, struct mp_trace_writer *writer,
                       struct mp_trace_statistics *statistics, struct mp_token_statistics *tokens,
                       int64_t *blocks, struct mp_error *error) {
    const struct mp_trace_block *block;
    int code;
    for (*blocks = 0; !(code = mp_trace_next(stream, &block, error)) && block; ++*blocks) {
        if (writer)
            MP_TRY(mp_trace_write(writer, block, error));
        if (statistics)
            MP_TRY(mp_trace_statistics_add(statistics, block, error));
        if (tokens)
            MP_TRY(mp_token_statistics_add(tokens, block, error));
    }
    if (!code && *blocks == 0)
        code = mp_fail(error, MP_EFORMAT, "there is no load in %s",
                       mp_trace_stream_info(stream)->source);
    return code;
}

int cli_copy_trace(struct mp_trace_stream *stream, const char *path,
                   struct mp_trace_statistics *statistics, int64_t *blocks,
                   struct mp_error *error) {
    struct mp_trace_writer *writer;
    MP_TRY(mp_trace_writer_create(path, mp_trace_stream_info(stream), &writer, error));
    int code = copy_blocks(stream, writer, statistics, NULL, blocks, error);
    int finished = mp_trace_writer_finish(writer, code == MP_OK, error);
    return code ? code : finished;
}

int cli_measure_trace(struct mp_trace_stream *stream, struct mp_trace_statistics **statistics,
                      struct mp_token_statistics **tokens, struct mp_error *error) {
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    int64_t blocks;
    *statistics = NULL;
    *tokens = NULL;
    MP_TRY(mp_trace_statistics_create(&info->shape, statistics, error));
    if (info->routes)
        MP_TRY(mp_token_statistics_create(&info->shape, tokens, error));
    return copy_blocks(stream, NULL, *statistics, *tokens, &blocks, error);
}

int cli_write_trace(struct mp_trace_stream *stream, const char *path, struct mp_error *error) {
    MP_AUTO(stream) struct mp_trace_stream *source = stream;
    MP_AUTO(statistics) struct mp_trace_statistics *statistics = NULL;
    const struct mp_trace_info *info = mp_trace_stream_info(source);
    struct mp_trace_summary summary;
    int64_t blocks;
    MP_TRY(mp_trace_statistics_create(&info->shape, &statistics, error));
    MP_TRY(cli_copy_trace(source, path, statistics, &blocks, error));
    MP_TRY(mp_trace_statistics_summarise(statistics, -1, &summary, error));
    cli_print_trace(cli_beside(path), info, &summary);
    return MP_OK;
}
