#include <stdlib.h>
#include <string.h>

#include "results/export/timeline.h"

/* ---- pieces of events ---- */

void timeline_begin(struct timeline *timeline) {
    fputs(timeline->has_events ? ",\n" : "\n", timeline->output.file);
    timeline->has_events = true;
}

void timeline_time(FILE *file, int64_t ns) {
    uint64_t magnitude = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    fprintf(file, "%s%llu.%03u", ns < 0 ? "-" : "", (unsigned long long)(magnitude / 1000),
            (unsigned)(magnitude % 1000));
}

static void forget_names(struct timeline *timeline) {
    for (int i = 0; i < timeline->names; i++) {
        free(timeline->name[i].text);
        free(timeline->name[i].json);
    }
    timeline->names = 0;
}

static int read_name(struct timeline *timeline, struct timeline_name *name,
                     struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    sqlite3_stmt *row = timeline->select_name;
    sqlite3_bind_int64(row, 1, name->id);
    int got = output_next(store, row, error);
    const char *text = got == 1 ? (const char *)sqlite3_column_text(row, 0) : "?";
    json_t *value = output_text(text, strlen(text));
    name->text = strdup(text);
    name->json = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    sqlite3_reset(row);
    if (got >= 0 && name->text && name->json)
        return MP_OK;
    free(name->text);
    free(name->json);
    return got < 0 ? got : mp_fail(error, MP_ENOMEM, "no memory for the export");
}

const struct timeline_name *timeline_name(struct timeline *timeline, int64_t id,
                                          struct mp_error *error) {
    for (int i = 0; i < timeline->names; i++)
        if (timeline->name[i].id == id)
            return &timeline->name[i];
    if (timeline->names == TIMELINE_NAMES)
        forget_names(timeline);
    struct timeline_name name = {.id = id};
    if (read_name(timeline, &name, error))
        return NULL;
    timeline->name[timeline->names] = name;
    return &timeline->name[timeline->names++];
}

/* {"name": KIND, "ph": "M", ..., "args": {KEY: VALUE}}; tid 0: of the process. */
static int write_metadata(struct timeline *timeline, const char *kind, int tid, const char *key,
                          json_t *value, struct mp_error *error) {
    timeline_begin(timeline);
    json_t *event = json_pack("{s:s, s:s, s:i, s:{s:o}}", "name", kind, "ph", "M", "pid",
                              timeline->rank, "args", key, value);
    if (event && tid > 0)
        json_object_set_new(event, "tid", json_integer(tid));
    return output_json(&timeline->output, event, error);
}

/* ---- spans ---- */

static int64_t end_of(sqlite3_stmt *row) {
    int64_t start_ns = sqlite3_column_int64(row, TIMELINE_START);
    int64_t end_ns = sqlite3_column_int64(row, TIMELINE_END);
    return end_ns < start_ns ? start_ns : end_ns;
}

static void write_arguments(FILE *file, sqlite3_stmt *row) {
    static const struct {
        const char *name;
        int column;
    } numbers[] = {{"layer", TIMELINE_LAYER}, {"wait_ns", TIMELINE_WAIT},
                   {"cpu_ns", TIMELINE_CPU},  {"tokens", TIMELINE_TOKENS},
                   {"bytes", TIMELINE_BYTES}, {"flops", TIMELINE_FLOPS}};
    fprintf(file, ",\"args\":{\"iteration\":%lld",
            (long long)sqlite3_column_int64(row, TIMELINE_ITERATION));
    if (sqlite3_column_type(row, TIMELINE_DIRECTION) != SQLITE_NULL)
        fprintf(file, ",\"direction\":\"%s\"",
                sqlite3_column_int(row, TIMELINE_DIRECTION) ? "backward" : "forward");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sqlite3_column_type(row, numbers[i].column) != SQLITE_NULL)
            fprintf(file, ",\"%s\":%lld", numbers[i].name,
                    (long long)sqlite3_column_int64(row, numbers[i].column));
    fputc('}', file);
}

static void write_head(struct timeline *timeline, const char *name, const char *stream,
                       const char *ph, int tid, int64_t at_ns) {
    FILE *file = timeline->output.file;
    timeline_begin(timeline);
    fprintf(file, "{\"name\":%s,\"cat\":%s,\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", name,
            stream, ph, timeline->rank, tid);
    timeline_time(file, at_ns);
}

/* A span that fits on no thread: Perfetto gives each id a track of its own. */
static void write_pair(struct timeline *timeline, sqlite3_stmt *row, const char *name,
                       const char *stream, int tid) {
    FILE *file = timeline->output.file;
    long long id = sqlite3_column_int64(row, TIMELINE_ID);
    write_head(timeline, name, stream, "b", tid, sqlite3_column_int64(row, TIMELINE_START));
    fprintf(file, ",\"id\":%lld", id);
    write_arguments(file, row);
    fputc('}', file);
    write_head(timeline, name, stream, "e", tid, end_of(row));
    fprintf(file, ",\"id\":%lld}", id);
}

