#include <string.h>

#include "reference/base/csv.h"
#include "results/export/output.h"

/* ---- which view ---- */

/* The view's full name; or all names, for a message. */
static const char view_sql[] =
    "WITH view AS (SELECT name FROM main.sqlite_schema WHERE type = 'view' UNION SELECT name FROM "
    "temp.sqlite_schema WHERE type = 'view' ORDER BY name) SELECT (SELECT name FROM view WHERE "
    "name IN (?1, 'v_' || ?1) ORDER BY name = ?1 DESC), (SELECT group_concat(name, ', ') FROM "
    "view)";

static int find_view(struct mp_store *store, const char *view, char **name,
                     struct mp_error *error) {
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    MP_TRY(mp_store_query(store, view_sql, NULL, 0, &row, error));
    sqlite3_bind_text(row, 1, view, -1, SQLITE_STATIC);
    const int got = mp_store_next(store, row, error);
    if (got < 0)
        return got;
    const char *found = (const char *)sqlite3_column_text(row, 0);
    if (!found)
        return mp_fail(error, MP_EINVAL, "there is no view %.100s in %s; there are %.511s", view,
                       mp_store_path(store), (const char *)sqlite3_column_text(row, 1));
    *name = sqlite3_mprintf("%s", found);
    return *name ? MP_OK : mp_no_memory(error);
}

static bool has_column(sqlite3_stmt *row, const char *name) {
    return MP_ANY(c, sqlite3_column_count(row), !strcmp(sqlite3_column_name(row, c), name));
}

/* Prepares a query of a view's rows, all of them or those of the chosen run and iterations. */
static int query_view(struct mp_store *store, const char *name, bool run, bool iterations,
                      const struct mp_results_selection *selection, sqlite3_stmt **row,
                      struct mp_error *error) {
    MP_AUTO(sqlite_text)
    char *sql =
        sqlite3_mprintf("SELECT * FROM \"%w\" WHERE %s AND %s", name, run ? "run_id = ?1" : "1",
                        iterations ? "iteration BETWEEN ?2 AND ?3" : "1");
    return sql ? output_query(store, sql, selection, row, error) : mp_no_memory(error);
}

/* Refuses a selection by what the view does not have. */
static int open_view(struct mp_store *store, const char *name,
                     const struct mp_results_selection *selection, sqlite3_stmt **row,
                     struct mp_error *error) {
    MP_AUTO(statement) sqlite3_stmt *all = NULL;
    MP_TRY(query_view(store, name, false, false, selection, &all, error));
    if (selection->run_id && !has_column(all, "run_id"))
        return mp_fail(error, MP_EINVAL, "view %s has no runs to choose from", name);
    if (selection->some_iterations && !has_column(all, "iteration"))
        return mp_fail(error, MP_EINVAL, "view %s has no iterations to choose from", name);
    return query_view(store, name, selection->run_id, selection->some_iterations, selection, row,
                      error);
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
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    int got;
    MP_TRY(open_view(output->store, name, selection, &row, error));
    for (int c = 0; c < sqlite3_column_count(row); c++) {
        if (c > 0)
            fputc(',', output->file);
        mp_csv_text(output->file, sqlite3_column_name(row, c), strlen(sqlite3_column_name(row, c)));
    }
    fputc('\n', output->file);
    while ((got = mp_store_next(output->store, row, error)) == 1) {
        write_row(output->file, row);
        exported->rows++;
    }
    return got;
}

int mp_results_csv(struct mp_store *store, const struct mp_results_selection *selection,
                   const char *view, const char *path, struct mp_results_exported *exported,
                   struct mp_error *error) {
    struct mp_results_selection chosen = *selection;
    MP_AUTO(output) struct output output = {0};
    MP_AUTO(sqlite_text) char *name = NULL;
    *exported = (struct mp_results_exported){0};
    MP_TRY(selection->run_id ? output_choose(store, selection, &chosen, error)
                             : output_check_iterations(selection, error));
    MP_TRY(find_view(store, view, &name, error));
    MP_TRY(output_open(&output, store, path, error));
    MP_TRY(write_view(&output, name, &chosen, exported, error));
    return output_close(&output, error);
}
