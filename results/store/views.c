/* Views: see views.h. */
#include "results/store/views.h"

#include <stdbool.h>
#include <string.h>

/* SQLite keeps every definition as these words and then the text from the name on. */
static const char created_as[] = "CREATE VIEW ";

enum views_kind { KEPT, TEMPORARY };

/* An empty database in memory with this build's schema: how SQLite itself writes its views. */
static int create_reference(sqlite3 **reference, const struct mp_store *store,
                            struct mp_error *error) {
    int code =
        sqlite3_open_v2(":memory:", reference,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(*reference, store_schema_sql, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        return MP_OK;
    mp_fail(error, code == SQLITE_NOMEM ? MP_ENOMEM : MP_EIO,
            "%s: cannot make this build's views: %s", store->path, sqlite3_errmsg(*reference));
    sqlite3_close(*reference);
    *reference = NULL;
    return error->code;
}

/* Whether the file's view of this name has exactly this definition. */
static int is_current(struct mp_store *store, const char *name, const char *definition,
                      bool *current, struct mp_error *error) {
    sqlite3_stmt *statement = NULL;
    int code = store_prepare(
        store, "SELECT sql IS ?2 FROM main.sqlite_schema WHERE type = 'view' AND name = ?1",
        &statement, error);
    if (code)
        return code;
    STORE_TEXTS(statement, 1, name, definition);
    int step = sqlite3_step(statement);
    *current = step == SQLITE_ROW && sqlite3_column_int(statement, 0);
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        code = mp_store_fail(store, "cannot read the views", error);
    sqlite3_finalize(statement);
    return code;
}

static int create_view(struct mp_store *store, const char *name, const char *definition,
                       enum views_kind kind, struct mp_error *error) {
    const char *from_name = definition + strlen(created_as);
    char *sql = kind == TEMPORARY
                    ? sqlite3_mprintf("CREATE TEMPORARY VIEW %s", from_name)
                    : sqlite3_mprintf("DROP VIEW IF EXISTS main.\"%w\"; %s", name, definition);
    if (!sql)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to renew the views", store->path);
    int code = store_execute(store, sql, "cannot renew the views", error);
    sqlite3_free(sql);
    return code;
}

/* Goes through this build's views; with `differing` only counts those that differ, else creates
 * them. */
static int visit(struct mp_store *store, sqlite3 *reference, enum views_kind kind, int *differing,
                 struct mp_error *error) {
    sqlite3_stmt *views = NULL;
    bool current;
    int code = MP_OK, step = SQLITE_DONE;
    if (sqlite3_prepare_v2(reference,
                           "SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY rowid",
                           -1, &views, NULL) != SQLITE_OK)
        return mp_fail(error, MP_EIO, "%s: cannot read this build's views: %s", store->path,
                       sqlite3_errmsg(reference));
    while (!code && (step = sqlite3_step(views)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(views, 0);
        const char *definition = (const char *)sqlite3_column_text(views, 1);
        code = is_current(store, name, definition, &current, error);
        if (!code && !current && differing)
            ++*differing;
        else if (!code && !current)
            code = create_view(store, name, definition, kind, error);
    }
    if (!code && step != SQLITE_DONE)
        code = mp_fail(error, MP_ENOMEM, "%s: no memory to compare the views", store->path);
    sqlite3_finalize(views);
    return code;
}

/* Looks again inside the transaction: another process may have been faster. */
static int replace(struct mp_store *store, sqlite3 *reference, struct mp_error *error) {
    int code = store_execute(store, "BEGIN IMMEDIATE", "cannot renew the views", error);
    if (code)
        return code;
    code = visit(store, reference, KEPT, NULL, error);
    if (!code)
        code = store_execute(store, "COMMIT", "cannot renew the views", error);
    if (code)
        sqlite3_exec(store->connection, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

int store_renew_views(struct mp_store *store, struct mp_error *error) {
    sqlite3 *reference = NULL;
    int differing = 0;
    int code = create_reference(&reference, store, error);
    if (code)
        return code;
    code = visit(store, reference, KEPT, &differing, error);
    if (!code && differing)
        code = replace(store, reference, error);
    sqlite3_close(reference);
    return code;
}

int store_hide_old_views(struct mp_store *store, struct mp_error *error) {
    sqlite3 *reference = NULL;
    int code = create_reference(&reference, store, error);
    if (code)
        return code;
    code = visit(store, reference, TEMPORARY, NULL, error);
    sqlite3_close(reference);
    return code;
}
