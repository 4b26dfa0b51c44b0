#include "results/report/query.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct query query_begin(struct mp_store *store, const char *sql, int64_t run_id,
                         struct mp_error *error) {
    struct query query = {.store = store, .error = error};
    query.code = mp_store_query(store, sql, &run_id, 1, &query.row, error);
    return query;
}

bool query_next(struct query *query) {
    const int got = query->code ? 0 : mp_store_next(query->store, query->row, query->error);
    if (got < 0)
        query->code = got;
    return got == 1;
}

int query_end(struct query *query) {
    sqlite3_finalize(query->row);
    return query->code;
}

double query_double(sqlite3_stmt *statement, int column) {
    return sqlite3_column_type(statement, column) == SQLITE_NULL
               ? NAN
               : sqlite3_column_double(statement, column);
}

const char *query_text(sqlite3_stmt *statement, int column) {
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? text : "";
}

json_t *number_value(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *text_value(const char *text) {
    if (!text)
        return json_null();
    json_t *string = json_string(text);
    if (string)
        return string;
    char *ascii = strdup(text);
    for (char *at = ascii; ascii && *at; at++)
        *at = (unsigned char)*at >= 0x80 ? '?' : *at;
    string = ascii ? json_string(ascii) : NULL;
    free(ascii);
    return string;
}

json_t *query_value(sqlite3_stmt *statement, int column) {
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        return json_integer(sqlite3_column_int64(statement, column));
    case SQLITE_FLOAT:
        return number_value(sqlite3_column_double(statement, column));
    case SQLITE_NULL:
        return json_null();
    default:
        return text_value((const char *)sqlite3_column_text(statement, column));
    }
}

uint64_t query_add_list(const char *list, uint32_t sum[], int most) {
    uint64_t all = 0;
    for (int index = 0; *list && index < most; list++)
        if (*list >= '0' && *list <= '9') {
            char *end;
            const uint32_t number = (uint32_t)strtoul(list, &end, 10);
            all += number;
            if (sum)
                sum[index] += number;
            index++;
            list = end - 1;
        }
    return all;
}

json_t *query_rows_json(struct query *query) {
    json_t *rows = json_array();
    bool failed = !rows;
    while (!failed && query_next(query)) {
        json_t *row = json_object();
        failed = json_array_append_new(rows, row);
        for (int c = 0; !failed && c < sqlite3_column_count(query->row); c++)
            failed = json_object_set_new(row, sqlite3_column_name(query->row, c),
                                         query_value(query->row, c));
    }
    if (failed && !query->code)
        query->code = mp_no_memory(query->error);
    if (!query->code)
        return rows;
    json_decref(rows);
    return NULL;
}

/* ---- structs ---- */

struct query query_fields(struct mp_store *store, const struct query_field fields[], int count,
                          const char *from, int64_t run_id, struct mp_error *error) {
    struct query query = {.store = store, .error = error};
    char *sql = NULL;
    size_t size;
    FILE *text = open_memstream(&sql, &size);
    for (int i = 0; text && i < count; i++)
        fprintf(text, "%s %s", i ? "," : "SELECT", fields[i].sql);
    if (text)
        fprintf(text, " %s", from);
    if (!text || fclose(text))
        query.code = mp_no_memory(error);
    else
        query = query_begin(store, sql, run_id, error);
    free(sql);
    return query;
}

static bool read_field(sqlite3_stmt *statement, int column, const struct query_field *field,
                       void *row) {
    void *at = (char *)row + field->at;
    switch (field->kind) {
    case QUERY_TEXT:
        return (*(char **)at = strdup(query_text(statement, column))) != NULL;
    case QUERY_NUMBER:
        *(double *)at = query_double(statement, column);
        return true;
    case QUERY_COUNT:
        *(int *)at = sqlite3_column_int(statement, column);
        return true;
    case QUERY_LARGE:
        *(int64_t *)at = sqlite3_column_int64(statement, column);
        return true;
    case QUERY_FLAG:
        *(bool *)at = sqlite3_column_int(statement, column) == 1;
        return true;
    }
    return false;
}

void query_struct(struct query *query, const struct query_field fields[], int count, void *row) {
    for (int c = 0; c < count && !query->code; c++)
        if (!read_field(query->row, c, &fields[c], row))
            query->code = mp_no_memory(query->error);
}

void query_free_texts(const struct query_field fields[], int count, void *row) {
    for (int i = 0; i < count; i++)
        if (fields[i].kind == QUERY_TEXT)
            free(*(char **)(void *)((char *)row + fields[i].at));
}

int query_json(struct mp_store *store, const char *sql, int64_t run_id, json_t **rows,
               struct mp_error *error) {
    struct query query = query_begin(store, sql, run_id, error);
    *rows = query_rows_json(&query);
    return query_end(&query);
}

int print_object(json_t *object, FILE *out, struct mp_error *error) {
    if (!object)
        return mp_no_memory(error);
    int failed = json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(object);
    fputc('\n', out);
    return failed ? mp_fail(error, MP_EIO, "cannot write the report") : check_printed(out, error);
}

int check_printed(FILE *out, struct mp_error *error) {
    errno = 0;
    if (fflush(out) != 0 || ferror(out))
        return mp_fail(error, errno == ENOSPC ? MP_ENOSPACE : MP_EIO, "cannot write the report: %s",
                       errno ? strerror(errno) : "the output is closed");
    return MP_OK;
}
