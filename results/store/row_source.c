
#include <stdbool.h>
#include <stdlib.h>

#include "results/store/internal.h"

struct rows_table {
    sqlite3_vtab base;
    struct mp_store *store;
};

struct rows_cursor {
    sqlite3_vtab_cursor base;
    struct row_source *source;
    int64_t row[ROW_COLUMNS];
    sqlite3_int64 number;
    bool ended;
};

static int rows_connect(sqlite3 *connection, void *store, int argument_count,
                        const char *const *arguments, sqlite3_vtab **table, char **message) {
    (void)argument_count, (void)arguments, (void)message;
    int code = sqlite3_declare_vtab(
        connection,
        "CREATE TABLE x(c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, "
        "c17, c18, c19)");
    if (code != SQLITE_OK)
        return code;
    struct rows_table *made = calloc(1, sizeof *made);
    if (!made)
        return SQLITE_NOMEM;
    made->store = store;
    *table = &made->base;
    return SQLITE_OK;
}

static int rows_disconnect(sqlite3_vtab *table) {
    free(table);
    return SQLITE_OK;
}

static int rows_best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
    (void)table;
    info->estimatedCost = 1e6;
    return SQLITE_OK;
}

static int rows_open(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor) {
    (void)table;
    struct rows_cursor *made = calloc(1, sizeof *made);
    if (!made)
        return SQLITE_NOMEM;
    *cursor = &made->base;
    return SQLITE_OK;
}

static int rows_close(sqlite3_vtab_cursor *cursor) {
    free(cursor);
    return SQLITE_OK;
}

static int rows_next(sqlite3_vtab_cursor *base) {
    struct rows_cursor *cursor = (void *)base;
    struct row_source *source = cursor->source;
    int got = source ? source->next(source->context, cursor->row, source->error) : 0;
    cursor->ended = got != 1;
    cursor->number++;
    return got < 0 ? SQLITE_ABORT : SQLITE_OK;
}

static int rows_filter(sqlite3_vtab_cursor *base, int index_number, const char *index_text,
                       int argument_count, sqlite3_value **arguments) {
    (void)index_number, (void)index_text, (void)argument_count, (void)arguments;
    struct rows_cursor *cursor = (void *)base;
    cursor->source = ((struct rows_table *)base->pVtab)->store->rows;
    cursor->number = 0;
    return rows_next(base);
}

static int rows_at_end(sqlite3_vtab_cursor *cursor) {
    return ((struct rows_cursor *)cursor)->ended;
}

static int rows_column(sqlite3_vtab_cursor *cursor, sqlite3_context *result, int column) {
    int64_t value = ((struct rows_cursor *)cursor)->row[column];
    if (value != ROW_NULL) /* else it is NULL */
        sqlite3_result_int64(result, value);
    return SQLITE_OK;
}

static int rows_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *rowid) {
    *rowid = ((struct rows_cursor *)cursor)->number;
    return SQLITE_OK;
}

/* Without xCreate the table exists by itself and can't be made under another name. */
static const sqlite3_module rows_module = {.xConnect = rows_connect,
                                           .xBestIndex = rows_best_index,
                                           .xDisconnect = rows_disconnect,
                                           .xOpen = rows_open,
                                           .xClose = rows_close,
                                           .xFilter = rows_filter,
                                           .xNext = rows_next,
                                           .xEof = rows_at_end,
                                           .xColumn = rows_column,
                                           .xRowid = rows_rowid};

int row_source_register(struct mp_store *store) {
    return sqlite3_create_module(store->connection, "moeperf_rows", &rows_module, store);
}

int store_insert_rows(struct mp_store *store, const char *sql, const int64_t values[], int count,
                      struct row_source *source, const char *doing, struct mp_error *error) {
    sqlite3_stmt *insert;
    MP_TRY(store_statement(store, sql, &insert, error));
    store_bind_known(insert, 1, values, count);
    source->error = error;
    store->rows = source;
    const int code = store_run(store, insert, doing, error);
    store->rows = NULL;
    return code;
}
