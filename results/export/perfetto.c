#include <stdlib.h>
#include <string.h>

#include "results/export/timeline.h"

/* ---- spans ---- */

static int64_t end_of(sqlite3_stmt *row) {
    int64_t start_ns = sqlite3_column_int64(row, TIMELINE_START);
    int64_t end_ns = sqlite3_column_int64(row, TIMELINE_END);
    return end_ns < start_ns ? start_ns : end_ns;
}

static void write_arguments(struct timeline *timeline, sqlite3_stmt *row) {
    FILE *file = timeline->output.file;
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
        timeline_number(timeline, numbers[i].name, row, numbers[i].column);
    fputc('}', file);
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
static int enter_stream(struct timeline *timeline, const struct timeline_name *name, int *others,
                        struct mp_error *error) {
    int stream = !strcmp(name->text, "compute") ? 0
                 : !strcmp(name->text, "comm")  ? 1
                                                : 2 + (*others)++;
    return timeline_enter(timeline, 1 + stream * LANES,
                          json_loads(name->json, JSON_DECODE_ANY, NULL), error);
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

static int write_span(struct timeline *timeline, sqlite3_stmt *row,
                      const struct timeline_name *stream, struct mp_error *error) {
    const struct timeline_name *phase =
        timeline_name(timeline, sqlite3_column_int64(row, TIMELINE_PHASE), error);
    if (!phase)
        return error->code;
    struct timeline_slice slice = {.name = phase->json,
                                   .category = stream->json,
                                   .start_ns = sqlite3_column_int64(row, TIMELINE_START),
                                   .end_ns = end_of(row),
                                   .id = sqlite3_column_int64(row, TIMELINE_ID)};
    int code = timeline_slice(timeline, &slice, error);
    if (code)
        return code;
    write_arguments(timeline, row);
    timeline_slice_end(timeline, &slice);
    timeline->exported->rows++;
    if (slice.tid && !strcmp(stream->text, "compute"))
        code = write_extras(timeline, row, phase->text, slice.tid, error);
    return code ? code : launches_keep(timeline, LAUNCHES_SPAN, slice.id, &slice, error);
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
    int64_t stream_id = -1; /* none yet */
    int others = 0, got = 0;
    struct mp_results_selection spans = timeline->selection;
    spans.run_id = first;
    int code = output_query(timeline->output.store, spans_sql, &spans, &row, error);
    if (code)
        return code;
    sqlite3_bind_int64(row, 4, last);
    while (!code && (got = mp_store_next(timeline->output.store, row, error)) == 1) {
        const struct timeline_name *stream =
            timeline_name(timeline, sqlite3_column_int64(row, TIMELINE_STREAM), error);
        if (!stream) {
            code = error->code;
            break;
        }
        if (stream->id != stream_id)
            code = enter_stream(timeline, stream, &others, error);
        stream_id = stream->id;
        if (!code)
            code = write_span(timeline, row, stream, error);
    }
    sqlite3_finalize(row);
    return code ? code : got;
}

/* What belongs to no iteration is wanted where it overlaps those that are. */
static int choose_times(struct timeline *timeline, int64_t first, int64_t last,
                        struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    struct mp_results_selection spans = timeline->selection;
    timeline->from_ns = INT64_MIN;
    timeline->to_ns = INT64_MAX;
    if (!spans.some_iterations)
        return MP_OK;
    spans.run_id = first;
    int code = output_query(timeline->output.store,
                            "SELECT coalesce(min(start_ns), 1), coalesce(max(start_ns, end_ns), 0) "
                            "FROM (SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns "
                            "FROM span WHERE span_id BETWEEN ?1 AND ?4 AND iteration BETWEEN ?2 "
                            "AND ?3)",
                            &spans, &row, error);
    if (code)
        return code;
    sqlite3_bind_int64(row, 4, last);
    int got = mp_store_next(timeline->output.store, row, error);
    if (got == 1) {
        timeline->from_ns = sqlite3_column_int64(row, 0);
        timeline->to_ns = sqlite3_column_int64(row, 1);
    }
    sqlite3_finalize(row);
    return got < 0 ? got : MP_OK;
}

/* What the host did before what it launched. */
static int write_events(struct timeline *timeline, int64_t first, int64_t last,
                        struct mp_error *error) {
    timeline->next_tid = 1 + 2 * LANES; /* behind compute and comm */
    int code = choose_times(timeline, first, last, error);
    if (!code)
        code = write_spans(timeline, first, last, error);
    if (!code)
        code = ranges_write(timeline, error);
    if (!code)
        code = gpu_write(timeline, error);
    return code ? code : collectives_write(timeline, error);
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
    int code = timeline_metadata(timeline, "process_name", 0, "name", name, error);
    if (!code)
        code = timeline_metadata(timeline, "process_sort_index", 0, "sort_index",
                                 json_integer(timeline->rank), error);
    if (!code)
        code = launches_begin_rank(timeline, error);
    return code ? code
                : write_events(timeline, sqlite3_column_int64(row, 2), sqlite3_column_int64(row, 3),
                               error);
}

/* Also those that only have GPU work. */
static const char ranks_sql[] =
    "SELECT rank, host, first_span, last_span, clock IS NOT 'wall clock' FROM rank "
    "WHERE run_id = ?1 AND (first_span IS NOT NULL OR EXISTS (SELECT 1 FROM NVTX_EVENTS AS event "
    "WHERE event.run_id = ?1 AND event.rank = rank.rank) OR EXISTS (SELECT 1 FROM device_spool "
    "WHERE device_spool.run_id = ?1 AND device_spool.rank = rank.rank)) "
    "UNION ALL SELECT rank, min(host), NULL, NULL, 1 FROM device_spool WHERE run_id = ?1 AND "
    "rank NOT IN (SELECT rank FROM rank WHERE run_id = ?1) GROUP BY rank "
    "ORDER BY rank";

static int write_ranks(struct timeline *timeline, struct mp_error *error) {
    sqlite3_stmt *row = NULL;
    int got = 0,
        code = output_query(timeline->output.store, ranks_sql, &timeline->selection, &row, error);
    while (!code && (got = mp_store_next(timeline->output.store, row, error)) == 1)
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
    while (!code && (got = mp_store_next(timeline->output.store, row, error)) == 1) {
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
        code = launches_prepare(timeline, error);
    if (!code)
        code = collectives_prepare(timeline, error);
    if (!code)
        code = output_query(store, "SELECT value FROM StringIds WHERE id = ?1",
                            &timeline->selection, &timeline->select_name, error);
    if (!code)
        code = write_ranks(timeline, error);
    if (!code)
        code = flows_write(timeline, error);
    fprintf(file,
            "\n],\n\"otherData\":{\"format\":\"moeperf timeline\",\"version\":1,"
            "\"flows_left_out\":%lld,\"gpu_left_out\":%lld",
            (long long)timeline->exported->flows_left_out,
            (long long)timeline->exported->gpu_left_out);
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
        sqlite3_finalize(timeline->keep_launch);
        code = output_close(&timeline->output, code, error);
    }
    timeline_forget_names(timeline);
    free(timeline->threads);
    free(timeline);
    return code;
}
