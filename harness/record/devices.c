#include "harness/record/devices.h"

#include <dirent.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/suite/paths.h"
#include "profiler/record/spool.h"
#include "reference/base/arena.h"
#include "reference/base/characters.h"

static const struct {
    const char *library, *variable;
} offers[] = {{"libmoeperf-cupti.so", "CUDA_INJECTION64_PATH"},
              {"libmoeperf-nccl.so", "NCCL_PROFILER_PLUGIN"}};
enum { OFFERS = sizeof offers / sizeof *offers };

void mp_devices_offer(const char *folder) {
    char path[MP_PATH_SIZE];
    setenv("MOEPERF_DEVICE_SPOOLS", folder, 1);
    for (int i = 0; i < OFFERS; i++) {
        struct mp_error unused = {0};
        if (!mp_path_library(offers[i].library, path, &unused))
            setenv(offers[i].variable, path, 0);
    }
}

/* ---- what they left ---- */

struct files {
    char **path;
    int count;
};

static void free_files(struct files *files) {
    for (int i = 0; i < files->count; i++)
        free(files->path[i]);
    free(files->path);
}

static int add_file(struct files *files, const char *folder, const char *name,
                    struct mp_error *error) {
    char path[MP_PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", folder);
    char *copy = MP_ROOM(files->path, files->count) ? strdup(path) : NULL;
    if (!copy)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for a spool", folder);
    files->path[files->count++] = copy;
    return MP_OK;
}

/* A process may have been killed before its spool had a header: that costs no other one's. */
static bool is_spool(const char *folder, const char *name, FILE *stream) {
    char path[MP_PATH_SIZE];
    struct mp_spool_reader *reader = NULL;
    struct mp_error damaged = {0};
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return true; /* add_file refuses it */
    int code = mp_spool_open(path, &reader, &damaged);
    mp_spool_close(reader);
    if (code == MP_EFORMAT || code == MP_EVERSION)
        fprintf(stream, "moeperf record: left out: %s\n", damaged.text);
    return code != MP_EFORMAT && code != MP_EVERSION;
}

static int find_files(const char *folder, struct files *files, FILE *stream,
                      struct mp_error *error) {
    static const char ending[] = MP_DEVICE_ENDING;
    struct dirent *entry;
    int code = MP_OK;
    DIR *open = opendir(folder);
    if (!open)
        return mp_fail(error, MP_EIO, "%s: %s", folder, strerror(errno));
    while (!code && (entry = readdir(open))) {
        size_t length = strlen(entry->d_name);
        if (length >= sizeof ending &&
            strcmp(entry->d_name + length - (sizeof ending - 1), ending) == 0 &&
            is_spool(folder, entry->d_name, stream))
            code = add_file(files, folder, entry->d_name, error);
    }
    closedir(open);
    return code;
}

static const char *clean_column(sqlite3_stmt *row, int column, char *text, size_t size) {
    return mp_clean_text(text, size, (const char *)sqlite3_column_text(row, column));
}

/* Why something of them is missing. */
static void say_notes(struct mp_store *store, int64_t run_id, FILE *stream) {
    sqlite3_stmt *select = NULL;
    char collector[64], note[512];
    if (mp_store_query(store,
                       "SELECT DISTINCT collector, value FROM fact JOIN device_spool USING "
                       "(run_id, rank) WHERE run_id = ? AND name = collector || '.note'",
                       &run_id, 1, &select, NULL))
        return;
    while (sqlite3_step(select) == SQLITE_ROW)
        fprintf(stream, "%s: %s\n", clean_column(select, 0, collector, sizeof collector),
                clean_column(select, 1, note, sizeof note));
    sqlite3_finalize(select);
}

/* One line per collector and what it said: ranks mostly say the same. */
static void say(struct mp_store *store, int64_t run_id, FILE *stream) {
    sqlite3_stmt *select = NULL;
    char collector[64], text[512];
    if (mp_store_query(store,
                       "SELECT collector, coalesce(status, 'it was killed before it said'), "
                       "count(*) FROM device_spool WHERE run_id = ? GROUP BY 1, 2 ORDER BY 1",
                       &run_id, 1, &select, NULL))
        return;
    while (sqlite3_step(select) == SQLITE_ROW) {
        const char *status = clean_column(select, 1, text, sizeof text);
        int processes = sqlite3_column_int(select, 2);
        fprintf(stream, "%s: %s%s in %d process%s\n",
                clean_column(select, 0, collector, sizeof collector),
                strcmp(status, "on") == 0 ? "" : "off, ", status, processes,
                processes == 1 ? "" : "es");
    }
    sqlite3_finalize(select);
    say_notes(store, run_id, stream);
}

int mp_devices_keep(struct mp_store *store, int64_t run_id, const char *folder, bool keep_spools,
                    FILE *stream, struct mp_error *error) {
    struct files files = {0};
    int code = find_files(folder, &files, stream, error);
    if (!code && files.count > 0)
        code =
            mp_store_add_device(store, run_id, (const char *const *)files.path, files.count, error);
    if (!code && files.count > 0)
        say(store, run_id, stream);
    for (int i = 0; !code && !keep_spools && i < files.count; i++)
        unlink(files.path[i]);
    free_files(&files);
    return code;
}
