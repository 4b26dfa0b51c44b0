/* Benchmarks: one row each in main.c's table, one subcommand each of the program moeperf-bench.
 *
 * A benchmark puts its figures into a JSON object, and main shows that object, as JSON or as a
 * table: both always say the same.  Names carry the unit ("ns_per_span").  What is shown:
 * - a number, string or boolean: one line, name and value;
 * - an object: its own section below;
 * - an array of objects: a table, with the first row's names as columns;
 * - an array of numbers or strings: one line. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "tests/bench/options.h"

struct mp_bench {
    const char *name;
    const char *help;                /* one line on what it measures, then others, if any */
    const struct mp_option *options; /* "--name VALUE" or "--name=VALUE" */
    /* `result` is an empty object to fill in; nothing is shown if it stays empty, as on ranks other
     * than 0.  Nothing is printed here.  Errors: MP_EINVAL for its options (exit status 2), others
     * (status 1). */
    int (*run)(const struct mp_bench_options *options, json_t *result, struct mp_error *error);
};

extern const struct mp_bench mp_bench_comm;
extern const struct mp_bench mp_bench_compute;
extern const struct mp_bench mp_bench_ingest;
extern const struct mp_bench mp_bench_overlap;
extern const struct mp_bench mp_bench_plan;
extern const struct mp_bench mp_bench_predict;
extern const struct mp_bench mp_bench_record;
extern const struct mp_bench mp_bench_step;

/* ---- what several of them need ---- */

/* Adds what `values` has, and gives it up.  MP_ENOMEM, also for NULL. */
int mp_bench_add(json_t *result, json_t *values, struct mp_error *error);
/* The same with a row of a table. */
int mp_bench_add_row(json_t *table, json_t *row, struct mp_error *error);

struct mp_load;
/* So many routes of every source rank, as skewed as real ones: shares of experts fall as
 * place^-exponent, less a random part up to a fifth; `shift` makes others the hottest. */
void mp_bench_fill_load(struct mp_load *load, int routes, double exponent, int shift,
                        uint64_t *random);

/* A new folder, its name shorter than MP_BENCH_FOLDER; the caller removes it.  MP_EIO. */
enum { MP_BENCH_FOLDER = 128 };
int mp_bench_make_folder(char folder[MP_BENCH_FOLDER], struct mp_error *error);

/* A readable view of a result. */
void mp_bench_print(FILE *out, const char *title, const json_t *result);
