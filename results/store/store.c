#include "results/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference/base/arena.h"
#include "results/store/internal.h"

/* ---- views ---- */

/* Of all views of an empty database with this build's schema, how SQLite itself writes them. */
static const char views_sql[] =
    "SELECT json_group_array(json_array(name, sql)) FROM (SELECT name, sql FROM sqlite_schema "
    "WHERE type = 'view' ORDER BY rowid)";

/* Of those in ?1, each "CREATE VIEW " and the text from the name on, that the file does not have
 * exactly so: what replaces the file's or, with ?2, hides it by a temporary one. */
static const char changes_sql[] =
    "SELECT group_concat(CASE WHEN ?2 THEN 'CREATE TEMPORARY VIEW ' || substr(sql, length('CREATE "
    "VIEW ') + 1) ELSE printf('DROP VIEW IF EXISTS main.\"%w\"; %s', name, sql) END, ';') FROM "
    "(SELECT value ->> 0 AS name, value ->> 1 AS sql FROM json_each(?1)) AS own WHERE NOT EXISTS "
    "(SELECT 1 FROM main.sqlite_schema AS file WHERE type = 'view' AND file.name = own.name AND "
    "file.sql IS own.sql)";

/* What makes this build's views of those that differ, to be freed; NULL: none does. */
static int list_changes(struct mp_store *store, bool hide, char **changes, struct mp_error *error) {
    MP_AUTO(connection) sqlite3 *reference = NULL;
    MP_AUTO(statement) sqlite3_stmt *views = NULL, *list = NULL;
    if (sqlite3_open_v2(":memory:", &reference,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) ||
        sqlite3_exec(reference, store_schema_sql, NULL, NULL, NULL) ||
        sqlite3_prepare_v2(reference, views_sql, -1, &views, NULL) ||
        sqlite3_step(views) != SQLITE_ROW)
        return mp_fail(error, sqlite3_errcode(reference) == SQLITE_NOMEM ? MP_ENOMEM : MP_EIO,
                       "%s: cannot make this build's views: %s", store->path,
                       sqlite3_errmsg(reference));
    MP_TRY(mp_store_query(store, changes_sql, NULL, 0, &list, error));
    sqlite3_bind_value(list, 1, sqlite3_column_value(views, 0));
    sqlite3_bind_int(list, 2, hide);
    const int got = mp_store_next(store, list, error);
    const char *text = got == 1 ? (const char *)sqlite3_column_text(list, 0) : NULL;
    *changes = text ? sqlite3_mprintf("%s", text) : NULL;
    return got < 0 ? got : text && !*changes ? mp_no_memory(error) : MP_OK;
}

/* Replaces the views that differ from this build's, in one transaction, or hides them from this
 * connection alone; writes nothing when none does.  Errors: those of mp_store_open; the database is
 * left as it was. */
static int renew_views(struct mp_store *store, bool hide, struct mp_error *error) {
    static const char doing[] = "cannot renew the views";
    MP_AUTO(sqlite_text) char *changes = NULL;
    MP_TRY(list_changes(store, hide, &changes, error));
    if (!changes)
        return MP_OK;
    if (hide)
        return store_execute(store, changes, doing, error);
    MP_TRY(store_execute(store, "BEGIN IMMEDIATE", doing, error));
    return store_end(store, store_execute(store, changes, doing, error), doing, error);
}

/* The first version whose tables have all columns of today's: it is read as it is. */
enum { READABLE_VERSION = 2 };
enum { WAIT_MILLISECONDS = 20 };
static const double usual_patience = 10; /* s */

/* migrations[v] brings a database from version v to v + 1. */
static const char *const migrations[MP_STORE_VERSION] = {store_schema_sql, store_tables_2_sql,
                                                         store_tables_3_sql, store_tables_4_sql};

/* ---- statements ---- */

static int code_of(int sqlite_code) {
    switch (sqlite_code & 0xff) {
    case SQLITE_FULL:
        return MP_ENOSPACE;
    case SQLITE_NOMEM:
        return MP_ENOMEM;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return MP_EFORMAT;
    default:
        return MP_EIO;
    }
}

int mp_store_fail(const struct mp_store *store, const char *doing, struct mp_error *error) {
    return mp_fail(error, code_of(sqlite3_errcode(store->connection)), "%s: %s: %s", store->path,
                   doing, sqlite3_errmsg(store->connection));
}

