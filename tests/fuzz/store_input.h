/* What the fuzzers of the store share: a folder for a database and the spools it is filled from,
 * which goes when the process ends, and a question to the database. */
#pragma once

#include <ftw.h>
#include <sqlite3.h>
#include <stdint.h>
#include <unistd.h>

#include "results/store/store.h"
#include "tests/fuzz/expect.h"

static char store_folder[] = "/tmp/moeperf-fuzz-XXXXXX";

static inline int store_remove_entry(const char *path, const struct stat *status, int kind,
                                     struct FTW *place) {
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static inline void store_leave(void) {
    nftw(store_folder, store_remove_entry, 4, FTW_DEPTH | FTW_PHYS);
}

/* Once, before any file is named.  What is registered with atexit later comes before the folder
 * goes: there a store can be closed. */
static inline void store_enter(void) {
    expect(mkdtemp(store_folder) != NULL, "mkdtemp");
    atexit(store_leave);
}

static inline void store_name_file(char path[64], int number, const char *ending) {
    snprintf(path, 64, "%s/%d.%s", store_folder, number, ending);
}

static inline void store_write_file(const char *path, const uint8_t *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    expect(file && fwrite(bytes, 1, size, file) == size && !fclose(file), path);
}

/* A run of one node. */
static inline struct mp_store_run store_run(const char *job, const char *status, int ranks) {
    return (struct mp_store_run){.suite = "fuzz",
                                 .job = job,
                                 .suite_run = "fuzz-1",
                                 .system = "ep",
                                 .executor = "measured",
                                 .workload = "text",
                                 .status = status,
                                 .started_at = "2025-01-31T12:00:00Z",
                                 .ranks = ranks,
                                 .nodes = 1,
                                 .ranks_per_node = ranks};
}

/* The number in the first column of the first row. */
static inline int64_t store_ask(struct mp_store *store, const char *sql) {
    sqlite3 *connection = mp_store_connection(store);
    sqlite3_stmt *row = NULL;
    expect(sqlite3_prepare_v2(connection, sql, -1, &row, NULL) == SQLITE_OK, sql);
    expect(sqlite3_step(row) == SQLITE_ROW, sqlite3_errmsg(connection));
    int64_t value = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    return value;
}

static inline void store_expect_whole(struct mp_store *store) {
    static const char sql[] =
        "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'";
    expect(store_ask(store, sql) == 0, "the database is whole");
}
