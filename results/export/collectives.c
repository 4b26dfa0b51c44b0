/* NCCL's operations, per communicator.  How long one waited comes of all its ranks, so that they
 * are put side by side once, in a table beside the database, and read rank by rank. */
#include <math.h>
#include <stdlib.h>

#include "results/export/timeline.h"

/* Columns of the query. */
enum {
    COMMUNICATOR,
    OWN_RANK,
    SIZE,
    FUNCTION,
    ORDINAL,
    OPERATIONS,
    BYTES,
    START,
    UNTIL,
    WAIT_MS,
    TRANSFER_MS,
    ID,
    IS_UNPLACED,
    LAUNCH_TID, /* and time */
};

int collectives_prepare(struct timeline *timeline, struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    sqlite3_stmt *create = NULL;
    if (sqlite3_exec(
            mp_store_connection(store),
            "CREATE TEMP TABLE moeperf_collective (rank INTEGER, communicator, communicator_rank, "
            "communicator_size, function, ordinal, operations, bytes, start_ns, end_ns, "
            "wait_ms, transfer_ms, span_id INTEGER); "
            "CREATE INDEX temp.moeperf_collective_by_rank ON moeperf_collective (rank)",
            NULL, NULL, NULL) != SQLITE_OK)
        return mp_store_fail(store, "cannot put the collectives side by side", error);
    int code = output_query(store,
                            "INSERT INTO temp.moeperf_collective SELECT rank, communicator, "
                            "communicator_rank, communicator_size, function, ordinal, operations, "
                            "bytes, start_ns, end_ns, wait_ms, transfer_ms, span_id "
                            "FROM v_collective WHERE run_id = ?1",
                            &timeline->selection, &create, error);
    if (!code)
        code = mp_store_next(store, create, error);
    sqlite3_finalize(create);
    return code;
}

static const char collectives_sql[] =
    "SELECT communicator, communicator_rank, communicator_size, function, ordinal, operations, "
    "bytes, start_ns, max(start_ns, coalesce(end_ns, start_ns)) AS until, wait_ms, transfer_ms, "
    "collective.rowid, (SELECT count(*) FROM device_spool WHERE run_id = ?1 AND rank = ?4 AND "
    "collector = 'nccl' AND clock = 'unknown'), launch.tid, launch.at_ns "
    "FROM temp.moeperf_collective AS collective "
    "LEFT JOIN temp.moeperf_launch AS launch ON launch.process = -1 AND launch.number = span_id "
    "WHERE rank = ?4 AND (start_ns IS NULL OR "
    "(start_ns <= ?6 AND max(start_ns, coalesce(end_ns, start_ns)) >= ?5)) "
    "ORDER BY communicator, communicator_rank, start_ns, until DESC, collective.rowid";

static void write_arguments(struct timeline *timeline, sqlite3_stmt *row) {
    static const struct {
        const char *name;
        int column;
    } times[] = {{"wait_ms", WAIT_MS}, {"transfer_ms", TRANSFER_MS}};
    fprintf(timeline->output.file, ",\"args\":{\"communicator\":\"%016llx\"",
            (unsigned long long)sqlite3_column_int64(row, COMMUNICATOR));
    timeline_number(timeline, "ordinal", row, ORDINAL);
    timeline_number(timeline, "operations", row, OPERATIONS);
    timeline_number(timeline, "bytes", row, BYTES);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (sqlite3_column_type(row, times[i].column) != SQLITE_NULL)
            fprintf(timeline->output.file, ",\"%s\":%.6f", times[i].name,
                    sqlite3_column_double(row, times[i].column));
    fputc('}', timeline->output.file);
}

/* First it waits for ranks that came later, then it transfers. */
static void write_parts(struct timeline *timeline, const struct timeline_slice *whole,
                        sqlite3_stmt *row) {
    if (!whole->tid || sqlite3_column_type(row, WAIT_MS) == SQLITE_NULL)
        return;
    int64_t wait_ns = llround(sqlite3_column_double(row, WAIT_MS) * 1e6);
    int64_t length_ns = whole->end_ns - whole->start_ns;
    wait_ns = wait_ns < 0 ? 0 : wait_ns > length_ns ? length_ns : wait_ns;
    struct timeline_slice part = *whole;
    part.name = "\"wait\"";
    part.end_ns = whole->start_ns + wait_ns;
    if (wait_ns > 0)
        timeline_slice_inside(timeline, &part);
    part.name = "\"transfer\"";
    part.start_ns = part.end_ns;
    part.end_ns = whole->end_ns;
    if (part.start_ns < part.end_ns)
        timeline_slice_inside(timeline, &part);
}

static int write_collective(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    const char *text = (const char *)sqlite3_column_text(row, FUNCTION);
    json_t *value =
        output_text(text ? text : "collective",
                    text ? (size_t)sqlite3_column_bytes(row, FUNCTION) : sizeof "collective" - 1);
    char *name = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    struct timeline_slice slice = {.name = name,
                                   .category = "\"nccl\"",
                                   .start_ns = sqlite3_column_int64(row, START),
                                   .end_ns = sqlite3_column_int64(row, UNTIL),
                                   .id = sqlite3_column_int64(row, ID)};
    int code = name ? timeline_slice(timeline, &slice, error)
                    : mp_fail(error, MP_ENOMEM, "no memory for the export");
    if (!code) {
        write_arguments(timeline, row);
        timeline_slice_end(timeline, &slice);
        launches_arrow(timeline, row, LAUNCH_TID, "\"collective\"", &slice);
        write_parts(timeline, &slice, row);
        timeline->exported->collectives++;
    }
    json_decref(value);
    free(name);
    return code;
}

int collectives_write(struct timeline *timeline, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    int64_t communicator = 0, own_rank = -1; /* none yet */
    int got = 0, code = output_query(timeline->output.store, collectives_sql, &timeline->selection,
                                     &row, error);
    if (code)
        return code;
    timeline_bind(timeline, row);
    while (!code && (got = mp_store_next(timeline->output.store, row, error)) == 1) {
        if (sqlite3_column_type(row, START) == SQLITE_NULL ||
            sqlite3_column_int(row, IS_UNPLACED)) {
            timeline->exported->gpu_left_out++;
            continue;
        }
        if (communicator != sqlite3_column_int64(row, COMMUNICATOR) ||
            own_rank != sqlite3_column_int64(row, OWN_RANK)) {
            communicator = sqlite3_column_int64(row, COMMUNICATOR);
            own_rank = sqlite3_column_int64(row, OWN_RANK);
            code = timeline_enter_next(
                timeline,
                json_sprintf("NCCL %016llx, %lld of %lld", (unsigned long long)communicator,
                             (long long)own_rank, (long long)sqlite3_column_int64(row, SIZE)),
                error);
        }
        if (!code)
            code = write_collective(timeline, row, error);
    }
    sqlite3_finalize(row);
    return code ? code : got;
}