int store_execute(struct mp_store *store, const char *sql, const char *doing,
                  struct mp_error *error) {
    if (sqlite3_exec(store->connection, sql, NULL, NULL, NULL) != SQLITE_OK)
        return mp_store_fail(store, doing, error);
    return MP_OK;
}

int store_end(struct mp_store *store, int code, const char *doing, struct mp_error *error) {
    if (!code)
        code = store_execute(store, "COMMIT", doing, error);
    if (code)
        sqlite3_exec(store->connection, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

int store_statement(struct mp_store *store, const char *sql, sqlite3_stmt **statement,
                    struct mp_error *error) {
    const int i = MP_PLACE(s, store->statements, store->statement[s].sql == sql);
    if (i == store->statements) {
        MP_TRY(MP_GROW(store->statement, i, error));
        if (sqlite3_prepare_v3(store->connection, sql, -1, SQLITE_PREPARE_PERSISTENT, statement,
                               NULL) != SQLITE_OK)
            return mp_store_fail(store, "cannot prepare a statement", error);
        store->statement[store->statements++] = (struct store_statement){sql, *statement};
    }
    *statement = store->statement[i].prepared;
    return MP_OK;
}

void store_bind_known(sqlite3_stmt *statement, int first, const int64_t values[], int count) {
    for (int i = 0; i < count; i++)
        if (values[i] != ROW_NULL)
            sqlite3_bind_int64(statement, first + i, values[i]);
}

int store_run(struct mp_store *store, sqlite3_stmt *statement, const char *doing,
              struct mp_error *error) {
    int code = MP_OK;
    if (sqlite3_step(statement) != SQLITE_DONE)
        code = mp_store_fail(store, doing, error);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return code;
}

int store_put(struct mp_store *store, const char *doing, struct mp_error *error, const char *sql,
              const struct store_value values[], int count) {
    sqlite3_stmt *statement;
    MP_TRY(store_statement(store, sql, &statement, error));
    for (int i = 0; i < count; i++)
        if (values[i].is == STORE_INTEGER)
            sqlite3_bind_int64(statement, i + 1, values[i].integer);
        else if (values[i].is == STORE_NUMBER)
            sqlite3_bind_double(statement, i + 1, values[i].number);
        else
            sqlite3_bind_text(statement, i + 1, values[i].text, -1, SQLITE_STATIC);
    return store_run(store, statement, doing, error);
}

/* ---- opening ---- */

/* The file as SQLite's URI that promises that nobody writes to it. */
static char *immutable_uri(const char *path) {
    sqlite3_str *uri = sqlite3_str_new(NULL);
    sqlite3_str_appendall(uri, "file:");
    for (; *path; path++)
        if (strchr("%?#", *path))
            sqlite3_str_appendf(uri, "%%%02x", (unsigned char)*path);
        else
            sqlite3_str_appendchar(uri, 1, *path);
    sqlite3_str_appendall(uri, "?immutable=1");
    return sqlite3_str_finish(uri);
}

/* SQLite's busy handler; `times`: calls before for the same lock. */
static int wait_for_lock(void *context, int times) {
    const struct mp_store *store = context;
    double seconds = 1e-3 * WAIT_MILLISECONDS * times;
    if (store->waits ? !store->waits(store->waits_context, seconds) : seconds >= usual_patience)
        return 0;
    usleep(WAIT_MILLISECONDS * 1000);
    return 1;
}

void mp_store_set_patience(struct mp_store *store, bool (*waits)(void *context, double seconds),
                           void *context) {
    store->waits = waits;
    store->waits_context = context;
}

/* Of a file that may not be made SQLite says that it isn't there. */
static int why_not_made(const char *path) {
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0)
        return errno;
    close(file);
    unlink(path);
    return ENOENT;
}

/* With SQLITE_OPEN_URI the file is taken as one that nobody writes to. */
static int connect_to(const char *path, int flags, struct mp_store **store,
                      struct mp_error *error) {
    MP_AUTO(store) struct mp_store *made = mp_new(1, sizeof *made);
    MP_AUTO(sqlite_text) char *uri = flags & SQLITE_OPEN_URI ? immutable_uri(path) : NULL;
    if (made)
        made->path = strdup(path);
    if (!made || !made->path || (flags & SQLITE_OPEN_URI && !uri))
        return mp_no_memory(error);
    /* One thread at a time uses a store, so SQLite needs no locks of its own. */
    const int code =
        sqlite3_open_v2(uri ? uri : path, &made->connection, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        int system_error = made->connection ? sqlite3_system_errno(made->connection) : 0;
        if (system_error == ENOENT && flags & SQLITE_OPEN_CREATE)
            system_error = why_not_made(path);
        return mp_fail(error, code_of(code), "%s: cannot open the database: %s", path,
                       system_error ? strerror(system_error) : sqlite3_errstr(code));
    }
    sqlite3_extended_result_codes(made->connection, 1);
    sqlite3_busy_handler(made->connection, wait_for_lock, made);
    *store = made;
    made = NULL;
    return MP_OK;
}

/* Finds out the schema version, 0 for an empty database, without writing.  All three answers are of
 * one moment, since another process may be creating the schema: inside a savepoint, which is not
 * released after an error so that SQLite's last error is the one that counts. */
static int identify(struct mp_store *store, int *version, struct mp_error *error) {
    int64_t application, user_version, objects;
    MP_TRY(store_execute(store, "SAVEPOINT identify", "cannot read the database", error));
    MP_TRY(mp_store_numbers(store, "PRAGMA application_id", NULL, 0, &application, 1, error));
    MP_TRY(mp_store_numbers(store, "PRAGMA user_version", NULL, 0, &user_version, 1, error));
    MP_TRY(
        mp_store_numbers(store, "SELECT count(*) FROM sqlite_schema", NULL, 0, &objects, 1, error));
    MP_TRY(store_execute(store, "RELEASE identify", "cannot read the database", error));
    if (application != MP_STORE_APPLICATION && (application || user_version || objects))
        return mp_fail(
            error, MP_EFORMAT,
            "%s: an SQLite database of another program (application_id 0x%08x, moeperf's "
            "is 0x%08x)",
            store->path, (unsigned)application, (unsigned)MP_STORE_APPLICATION);
    if (user_version > MP_STORE_VERSION)
        return mp_fail(
            error, MP_EVERSION,
            "%s: the database has schema version %lld, this moeperf knows versions up to "
            "%d: use the newer moeperf that wrote it, or another --db",
            store->path, (long long)user_version, MP_STORE_VERSION);
    *version = (int)user_version;
    return MP_OK;
}

/* The version is read again inside the transaction: another process may have been faster. */
static int migrate(struct mp_store *store, struct mp_error *error) {
    int version;
    MP_TRY(store_execute(store, "BEGIN IMMEDIATE", "cannot write", error));
    int code = identify(store, &version, error);
    for (; !code && version < MP_STORE_VERSION; version++)
        code = store_execute(store, migrations[version], "cannot create the schema", error);
    if (!code) {
        char sql[96];
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                 MP_STORE_APPLICATION, MP_STORE_VERSION);
        code = store_execute(store, sql, "cannot set the schema version", error);
    }
    return store_end(store, code, "cannot create the schema", error);
}

