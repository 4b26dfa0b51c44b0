#include "results/export/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/characters.h"

/* ---- the file ---- */

int output_open(struct output *output, struct mp_store *store, const char *path,
                struct mp_error *error) {
    *output = (struct output){.store = store};
    MP_TRY(mp_whole_file_open(&output->whole, path, error));
    output->file = output->whole.stream;
    return sqlite3_exec(mp_store_connection(store), "BEGIN", NULL, NULL, NULL) == SQLITE_OK
               ? MP_OK
               : mp_store_fail(store, "cannot read the results", error);
}

int output_close(struct output *output, struct mp_error *error) {
    return mp_whole_file_close(&output->whole, MP_OK, error);
}

void output_end(struct output *output) {
    if (output->store && !sqlite3_get_autocommit(mp_store_connection(output->store)))
        sqlite3_exec(mp_store_connection(output->store), "ROLLBACK", NULL, NULL, NULL);
    mp_end_whole_file(&output->whole);
}

/* ---- queries ---- */

int output_query(struct mp_store *store, const char *sql,
                 const struct mp_results_selection *selection, sqlite3_stmt **statement,
                 struct mp_error *error) {
    const int64_t values[] = {selection->run_id,
                              selection->some_iterations ? selection->first : INT64_MIN,
                              selection->some_iterations ? selection->last : INT64_MAX};
    return mp_store_query(store, sql, values, 3, statement, error);
}

int output_check_iterations(const struct mp_results_selection *selection, struct mp_error *error) {
    if (selection->some_iterations && selection->last < selection->first)
        return mp_fail(error, MP_EINVAL, "iterations %lld..%lld: the last is before the first",
                       (long long)selection->first, (long long)selection->last);
    return MP_OK;
}

int output_choose(struct mp_store *store, const struct mp_results_selection *wanted,
                  struct mp_results_selection *selection, struct mp_error *error) {
    *selection = *wanted;
    MP_TRY(output_check_iterations(wanted, error));
    return mp_store_choose_run(store, &selection->run_id, error);
}

/* ---- JSON ---- */

json_t *output_text(const char *text, size_t length) {
    if (!text)
        return json_null();
    json_t *string = json_stringn(text, length);
    char *clean = string ? NULL : malloc(3 * length + 1);
    if (!clean)
        return string;
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        uint32_t character;
        size_t taken = (size_t)mp_character_decode(text + at, &character);
        memcpy(clean + used, taken ? text + at : "\xef\xbf\xbd", taken ? taken : 3);
        used += taken ? taken : 3;
        at += taken ? taken : 1;
    }
    string = json_stringn(clean, used);
    free(clean);
    return string;
}

static json_t *output_column(sqlite3_stmt *row, int column, bool holds_json) {
    switch (sqlite3_column_type(row, column)) {
    case SQLITE_INTEGER:
        return json_integer(sqlite3_column_int64(row, column));
    case SQLITE_FLOAT:
        return isfinite(sqlite3_column_double(row, column))
                   ? json_real(sqlite3_column_double(row, column))
                   : json_null();
    case SQLITE_NULL:
        return json_null();
    default:
        break;
    }
    const char *text = (const char *)sqlite3_column_text(row, column);
    size_t length = (size_t)sqlite3_column_bytes(row, column);
    if (!holds_json)
        return output_text(text ? text : "", length);
    json_t *value = json_loadb(text, length, JSON_DECODE_ANY, NULL);
    return value ? value : json_null();
}

json_t *output_row(sqlite3_stmt *statement, unsigned arrays) {
    json_t *object = json_object();
    int failed = !object;
    for (int c = 0; !failed && c < sqlite3_column_count(statement); c++)
        failed = json_object_set_new(object, sqlite3_column_name(statement, c),
                                     output_column(statement, c, c < 32 && arrays >> c & 1));
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

int output_json(struct output *output, json_t *value, struct mp_error *error) {
    if (!value)
        return mp_no_memory(error);
    json_dumpf(value, output->file, OUTPUT_JSON);
    json_decref(value);
    return MP_OK;
}

int output_rows(struct output *output, const char *name, const char *sql, unsigned arrays,
                const struct mp_results_selection *selection, int64_t *rows,
                struct mp_error *error) {
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    const char *before = "\n";
    int got;
    MP_TRY(output_query(output->store, sql, selection, &row, error));
    fprintf(output->file, "\"%s\":[", name);
    while ((got = mp_store_next(output->store, row, error)) == 1) {
        fputs(before, output->file);
        before = ",\n";
        MP_TRY(output_json(output, output_row(row, arrays), error));
        ++*rows;
    }
    fputc(']', output->file);
    return got;
}
