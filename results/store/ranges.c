/* A rank's spool is read twice: for its names and schemas, then for the ranges. */
#include "results/store/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/nvtx/payload.h"
#include "reference/base/arena.h"

enum {
    EVENT_CATEGORY = 33, /* Nsight's event types */
    EVENT_MARK = 34,
    EVENT_PUSHED = 59,
    EVENT_STARTED = 60,
    EVENT_DOMAIN = 75,
    COLUMN_START = 1,
    COLUMN_END,
    COLUMN_TYPE,
    COLUMN_CATEGORY,
    COLUMN_COLOR,
    COLUMN_THREAD,
    COLUMN_END_THREAD,
    COLUMN_TEXT,
    COLUMN_DOMAIN,
    COLUMN_VALUE, /* six, by enum mp_value_type */
    COLUMN_JSON = COLUMN_VALUE + MP_VALUE_FLOAT,
    COLUMN_RUN,
    COLUMN_RANK,
    COLUMN_LEVEL,
    JSON_BYTES = 16384,
    NAMES_LIMIT = 1 << 22 /* a collector stops at 100000; a damaged spool may claim any id */
};

struct ranges {
    struct recordings *recordings;
    const struct recording *recording;
    int rank;
    int64_t origin_ns;
    sqlite3_stmt *insert; /* of events */
    struct mp_schemas *schemas;
    struct {
        int64_t string_id;
        uint32_t domain_id; /* counted from 1 */
    } * name;               /* [names] by the spool's ids */
    uint32_t names, domains;
    char *text; /* of a name, made printable */
    size_t text_size;
    int64_t skipped[MP_SKIPS]; /* fields of payloads */
    char json[JSON_BYTES];
};

static int store_string(struct ranges *ranges, const char *name, int64_t *id,
                        struct mp_error *error) {
    size_t size = 4 * strlen(name) + 1;
    if (size > ranges->text_size) {
        char *grown = realloc(ranges->text, size);
        if (!grown)
            return mp_no_memory(error);
        ranges->text = grown;
        ranges->text_size = size;
    }
    mp_printable_name(name, ranges->text);
    return strings_store(ranges->recordings->strings, ranges->text, id, error);
}

/* The columns from COLUMN_START on, and the last three. */
static void bind_event(struct ranges *ranges, const int64_t values[COLUMN_VALUE - 1],
                       int64_t level) {
    store_bind_known(ranges->insert, COLUMN_START, values, COLUMN_VALUE - COLUMN_START);
    const int64_t place[] = {ranges->recordings->run_id, ranges->rank, level};
    store_bind_known(ranges->insert, COLUMN_RUN, place, 3);
}

static int64_t global_thread(const struct ranges *ranges, uint32_t thread) {
    return ((int64_t)ranges->recording->header.pid & 0xFFFFFF) << 24 | (thread & 0xFFFFFF);
}

static int64_t domain_of(const struct ranges *ranges, uint32_t id) {
    return id < ranges->names ? ranges->name[id].domain_id : 0;
}

static int store_thread(const struct ranges *ranges, uint32_t number, int64_t string_id,
                        struct mp_error *error) {
    return STORE_PUT(ranges->recordings->store, "cannot store a name", error,
                     "INSERT INTO ThreadNames (nameId, globalTid, run_id, rank) "
                     "VALUES (?, ?, ?, ?)",
                     V(string_id), V(global_thread(ranges, number)), V(ranges->recordings->run_id),
                     V(ranges->rank));
}

static int store_name(struct ranges *ranges, const struct mp_spool_record *record,
                      struct mp_error *error) {
    const uint32_t id = record->as.name.id, kind = record->as.name.kind;
    int64_t string_id = 0;
    if (id >= NAMES_LIMIT)
        return MP_OK;
    MP_TRY(MP_REACH(ranges->name, ranges->names, id, NAMES_LIMIT, error));
    MP_TRY(store_string(ranges, record->as.name.text, &string_id, error));
    ranges->name[id].string_id = string_id;
    if (kind == MP_NAME_DOMAIN)
        ranges->name[id].domain_id = ++ranges->domains;
    if (kind == MP_NAME_THREAD)
        return store_thread(ranges, record->as.name.number, string_id, error);
    if (kind != MP_NAME_DOMAIN && kind != MP_NAME_CATEGORY)
        return MP_OK;
    const bool is_domain = kind == MP_NAME_DOMAIN;
    const int64_t values[] = {0,
                              ROW_NULL,
                              is_domain ? EVENT_DOMAIN : EVENT_CATEGORY,
                              is_domain ? ROW_NULL : record->as.name.number,
                              ROW_NULL,
                              ROW_NULL,
                              ROW_NULL,
                              string_id,
                              domain_of(ranges, is_domain ? id : record->as.name.domain)};
    bind_event(ranges, values, ROW_NULL);
    return store_run(ranges->recordings->store, ranges->insert, "cannot store a name", error);
}