/* Settings for writing; the page size and the journal mode are kept in the file.  NORMAL: after a
 * power cut the last runs may be missing, but the database is whole.  SQLite does not wait by
 * itself for others who are setting the journal mode of a new file. */
static int set_up_connection(struct mp_store *store, struct mp_error *error) {
    static const char settings[] =
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA "
        "cache_size = -65536; PRAGMA journal_size_limit = 16777216";
    int code, times = 0;
    sqlite3_busy_handler(store->connection, NULL, NULL);
    do
        code = sqlite3_exec(store->connection, settings, NULL, NULL, NULL) & 0xff;
    while (code == SQLITE_BUSY && wait_for_lock(store, times++));
    sqlite3_busy_handler(store->connection, wait_for_lock, store);
    return code ? mp_store_fail(store, "cannot prepare the database for writing", error) : MP_OK;
}

static int prepare_for_writing(struct mp_store *store, struct mp_error *error) {
    int version;
    MP_TRY(identify(store, &version, error));
    MP_TRY(set_up_connection(store, error));
    if (version < MP_STORE_VERSION)
        MP_TRY(migrate(store, error));
    MP_TRY(renew_views(store, false, error));
    if (row_source_register(store) != SQLITE_OK)
        MP_TRY(mp_store_fail(store, "cannot register moeperf_rows", error));
    return MP_OK;
}

