/* What moeperf export writes of a database, beside loads. */
#ifndef MOEPERF_HARNESS_CLI_EXPORT_RESULTS_H
#define MOEPERF_HARNESS_CLI_EXPORT_RESULTS_H

#include <stdint.h>

#include "reference/base/error.h"

struct cli_results_export {
    const char *kind;       /* "perfetto", "json", "csv" */
    const char *view;       /* of csv */
    const char *iterations; /* "A..B" or "A"; NULL: all */
    const char *database;
    int64_t run_id; /* 0: not given */
};

/* Writes the file and says what is in it. */
int cli_write_results(const struct cli_results_export *wanted, const char *path,
                      struct mp_error *error);

#endif
