/* Random loads that a trainer can replay, extreme ones among them, and files of them. */
#pragma once

#include "reference/trainer/loads_file.h"
#include "tests/support.h"

enum { RANDOM_LOADS_EXPERTS = 64 };

/* A source's counts: every token on the same experts, or a few experts full and the others by
 * chance, or all by chance. */
static inline void random_row(uint64_t *state, int tokens, int top_k, int experts, uint32_t row[]) {
    int full = test_random_int(state, 0, 2) * test_random_int(state, 0, top_k);
    int64_t left = (int64_t)tokens * top_k;
    memset(row, 0, (size_t)experts * sizeof *row);
    for (int i = 0; i < full && left > 0; i++) {
        int expert = test_random_int(state, 0, experts - 1);
        left -= tokens - (int64_t)row[expert] < left ? tokens - (int64_t)row[expert] : left;
        row[expert] = (uint32_t)tokens;
    }
    while (left > 0) {
        int expert = test_random_int(state, 0, experts - 1);
        int most = tokens - (int)row[expert];
        int more = test_random_int(state, 0, most < left ? most : (int)left);
        row[expert] += (uint32_t)more;
        left -= more;
    }
}

/* Counts [iterations][layers][sources][experts]; free them. */
static inline uint32_t *random_loads(uint64_t *state, const struct mp_loads_shape *shape,
                                     int iterations) {
    int rows = iterations * shape->layers * shape->sources;
    uint32_t *count = calloc((size_t)rows * (size_t)shape->experts, sizeof *count);
    for (int i = 0; i < rows; i++)
        random_row(state, (int)shape->tokens, shape->top_k, shape->experts,
                   count + (size_t)i * (size_t)shape->experts);
    return count;
}

static inline void write_loads(const char *path, const struct mp_loads_shape *shape, int iterations,
                               uint32_t *count, uint32_t digest) {
    struct mp_loads_writer *writer;
    struct mp_error error = {0};
    size_t block = (size_t)shape->sources * (size_t)shape->experts;
    if (mp_loads_writer_create(path, shape, &writer, &error))
        fail_msg("%s", error.text);
    for (int i = 0; i < iterations * shape->layers; i++) {
        const struct mp_load load = {
            .ranks = shape->sources, .experts = shape->experts, .count = count + (size_t)i * block};
        assert_int_equal(mp_loads_write(writer, &load, &error), MP_OK);
    }
    assert_int_equal(mp_loads_writer_finish(writer, true, digest, &error), MP_OK);
}
