/* What GPUs did: kernels, copies and fills, per stream. */
#include <string.h>

#include "results/export/timeline.h"

/* Columns of the query. */
enum {
    PROCESS,
    DEVICE,
    CONTEXT,
    STREAM,
    KIND,
    START,
    UNTIL,
    ID,
    NAME_ID,
    CORRELATION,
    BYTES,
    DETAIL, /* a copy's kind, the value of a fill */
    GRID,   /* and block: six */
    REGISTERS = GRID + 6,
    STATIC_SHARED,
    DYNAMIC_SHARED,
    ITERATION,
    LAYER,
    PHASE_ID,
    IS_UNPLACED,
    LAUNCH_TID, /* and time */
};
enum { KERNEL, COPY, SET };

static const char gpu_sql[] =
    "WITH work AS ("
    "SELECT globalPid / 0x1000000 AS process, deviceId, contextId, streamId, 0 AS kind, start, "
    "\"end\", rowid AS id, demangledName AS name, correlationId, NULL AS bytes, NULL AS detail, "
    "gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread AS registers, "
    "staticSharedMemory AS static_shared, dynamicSharedMemory AS dynamic_shared, span_id "
    "FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE run_id = ?1 AND rank = ?4 "
    "UNION ALL "
    "SELECT globalPid / 0x1000000, deviceId, contextId, streamId, 1, start, \"end\", rowid, NULL, "
    "correlationId, bytes, copyKind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, span_id "
    "FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE run_id = ?1 AND rank = ?4 "
    "UNION ALL "
    "SELECT globalPid / 0x1000000, deviceId, contextId, streamId, 2, start, \"end\", rowid, NULL, "
    "correlationId, bytes, value, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, span_id "
    "FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE run_id = ?1 AND rank = ?4) "
    "SELECT work.process, deviceId, contextId, streamId, kind, start, "
    "max(start, coalesce(\"end\", start)) AS until, id, name, correlationId, work.bytes, detail, "
    "gridX, gridY, gridZ, blockX, blockY, blockZ, registers, static_shared, dynamic_shared, "
    "iteration, layer, phase_id, (SELECT count(*) FROM device_spool WHERE run_id = ?1 AND "
    "rank = ?4 AND collector = 'cupti' AND clock = 'unknown'), "
    "coalesce(call.tid, span_launch.tid), coalesce(call.at_ns, span_launch.at_ns) "
    "FROM work "
    "LEFT JOIN temp.moeperf_launch AS call ON call.process = work.process AND "
    "call.number = correlationId "
    "LEFT JOIN temp.moeperf_launch AS span_launch ON span_launch.process = -1 AND "
    "span_launch.number = work.span_id "
    "LEFT JOIN span ON span.span_id = work.span_id "
    "WHERE start IS NULL OR (start <= ?6 AND max(start, coalesce(\"end\", start)) >= ?5) "
    "ORDER BY work.process, deviceId, contextId, streamId, start, until DESC, kind, id";

static const char *copy_name(int kind) {
    static const char *const names[] = {
        [1] = "\"memcpy HtoD\"", [2] = "\"memcpy DtoH\"", [3] = "\"memcpy HtoA\"",
        [4] = "\"memcpy AtoH\"", [5] = "\"memcpy AtoA\"", [6] = "\"memcpy AtoD\"",
        [7] = "\"memcpy DtoA\"", [8] = "\"memcpy DtoD\"", [9] = "\"memcpy HtoH\"",
        [10] = "\"memcpy PtoP\""};
    bool known = kind > 0 && kind < (int)(sizeof names / sizeof *names);
    return known ? names[kind] : "\"memcpy\"";
}

static void write_three(struct timeline *timeline, const char *name, sqlite3_stmt *row,
                        int column) {
    if (sqlite3_column_type(row, column) != SQLITE_NULL)
        fprintf(timeline->output.file, ",\"%s\":[%lld,%lld,%lld]", name,
                (long long)sqlite3_column_int64(row, column),
                (long long)sqlite3_column_int64(row, column + 1),
                (long long)sqlite3_column_int64(row, column + 2));
}

