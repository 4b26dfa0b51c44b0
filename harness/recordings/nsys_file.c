#include "harness/recordings/nsys_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/recordings/recordings.h"
#include "results/store/store.h"

enum { COLUMNS_BYTES = 4096, ENVIRONMENT_BYTES = 1 << 20 };

/* ---- the file ---- */

static void note_damage(struct nsys_file *file, const char *doing) {
    if (!file->damage[0])
        snprintf(file->damage, sizeof file->damage,
                 "%.120s: %s: %.60s: what comes behind is missing", file->path, doing,
                 sqlite3_errmsg(file->database));
}

/* Also for a NULL column: the table. */
static bool has_column(const struct nsys_file *file, const char *table, const char *column) {
    sqlite3_stmt *select = NULL;
    bool found = false;
    if (sqlite3_prepare_v2(
            file->database,
            "SELECT 1 FROM sqlite_master AS own, pragma_table_info(own.name) AS has "
            "WHERE own.type = 'table' AND own.name = ?1 AND (?2 IS NULL OR has.name = ?2)",
            -1, &select, NULL) == SQLITE_OK) {
        sqlite3_bind_text(select, 1, table, -1, SQLITE_STATIC);
        sqlite3_bind_text(select, 2, column, -1, SQLITE_STATIC);
        found = sqlite3_step(select) == SQLITE_ROW;
    }
    sqlite3_finalize(select);
    return found;
}

/* The only value of a query as text, cut to size; false: there is none. */
static bool find_value(struct nsys_file *file, const char *sql, char text[], size_t size) {
    sqlite3_stmt *select = NULL;
    const char *value = NULL;
    if (sqlite3_prepare_v2(file->database, sql, -1, &select, NULL) == SQLITE_OK &&
        sqlite3_step(select) == SQLITE_ROW)
        value = (const char *)sqlite3_column_text(select, 0);
    if (value)
        snprintf(text, size, "%s", value);
    sqlite3_finalize(select);
    return value != NULL;
}

/* moeperf's databases have tables of the same names.  Errors: MP_ENOTFOUND, MP_EIO, MP_EINVAL (such
 * a one), MP_EFORMAT (no SQLite file, or none of Nsight Systems'). */
