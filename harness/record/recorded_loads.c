#include "harness/record/recorded_loads.h"

#include <stdlib.h>
#include <string.h>

#include "harness/workload/formats.h"
#include "reference/base/arena.h"

enum { BYTES_LIMIT_GIB = 4 };

void mp_record_loads_destroy(struct mp_record_loads *loads) {
    free(loads->iteration);
    free(loads->routes);
    *loads = (struct mp_record_loads){0};
}

static size_t place_of(const struct mp_record_loads *loads, int iteration, int layer, int rank) {
    return (((size_t)iteration * (size_t)loads->layers + (size_t)layer) * (size_t)loads->ranks +
            (size_t)rank) *
           (size_t)loads->experts;
}

const uint32_t *mp_record_loads_of(const struct mp_record_loads *loads, int iteration, int layer,
                                   int rank) {
    return loads->routes + place_of(loads, iteration, layer, rank);
}

static int open_source(const struct mp_record_loads_source *source, struct mp_trace_stream **stream,
                       struct mp_error *error) {
    const char *kind = source->kind ? source->kind : mp_format_guess(source->path);
    if (!kind)
        return mp_fail(error, MP_EINVAL,
                       "the name of %s does not say what kind of loads it has; --loads-as KIND "
                       "does, moeperf import --help lists the kinds",
                       source->path);
    MP_TRY(mp_format_open(kind, source->path, source->experts, stream, error));
    mp_trace_allow_ragged(*stream); /* whatever was counted */
    return MP_OK;
}

/* The index of an iteration, at the end of those that there are. */
static int add_iteration(struct mp_record_loads *loads, int64_t iteration, int *index,
                         struct mp_error *error) {
    const size_t each = place_of(loads, 1, 0, 0);
    const size_t count = (size_t)loads->iterations + 1;
    *index = loads->iterations;
    if (count > ((size_t)BYTES_LIMIT_GIB << 30) / sizeof *loads->routes / each)
        return mp_fail(error, MP_ELIMIT,
                       "loads of %zu iterations, %d layers, %d ranks and %d experts are more than "
                       "%d GiB",
                       count, loads->layers, loads->ranks, loads->experts, BYTES_LIMIT_GIB);
    if (!MP_ROOM(loads->iteration, loads->iterations) ||
        !mp_list_room(&loads->routes, (size_t)loads->iterations, each * sizeof *loads->routes))
        return mp_no_memory(error);
    memset(loads->routes + place_of(loads, *index, 0, 0), 0, each * sizeof *loads->routes);
    loads->iteration[loads->iterations++] = iteration;
    return MP_OK;
}

static int add_block(struct mp_record_loads *loads, const struct mp_trace_block *block,
                     struct mp_error *error) {
    int index = loads->iterations - 1;
    if (index < 0 || loads->iteration[index] != block->iteration) {
        MP_TRY(add_iteration(loads, block->iteration, &index, error));
    }
    uint32_t *to = loads->routes + place_of(loads, index, block->layer, 0);
    const size_t count = (size_t)loads->ranks * (size_t)loads->experts;
    for (size_t i = 0; i < count; i++)
        to[i] += block->load.count[i];
    return MP_OK;
}

static int check_ranks(const struct mp_record_loads_source *source,
                       const struct mp_trace_shape *shape, int ranks, struct mp_error *error) {
    if (shape->ranks == ranks)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "%s: has the loads of %d rank%s%s, and %d recorded: one row is needed for each "
                   "rank",
                   source->path, shape->ranks, shape->ranks == 1 ? "" : "s",
                   shape->ranks == 1 ? " or of all together" : "", ranks);
}

int mp_record_loads_read(const struct mp_record_loads_source *source, int ranks, int64_t first,
                         int64_t last, FILE *stream, struct mp_record_loads *loads,
                         struct mp_error *error) {
    MP_AUTO(stream) struct mp_trace_stream *trace = NULL;
    const struct mp_trace_block *block = NULL;
    struct mp_error damaged = {0};
    *loads = (struct mp_record_loads){0};
    MP_TRY(open_source(source, &trace, error));
    const struct mp_trace_shape *shape = &mp_trace_stream_info(trace)->shape;
    loads->ranks = shape->ranks;
    loads->experts = shape->experts;
    loads->layers = shape->layers;
    MP_TRY(check_ranks(source, shape, ranks, error));
    int got = MP_OK, held = 0, blocks = shape->layers * shape->micro_batches;
    while (!(got = mp_trace_next(trace, &block, &damaged)) && block) {
        if (block->iteration < first || block->iteration > last)
            continue;
        MP_TRY(add_block(loads, block, error));
        held = (held + 1) % blocks;
    }
    if (held > 0) /* cut inside an iteration */
        loads->iterations--;
    if (got)
        fprintf(stream, "loads: %s; what is before it is taken\n", damaged.text);
    return loads->iterations > 0
               ? MP_OK
               : mp_fail(error, MP_EINVAL,
                         "%s: has no loads of the recorded iterations, %lld to %lld", source->path,
                         (long long)first, (long long)last);
}