static int first_tid(const struct timeline *timeline) {
    return 1 + timeline->stream * LANES;
}

static int name_lane(struct timeline *timeline, const char *stream, int lane,
                     struct mp_error *error) {
    int tid = first_tid(timeline) + lane, code = MP_OK;
    char number[32] = "";
    if (lane > 0)
        snprintf(number, sizeof number, " (%d)", lane + 1);
    json_t *name = json_loads(stream, JSON_DECODE_ANY, NULL);
    json_t *full = json_sprintf("%s%s", json_string_value(name), number);
    json_decref(name);
    if (!full)
        return mp_fail(error, MP_ENOMEM, "no memory for the export");
    code = write_metadata(timeline, "thread_name", tid, "name", full, error);
    return code ? code
                : write_metadata(timeline, "thread_sort_index", tid, "sort_index",
                                 json_integer(tid), error);
}

static void write_counter(struct timeline *timeline, sqlite3_stmt *row) {
    FILE *file = timeline->output.file;
    timeline_begin(timeline);
    fprintf(file, "{\"name\":\"layer %lld\",\"ph\":\"C\",\"pid\":%d,\"ts\":",
            (long long)sqlite3_column_int64(row, TIMELINE_LAYER), timeline->rank);
    timeline_time(file, sqlite3_column_int64(row, TIMELINE_START));
    fprintf(file, ",\"args\":{\"tokens\":%lld}}",
            (long long)sqlite3_column_int64(row, TIMELINE_TOKENS));
}

/* Spans come stream by stream. */
static void enter_stream(struct timeline *timeline, int64_t id, const char *text) {
    if (timeline->stream_id == id)
        return;
    timeline->stream_id = id;
    timeline->lanes = (struct lanes){0};
    timeline->stream = !strcmp(text, "compute") ? 0
                       : !strcmp(text, "comm")  ? 1
                                                : 2 + timeline->other_streams++;
}

/* What is drawn beside a span of the stream compute. */
static int write_extras(struct timeline *timeline, sqlite3_stmt *row, const char *phase, int tid,
                        struct mp_error *error) {
    bool is_exchange = !strcmp(phase, "dispatch") || !strcmp(phase, "combine");
    if (!strcmp(phase, "expert") && sqlite3_column_type(row, TIMELINE_TOKENS) != SQLITE_NULL &&
        sqlite3_column_type(row, TIMELINE_DIRECTION) != SQLITE_NULL &&
        sqlite3_column_int(row, TIMELINE_DIRECTION) == 0)
        write_counter(timeline, row);
    if (is_exchange && !timeline->draws_flows)
        timeline->exported->flows_left_out++;
    return is_exchange && timeline->draws_flows ? flows_keep(timeline, row, tid, end_of(row), error)
                                                : MP_OK;
}

static int write_span(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    FILE *file = timeline->output.file;
    const struct timeline_name *stream =
        timeline_name(timeline, sqlite3_column_int64(row, TIMELINE_STREAM), error);
    if (!stream)
        return error->code;
    enter_stream(timeline, stream->id, stream->text);
    const char *stream_json = stream->json;
    const struct timeline_name *phase =
        timeline_name(timeline, sqlite3_column_int64(row, TIMELINE_PHASE), error);
    if (!phase)
        return error->code;
    int64_t start_ns = sqlite3_column_int64(row, TIMELINE_START), end_ns = end_of(row);
    int known = timeline->lanes.used, lane = lanes_take(&timeline->lanes, start_ns, end_ns);
    int code =
        lane < LANES && lane >= known ? name_lane(timeline, stream_json, lane, error) : MP_OK;
    if (code)
        return code;
    timeline->exported->rows++;
    if (lane == LANES) {
        write_pair(timeline, row, phase->json, stream_json, first_tid(timeline));
        return MP_OK;
    }
    write_head(timeline, phase->json, stream_json, "X", first_tid(timeline) + lane, start_ns);
    fputs(",\"dur\":", file);
    timeline_time(file, end_ns - start_ns);
    write_arguments(file, row);
    fputc('}', file);
    return timeline->stream == 0
               ? write_extras(timeline, row, phase->text, first_tid(timeline) + lane, error)
               : MP_OK;
}

/* ---- ranks ---- */

static const char spans_sql[] =
    "SELECT stream_id, phase_id, iteration, layer, direction, start_ns, end_ns, span_id, "
    "nullif(wait_ns, 0), cpu_ns, tokens, bytes, flops FROM span "
    "WHERE span_id BETWEEN ?1 AND ?4 AND iteration BETWEEN ?2 AND ?3 "
    "ORDER BY stream_id, start_ns, max(start_ns, end_ns) DESC, span_id";

