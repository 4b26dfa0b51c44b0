/* Options of a benchmark's command line, from rows (reference/base/option.h). */
#pragma once

#include "reference/base/option.h"

/* Whatever benchmarks may be told; each has rows for those of them that it knows. */
struct mp_bench_options {
    int experts, layers, ranks, most_ranks, threads; /* of the model and of what runs it */
    int sequence, heads, chunk_kib;
    int rounds, repeats, pairs, iterations, spans, batch, device; /* of measuring */
    char system[MP_TEXT_SIZE];
    bool quick; /* of the cuda back end */
    char only[MP_TEXT_SIZE];
    int gpu;
    int64_t seed;
};

/* A row for a field that is an int. */
#define MP_BENCH_NUMBER(name, field, value, least, most, help)                                     \
    {                                                                                              \
        name, MP_OPTION_INT, offsetof(struct mp_bench_options, field), "", value, least, most,     \
            NULL, help                                                                             \
    }

/* "--name VALUE" or "--name=VALUE", over the defaults; a bool's "--name" alone means yes.  argv[0]
 * is the benchmark's name.  MP_EINVAL with a sentence. */
int mp_bench_read_options(const struct mp_option table[], int argc, char **argv,
                          struct mp_bench_options *options, struct mp_error *error);

/* Prints a line per option. */
void mp_bench_print_options(const struct mp_option table[]);
