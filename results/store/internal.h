/* What the files of this folder share. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profiler/record/name_table.h"
#include "profiler/record/spool.h"
#include "reference/base/error.h"
#include "results/store/sqlite.h"
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
/* Ends a transaction: commits it, or after an error (`code`, or one of committing) takes it back.
 */
int store_end(struct mp_store *store, int code, const char *doing, struct mp_error *error);
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

/* Values of the columns from `first` on; ROW_NULL is NULL. */
void store_bind_known(sqlite3_stmt *statement, int first, const int64_t values[], int count);

/* What a column gets; V makes one of any number or text.  NAN and a NULL text are NULL. */
struct store_value {
    enum { STORE_INTEGER, STORE_NUMBER, STORE_TEXT } is;
    int64_t integer;
    double number;
    const char *text;
};
static inline struct store_value store_integer(int64_t value) {
    return (struct store_value){.is = STORE_INTEGER, .integer = value};
}
static inline struct store_value store_number(double value) {
    return (struct store_value){.is = STORE_NUMBER, .number = value};
}
static inline struct store_value store_text(const char *value) {
    return (struct store_value){.is = STORE_TEXT, .text = value};
}
static inline struct store_value store_if(bool known, int64_t value) {
    return known ? store_integer(value) : store_text(NULL);
}
#define V(value)                                                                                   \
    _Generic((value), double                                                                       \
             : store_number, char *                                                                \
             : store_text, const char *                                                            \
             : store_text, default                                                                 \
             : store_integer)(value)

/* Runs a statement (store_statement) that gives no rows, with values from its first column on. */
#define STORE_PUT(store, doing, error, sql, ...)                                                   \
    store_put(store, doing, error, sql, (const struct store_value[]){__VA_ARGS__},                 \
              (int)(sizeof(struct store_value[]){__VA_ARGS__} / sizeof(struct store_value)))
int store_put(struct mp_store *store, const char *doing, struct mp_error *error, const char *sql,
              const struct store_value values[], int count);

/* Executes `sql` (store_statement), an INSERT ... SELECT from moeperf_rows, with `values` as ?1 and
 * so on, on the rows of `source`. */
int store_insert_rows(struct mp_store *store, const char *sql, const int64_t values[], int count,
                      struct row_source *source, const char *doing, struct mp_error *error);

/* Ids of names in StringIds, with a memory of those already asked for, and numbers by name. */

/* Starts with its store alone. */
struct strings {
    struct mp_store *store;
    struct name_table names;
    int64_t *ids; /* by number - 1 */
};

void strings_free(struct strings *strings); /* accepts a zeroed one */

/* The id of a name, added when it is new.  The memory is for a few names that come again; where
 * each comes once, strings_store does without. */
int strings_id(struct strings *strings, const char *name, int64_t *id, struct mp_error *error);
int strings_store(const struct strings *strings, const char *name, int64_t *id,
                  struct mp_error *error);

/* Stores a rank's number (table number). */
int strings_number(struct strings *strings, int64_t run_id, int rank,
                   const struct mp_spool_record *number, struct mp_error *error);
