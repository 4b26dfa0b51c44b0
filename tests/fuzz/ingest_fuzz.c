/* Runs of arbitrary recordings: what can be read of them gets into the database, and the database
 * stays whole.
 *
 * The input is a choice of ranks, then two spools one behind the other, each with all its checks
 * filled in.  The database is begun anew from time to time, so that it stays small. */
#include "tests/fuzz/spool_input.h"
#include "tests/fuzz/store_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

enum { RUNS_IN_A_DATABASE = 200, RANKS = 2 };

static char database[64], spool[RANKS][64];

static void remove_all(void) {
    static const char *const endings[] = {"", "-wal", "-shm"};
    char path[80];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", database, endings[i]);
        unlink(path);
    }
}

static void name_files(void) {
    if (database[0])
        return;
    store_enter();
    snprintf(database, sizeof database, "%s/results.db", store_folder);
    for (int r = 0; r < RANKS; r++)
        store_name_file(spool[r], r, "spool");
}

static void write_spool(const char *path, const uint8_t *input, size_t size) {
    uint8_t *bytes = malloc(size + 1);
    expect(bytes != NULL, "malloc");
    memcpy(bytes, input, size);
    spool_fill_in_checks(bytes, size);
    store_write_file(path, bytes, size);
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

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < 2)
        return 0;
    name_files();
    int ranks = 1 + input[0] % RANKS;
    size_t first = ranks == 1 ? size - 1 : (size - 1) / 2 / SPOOL_UNIT * SPOOL_UNIT;
    write_spool(spool[0], input + 1, first);
    write_spool(spool[1], input + 1 + first, size - 1 - first);
    const char *const paths[] = {spool[0], spool[1]};
    const struct mp_store_run run = store_run("fuzz", "failed", ranks);
    struct mp_store *store = open_store();
    struct mp_error error = {0};
    int64_t run_id = 0, again = 0;
    int code = mp_store_ingest(store, &run, paths, ranks, &run_id, &error);
    expect(code == MP_OK, error.text);
    code = mp_store_ingest(store, &run, paths, ranks, &again, &error);
    expect(code == MP_OK && again == run_id, "a run is added once");
    expect(store_ask(store, "SELECT count(*) FROM span") ==
               store_ask(store, "SELECT coalesce(sum(spans), 0) FROM v_rank"),
           "spans belong to ranks");
    store_ask(store, "SELECT count(*) FROM v_speedup");
    store_expect_whole(store);
    return 0;
}
