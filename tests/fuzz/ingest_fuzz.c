/* Runs of arbitrary recordings: what can be read of them gets into the database, and the database
 * stays whole.
 *
 * The input is a choice of ranks, then two spools one behind the other, each with all its checks
 * filled in.  The database is begun anew from time to time, so that it stays small. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "results/store/store.h"
#include "tests/fuzz/spool_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

enum { RUNS_IN_A_DATABASE = 200, RANKS = 2 };

static char folder[] = "/tmp/moeperf-fuzz-XXXXXX";
static char database[64], spool[RANKS][64];

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "ingest_fuzz: %s\n", what);
        abort();
    }
}

static void remove_all(void) {
    static const char *const endings[] = {"", "-wal", "-shm"};
    char path[80];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", database, endings[i]);
        unlink(path);
    }
}

static void leave(void) {
    remove_all();
    for (int r = 0; r < RANKS; r++)
        unlink(spool[r]);
    rmdir(folder);
}

static void name_files(void) {
    if (database[0])
        return;
    expect(mkdtemp(folder) != NULL, "mkdtemp");
    snprintf(database, sizeof database, "%s/results.db", folder);
    for (int r = 0; r < RANKS; r++)
        snprintf(spool[r], sizeof spool[r], "%s/%d.spool", folder, r);
    atexit(leave);
}

static void write_spool(const char *path, const uint8_t *input, size_t size) {
    uint8_t *bytes = malloc(size + 1);
    expect(bytes != NULL, "malloc");
    memcpy(bytes, input, size);
    spool_fill_in_checks(bytes, size);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    expect(file >= 0 && write(file, bytes, size) == (ssize_t)size, "write");
    close(file);
    free(bytes);
}

/* The database, and every so often a new one. */
static struct mp_store *open_store(void) {
    static struct mp_store *store;
    static int runs;
    struct mp_error error = {0};
    if (runs++ % RUNS_IN_A_DATABASE == 0) {
        mp_store_close(store);
        remove_all();
        store = NULL;
        expect(mp_store_open(database, &store, &error) == MP_OK, error.text);
    }
    return store;
}

static int64_t ask(struct mp_store *store, const char *sql) {
    sqlite3_stmt *row = NULL;
    expect(sqlite3_prepare_v2(mp_store_connection(store), sql, -1, &row, NULL) == SQLITE_OK, sql);
    expect(sqlite3_step(row) == SQLITE_ROW, sqlite3_errmsg(mp_store_connection(store)));
    int64_t value = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < 2)
        return 0;
    name_files();
    int ranks = 1 + input[0] % RANKS;
    size_t first = ranks == 1 ? size - 1 : (size - 1) / 2 / SPOOL_UNIT * SPOOL_UNIT;
    write_spool(spool[0], input + 1, first);
    write_spool(spool[1], input + 1 + first, size - 1 - first);
    const char *const paths[] = {spool[0], spool[1]};
    const struct mp_store_run run = {.suite = "fuzz",
                                     .job = "fuzz",
                                     .suite_run = "fuzz-1",
                                     .system = "ep",
                                     .executor = "measured",
                                     .workload = "text",
                                     .status = "failed",
                                     .started_at = "2025-01-31T12:00:00Z",
                                     .ranks = ranks,
                                     .nodes = 1,
                                     .ranks_per_node = ranks};
    struct mp_store *store = open_store();
    struct mp_error error = {0};
    int64_t run_id = 0, again = 0;
    int code = mp_store_ingest(store, &run, paths, ranks, &run_id, &error);
    expect(code == MP_OK, error.text);
    code = mp_store_ingest(store, &run, paths, ranks, &again, &error);
    expect(code == MP_OK && again == run_id, "a run is added once");
    expect(ask(store, "SELECT count(*) FROM span") ==
               ask(store, "SELECT coalesce(sum(spans), 0) FROM v_rank"),
           "spans belong to ranks");
    ask(store, "SELECT count(*) FROM v_speedup");
    expect(ask(store,
               "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'") == 0,
           "the database is whole");
    return 0;
}
