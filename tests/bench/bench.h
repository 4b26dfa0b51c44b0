/* Benchmarks: one row each in main.c's table, one subcommand each of the program moeperf-bench.
 *
 * A benchmark puts its figures into a JSON object, and main shows that object, as JSON or as a
 * table: both always say the same.  Names carry the unit ("ns_per_span").  What is shown:
 * - a number, string or boolean: one line, name and value;
 * - an object: its own section below;
 * - an array of objects: a table, with the first row's names as columns;
 * - an array of numbers or strings: one line. */
#ifndef MOEPERF_TESTS_BENCH_BENCH_H
#define MOEPERF_TESTS_BENCH_BENCH_H

#include <jansson.h>

#include "reference/base/error.h"

struct mp_bench {
    const char *name;
    const char *help; /* one line on what it measures, then its options, lines ending in '\n' */
    /* argv[0] is the benchmark's name; --json and --help have been taken out.  `result` is an empty
     * object to fill in; nothing is shown if it stays empty, as on ranks other than 0.  Nothing is
     * printed here.  Errors: MP_EINVAL for its arguments (exit status 2), others (status 1). */
    int (*run)(int argc, char **argv, json_t *result, struct mp_error *error);
};

extern const struct mp_bench mp_bench_comm;
extern const struct mp_bench mp_bench_compute;
extern const struct mp_bench mp_bench_ingest;
extern const struct mp_bench mp_bench_overlap;
extern const struct mp_bench mp_bench_plan;
extern const struct mp_bench mp_bench_predict;
extern const struct mp_bench mp_bench_record;
extern const struct mp_bench mp_bench_step;

/* Options that are whole numbers, for run(): "--name VALUE" or "--name=VALUE".  The last row has
 * name NULL; `value` holds the default before. */
struct mp_bench_option {
    const char *name; /* without the dashes */
    long *value;
    long least, most;
};

/* Errors: MP_EINVAL for an unknown option, a missing value, one that is no number or out of range;
 * the sentence names the option and the range. */
int mp_bench_options(int argc, char **argv, const struct mp_bench_option options[],
                     struct mp_error *error);

/* Takes an option that is no number out of the arguments, before the above: "--name TEXT".  `value`
 * holds the default before and is borrowed from argv after.  MP_EINVAL: a missing value. */
int mp_bench_take_text(int *argc, char **argv, const char *name, const char **value,
                       struct mp_error *error);

/* The middle value (the mean of both middle ones for an even count); sorts `values`.  count > 0. */
double mp_bench_median(double values[], int count);

#endif
