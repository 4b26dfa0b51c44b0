/* Streams of blocks that tests open, make and read. */
#pragma once

#include "harness/workload/formats.h"
#include "tests/errors.h"

TEST_END(stream, struct mp_trace_stream *, mp_trace_stream_destroy(*it))
TEST_END(block, struct mp_trace_block, mp_load_destroy(&it->load))

/* Without routes, of micro-batch and layer 0. */
static inline struct mp_trace_block block_of(int ranks, int experts, int64_t iteration) {
    struct mp_trace_block block = {.iteration = iteration};
    assert_works(mp_load_create(ranks, experts, &block.load, &error));
    return block;
}

/* experts 0: the file says how many there are. */
static inline struct mp_trace_stream *open_good(const char *kind, const char *path, int experts) {
    struct mp_trace_stream *stream = NULL;
    assert_works(mp_format_open(kind, path, experts, &stream, &error));
    return stream;
}

/* NULL: the end. */
static inline const struct mp_trace_block *next_good(struct mp_trace_stream *stream) {
    const struct mp_trace_block *block;
    assert_works(mp_trace_next(stream, &block, &error));
    return block;
}

/* Opens a file and reads it up to its end or the first error. */
static inline int read_bad(const char *kind, const char *path, int experts,
                           struct mp_error *error) {
    AUTO(stream) struct mp_trace_stream *stream = NULL;
    const struct mp_trace_block *block = NULL;
    int code = mp_format_open(kind, path, experts, &stream, error);
    do
        code = code ? code : mp_trace_next(stream, &block, error);
    while (!code && block);
    return code;
}

/* For a source that the test ends itself. */
static inline void keep_source(UNUSED void *self) {}

/* What the operations give, whose rows may have any sums where `ragged`. */
static inline struct mp_trace_stream *stream_of(struct mp_trace_shape shape, bool ragged,
                                                const struct mp_trace_stream_operations *operations,
                                                void *self) {
    struct mp_trace_info info = {
        .shape = shape, .source = strdup("a test"), .notes = strdup(""), .ragged = ragged};
    struct mp_trace_stream *stream;
    assert_works(mp_trace_stream_create(MP_OK, operations, self, &info, &stream, &error));
    return stream;
}

static inline void assert_counts(const struct mp_load *load, const uint32_t count[]) {
    assert_memory_equal(load->count, count,
                        (size_t)load->ranks * (size_t)load->experts * sizeof *count);
}