int mp_store_open(const char *path, struct mp_store **store, struct mp_error *error) {
    MP_AUTO(store) struct mp_store *opened = NULL;
    if (!*path || !strcmp(path, ":memory:") || !strncmp(path, "file:", 5))
        return mp_fail(error, MP_EINVAL,
                       "\"%s\" is no file that a database can be kept in: give a path (./%s means "
                       "a file of that name)",
                       path, *path ? path : "results.db");
    MP_TRY(connect_to(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &opened, error));
    if (sqlite3_db_readonly(opened->connection, "main") == 1)
        return mp_fail(error, MP_EIO, "%s: the database may not be written (permissions)", path);
    MP_TRY(prepare_for_writing(opened, error));
    *store = opened;
    opened = NULL;
    return MP_OK;
}

static bool has_log(const char *path) {
    char log[PATH_MAX];
    int length = snprintf(log, sizeof log, "%s-wal", path);
    return length >= (int)sizeof log || access(log, F_OK) == 0;
}

/* SQLite reads a database in WAL mode through a file beside it that it must be able to write.
 * Where it can't be and no writer has left a log, the file itself is all there is to read. */
static bool must_be_immutable(const struct mp_store *store) {
    char log[PATH_MAX];
    struct stat status;
    int reason = sqlite3_errcode(store->connection) & 0xff;
    if (reason != SQLITE_READONLY && reason != SQLITE_CANTOPEN)
        return false;
    int length = snprintf(log, sizeof log, "%s-wal", store->path);
    return length < (int)sizeof log && (stat(log, &status) != 0 || status.st_size == 0);
}

static int connect_to_read(const char *path, struct mp_store **store, int *version,
                           struct mp_error *error) {
    struct mp_error first = {0};
    bool leaves_log = !has_log(path);
    MP_TRY(connect_to(path, SQLITE_OPEN_READONLY, store, error));
    (*store)->leaves_log = leaves_log;
    int code = identify(*store, version, &first);
    if (!code)
        return MP_OK;
    bool again = must_be_immutable(*store);
    int reason = sqlite3_errcode((*store)->connection) & 0xff;
    mp_store_close(*store);
    *store = NULL;
    if (again) {
        MP_TRY(connect_to(path, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, store, error));
        return identify(*store, version, error);
    }
    if (code == MP_EIO && (reason == SQLITE_READONLY || reason == SQLITE_CANTOPEN))
        return mp_fail(error, code,
                       "%s: its newest runs are still in %s-wal, which takes the permission to "
                       "write here to read: copy both files elsewhere",
                       path, path);
    return mp_fail(error, code, "%s", first.text);
}

int mp_store_open_read_only(const char *path, struct mp_store **store, struct mp_error *error) {
    struct stat status;
    if (stat(path, &status) != 0)
        return errno == ENOENT
                   ? mp_fail(error, MP_ENOTFOUND,
                             "%s: no such database; moeperf run --db FILE makes one", path)
                   : mp_fail(error, MP_EIO, "%s: cannot open the database: %s", path,
                             strerror(errno));
    MP_AUTO(store) struct mp_store *opened = NULL;
    int version = 0;
    MP_TRY(connect_to_read(path, &opened, &version, error));
    if (version == 0)
        return mp_fail(error, MP_EFORMAT, "%s: an empty database, without results of moeperf",
                       path);
    if (version < READABLE_VERSION)
        return mp_fail(error, MP_EVERSION,
                       "%s: the database has schema version %d, this moeperf reads versions %d to "
                       "%d: bring it up to date with any command that writes to it, e.g. moeperf "
                       "run",
                       path, version, READABLE_VERSION, MP_STORE_VERSION);
    MP_TRY(renew_views(opened, true, error));
    *store = opened;
    opened = NULL;
    return MP_OK;
}

