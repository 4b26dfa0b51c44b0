#include "harness/cli/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "reference/base/imbalance.h"

/* Imbalance of every block (systems.md 0.5: fullest expert over mean, 1 for no load).  The median
 * is taken from counts by size, so that a trace of any length needs the same memory: 1,024 bins for
 * every doubling, which is finer than the digits printed. */
enum { BINS_PER_DOUBLING = 1024, BINS = 32 * BINS_PER_DOUBLING };

struct summary {
    int64_t blocks, iterations, first, last, routes;
    double worst;
    int64_t worst_iteration;
    int worst_micro_batch, worst_layer;
    int64_t *bin;   /* [BINS] */
    int64_t *total; /* [experts] */
};

static int summary_init(struct summary *summary, int experts, struct mp_error *error) {
    *summary = (struct summary){.bin = calloc(BINS, sizeof *summary->bin),
                                .total = calloc((size_t)experts, sizeof *summary->total)};
    return summary->bin && summary->total ? MP_OK
                                          : mp_fail(error, MP_ENOMEM, "no memory for a summary");
}

static void summary_free(struct summary *summary) {
    free(summary->bin);
    free(summary->total);
}

static void summary_add(struct summary *summary, const struct mp_trace_block *block) {
    int64_t sum = 0;
    mp_load_expert_totals(&block->load, summary->total);
    for (int expert = 0; expert < block->load.experts; expert++)
        sum += summary->total[expert];
    const double imbalance =
        sum ? mp_imbalance_of(summary->total, block->load.experts).max_over_mean : 1;
    if (summary->blocks++ == 0)
        summary->first = block->iteration;
    summary->iterations += block->layer == 0 && block->micro_batch == 0;
    summary->last = block->iteration;
    summary->routes += sum;
    summary->bin[(int)(log2(imbalance) * BINS_PER_DOUBLING)]++;
    if (imbalance > summary->worst) {
        summary->worst = imbalance;
        summary->worst_iteration = block->iteration;
        summary->worst_micro_batch = block->micro_batch;
        summary->worst_layer = block->layer;
    }
}

static double summary_median(const struct summary *summary) {
    int64_t below = 0;
    int bin = 0;
    while ((below += summary->bin[bin]) < (summary->blocks + 1) / 2)
        bin++;
    return exp2((bin + (bin > 0 ? 0.5 : 0)) / BINS_PER_DOUBLING);
}

static void print_row(FILE *out, const char *name, const char *text) {
    if (!*text)
        return;
    fprintf(out, "%-12s ", name);
    cli_print_clean(out, text, strlen(text));
    fputc('\n', out);
}

static void print_summary(FILE *out, const struct summary *summary,
                          const struct mp_trace_info *info) {
    const struct mp_trace_shape *shape = &info->shape;
    print_row(out, "source", info->source ? info->source : "");
    print_row(out, "notes", info->notes ? info->notes : "");
    fprintf(out, "%-12s ranks %d, experts %d, layers %d, micro-batches %d, ", "shape", shape->ranks,
            shape->experts, shape->layers, shape->micro_batches);
    if (shape->top_k > 0)
        fprintf(out, "experts per token %d\n", shape->top_k);
    else
        fprintf(out, "experts per token not known\n");
    fprintf(out, "%-12s %" PRId64 ", numbered %" PRId64 " .. %" PRId64 "\n", "iterations",
            summary->iterations, summary->first, summary->last);
    fprintf(out, "%-12s %" PRId64 " in %" PRId64 " blocks\n", "routes", summary->routes,
            summary->blocks);
    fprintf(out,
            "%-12s fullest expert / mean of a layer: median %.2f, worst %.2f (iteration %" PRId64,
            "imbalance", summary_median(summary), summary->worst, summary->worst_iteration);
    if (shape->micro_batches > 1)
        fprintf(out, ", micro-batch %d", summary->worst_micro_batch);
    fprintf(out, ", layer %d)\n", summary->worst_layer);
}

static int copy_blocks(struct mp_trace_stream *stream, struct mp_trace_writer *writer,
                       struct summary *summary, struct mp_error *error) {
    const struct mp_trace_block *block;
    int code;
    while (!(code = mp_trace_next(stream, &block, error)) && block) {
        code = mp_trace_write(writer, block, error);
        if (code)
            return code;
        summary_add(summary, block);
    }
    if (!code && summary->blocks == 0)
        code = mp_fail(error, MP_EFORMAT, "there is no load in %s",
                       mp_trace_stream_info(stream)->source);
    return code;
}

int cli_write_trace(struct mp_trace_stream *stream, const char *path, struct mp_error *error) {
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    struct mp_trace_writer *writer = NULL;
    struct summary summary;
    int code = summary_init(&summary, info->shape.experts, error);
    if (!code)
        code = mp_trace_writer_create(path, info, &writer, error);
    if (writer) {
        code = copy_blocks(stream, writer, &summary, error);
        int finished = mp_trace_writer_finish(writer, code == MP_OK, error);
        code = code ? code : finished;
    }
    if (!code)
        print_summary(cli_beside(path), &summary, info);
    summary_free(&summary);
    mp_trace_stream_destroy(stream);
    return code;
}

int cli_whole(const char *flag, const char *text, int64_t least, int64_t most, int64_t *value,
              struct mp_error *error) {
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && *value >= least && *value <= most)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s %.100s: should be a whole number from %" PRId64 " to %" PRId64, flag, text,
                   least, most);
}