static int open_export(struct nsys_file *file, const char *path, struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    char text[32];
    *file = (struct nsys_file){.path = path};
    if (access(path, F_OK))
        return mp_fail(error, MP_ENOTFOUND, "%s: there is no such file", path);
    const int own = mp_store_open_read_only(path, &store, NULL);
    if (!own || own == MP_EVERSION)
        return mp_fail(error, MP_EINVAL,
                       "%s: a database of moeperf, and no recording; moeperf report --db %s prints "
                       "what it says",
                       path, path);
    int failed = sqlite3_open_v2(path, &file->database, SQLITE_OPEN_READONLY, NULL);
    if (!failed) /* nothing that somebody has put into its schema is carried out */
        failed = sqlite3_db_config(file->database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (!failed) /* reads a file that is shorter than it says, as far as it goes */
        failed = sqlite3_exec(file->database, "PRAGMA writable_schema = ON", NULL, NULL, NULL);
    if (!failed)
        failed =
            sqlite3_exec(file->database, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL);
    if (failed)
        return mp_fail(error, failed == SQLITE_CANTOPEN ? MP_EIO : MP_EFORMAT,
                       "%s: can't be read as an SQLite file: %s; nsys export --type sqlite makes "
                       "one of a report",
                       path, sqlite3_errmsg(file->database));
    if (!has_column(file, "NVTX_EVENTS", "start") &&
        !has_column(file, "CUPTI_ACTIVITY_KIND_KERNEL", "start") &&
        !has_column(file, "MPI_COLLECTIVES_EVENTS", "start"))
        return mp_fail(
            error, MP_EFORMAT,
            "%s: has none of the tables NVTX_EVENTS, CUPTI_ACTIVITY_KIND_KERNEL and "
            "MPI_COLLECTIVES_EVENTS: no export of Nsight Systems, or nsys recorded neither "
            "(nsys profile --trace=nvtx,cuda,mpi)",
            path);
    if (find_value(file, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME", text,
                   sizeof text))
        file->epoch_ns = strtoll(text, NULL, 10);
    return MP_OK;
}

/* ---- tables ---- */

static void add_column(const struct nsys_file *file, const char *table, const char *name,
                       char list[COLUMNS_BYTES]) {
    size_t length = strlen(list);
    const bool is_text = *name == '@';
    const char *plain = name + is_text;
    const bool there =
        has_column(file, table, plain) && (!is_text || has_column(file, "StringIds", "value"));
    const char *form = !there    ? "%sNULL%.0s"
                       : is_text ? "%s(SELECT value FROM StringIds WHERE id = \"%s\")"
                                 : "%s\"%s\"";
    snprintf(list + length, COLUMNS_BYTES - length, form, length > 0 ? ", " : "", plain);
}

int nsys_each_row(struct nsys_file *file, const char *table, const char *const column[],
                  const char *condition, nsys_take_row *take, void *context) {
    char list[COLUMNS_BYTES] = "", sql[2 * COLUMNS_BYTES];
    sqlite3_stmt *row = NULL;
    int code = MP_OK, step = SQLITE_DONE;
    if (!has_column(file, table, NULL))
        return MP_OK;
    for (int i = 0; column[i]; i++)
        add_column(file, table, column[i], list);
    snprintf(sql, sizeof sql, "SELECT %s FROM \"%s\" %s", list, table, condition);
    if (sqlite3_prepare_v2(file->database, sql, -1, &row, NULL) != SQLITE_OK)
        note_damage(file, table);
    while (!code && row && (step = sqlite3_step(row)) == SQLITE_ROW)
        code = take(context, row);
    if (!code && step != SQLITE_DONE)
        note_damage(file, "rows of a table can't be read");
    sqlite3_finalize(row);
    return code;
}

/* ---- processes ---- */

static struct nsys_process *find(struct nsys_file *file, int64_t key) {
    const int at = MP_BISECT(i, file->processes, file->item[i].key < key);
    return at < file->processes && file->item[at].key == key ? &file->item[at] : NULL;
}

struct nsys_process *nsys_process_of(struct nsys_file *file, int64_t global) {
    struct nsys_process *found = find(file, nsys_key(global));
    if (found && found->process)
        return found;
    file->foreign++;
    return NULL;
}

static void add_process(struct nsys_file *file, int64_t key, bool is_work) {
    struct nsys_process *found = find(file, key);
    if (!found && file->processes < NSYS_PROCESSES) {
        int at = file->processes++;
        for (; at > 0 && file->item[at - 1].key > key; at--)
            file->item[at] = file->item[at - 1];
        found = &file->item[at];
        *found = (struct nsys_process){.key = key, .rank = -1};
    }
    if (found && is_work)
        found->has_work = true;
    else if (found)
        found->has_ranges = true;
}

struct search {
    struct nsys_file *file;
    bool is_work;
    int64_t last;
};

static int take_process(void *context, sqlite3_stmt *row) {
    struct search *search = context;
    const int64_t key = nsys_key(sqlite3_column_int64(row, 0));
    if (sqlite3_column_type(row, 0) != SQLITE_NULL && key != search->last)
        add_process(search->file, key, search->is_work);
    search->last = key;
    return MP_OK;
}

static void find_processes(struct nsys_file *file) {
    static const struct {
        const char *table, *column, *condition;
        bool is_work;
    } places[] = {
        {"NVTX_EVENTS", "globalTid", "WHERE eventType IN (34, 59, 60)", false},
        {"MPI_COLLECTIVES_EVENTS", "globalTid", "", false},
        {"MPI_P2P_EVENTS", "globalTid", "", false},
        {"CUPTI_ACTIVITY_KIND_KERNEL", "globalPid", "", true},
    };
    for (size_t i = 0; i < MP_LENGTH(places); i++) {
        const char *const column[] = {places[i].column, NULL};
        struct search search = {file, places[i].is_work, -1};
        nsys_each_row(file, places[i].table, column, places[i].condition, take_process, &search);
    }
}

/* ---- ranks ---- */

static int take_mpi_rank(void *file, sqlite3_stmt *row) {
    struct nsys_process *found = find(file, nsys_key(sqlite3_column_int64(row, 0)));
    if (found)
        found->rank = sqlite3_column_int(row, 1);
    return MP_OK;
}

/* The number behind "NAME=" at the beginning of a word; -1: none. */
static int variable(const char *environment, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = environment; (at = strstr(at, name)); at += length)
        if ((at == environment || isspace((unsigned char)at[-1]) || at[-1] == ';') &&
            at[length] == '=' && isdigit((unsigned char)at[length + 1]))
            return atoi(at + length + 1);
    return -1;
}