static void bind_value(struct ranges *ranges, const struct mp_range *range) {
    const int type = range->value_type, column = COLUMN_VALUE + type - 1;
    double wide;
    float narrow;
    memcpy(&wide, &range->value, sizeof wide);
    memcpy(&narrow, &range->value, sizeof narrow);
    if (type == MP_VALUE_DOUBLE || type == MP_VALUE_FLOAT)
        sqlite3_bind_double(ranges->insert, column,
                            type == MP_VALUE_DOUBLE ? wide : (double)narrow);
    else if (type > 0 && type < MP_VALUE_FLOAT)
        sqlite3_bind_int64(ranges->insert, column,
                           type == MP_VALUE_U32   ? (uint32_t)range->value
                           : type == MP_VALUE_I32 ? (int32_t)range->value
                                                  : (int64_t)range->value);
}

static int64_t run_time(const struct ranges *ranges, int64_t time_ns) {
    return clock_bounded(clock_fit_apply(&ranges->recording->fit, time_ns)) - ranges->origin_ns;
}

static int store_range(struct ranges *ranges, const struct mp_spool_record *record,
                       struct mp_error *error) {
    static const int types[] = {
        [MP_RANGE_PUSHED] = EVENT_PUSHED, [MP_RANGE_STARTED] = EVENT_STARTED, EVENT_MARK};
    const struct mp_range *range = &record->as.range.is;
    sqlite3_stmt *insert = ranges->insert;
    if (range->kind > MP_RANGE_MARK)
        return MP_OK; /* of a later build */
    const bool is_started = range->kind == MP_RANGE_STARTED;
    const bool ends = range->end_ns && range->kind != MP_RANGE_MARK;
    const int64_t values[] = {
        run_time(ranges, range->start_ns),
        ends ? run_time(ranges, range->end_ns) : ROW_NULL,
        types[range->kind],
        store_or_null(range->category),
        store_or_null(range->color),
        global_thread(ranges, range->thread),
        ends && is_started ? global_thread(ranges, range->end_thread) : ROW_NULL,
        store_or_null(range->name < ranges->names ? ranges->name[range->name].string_id : 0),
        domain_of(ranges, range->domain)};
    bind_event(ranges, values, range->kind == MP_RANGE_PUSHED ? range->level : ROW_NULL);
    bind_value(ranges, range);
    size_t length = range->payloads ? mp_payload_json(ranges->schemas, record, ranges->skipped,
                                                      ranges->json, sizeof ranges->json)
                                    : 0;
    if (length > 0)
        sqlite3_bind_text(insert, COLUMN_JSON, ranges->json, (int)length, SQLITE_STATIC);
    return store_run(ranges->recordings->store, insert, "cannot store a range", error);
}

/* Names and schemas, or ranges: at most `limit` of the latter, as many as were there at first. */
static int read_all(struct ranges *ranges, bool names, int64_t limit, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    if (mp_spool_open(ranges->recording->path, &reader, NULL))
        return MP_OK; /* gone since the first reading, which has said so */
    while (limit > 0 && mp_spool_next(reader, &record, NULL) == 1) {
        if (names && record.type == MP_SPOOL_NAME)
            MP_TRY(store_name(ranges, &record, error));
        else if (names && record.type == MP_SPOOL_SCHEMA)
            MP_TRY(mp_schemas_add(ranges->schemas, &record, error));
        else if (!names && record.type == MP_SPOOL_RANGE && limit-- > 0)
            MP_TRY(store_range(ranges, &record, error));
    }
    return MP_OK;
}

/* What was left out of payloads, as numbers beside those that the collector counts. */
static int store_skipped(const struct ranges *ranges, struct mp_error *error) {
    for (int skip = 0; skip < MP_SKIPS; skip++) {
        char name[48];
        const struct mp_spool_record number = {
            .as.number = {-1, (double)ranges->skipped[skip], .layer = -1, .name = name}};
        if (ranges->skipped[skip] == 0)
            continue;
        snprintf(name, sizeof name, "nvtx-fields-left-out-%s",
                 mp_payload_skip_name((enum mp_payload_skip)skip));
        MP_TRY(strings_number(ranges->recordings->strings, ranges->recordings->run_id, ranges->rank,
                              &number, error));
    }
    return MP_OK;
}

static int ingest(struct ranges *ranges, struct mp_error *error) {
    MP_TRY(mp_schemas_create(&ranges->schemas, error));
    MP_TRY(store_statement(
        ranges->recordings->store,
        "INSERT INTO NVTX_EVENTS (start, \"end\", eventType, category, color, globalTid, "
        "endGlobalTid, textId, domainId, uint64Value, int64Value, doubleValue, uint32Value, "
        "int32Value, floatValue, jsonText, run_id, rank, level) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        &ranges->insert, error));
    MP_TRY(read_all(ranges, true, INT64_MAX, error));
    MP_TRY(read_all(ranges, false, ranges->recording->ranges, error));
    return store_skipped(ranges, error);
}

int ranges_ingest(struct recordings *recordings, int rank, int64_t origin_ns,
                  struct mp_error *error) {
    struct ranges *ranges = NULL;
    const struct recording *recording = &recordings->rank[rank];
    if (recording->ranges == 0)
        return MP_OK;
    MP_TRY(MP_NEW(ranges, 1, error));
    ranges->recordings = recordings;
    ranges->recording = recording;
    ranges->rank = rank;
    ranges->origin_ns = origin_ns;
    int code = ingest(ranges, error);
    mp_schemas_destroy(ranges->schemas);
    free(ranges->name);
    free(ranges->text);
    free(ranges);
    return code;
}
