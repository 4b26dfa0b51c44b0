/* Generations of loads whose options are words. */
#pragma once

#include <zlib.h>

#include "harness/workload/generate.h"
#include "tests/errors.h"

struct made {
    struct mp_generate_options options;
    struct mp_generation *generation;
    struct mp_load load; /* load_at's */
    int64_t *total;      /* of its experts */
};

/* "NAME=VALUE ..." */
static inline void set_words(const struct mp_generator *kind, struct mp_generate_options *options,
                             const char *words) {
    char text[512], *rest = text;
    snprintf(text, sizeof text, "%s", words);
    assert_works(mp_generate_set_defaults(kind, options, &error));
    for (char *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value = 0;
        assert_works(mp_generate_set(kind, options, word, value + 1, NULL, &error));
    }
}

__attribute__((format(printf, 2, 3))) static inline struct made make(const char *name,
                                                                     const char *format, ...) {
    const struct mp_generator *kind = mp_generator_find(name, NULL);
    struct made made = {0};
    char words[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    assert_non_null(kind);
    set_words(kind, &made.options, words);
    assert_works(mp_generation_create(kind, &made.options, &made.generation, &error));
    assert_works(mp_load_create(made.options.ranks, made.options.experts, &made.load, &error));
    made.total = calloc((size_t)made.options.experts, sizeof *made.total);
    return made;
}

static inline void load_at(struct made *made, int64_t iteration, int micro_batch, int layer) {
    assert_works(
        mp_generation_load(made->generation, iteration, micro_batch, layer, &made->load, &error));
    mp_load_expert_totals(&made->load, made->total);
}

static inline void unmake(struct made *made) {
    mp_generation_destroy(made->generation);
    mp_load_destroy(&made->load);
    free(made->total);
}

TEST_END(made, struct made, unmake(it))

static inline double most_over_mean(const struct made *made) {
    int64_t most = 0;
    for (int e = 0; e < made->options.experts; e++)
        most = made->total[e] > most ? made->total[e] : most;
    return (double)most * made->options.experts / (double)mp_load_total(&made->load);
}

static inline int64_t tokens_of(const struct made *made, int rank) {
    int64_t routes = 0;
    for (int e = 0; e < made->options.experts; e++)
        routes += mp_load_at(&made->load, rank, e);
    assert_int_equal(routes % made->options.top_k, 0);
    return routes / made->options.top_k;
}

/* Rows are whole tokens, and no expert gets more routes of a rank than it has tokens. */
static inline void assert_feasible(const struct made *made, bool ragged) {
    int64_t all = 0;
    for (int rank = 0; rank < made->options.ranks; rank++) {
        int64_t tokens = tokens_of(made, rank);
        all += tokens;
        if (!ragged)
            assert_int_equal(tokens, made->options.tokens);
        for (int e = 0; e < made->options.experts; e++)
            assert_true(mp_load_at(&made->load, rank, e) <= tokens);
    }
    assert_int_equal(all, (int64_t)made->options.tokens * made->options.ranks);
}

static inline void assert_same_load(const struct made *one, const struct made *other) {
    assert_memory_equal(one->load.count, other->load.count,
                        sizeof *one->load.count * (size_t)one->load.ranks *
                            (size_t)one->load.experts);
}

/* Goes on with the CRC-32 `sum` by a load's counts, the same on every machine. */
static inline uLong add_counts(uLong sum, const struct mp_load *load) {
    for (int i = 0; i < load->ranks * load->experts; i++)
        for (int bits = 0; bits < 32; bits += 8)
            sum = crc32(sum, &(unsigned char){(unsigned char)(load->count[i] >> bits)}, 1);
    return sum;
}