static int write_spans(struct timeline *timeline, int64_t first, int64_t last,
                       struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    int got = 0;
    int code = output_query(timeline->output.store, spans_sql, &timeline->selection, &row, error);
    if (!code) {
        sqlite3_bind_int64(row, 1, first);
        sqlite3_bind_int64(row, 4, last);
    }
    timeline->stream_id = -1;
    timeline->other_streams = 0;
    while (!code && (got = output_next(timeline->output.store, row, error)) == 1)
        code = write_span(timeline, row, error);
    sqlite3_finalize(row);
    return code ? code : got;
}

static int write_rank(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    const char *host = (const char *)sqlite3_column_text(row, 1);
    char number[32];
    timeline->rank = sqlite3_column_int(row, 0);
    timeline->draws_flows = sqlite3_column_int(row, 4);
    snprintf(number, sizeof number, "rank %d", timeline->rank);
    json_t *on_host = host ? output_text(host, strlen(host)) : NULL;
    json_t *name = on_host ? json_sprintf("%s on %s", number, json_string_value(on_host))
                           : json_string(number);
    json_decref(on_host);
    if (!name)
        return mp_fail(error, MP_ENOMEM, "no memory for the export");
    int code = write_metadata(timeline, "process_name", 0, "name", name, error);
    if (!code)
        code = write_metadata(timeline, "process_sort_index", 0, "sort_index",
                              json_integer(timeline->rank), error);
    return code ? code
                : write_spans(timeline, sqlite3_column_int64(row, 2), sqlite3_column_int64(row, 3),
                              error);
}

static int write_ranks(struct timeline *timeline, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    int got = 0, code = output_query(timeline->output.store,
                                     "SELECT rank, host, first_span, last_span, "
                                     "clock IS NOT 'wall clock' FROM rank "
                                     "WHERE run_id = ?1 AND first_span IS NOT NULL ORDER BY rank",
                                     &timeline->selection, &row, error);
    while (!code && (got = output_next(timeline->output.store, row, error)) == 1)
        code = write_rank(timeline, row, error);
    sqlite3_finalize(row);
    return code ? code : got;
}

/* ,"NAME":[rows] */
static int write_about(struct timeline *timeline, const char *name, const char *sql,
                       struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    const char *before = "\n";
    int got = 0,
        code = output_query(timeline->output.store, sql, &timeline->selection, &row, error);
    fprintf(timeline->output.file, ",\"%s\":[", name);
    while (!code && (got = output_next(timeline->output.store, row, error)) == 1) {
        fputs(before, timeline->output.file);
        before = ",\n";
        code = output_json(&timeline->output, output_row(row, 0), error);
    }
    fputc(']', timeline->output.file);
    sqlite3_finalize(row);
    return code ? code : got;
}

static int write_timeline(struct timeline *timeline, struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    FILE *file = timeline->output.file;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file);
    int code = flows_prepare(timeline, error);
    if (!code)
        code = output_query(store, "SELECT value FROM StringIds WHERE id = ?1",
                            &timeline->selection, &timeline->select_name, error);
    if (!code)
        code = write_ranks(timeline, error);
    if (!code)
        code = flows_write(timeline, error);
    fprintf(file,
            "\n],\n\"otherData\":{\"format\":\"moeperf timeline\",\"version\":1,"
            "\"flows_left_out\":%lld",
            (long long)timeline->exported->flows_left_out);
    if (!code)
        code = write_about(timeline, "run", "SELECT * FROM v_run WHERE run_id = ?1", error);
    if (!code)
        code = write_about(timeline, "ranks",
                           "SELECT * FROM v_rank WHERE run_id = ?1 ORDER BY rank", error);
    fputs("}}\n", file);
    return code;
}

int mp_results_perfetto(struct mp_store *store, const struct mp_results_selection *selection,
                        const char *path, struct mp_results_exported *exported,
                        struct mp_error *error) {
    *exported = (struct mp_results_exported){0};
    struct timeline *timeline = calloc(1, sizeof *timeline);
    if (!timeline)
        return mp_fail(error, MP_ENOMEM, "no memory for the export");
    timeline->exported = exported;
    int code = output_choose(store, selection, &timeline->selection, error);
    if (!code) {
        code = output_open(&timeline->output, store, path, error);
        if (!code)
            code = write_timeline(timeline, error);
        sqlite3_finalize(timeline->select_name);
        sqlite3_finalize(timeline->keep_exchange);
        code = output_close(&timeline->output, code, error);
    }
    forget_names(timeline);
    free(timeline);
    return code;
}
