#include "harness/workload/export.h"

#include <inttypes.h>

#include "reference/base/whole_file.h"

static int check_choice(const struct mp_trace_shape *shape, const struct mp_export *chosen,
                        struct mp_error *error) {
    if (chosen->layer < shape->layers)
        return MP_OK;
    return mp_fail(error, MP_EINVAL, "there is no layer %d: the trace has 0 to %d", chosen->layer,
                   shape->layers - 1);
}

/* The next block that was chosen; NULL at the end. */
static int next_chosen(struct mp_trace_stream *stream, struct mp_export *chosen,
                       const struct mp_trace_block **block, struct mp_error *error) {
    int code;
    do
        code = mp_trace_next(stream, block, error);
    while (!code && *block &&
           ((chosen->iteration >= 0 && (*block)->iteration != chosen->iteration) ||
            (chosen->layer >= 0 && (*block)->layer != chosen->layer)));
    if (!code && !*block && chosen->blocks_done == 0)
        code = mp_fail(error, MP_ENOTFOUND, "the trace has no block of iteration %" PRId64,
                       chosen->iteration);
    chosen->blocks_done += !code && *block;
    return code;
}

static void put_csv(FILE *file, const struct mp_trace_block *block, int layer) {
    for (int rank = 0; rank < block->load.ranks; rank++)
        for (int expert = 0; expert < block->load.experts; expert++)
            fprintf(file, "%" PRId64 ",%d,%d,%d,%d,%" PRIu32 "\n", block->iteration,
                    block->micro_batch, layer, rank, expert,
                    mp_load_at(&block->load, rank, expert));
}

int mp_export_csv(struct mp_trace_stream *stream, struct mp_export *chosen, const char *path,
                  struct mp_error *error) {
    struct mp_whole_file output = {.stream = NULL};
    const struct mp_trace_block *block;
    chosen->blocks_done = 0;
    int code = check_choice(&mp_trace_stream_info(stream)->shape, chosen, error);
    if (code || (code = mp_whole_file_open(&output, path, error)))
        return mp_whole_file_close(&output, code, error);
    fputs("iteration,micro_batch,layer,rank,expert,count\n", output.stream);
    while (!(code = next_chosen(stream, chosen, &block, error)) && block && !ferror(output.stream))
        put_csv(output.stream, block, chosen->layer >= 0 ? 0 : block->layer);
    return mp_whole_file_close(&output, code, error);
}
