/* Options of a benchmark's command line, from rows (reference/base/option.h). */
#ifndef MOEPERF_TESTS_BENCH_OPTIONS_H
#define MOEPERF_TESTS_BENCH_OPTIONS_H

#include "reference/base/option.h"

/* A row for a field that is an int. */
#define MP_BENCH_NUMBER(options, name, field, value, least, most, help)                            \
    { name, MP_OPTION_INT, offsetof(options, field), "", value, least, most, NULL, help }

/* "--name VALUE" or "--name=VALUE", over the defaults; a bool's "--name" alone means yes.  argv[0]
 * is the benchmark's name.  MP_EINVAL with a sentence. */
int mp_bench_read_options(const struct mp_option table[], int argc, char **argv, void *options,
                          struct mp_error *error);

/* Prints a line per option. */
void mp_bench_print_options(const struct mp_option table[]);

#endif