/* The environment is that of the program which nsys started: a rank's, where a launcher started an
 * nsys for each. */
static int environment_rank(struct nsys_file *file) {
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "RANK",
        "SLURM_PROCID",         NULL};
    char *text = malloc(ENVIRONMENT_BYTES);
    int rank = -1;
    if (text && find_value(file,
                           "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = "
                           "'DeviceEnvironment'",
                           text, ENVIRONMENT_BYTES))
        for (int i = 0; names[i] && rank < 0; i++)
            rank = variable(text, names[i]);
    free(text);
    return rank;
}

/* N of "...rankN..." in the file's name; -1: none. */
static int name_rank(const char *path) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (; *name; name++)
        if (!strncasecmp(name, "rank", 4)) {
            const char *number = name + 4 + strspn(name + 4, "-_. ");
            if (isdigit((unsigned char)*number))
                return atoi(number);
        }
    return -1;
}

static int begin_process(struct nsys_file *file, struct nsys_process *own, const char *host,
                         const char *note, struct mp_recording *recording, struct mp_error *error) {
    char version[64];
    const struct mp_recorded_process about = {
        .rank = own->rank, .pid = (int)(own->key & 0xffffff), .host = host, .source = file->path};
    MP_TRY(mp_recording_process(recording, &about, &own->process, error));
    if (note)
        mp_recording_note(own->process, note);
    if (find_value(file,
                   "SELECT value FROM META_DATA_EXPORT WHERE name LIKE "
                   "'%SCHEMA_VERSION%' ORDER BY name LIMIT 1",
                   version, sizeof version))
        MP_TRY(mp_recording_text(own->process, "nsys.schema", version, error));
    return MP_OK;
}

/* Launchers and loaders of data make ranges, too; where GPUs worked, who used one is a rank. */
static int count_ranks(const struct nsys_file *file, bool *needs_work) {
    int ranks[2] = {0};
    for (int i = 0; i < file->processes; i++) {
        ranks[0] += file->item[i].has_ranges;
        ranks[1] += file->item[i].has_work;
    }
    *needs_work = ranks[1] > 0;
    return ranks[*needs_work];
}

static bool is_rank(const struct nsys_process *own, bool needs_work) {
    return needs_work ? own->has_work || own->rank >= 0 : own->has_ranges;
}

/* Finds the file's processes and begins them in the recording, each with its rank: by MPI's table;
 * for a file with one process by the environment that it was started with, or "rank N" in the
 * file's name; else the next ones that are free, in the order of process ids, which is noted.
 * Errors: those of mp_recording_process, MP_EFORMAT (no process has any range). */
static int begin_processes(struct nsys_file *file, struct mp_recording *recording,
                           struct mp_error *error) {
    static const char *const mpi_columns[] = {"globalTid", "rank", NULL};
    char host[64] = "", note[256];
    bool needs_work;
    int code = MP_OK, unknown = 0;
    find_processes(file);
    nsys_each_row(file, "MPI_RANKS", mpi_columns, "", take_mpi_rank, file);
    const int ranks = count_ranks(file, &needs_work);
    if (ranks == 0)
        return mp_fail(error, MP_EFORMAT, "%s: no process has a range or a kernel in it%s%s",
                       file->path, file->damage[0] ? "; " : "", file->damage);
    find_value(file, "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'", host,
               sizeof host);
    for (int i = 0; i < file->processes; i++) {
        struct nsys_process *own = &file->item[i];
        if (is_rank(own, needs_work) && own->rank < 0 && ranks == 1)
            own->rank = environment_rank(file);
        if (is_rank(own, needs_work) && own->rank < 0 && ranks == 1)
            own->rank = name_rank(file->path);
        unknown += is_rank(own, needs_work) && own->rank < 0;
    }
    snprintf(
        note, sizeof note,
        "nothing says the ranks of %.120s (%d process%s): they are numbered from here on, in the "
        "order of files and process ids",
        file->path, unknown, unknown == 1 ? "" : "es");
    for (int i = 0; i < file->processes && !code; i++) {
        struct nsys_process *own = &file->item[i];
        const bool by_order = own->rank < 0;
        if (!is_rank(own, needs_work))
            continue;
        if (by_order)
            own->rank = mp_recording_free_rank(recording);
        code = begin_process(file, own, *host ? host : NULL, by_order && unknown ? note : NULL,
                             recording, error);
        unknown = by_order ? 0 : unknown; /* said once a file */
    }
    return code;
}

