/* What threads of the host did: ranges and marks that the program was annotated with, and its calls
 * of CUDA, which a range that makes them encloses.  Pushed ranges are drawn with the calls; started
 * ranges, which need not nest with them, beside them. */
#include <stdlib.h>

#include "results/export/timeline.h"

/* Columns of the query. */
enum {
    THREAD,
    IS_STARTED,
    TYPE,
    START,
    UNTIL, /* of marks: START; TIMELINE_OPEN */
    ID,
    TEXT_ID,
    TEXT,
    DOMAIN_ID,
    CATEGORY_ID,
    CATEGORY,
    JSON,
    UNSIGNED_VALUE,
    VALUE,
    CORRELATION,
    RESULT
};
enum { TYPE_CALL = 0, TYPE_MARK = 34 };

static const char ranges_sql[] =
    "WITH category AS MATERIALIZED (SELECT domainId, category, max(textId) AS textId "
    "FROM NVTX_EVENTS WHERE run_id = ?1 AND rank = ?4 AND eventType = 33 GROUP BY 1, 2), "
    "event AS (SELECT globalTid, eventType = 60 AS started, eventType, start, CASE eventType "
    "WHEN 34 THEN start ELSE coalesce(max(start, \"end\"), 9223372036854775807) END AS until, "
    "rowid AS id, textId, text, domainId, category, level, jsonText, uint64Value, "
    "coalesce(int64Value, doubleValue, uint32Value, int32Value, floatValue) AS value, "
    "NULL AS correlation, NULL AS result "
    "FROM NVTX_EVENTS WHERE run_id = ?1 AND rank = ?4 AND eventType IN (34, 59, 60) "
    "UNION ALL "
    "SELECT globalTid, 0, 0, start, max(start, coalesce(\"end\", start)), rowid, nameId, NULL, "
    "NULL, NULL, NULL, NULL, NULL, NULL, correlationId, nullif(returnValue, 0) "
    "FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE run_id = ?1 AND rank = ?4 AND start IS NOT NULL AND "
    "NOT EXISTS (SELECT 1 FROM device_spool WHERE run_id = ?1 AND rank = ?4 AND "
    "collector = 'cupti' AND clock = 'unknown')) "
    "SELECT event.globalTid, started, event.eventType, event.start, until, event.id, "
    "event.textId, event.text, domain.textId, category.textId, event.category, "
    "event.jsonText, event.uint64Value, value, "
    "correlation, result FROM event "
    "LEFT JOIN NVTX_EVENTS AS domain ON domain.eventType = 75 AND domain.run_id = ?1 AND "
    "domain.rank = ?4 AND domain.domainId = event.domainId "
    "LEFT JOIN category ON category.domainId = event.domainId AND "
    "category.category = event.category "
    "WHERE event.start <= ?6 AND until >= ?5 "
    "ORDER BY event.globalTid, started, event.start, until DESC, event.eventType <> 59, "
    "event.level, event.id";

/* ---- threads ---- */

static const char thread_sql[] =
    "SELECT value FROM ThreadNames JOIN StringIds ON id = nameId WHERE run_id = ?1 AND rank = ?4 "
    "AND globalTid = ?5 ORDER BY ThreadNames.rowid DESC";

/* "thread 12 worker", with the name that the program gave it last. */
static json_t *name_thread(struct timeline *timeline, int64_t thread, bool started,
                           struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    if (output_query(timeline->output.store, thread_sql, &timeline->selection, &row, error))
        return NULL;
    sqlite3_bind_int(row, 4, timeline->rank);
    sqlite3_bind_int64(row, 5, thread);
    const char *text = mp_store_next(timeline->output.store, row, error) == 1
                           ? (const char *)sqlite3_column_text(row, 0)
                           : NULL;
    json_t *given = output_text(text ? text : "", text ? (size_t)sqlite3_column_bytes(row, 0) : 0);
    json_t *name = json_sprintf("thread %d%s%s%s", (int)(thread & 0xFFFFFF), text ? " " : "",
                                json_string_value(given), started ? ", started ranges" : "");
    json_decref(given);
    sqlite3_finalize(row);
    return name;
}

/* ---- events ---- */

static int write_named(struct timeline *timeline, const char *key, sqlite3_stmt *row, int column,
                       struct mp_error *error) {
    if (sqlite3_column_type(row, column) == SQLITE_NULL)
        return MP_OK;
    const struct timeline_name *name =
        timeline_name(timeline, sqlite3_column_int64(row, column), error);
    if (name)
        fprintf(timeline->output.file, ",\"%s\":%s", key, name->json);
    return name ? MP_OK : error->code;
}

/* A payload that is one number.  Infinities are no JSON, and many readers have no integers beyond
 * INT64_MAX: texts. */
static void write_value(struct timeline *timeline, sqlite3_stmt *row) {
    FILE *file = timeline->output.file;
    if (sqlite3_column_type(row, UNSIGNED_VALUE) != SQLITE_NULL) {
        int64_t value = sqlite3_column_int64(row, UNSIGNED_VALUE);
        fprintf(file, value < 0 ? ",\"value\":\"%llu\"" : ",\"value\":%llu",
                (unsigned long long)value);
    } else if (sqlite3_column_type(row, VALUE) == SQLITE_FLOAT) {
        double value = sqlite3_column_double(row, VALUE);
        fprintf(file, value - value == 0 ? ",\"value\":%.17g" : ",\"value\":\"%g\"", value);
    } else {
        timeline_number(timeline, "value", row, VALUE);
    }
}

