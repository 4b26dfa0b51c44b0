/* What the files of this folder share. */
#ifndef MOEPERF_RESULTS_STORE_INTERNAL_H
#define MOEPERF_RESULTS_STORE_INTERNAL_H

#include <sqlite3.h>
#include <stdint.h>

#include "reference/base/error.h"
#include "results/store/store.h"

/* Rows of integers from C code as the virtual table moeperf_rows(c0, ..., c19).
 *
 * `INSERT INTO span SELECT ... FROM moeperf_rows` runs the whole loop inside one statement: half
 * the time per row of binding and stepping a prepared INSERT (measured: 0.6 us against 1.2 us with
 * 15 columns), and ingest spends nearly all of its time there. */
enum { ROW_COLUMNS = 20 };
#define ROW_NULL INT64_MIN

/* Of what recordings have as 0 where there is none. */
static inline int64_t store_or_null(int64_t value) {
    return value ? value : ROW_NULL;
}

struct row_source {
    /* Fills the columns that the statement selects.  1: a row, 0: no more, negative: failed, with
     * `error` filled. */
    int (*next)(void *context, int64_t row[ROW_COLUMNS], struct mp_error *error);
    void *context;
    struct mp_error *error;
};

/* Makes moeperf_rows known to the store's connection. Returns SQLite's code. */
int row_source_register(struct mp_store *store);

struct mp_store {
    sqlite3 *connection;
    char *path;
    bool (*waits)(void *context, double seconds); /* NULL: as long as usual */
    void *waits_context;
    bool leaves_log;         /* it reads, and there was no log beside the file before */
    struct row_source *rows; /* what the virtual table moeperf_rows yields now; NULL: nothing */
    struct store_statement {
        const char *sql;
        sqlite3_stmt *prepared;
    } * statement; /* [statements] that were asked for so far, until the store is closed */
    int statements;
};

extern const char store_schema_sql[];   /* schema.sql: version 1, and all views */
extern const char store_tables_2_sql[]; /* tables_2.sql: what version 2 adds */
extern const char store_tables_3_sql[]; /* tables_3.sql: what version 3 changes */
extern const char store_tables_4_sql[]; /* tables_4.sql: what version 4 adds */

/* Runs statements without results.  `doing` goes into the message. */
int store_execute(struct mp_store *store, const char *sql, const char *doing,
                  struct mp_error *error);
/* mp_store_numbers of a query whose ?9 is a text. */
int store_numbers_of(struct mp_store *store, const char *sql, const char *text,
                     const int64_t values[], int count, int64_t numbers[], int columns,
                     struct mp_error *error);
/* MP_ENOTFOUND for a run that is not there. */
int store_require_run(struct mp_store *store, int64_t run_id, struct mp_error *error);
/* Stores where the run's times count from. */
int store_set_origin(struct mp_store *store, int64_t run_id, int64_t origin_ns,
                     struct mp_error *error);
/* The statement of a text that stays where it is: prepared when it is first asked for, the store's
 * then. */
int store_statement(struct mp_store *store, const char *sql, sqlite3_stmt **statement,
                    struct mp_error *error);
/* Runs a statement that gives no rows, and readies it for the next values. */
int store_run(struct mp_store *store, sqlite3_stmt *statement, const char *doing,
              struct mp_error *error);

/* Values of the columns from `first` on; NAN, a NULL text and, of known ones, ROW_NULL are NULL.
 * Texts live until the statement has run. */
void store_bind_known(sqlite3_stmt *statement, int first, const int64_t values[], int count);
void store_bind_integers(sqlite3_stmt *statement, int first, const int64_t values[], int count);
void store_bind_doubles(sqlite3_stmt *statement, int first, const double values[], int count);
void store_bind_texts(sqlite3_stmt *statement, int first, const char *const texts[], int count);
#define STORE_COUNT(type, ...) (int)(sizeof(type[]){__VA_ARGS__} / sizeof(type))
#define STORE_INTEGERS(statement, first, ...)                                                      \
    store_bind_integers(statement, first, (const int64_t[]){__VA_ARGS__},                          \
                        STORE_COUNT(int64_t, __VA_ARGS__))
#define STORE_DOUBLES(statement, first, ...)                                                       \
    store_bind_doubles(statement, first, (const double[]){__VA_ARGS__},                            \
                       STORE_COUNT(double, __VA_ARGS__))
#define STORE_TEXTS(statement, first, ...)                                                         \
    store_bind_texts(statement, first, (const char *const[]){__VA_ARGS__},                         \
                     STORE_COUNT(const char *, __VA_ARGS__))

/* Executes `sql`, an INSERT ... SELECT from moeperf_rows, on the rows of `source`. */
int store_insert_rows(struct mp_store *store, const char *sql, struct row_source *source,
                      const char *doing, struct mp_error *error);
/* The same with a statement (store_statement), which is readied for the next values and rows. */
int store_run_rows(struct mp_store *store, sqlite3_stmt *statement, struct row_source *source,
                   const char *doing, struct mp_error *error);

#endif
