/* Adding spools of GPU work to a run that is there: whose each is, where its clock lies, which
 * spans its process recorded; then its records. */
#include "results/store/device.h"

#include <stdio.h>
#include <string.h>

#include "reference/base/arena.h"

static int read_header(struct device_spool *spool, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    MP_TRY(mp_spool_open(spool->path, &reader, error));
    spool->header = *mp_spool_header(reader);
    return MP_OK;
}

/* The rank whose recording the same process made; else the one that the launcher has told. */
static int find_rank(struct device_spool *spool, struct mp_error *error) {
    const int64_t values[] = {spool->run_id, spool->header.pid, spool->header.rank};
    int64_t rank;
    MP_TRY(store_numbers_of(spool->store,
                            "SELECT coalesce((SELECT rank FROM rank WHERE run_id = ?1 AND "
                            "pid = ?2 AND host = ?9 ORDER BY rank <> ?3), ?3)",
                            spool->header.host, values, 3, &rank, 1, error));
    spool->rank = (int)rank;
    return MP_OK;
}

/* The rank's own samples, as at the time when the run was added; without samples its host's clock
 * is the run's, or it is not known how far they are apart. */
static int align(struct device_spool *spool, struct mp_error *error) {
    const int64_t values[] = {spool->run_id, spool->rank};
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    MP_AUTO(clock_samples) struct clock_sample *samples = NULL;
    int count = 0, got;
    MP_TRY(mp_store_query(spool->store,
                          "SELECT at_ns, offset_ns, error_ns FROM clock WHERE run_id = ?1 AND "
                          "rank = ?2 ORDER BY at_ns",
                          values, 2, &row, error));
    while ((got = mp_store_next(spool->store, row, error)) == 1) {
        MP_TRY(MP_APPEND(samples, count, error,
                         (struct clock_sample){sqlite3_column_int64(row, 0),
                                               sqlite3_column_int64(row, 1),
                                               sqlite3_column_int64(row, 2)}));
    }
    spool->fit = clock_fit_samples(samples, count);
    spool->clock = count > 0 && spool->rank > 0 ? "samples" : NULL;
    return got;
}

static int name_clock(struct device_spool *spool, struct mp_error *error) {
    int64_t same;
    if (spool->clock)
        return MP_OK;
    MP_TRY(store_numbers_of(spool->store,
                            "SELECT host IS ?9 FROM rank WHERE run_id = ?1 AND clock = "
                            "'reference' UNION ALL SELECT NOT EXISTS (SELECT 1 FROM rank WHERE "
                            "run_id = ?1 AND clock = 'reference') LIMIT 1",
                            spool->header.host, &spool->run_id, 1, &same, 1, error));
    spool->clock = same ? "same host" : "unknown";
    return MP_OK;
}

/* Whether it is there already: after a kill nobody needs to know how far the last attempt got. */
static int insert_spool(struct device_spool *spool, bool *is_new, struct mp_error *error) {
    MP_TRY(STORE_PUT(spool->store, "cannot store GPU work", error,
                     "INSERT OR IGNORE INTO device_spool VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                     V(spool->run_id), V(spool->rank), V(spool->collector), V(spool->header.host),
                     V(spool->header.pid), V(spool->header.realtime_ns),
                     V(spool->status[0] ? spool->status : NULL), V(spool->complete),
                     V(spool->unread_bytes), V(spool->clock)));
    *is_new = sqlite3_changes(spool->store->connection) > 0;
    return MP_OK;
}

/* Two collectors of one rank have a fact each. */
static int insert_note(struct device_spool *spool, struct mp_error *error) {
    return spool->note[0]
               ? STORE_PUT(spool->store, "cannot store a note", error,
                           "INSERT OR REPLACE INTO fact VALUES (?, ?, ? || '.note', ?)",
                           V(spool->run_id), V(spool->rank), V(spool->collector), V(spool->note))
               : MP_OK;
}

static int add_spool(struct device_spool *spool, struct mp_error *error) {
    bool is_new = false;
    MP_TRY(read_header(spool, error));
    MP_TRY(find_rank(spool, error));
    MP_TRY(align(spool, error));
    MP_TRY(name_clock(spool, error));
    MP_TRY(device_collect(spool, error));
    MP_TRY(insert_spool(spool, &is_new, error));
    if (!is_new)
        return MP_OK;
    MP_TRY(insert_note(spool, error));
    MP_TRY(device_read_spans(spool, error));
    return device_insert(spool, error);
}

/* The clock's origin of the run; a run that recorded no spans counts from the earliest spool. */
static int find_origin(struct mp_store *store, int64_t run_id, const char *const paths[], int count,
                       int64_t *origin_ns, struct mp_error *error) {
    MP_TRY(store_require_run(store, run_id, error));
    MP_TRY(mp_store_numbers(store, "SELECT origin_ns FROM run WHERE run_id = ?1", &run_id, 1,
                            origin_ns, 1, error));
    for (int i = 0; *origin_ns == 0 && i < count; i++) {
        struct device_spool first = {.store = store, .path = paths[i]};
        if (read_header(&first, NULL) == MP_OK)
            *origin_ns = clock_bounded(first.header.monotonic_ns);
    }
    return store_set_origin(store, run_id, *origin_ns, error);
}

int mp_store_add_device(struct mp_store *store, int64_t run_id, const char *const spool_paths[],
                        int count, struct mp_error *error) {
    struct strings strings = {.store = store};
    int64_t origin_ns = 0;
    MP_TRY(store_execute(store, "BEGIN IMMEDIATE", "cannot write", error));
    int code = find_origin(store, run_id, spool_paths, count, &origin_ns, error);
    for (int i = 0; !code && i < count; i++) {
        struct device_spool spool = {.store = store,
                                     .strings = &strings,
                                     .path = spool_paths[i],
                                     .run_id = run_id,
                                     .origin_ns = origin_ns};
        code = add_spool(&spool, error);
        device_free(&spool);
    }
    strings_free(&strings);
    return store_end(store, code, "cannot store GPU work", error);
}