/* Payloads with a schema; what is no JSON comes along as the text that it is. */
static int write_payload(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    if (sqlite3_column_type(row, JSON) == SQLITE_NULL)
        return MP_OK;
    const char *text = (const char *)sqlite3_column_text(row, JSON);
    size_t length = (size_t)sqlite3_column_bytes(row, JSON);
    json_t *value = json_loadb(text, length, JSON_DECODE_ANY, NULL);
    fputs(",\"payload\":", timeline->output.file);
    return output_json(&timeline->output, value ? value : output_text(text, length), error);
}

static int write_arguments(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    FILE *file = timeline->output.file;
    bool is_open = sqlite3_column_int64(row, UNTIL) == TIMELINE_OPEN;
    fprintf(file, ",\"args\":{\"kind\":\"%s\"",
            sqlite3_column_int(row, TYPE) == TYPE_CALL   ? "call"
            : sqlite3_column_int(row, TYPE) == TYPE_MARK ? "mark"
            : sqlite3_column_int(row, IS_STARTED)        ? "started"
                                                         : "pushed");
    if (is_open)
        fputs(",\"open\":true", file);
    int code = write_named(timeline, "domain", row, DOMAIN_ID, error);
    if (!code && sqlite3_column_type(row, CATEGORY_ID) != SQLITE_NULL)
        code = write_named(timeline, "category", row, CATEGORY_ID, error);
    else if (!code)
        timeline_number(timeline, "category", row, CATEGORY);
    write_value(timeline, row);
    timeline_number(timeline, "correlation", row, CORRELATION);
    timeline_number(timeline, "result", row, RESULT);
    if (!code)
        code = write_payload(timeline, row, error);
    fputc('}', file);
    return code;
}

static int write_mark(struct timeline *timeline, const struct timeline_slice *slice,
                      sqlite3_stmt *row, struct mp_error *error) {
    FILE *file = timeline->output.file;
    timeline_begin(timeline);
    fprintf(file, "{\"name\":%s,\"cat\":%s,\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%d,\"ts\":",
            slice->name, slice->category, timeline->rank, timeline->first_tid);
    timeline_time(file, slice->start_ns);
    int code = write_arguments(timeline, row, error);
    fputc('}', file);
    return code;
}

static int write_slice(struct timeline *timeline, struct timeline_slice *slice, sqlite3_stmt *row,
                       struct mp_error *error) {
    int code = timeline_slice(timeline, slice, error);
    if (!code)
        code = write_arguments(timeline, row, error);
    if (!code)
        timeline_slice_end(timeline, slice);
    if (!code && sqlite3_column_int(row, TYPE) == TYPE_CALL)
        code = launches_keep(timeline, sqlite3_column_int64(row, THREAD) >> 24,
                             sqlite3_column_int64(row, CORRELATION), slice, error);
    return code;
}

/* The name is a text of its own or one of StringIds; *own is to be freed. */
static int find_name(struct timeline *timeline, sqlite3_stmt *row, const char **name, char **own,
                     struct mp_error *error) {
    *own = NULL;
    if (sqlite3_column_type(row, TEXT) == SQLITE_NULL &&
        sqlite3_column_type(row, TEXT_ID) != SQLITE_NULL) {
        const struct timeline_name *known =
            timeline_name(timeline, sqlite3_column_int64(row, TEXT_ID), error);
        *name = known ? known->json : NULL;
        return known ? MP_OK : error->code;
    }
    const char *text = (const char *)sqlite3_column_text(row, TEXT);
    json_t *value = output_text(text ? text : "", (size_t)sqlite3_column_bytes(row, TEXT));
    *name = *own = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    return *own ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the export");
}

static int write_event(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    char *own;
    bool is_call = sqlite3_column_int(row, TYPE) == TYPE_CALL;
    struct timeline_slice slice = {.category = is_call ? "\"cuda\"" : "\"nvtx\"",
                                   .start_ns = sqlite3_column_int64(row, START),
                                   .end_ns = sqlite3_column_int64(row, UNTIL),
                                   .id = sqlite3_column_int64(row, ID)};
    int code = find_name(timeline, row, &slice.name, &own, error);
    if (!code && sqlite3_column_int(row, TYPE) == TYPE_MARK)
        code = write_mark(timeline, &slice, row, error);
    else if (!code)
        code = write_slice(timeline, &slice, row, error);
    free(own);
    if (!code && is_call)
        timeline->exported->calls++;
    else if (!code)
        timeline->exported->ranges++;
    return code;
}

int ranges_write(struct timeline *timeline, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    int64_t thread = 0;
    int started = -1, got = 0; /* no thread yet */
    int code = output_query(timeline->output.store, ranges_sql, &timeline->selection, &row, error);
    if (code)
        return code;
    timeline_bind(timeline, row);
    while (!code && (got = mp_store_next(timeline->output.store, row, error)) == 1) {
        if (started != sqlite3_column_int(row, IS_STARTED) ||
            thread != sqlite3_column_int64(row, THREAD)) {
            thread = sqlite3_column_int64(row, THREAD);
            started = sqlite3_column_int(row, IS_STARTED);
            code =
                timeline_enter_next(timeline, name_thread(timeline, thread, started, error), error);
        }
        if (!code)
            code = write_event(timeline, row, error);
    }
    sqlite3_finalize(row);
    return code ? code : got;
}
