#include "harness/record/devices.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "harness/suite/files.h"
#include "harness/suite/paths.h"
#include "profiler/record/spool.h"
#include "reference/base/characters.h"

static const struct {
    const char *library, *variable;
} offers[] = {{"libmoeperf-cupti.so", "CUDA_INJECTION64_PATH"},
              {"libmoeperf-nccl.so", "NCCL_PROFILER_PLUGIN"}};
enum { OFFERS = MP_LENGTH(offers) };

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

/* Removes from the list what is no spool of this build's, and says so: a process may have been
 * killed before its spool had a header, which costs no other one's. */
static void leave_out_damaged(struct mp_files *files, FILE *stream) {
    int kept = 0;
    for (int i = 0; i < files->count; i++) {
        MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
        struct mp_error damaged = {0};
        int code = mp_spool_open(files->path[i], &reader, &damaged);
        if (code == MP_EFORMAT || code == MP_EVERSION) {
            fprintf(stream, "moeperf record: left out: %s\n", damaged.text);
            free(files->path[i]);
        } else {
            files->path[kept++] = files->path[i];
        }
    }
    files->count = kept;
}

void mp_record_say(struct mp_store *store, const char *query, int64_t run_id, FILE *stream) {
    sqlite3_stmt *row = NULL;
    char line[2048];
    if (mp_store_query(store, query, &run_id, 1, &row, NULL))
        return;
    while (sqlite3_step(row) == SQLITE_ROW)
        fprintf(stream, "%s\n",
                mp_clean_text(line, sizeof line, (const char *)sqlite3_column_text(row, 0)));
    sqlite3_finalize(row);
}

/* One line per collector and what it said, which ranks mostly say alike; one for those that have
 * not even said which they are; and why something is missing. */
static void say(struct mp_store *store, int64_t run_id, FILE *stream) {
    mp_record_say(store,
                  "SELECT collector || ': ' || iif(status IS 'on', '', 'off, ') || "
                  "coalesce(status, 'it was killed before it said') || "
                  "printf(' in %d process', count(*)) || iif(count(*) = 1, '', 'es') "
                  "FROM device_spool WHERE run_id = ? AND collector <> '' "
                  "GROUP BY collector, status ORDER BY collector, status",
                  run_id, stream);
    mp_record_say(
        store,
        "SELECT printf('GPU work of rank%s %s: off, its collector was killed before it "
        "said its name', iif(count(*) = 1, '', 's'), group_concat(rank, ', ')) "
        "FROM (SELECT DISTINCT rank FROM device_spool WHERE run_id = ? AND collector = '' "
        "ORDER BY rank) HAVING count(*) > 0",
        run_id, stream);
    mp_record_say(store,
                  "SELECT DISTINCT collector || ': ' || value FROM fact JOIN device_spool USING "
                  "(run_id, rank) WHERE run_id = ? AND name = collector || '.note'",
                  run_id, stream);
}

int mp_devices_keep(struct mp_store *store, int64_t run_id, const char *folder, bool keep_spools,
                    FILE *stream, struct mp_error *error) {
    MP_AUTO(files) struct mp_files files = {NULL, 0};
    MP_TRY(mp_files_list(folder, MP_DEVICE_ENDING, &files, error));
    leave_out_damaged(&files, stream);
    if (files.count == 0)
        return MP_OK;
    MP_TRY(mp_store_add_device(store, run_id, (const char *const *)files.path, files.count, error));
    say(store, run_id, stream);
    if (!keep_spools)
        mp_files_remove(&files);
    return MP_OK;
}