/* What it was, and the span that launched it. */
static int write_arguments(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    FILE *file = timeline->output.file;
    fprintf(file, ",\"args\":{\"device\":%d,\"context\":%lld,\"stream\":%lld",
            sqlite3_column_int(row, DEVICE), (long long)sqlite3_column_int64(row, CONTEXT),
            (long long)sqlite3_column_int64(row, STREAM));
    timeline_number(timeline, "correlation", row, CORRELATION);
    timeline_number(timeline, "bytes", row, BYTES);
    if (sqlite3_column_int(row, KIND) == SET)
        timeline_number(timeline, "value", row, DETAIL);
    write_three(timeline, "grid", row, GRID);
    write_three(timeline, "block", row, GRID + 3);
    timeline_number(timeline, "registers", row, REGISTERS);
    timeline_number(timeline, "static_shared", row, STATIC_SHARED);
    timeline_number(timeline, "dynamic_shared", row, DYNAMIC_SHARED);
    timeline_number(timeline, "iteration", row, ITERATION);
    timeline_number(timeline, "layer", row, LAYER);
    if (sqlite3_column_type(row, PHASE_ID) != SQLITE_NULL) {
        const struct timeline_name *phase =
            timeline_name(timeline, sqlite3_column_int64(row, PHASE_ID), error);
        if (!phase)
            return error->code;
        fprintf(file, ",\"phase\":%s", phase->json);
    }
    fputc('}', file);
    return MP_OK;
}

static int write_work(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    static const char *const categories[] = {"\"kernel\"", "\"memcpy\"", "\"memset\""};
    int kind = sqlite3_column_int(row, KIND);
    struct timeline_slice slice = {.category = categories[kind],
                                   .start_ns = sqlite3_column_int64(row, START),
                                   .end_ns = sqlite3_column_int64(row, UNTIL),
                                   .id = sqlite3_column_int64(row, ID)};
    slice.name = kind == COPY  ? copy_name(sqlite3_column_int(row, DETAIL))
                 : kind == SET ? "\"memset\""
                               : "\"kernel\"";
    if (kind == KERNEL && sqlite3_column_type(row, NAME_ID) != SQLITE_NULL) {
        const struct timeline_name *name =
            timeline_name(timeline, sqlite3_column_int64(row, NAME_ID), error);
        if (!name)
            return error->code;
        slice.name = name->json;
    }
    int code = timeline_slice(timeline, &slice, error);
    if (!code)
        code = write_arguments(timeline, row, error);
    if (code)
        return code;
    timeline_slice_end(timeline, &slice);
    launches_arrow(timeline, row, LAUNCH_TID, "\"launch\"", &slice);
    timeline->exported->gpu++;
    return MP_OK;
}

/* The stream whose work comes now: process, device, context, number.  A context or a process is
 * named where it is not the first one. */
struct gpu_stream {
    int64_t is[STREAM + 1];
    int64_t first_process, first_context; /* of all, of the device */
    bool is_none;
};

static json_t *name_stream(const struct gpu_stream *stream) {
    char context[40] = "", process[40] = "";
    if (stream->is[CONTEXT] != stream->first_context)
        snprintf(context, sizeof context, " context %lld", (long long)stream->is[CONTEXT]);
    if (stream->is[PROCESS] != stream->first_process)
        snprintf(process, sizeof process, ", process %lld", (long long)stream->is[PROCESS]);
    return json_sprintf("GPU %lld%s stream %lld%s", (long long)stream->is[DEVICE], context,
                        (long long)stream->is[STREAM], process);
}

static int enter_stream(struct timeline *timeline, struct gpu_stream *stream, sqlite3_stmt *row,
                        struct mp_error *error) {
    int64_t is[STREAM + 1];
    for (int i = PROCESS; i <= STREAM; i++)
        is[i] = sqlite3_column_int64(row, i);
    if (!stream->is_none && memcmp(is, stream->is, sizeof is) == 0)
        return MP_OK;
    if (stream->is_none)
        stream->first_process = is[PROCESS];
    if (stream->is_none || is[PROCESS] != stream->is[PROCESS] || is[DEVICE] != stream->is[DEVICE])
        stream->first_context = is[CONTEXT];
    stream->is_none = false;
    memcpy(stream->is, is, sizeof is);
    return timeline_enter_next(timeline, name_stream(stream), error);
}

int gpu_write(struct timeline *timeline, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    struct gpu_stream stream = {.is_none = true};
    int got = 0,
        code = output_query(timeline->output.store, gpu_sql, &timeline->selection, &row, error);
    if (code)
        return code;
    timeline_bind(timeline, row);
    while (!code && (got = mp_store_next(timeline->output.store, row, error)) == 1) {
        if (sqlite3_column_type(row, START) == SQLITE_NULL ||
            sqlite3_column_int(row, IS_UNPLACED)) {
            timeline->exported->gpu_left_out++;
            continue;
        }
        code = enter_stream(timeline, &stream, row, error);
        if (!code)
            code = write_work(timeline, row, error);
    }
    sqlite3_finalize(row);
    return code ? code : got;
}
