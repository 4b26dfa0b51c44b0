#include <string.h>

#include "reference/base/csv.h"
#include "results/export/output.h"

/* ---- which view ---- */

/* Names of all views, for a message.  Not more than fit. */
static void list_views(struct mp_store *store, char *text, size_t size) {
    sqlite3_stmt *row;
    size_t used = 0;
    const struct mp_results_selection all = {0};
    text[0] = '\0';
    if (output_query(store,
                     "SELECT name FROM main.sqlite_schema WHERE type = 'view' UNION "
                     "SELECT name FROM temp.sqlite_schema WHERE type = 'view' ORDER BY name",
                     &all, &row, NULL))
        return;
    while (used < size && mp_store_next(store, row, NULL) == 1)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                 (const char *)sqlite3_column_text(row, 0));
    sqlite3_finalize(row);
}

/* The view's full name, to be freed; NULL with `error` set. */
static char *find_view(struct mp_store *store, const char *view, struct mp_error *error) {
    sqlite3_stmt *row;
    char names[512], *name = NULL;
    const struct mp_results_selection all = {0};
    int code = output_query(store,
                            "SELECT name FROM (SELECT name, type FROM main.sqlite_schema UNION "
                            "SELECT name, type FROM temp.sqlite_schema) WHERE type = 'view' "
                            "AND name IN (?1, 'v_' || ?1) ORDER BY name = ?1 DESC LIMIT 1",
                            &all, &row, error);
    if (code)
        return NULL;
    sqlite3_bind_text(row, 1, view, -1, SQLITE_STATIC);
    int got = mp_store_next(store, row, error);
    if (got == 1)
        name = strdup((const char *)sqlite3_column_text(row, 0));
    sqlite3_finalize(row);
    if (got == 1 && !name)
        mp_no_memory(error);
    if (got != 0)
        return name;
    list_views(store, names, sizeof names);
    mp_fail(error, MP_EINVAL, "there is no view %.100s in %s; there are %s", view,
            mp_store_path(store), names);
    return NULL;
}

static bool has_column(sqlite3_stmt *row, const char *name) {
    for (int c = 0; c < sqlite3_column_count(row); c++)
        if (!strcmp(sqlite3_column_name(row, c), name))
            return true;
    return false;
}

/* Refuses a selection by what the view does not have. */
static int check_columns(struct mp_store *store, const char *name,
                         const struct mp_results_selection *selection, struct mp_error *error) {
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    char *sql = sqlite3_mprintf("SELECT * FROM \"%w\"", name);
    const int code = sql ? output_query(store, sql, selection, &row, error) : mp_no_memory(error);
    sqlite3_free(sql);
    MP_TRY(code);
    if (selection->run_id && !has_column(row, "run_id"))
        return mp_fail(error, MP_EINVAL, "view %s has no runs to choose from", name);
    if (selection->some_iterations && !has_column(row, "iteration"))
        return mp_fail(error, MP_EINVAL, "view %s has no iterations to choose from", name);
    return MP_OK;
}

static int open_view(struct mp_store *store, const char *name,
                     const struct mp_results_selection *selection, sqlite3_stmt **row,
                     struct mp_error *error) {
    MP_TRY(check_columns(store, name, selection, error));
    char *sql = sqlite3_mprintf("SELECT * FROM \"%w\" WHERE %s AND %s", name,
                                selection->run_id ? "run_id = ?1" : "1",
                                selection->some_iterations ? "iteration BETWEEN ?2 AND ?3" : "1");
    int code = sql ? output_query(store, sql, selection, row, error) : mp_no_memory(error);
    sqlite3_free(sql);
    return code;
}

/* ---- rows ---- */

static void write_row(FILE *file, sqlite3_stmt *row) {
    for (int c = 0; c < sqlite3_column_count(row); c++) {
        if (c > 0)
            fputc(',', file);
        switch (sqlite3_column_type(row, c)) {
        case SQLITE_INTEGER:
            fprintf(file, "%lld", (long long)sqlite3_column_int64(row, c));
            break;
        case SQLITE_FLOAT:
            mp_csv_real(file, sqlite3_column_double(row, c));
            break;
        case SQLITE_NULL:
            break;
        default: {
            const char *text = (const char *)sqlite3_column_text(row, c);
            mp_csv_text(file, text ? text : "", (size_t)sqlite3_column_bytes(row, c));
        }
        }
    }
    fputc('\n', file);
}

static int write_view(struct output *output, const char *name,
                      const struct mp_results_selection *selection,
                      struct mp_results_exported *exported, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    int got = 0, code = open_view(output->store, name, selection, &row, error);
    for (int c = 0; !code && c < sqlite3_column_count(row); c++) {
        if (c > 0)
            fputc(',', output->file);
        mp_csv_text(output->file, sqlite3_column_name(row, c), strlen(sqlite3_column_name(row, c)));
    }
    if (!code)
        fputc('\n', output->file);
    while (!code && (got = mp_store_next(output->store, row, error)) == 1) {
        write_row(output->file, row);
        exported->rows++;
    }
    sqlite3_finalize(row);
    return code ? code : got;
}

int mp_results_csv(struct mp_store *store, const struct mp_results_selection *selection,
                   const char *view, const char *path, struct mp_results_exported *exported,
                   struct mp_error *error) {
    struct mp_results_selection chosen = *selection;
    struct output output;
    *exported = (struct mp_results_exported){0};
    int code = selection->run_id ? output_choose(store, selection, &chosen, error)
                                 : output_check_iterations(selection, error);
    char *name = code ? NULL : find_view(store, view, error);
    if (!name)
        return error->code;
    code = output_open(&output, store, path, error);
    if (!code)
        code = write_view(&output, name, &chosen, exported, error);
    free(name);
    return output_close(&output, code, error);
}