/* ---- the format ---- */

static bool ends_in(const char *path, const char *ending) {
    const size_t length = strlen(path), own = strlen(ending);
    return length > own && !strcmp(path + length - own, ending);
}

static bool is_report(const char *path) {
    return ends_in(path, ".nsys-rep") || ends_in(path, ".qdrep");
}

/* Also what reading it says something better of: damaged ones, and moeperf's databases. */
static bool recognises(const char *path, const char *head, size_t size) {
    static const char magic[] = "SQLite format 3";
    MP_AUTO(memory) struct nsys_file *file = mp_new(1, sizeof *file);
    struct mp_error unused;
    bool is_export = is_report(path) || ends_in(path, ".sqlite");
    if (file && size >= sizeof magic && !memcmp(head, magic, sizeof magic)) {
        is_export = open_export(file, path, &unused) != MP_EFORMAT || is_export;
        sqlite3_close(file->database);
    }
    return is_export;
}

/* What a version or a trace option left out, and what that means; "": nothing that matters. */
static void describe_missing(const struct nsys_file *file, char text[400]) {
    static const struct {
        const char *table, *unless, *meaning;
    } tables[] = {
        {"NVTX_EVENTS", NULL, "no ranges of NVTX"},
        {"StringIds", NULL, "no names but those that stand in the ranges themselves"},
        {"CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL",
         "no calls of CUDA, so that kernels belong to no span"},
        {"TARGET_INFO_SESSION_START_TIME", NULL, "no time at which the session began"},
    };
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < MP_LENGTH(tables) && length < 400; i++)
        if (!has_column(file, tables[i].table, NULL) &&
            (!tables[i].unless || has_column(file, tables[i].unless, NULL)))
            length += (size_t)snprintf(text + length, 400 - length, "%s%s",
                                       length > 0 ? ", " : "the file has ", tables[i].meaning);
}

/* What is to be known of a file is said once, of its first process; damage of all. */
static void say_notes(struct nsys_file *file) {
    char missing[400], foreign[160];
    bool said = false;
    describe_missing(file, missing);
    snprintf(foreign, sizeof foreign,
             "%lld rows of the file belong to processes that used no GPU, or to none that it "
             "names, and are left out",
             (long long)file->foreign);
    for (int i = 0; i < file->processes; i++) {
        struct mp_recording_process *process = file->item[i].process;
        if (process && file->damage[0])
            mp_recording_cut(process, file->damage);
        if (process && !said && missing[0])
            mp_recording_note(process, missing);
        if (process && !said && file->foreign > 0)
            mp_recording_note(process, foreign);
        said = said || process;
    }
}

static int read_all(struct nsys_file *file, struct mp_recording *recording,
                    struct mp_error *error) {
    MP_TRY(open_export(file, file->path, error));
    MP_TRY(begin_processes(file, recording, error));
    MP_TRY(nsys_read_ranges(file, error));
    MP_TRY(nsys_read_work(file, error));
    say_notes(file);
    return MP_OK;
}

static int read_file(const char *path, const struct mp_rules *rules, struct mp_recording *recording,
                     struct mp_error *error) {
    (void)rules; /* ranges of NVTX are few beside operators of a framework: all are kept */
    if (is_report(path))
        return mp_fail(error, MP_EFORMAT,
                       "%s: a report of Nsight Systems; nsys export --type sqlite %s makes the "
                       "file that can be read",
                       path, path);
    MP_AUTO(memory) struct nsys_file *file = NULL;
    MP_TRY(MP_NEW(file, 1, error));
    file->path = path;
    int code = read_all(file, recording, error);
    sqlite3_close(file->database);
    return code;
}

extern const struct mp_recording_format mp_recording_nsys;
const struct mp_recording_format mp_recording_nsys = {
    "nsys", "Nsight Systems' SQLite export (nsys export --type sqlite)", recognises, read_file};
