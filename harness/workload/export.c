#include "harness/workload/export.h"

#include <inttypes.h>

#include "reference/base/whole_file.h"

enum { TEAM_LIMIT = 8192, INT32_BYTES = 4 };

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

static int check_matrix(const struct mp_trace_shape *shape, const struct mp_export *chosen,
                        struct mp_error *error) {
    if (chosen->row_bytes < 1)
        return mp_fail(error, MP_EINVAL, "a route of %" PRId64 " bytes; at least 1 is right",
                       chosen->row_bytes);
    if (shape->experts % shape->ranks)
        return mp_fail(error, MP_EINVAL,
                       "%d experts can't lie evenly on %d ranks, which an exchange between ranks "
                       "needs; reshape the trace to a number of ranks that divides them",
                       shape->experts, shape->ranks);
    if (shape->ranks > TEAM_LIMIT)
        return mp_fail(error, MP_ELIMIT, "%d ranks; a pattern file has at most %d", shape->ranks,
                       TEAM_LIMIT);
    return MP_OK;
}

/* One collective: rows send, columns receive. */
static int put_matrix(FILE *file, const struct mp_trace_block *block, uint64_t row_bytes,
                      struct mp_error *error) {
    const struct mp_load *load = &block->load;
    const bool words = row_bytes % INT32_BYTES == 0;
    const uint64_t elements = words ? row_bytes / INT32_BYTES : row_bytes;
    const int owned = load->experts / load->ranks;
    fprintf(file, "[collective]\ntype = ALLTOALLV\nteam_size = %d\ndatatype = %s\n", load->ranks,
            words ? "INT32" : "INT8");
    fprintf(file, "flags = COUNT_32BIT\ncounts = {\n");
    for (int source = 0; source < load->ranks; source++)
        for (int rank = 0; rank < load->ranks; rank++) {
            uint64_t routes = 0;
            for (int i = 0; i < owned; i++)
                routes += mp_load_at(load, source, rank * owned + i);
            if (routes > 0 && elements > UINT32_MAX / routes)
                return mp_fail(error, MP_ELIMIT,
                               "iteration %" PRId64
                               ", micro-batch %d, layer %d: rank %d sends %" PRIu64
                               " routes of %" PRIu64 " bytes to rank %d, more than a count of 32 "
                               "bits holds",
                               block->iteration, block->micro_batch, block->layer, source, routes,
                               row_bytes, rank);
            fprintf(file, "%s%" PRIu64 "%s", rank ? "," : "    ", routes * elements,
                    rank + 1 < load->ranks ? "" : "\n");
        }
    fputs("}\n", file);
    return MP_OK;
}

int mp_export_ptini(struct mp_trace_stream *stream, struct mp_export *chosen, const char *path,
                    struct mp_error *error) {
    const struct mp_trace_shape *shape = &mp_trace_stream_info(stream)->shape;
    struct mp_whole_file output = {.stream = NULL};
    const struct mp_trace_block *block;
    chosen->blocks_done = 0;
    int code = check_choice(shape, chosen, error);
    if (!code)
        code = check_matrix(shape, chosen, error);
    if (code || (code = mp_whole_file_open(&output, path, error)))
        return mp_whole_file_close(&output, code, error);
    fputs("[format]\nversion = 1.0\n", output.stream);
    while (!code && !(code = next_chosen(stream, chosen, &block, error)) && block &&
           !ferror(output.stream))
        code = put_matrix(output.stream, block, (uint64_t)chosen->row_bytes, error);
    return mp_whole_file_close(&output, code, error);
}
