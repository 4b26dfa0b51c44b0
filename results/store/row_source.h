/* Rows of integers from C code as the virtual table moeperf_rows(c0, ..., c19).
 *
 * `INSERT INTO span SELECT ... FROM moeperf_rows` runs the whole loop inside one statement: half
 * the time per row of binding and stepping a prepared INSERT (measured: 0.6 us against 1.2 us with
 * 15 columns), and ingest spends nearly all of its time there. */
#ifndef MOEPERF_RESULTS_STORE_ROW_SOURCE_H
#define MOEPERF_RESULTS_STORE_ROW_SOURCE_H

#include <stdint.h>

#include "reference/base/error.h"

struct mp_store;

enum { ROW_COLUMNS = 20 };
#define ROW_NULL INT64_MIN

struct row_source {
    /* Fills the columns that the statement selects.  1: a row, 0: no more, negative: failed, with
     * `error` filled. */
    int (*next)(void *context, int64_t row[ROW_COLUMNS], struct mp_error *error);
    void *context;
    struct mp_error *error;
};

/* Makes moeperf_rows known to the store's connection. Returns SQLite's code. */
int row_source_register(struct mp_store *store);

#endif
