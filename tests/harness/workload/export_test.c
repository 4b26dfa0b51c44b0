/* Traces written for others are read back as what they were. */
#include "harness/workload/export.h"

#include "tests/harness/folder.h"
#include "tests/harness/workload/streams.h"

enum { ITERATIONS = 3, MOST_BLOCKS = ITERATIONS * 3 * 4, MOST_CELLS = 6 * 24 };

/* A trace in memory. */
struct loads {
    struct mp_trace_shape shape;
    int next;
    uint32_t count[MOST_BLOCKS][MOST_CELLS];
};

static int block_count(const struct mp_trace_shape *shape) {
    return ITERATIONS * shape->micro_batches * shape->layers;
}

static int loads_next(void *self, struct mp_trace_block *block, bool *end,
                      UNUSED struct mp_error *error) {
    struct loads *loads = self;
    const struct mp_trace_shape *shape = &loads->shape;
    *end = loads->next == block_count(shape);
    if (*end)
        return MP_OK;
    block->iteration = 4 + 2 * (loads->next / shape->layers / shape->micro_batches);
    block->micro_batch = loads->next / shape->layers % shape->micro_batches;
    block->layer = loads->next % shape->layers;
    memcpy(block->load.count, loads->count[loads->next++],
           (size_t)shape->ranks * (size_t)shape->experts * sizeof *block->load.count);
    return MP_OK;
}

static struct mp_trace_stream *open_loads(struct loads *loads) {
    static const struct mp_trace_stream_operations operations = {loads_next, keep_source};
    loads->next = 0;
    return stream_of(loads->shape, true, &operations, loads);
}

static void make_loads(uint64_t *random, struct loads *loads) {
    const int ranks = test_random_int(random, 1, 6);
    loads->shape = (struct mp_trace_shape){.ranks = ranks,
                                           .experts = ranks * test_random_int(random, 1, 4),
                                           .layers = test_random_int(random, 1, 4),
                                           .micro_batches = test_random_int(random, 1, 3)};
    for (int block = 0; block < MOST_BLOCKS; block++)
        for (int cell = 0; cell < MOST_CELLS; cell++)
            loads->count[block][cell] = (uint32_t)test_random_int(random, 0, 100000);
}

static int64_t export_good(struct loads *loads, struct mp_export chosen, const char *path) {
    AUTO(stream) struct mp_trace_stream *stream = open_loads(loads);
    assert_works(mp_export_csv(stream, &chosen, path, &error));
    return chosen.blocks_done;
}

static struct mp_trace_stream *open_exported(void) {
    struct mp_trace_stream *stream = open_good("csv", "t.csv", 0);
    mp_trace_allow_ragged(stream);
    return stream;
}

TEST_RANDOM_TURNS(csv_comes_back_as_it_was, 30, round) {
    static struct loads loads;
    make_loads(random, &loads);
    const struct mp_trace_shape *shape = &loads.shape;
    assert_int_equal(export_good(&loads, (struct mp_export){.iteration = -1, .layer = -1}, "t.csv"),
                     block_count(shape));
    AUTO(stream) struct mp_trace_stream *stream = open_exported();
    assert_memory_equal(&mp_trace_stream_info(stream)->shape, shape, sizeof *shape);
    for (int i = 0; i < block_count(shape); i++) {
        const struct mp_trace_block *block = next_good(stream);
        assert_int_equal(block->iteration, 4 + 2 * (i / shape->layers / shape->micro_batches));
        assert_int_equal(block->micro_batch, i / shape->layers % shape->micro_batches);
        assert_int_equal(block->layer, i % shape->layers);
        assert_counts(&block->load, loads.count[i]);
    }
    assert_null(next_good(stream));
}

TEST_RANDOM_TURNS(one_iteration_and_layer_can_be_chosen, 30, round) {
    static struct loads loads;
    make_loads(random, &loads);
    const struct mp_trace_shape *shape = &loads.shape;
    int layer = test_random_int(random, 0, shape->layers - 1);
    assert_int_equal(
        export_good(&loads, (struct mp_export){.iteration = 6, .layer = layer}, "t.csv"),
        shape->micro_batches);
    AUTO(stream) struct mp_trace_stream *stream = open_exported();
    for (int batch = 0; batch < shape->micro_batches; batch++) {
        const struct mp_trace_block *block = next_good(stream);
        assert_int_equal(block->iteration, 6);
        assert_counts(&block->load,
                      loads.count[(shape->micro_batches + batch) * shape->layers + layer]);
    }
    assert_null(next_good(stream));
}

/* Of a trace of 3 layers. */
static const struct {
    const char *name, *path, *words;
    int64_t iteration;
    int layer, code;
} refusals[] = {
    {"layer", "x", "there is no layer 3: the trace has 0 to 2", -1, 3, MP_EINVAL},
    {"iteration", "x", "no block of iteration 5", 5, -1, MP_ENOTFOUND},
    {"folder", "/", "/ is there and no file", -1, -1, MP_EINVAL},
    {"no such folder", "gone/x", "can't write gone/x: No such file", -1, -1, MP_EIO},
    {"full disk", "/dev/full", "can't write /dev/full: No space left", -1, -1, MP_ENOSPACE},
};

TEST_EACH(wish_is_refused, refusals, refusal) {
    static struct loads loads;
    uint64_t random = 7;
    make_loads(&random, &loads);
    loads.shape = (struct mp_trace_shape){6, 24, 3, 1, 0};
    AUTO(stream) struct mp_trace_stream *stream = open_loads(&loads);
    struct mp_export chosen = {.iteration = refusal->iteration, .layer = refusal->layer};
    assert_fails(mp_export_csv(stream, &chosen, refusal->path, &error), refusal->code,
                 refusal->words);
    assert_int_equal(access("x", F_OK), -1);
    assert_int_equal(count_entries(".", ".partial"), 0);
}

TEST_GROUP(enter_folder, leave_folder);
