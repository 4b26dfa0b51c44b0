/* Reading the views, and writing what was read. */
#pragma once

#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>

#include "results/report/report.h"

/* The rows of a query whose ?1 is the run, one after another:
 *     struct query query = query_begin(store, sql, run_id, error);
 *     while (query_next(&query))
 *         ... query.row ...
 *     return query_end(&query);
 * A `code` that is set meanwhile ends them, and query_end returns it. */
struct query {
    struct mp_store *store;
    sqlite3_stmt *row; /* NULL behind an error: nothing can be bound to it then, to no harm */
    int code;
    struct mp_error *error;
};
struct query query_begin(struct mp_store *store, const char *sql, int64_t run_id,
                         struct mp_error *error);
bool query_next(struct query *query);
int query_end(struct query *query);

double query_double(sqlite3_stmt *statement, int column);    /* NAN for NULL */
const char *query_text(sqlite3_stmt *statement, int column); /* "" for NULL */

json_t *query_value(sqlite3_stmt *statement, int column); /* null for NULL */

/* Adds the first `most` numbers of a list as table load has them to sum[most], NULL: to none, and
 * returns what they make together. */
uint64_t query_add_list(const char *list, uint32_t sum[], int most);

/* The rows as an array of objects by column name.  ?1 is the run. */
int query_json(struct mp_store *store, const char *sql, int64_t run_id, json_t **rows,
               struct mp_error *error);

/* The same for the rows that a query has left; NULL if it fails. */
json_t *query_rows_json(struct query *query);

/* A column of a query and its place in a struct. */
struct query_field {
    const char *sql; /* expression */
    enum {
        QUERY_TEXT,   /* char *, owned; "" for NULL */
        QUERY_NUMBER, /* double, NAN for NULL */
        QUERY_COUNT,  /* int; 0 for NULL, as the next two */
        QUERY_LARGE,  /* int64_t */
        QUERY_FLAG    /* bool: 1 */
    } kind;
    size_t at; /* offsetof */
};
/* Begins "SELECT the fields FROM ..."; ?1 is the run. */
struct query query_fields(struct mp_store *store, const struct query_field fields[], int count,
                          const char *from, int64_t run_id, struct mp_error *error);
/* Reads its row into a struct that is zeroed, whose texts are to be freed also after an error. */
void query_struct(struct query *query, const struct query_field fields[], int count, void *row);
void query_free_texts(const struct query_field fields[], int count, void *row);

json_t *text_value(const char *text); /* null for NULL; bytes that are no UTF-8 become '?' */
MP_END(json, json_t *, json_decref(*it))
json_t *number_value(double value); /* null for what JSON can't say */

/* Writes the object and releases it. */
int print_object(json_t *object, FILE *out, struct mp_error *error);
/* Whether everything that was printed arrived. */
int check_printed(FILE *out, struct mp_error *error);