void mp_store_close(struct mp_store *store) {
    if (!store)
        return;
    for (int i = 0; i < store->statements; i++)
        sqlite3_finalize(store->statement[i].prepared);
    free(store->statement);
    sqlite3_close(store->connection);
    if (store->leaves_log) {
        /* A connection that only reads leaves an empty log behind; the last one that may write does
         * not. */
        sqlite3 *connection = NULL;
        if (sqlite3_open_v2(store->path, &connection, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK)
            sqlite3_exec(connection, "PRAGMA schema_version", NULL, NULL, NULL);
        sqlite3_close(connection);
    }
    free(store->path);
    free(store);
}

int mp_store_query(struct mp_store *store, const char *sql, const int64_t values[], int count,
                   sqlite3_stmt **statement, struct mp_error *error) {
    *statement = NULL;
    if (sqlite3_prepare_v2(store->connection, sql, -1, statement, NULL) != SQLITE_OK)
        return mp_store_fail(store, "cannot read the database", error);
    const int wanted = sqlite3_bind_parameter_count(*statement);
    for (int i = 0; i < count && i < wanted; i++)
        sqlite3_bind_int64(*statement, i + 1, values[i]);
    return MP_OK;
}

int mp_store_next(struct mp_store *store, sqlite3_stmt *statement, struct mp_error *error) {
    const int step = sqlite3_step(statement);
    if (step == SQLITE_ROW)
        return 1;
    return step == SQLITE_DONE ? 0 : mp_store_fail(store, "cannot read the database", error);
}

int store_numbers_of(struct mp_store *store, const char *sql, const char *text,
                     const int64_t values[], int count, int64_t numbers[], int columns,
                     struct mp_error *error) {
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    MP_TRY(mp_store_query(store, sql, values, count, &row, error));
    if (text)
        sqlite3_bind_text(row, 9, text, -1, SQLITE_STATIC);
    const int got = mp_store_next(store, row, error);
    for (int i = 0; i < columns; i++)
        numbers[i] = got == 1 ? sqlite3_column_int64(row, i) : 0;
    return got < 0 ? got : MP_OK;
}

int mp_store_numbers(struct mp_store *store, const char *sql, const int64_t values[], int count,
                     int64_t numbers[], int columns, struct mp_error *error) {
    return store_numbers_of(store, sql, NULL, values, count, numbers, columns, error);
}

int store_set_origin(struct mp_store *store, int64_t run_id, int64_t origin_ns,
                     struct mp_error *error) {
    return STORE_PUT(store, "cannot store the run's origin", error,
                     "UPDATE run SET origin_ns = ? WHERE run_id = ?", V(origin_ns), V(run_id));
}

int store_require_run(struct mp_store *store, int64_t run_id, struct mp_error *error) {
    int64_t runs;
    MP_TRY(mp_store_numbers(store, "SELECT count(*) FROM run WHERE run_id = ?1", &run_id, 1, &runs,
                            1, error));
    if (runs == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "%s: there is no run %lld; moeperf report --db %s --runs lists them",
                       store->path, (long long)run_id, store->path);
    return MP_OK;
}

int mp_store_choose_run(struct mp_store *store, int64_t *run_id, struct mp_error *error) {
    int64_t all[2];
    if (*run_id)
        return store_require_run(store, *run_id, error);
    MP_TRY(
        mp_store_numbers(store, "SELECT count(*), max(run_id) FROM run", NULL, 0, all, 2, error));
    *run_id = all[1];
    if (all[0] == 0)
        return mp_fail(error, MP_ENOTFOUND, "%s: there is no run in it", store->path);
    return all[0] == 1
               ? MP_OK
               : mp_fail(error, MP_EINVAL,
                         "%s: there are %lld runs in it: name one; moeperf report --db %s --runs "
                         "lists them",
                         store->path, (long long)all[0], store->path);
}

struct sqlite3 *mp_store_connection(struct mp_store *store) {
    return store->connection;
}

const char *mp_store_path(const struct mp_store *store) {
    return store->path;
}

int mp_store_recordings(struct mp_store *store, int64_t run_id, int64_t *recordings,
                        struct mp_error *error) {
    return mp_store_numbers(store, "SELECT ranks_recorded FROM v_run WHERE run_id = ?1", &run_id, 1,
                            recordings, 1, error);
}

int mp_store_add_fact(struct mp_store *store, int64_t run_id, const struct mp_store_fact *fact,
                      struct mp_error *error) {
    MP_TRY(store_require_run(store, run_id, error));
    return STORE_PUT(store, "cannot store a fact", error,
                     "INSERT OR IGNORE INTO fact (run_id, rank, name, value) VALUES (?, -1, ?, ?)",
                     V(run_id), V(fact->name), V(fact->value));
}
