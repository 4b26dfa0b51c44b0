#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "results/export/output.h"

/* ---- lanes ---- */

enum { LANES = 32, LANE_DEPTH = 32 };

struct lanes {
    int used; /* of them */
    struct {
        int depth;
        int64_t end_ns[LANE_DEPTH]; /* of the spans that are open, the outermost first */
    } lane[LANES];
};

/* The first lane on which the span lies in all that is open, or LANES if there is none.  Spans
 * come by ascending start, of equal ones the longest first; start_ns <= end_ns. */
static int lanes_take(struct lanes *lanes, int64_t start_ns, int64_t end_ns) {
    for (int l = 0; l < LANES; l++) {
        int64_t *open = lanes->lane[l].end_ns;
        int *depth = &lanes->lane[l].depth;
        while (*depth > 0 && open[*depth - 1] <= start_ns)
            --*depth;
        if (*depth == LANE_DEPTH || (*depth > 0 && open[*depth - 1] < end_ns))
            continue;
        open[(*depth)++] = end_ns;
        return l;
    }
    return LANES;
}

/* What queries have as ?1 to ?8: see enum timeline_column. */
enum { RUN, FIRST_ITERATION, LAST_ITERATION, RANK, FROM_NS, TO_NS, FIRST_SPAN, LAST_SPAN, VALUES };

struct timeline {
    struct output output;
    struct mp_results_selection selection;
    struct mp_results_exported *exported;
    bool has_events;
    sqlite3_stmt *keep_exchange, *keep_launch;
    int64_t arrows; /* of all kinds; the last one's id */
    /* The rank whose events come now. */
    int rank;
    int64_t value[VALUES];
    bool draws_flows;    /* its clock is known */
    bool keeps_launches; /* it has GPU work or collectives */
    int next_tid;        /* behind those that it has */
    /* The threads that events come on now: lanes of one. */
    int64_t key;
    char *thread, *name; /* as the database and as readers have it; NULL: none yet */
    int first_tid;
    struct lanes lanes;
};

static void release(struct timeline *timeline) {
    sqlite3_finalize(timeline->keep_exchange);
    sqlite3_finalize(timeline->keep_launch);
    output_end(&timeline->output);
    free(timeline->thread);
    free(timeline->name);
}
MP_END(timeline, struct timeline, release(it))

/* A text of others, of any bytes. */
struct text {
    const char *at;
    size_t length;
};

#define TEXT(literal) ((struct text){(literal), sizeof(literal) - 1})

struct slice {
    struct text name, category;
    int64_t start_ns, end_ns; /* INT64_MAX: open */
    int64_t id;
    int tid; /* 0: it fits on no thread and is a pair, each of which Perfetto gives its own */
};

/* ---- pieces of the document ---- */

static void begin_event(struct timeline *timeline) {
    fputs(timeline->has_events ? ",\n" : "\n", timeline->output.file);
    timeline->has_events = true;
}

/* Nanoseconds as microseconds. */
static void write_time(FILE *file, int64_t ns) {
    uint64_t magnitude = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    fprintf(file, "%s%llu.%03u", ns < 0 ? "-" : "", (unsigned long long)(magnitude / 1000),
            (unsigned)(magnitude % 1000));
}

static struct text text_of(sqlite3_stmt *row, int column) {
    const char *text = (const char *)sqlite3_column_text(row, column);
    return (struct text){text ? text : "", text ? (size_t)sqlite3_column_bytes(row, column) : 0};
}

/* As JSON, mostly as it is. */
static void write_text(FILE *file, struct text text) {
    size_t plain = 0;
    while (plain < text.length && text.at[plain] >= ' ' && text.at[plain] < 127 &&
           text.at[plain] != '"' && text.at[plain] != '\\')
        plain++;
    json_t *value = plain < text.length ? output_text(text.at, text.length) : NULL;
    if (value)
        json_dumpf(value, file, JSON_ENCODE_ANY);
    else
        fprintf(file, "\"%.*s\"", (int)plain, text.at);
    json_decref(value);
}

/* Begins an event of a name and a category. */
static void write_named(struct timeline *timeline, struct text name, struct text category) {
    FILE *file = timeline->output.file;
    begin_event(timeline);
    fputs("{\"name\":", file);
    write_text(file, name);
    fputs(",\"cat\":", file);
    write_text(file, category);
}

static void write_head(struct timeline *timeline, const struct slice *slice, const char *ph,
                       int64_t at_ns) {
    write_named(timeline, slice->name, slice->category);
    fprintf(timeline->output.file, ",\"ph\":%s,\"pid\":%d,\"tid\":%d,\"ts\":", ph, timeline->rank,
            slice->tid ? slice->tid : timeline->first_tid);
    write_time(timeline->output.file, at_ns);
}

static void write_length(struct timeline *timeline, const struct slice *slice) {
    fputs(",\"dur\":", timeline->output.file);
    write_time(timeline->output.file, slice->end_ns - slice->start_ns);
}

/* A slice inside the last one, without arguments; nothing for an empty one. */
static void write_part(struct timeline *timeline, const struct slice *slice) {
    if (slice->start_ns >= slice->end_ns)
        return;
    write_head(timeline, slice, "\"X\"", slice->start_ns);
    write_length(timeline, slice);
    fputc('}', timeline->output.file);
}

/* An end of an arrow. */
static void write_point(struct timeline *timeline, struct text name, struct text category,
                        const char *ph, int rank, int tid, int64_t at_ns) {
    write_named(timeline, name, category);
    fprintf(timeline->output.file, ",\"ph\":%s,\"id\":%lld,\"pid\":%d,\"tid\":%d,\"ts\":", ph,
            (long long)timeline->arrows, rank, tid);
    write_time(timeline->output.file, at_ns);
    fputc('}', timeline->output.file);
}

/* {"name": KIND, "ph": "M", ..., "args": {KEY: VALUE}}; tid 0: of the process.  Takes `value`. */
static int write_metadata(struct timeline *timeline, const char *kind, int tid, const char *key,
                          json_t *value, struct mp_error *error) {
    begin_event(timeline);
    json_t *event = json_pack("{s:s, s:s, s:i, s:{s:o}}", "name", kind, "ph", "M", "pid",
                              timeline->rank, "args", key, value);
    if (event && tid > 0)
        json_object_set_new(event, "tid", json_integer(tid));
    return output_json(&timeline->output, event, error);
}

/* A column by its name, whose first quote is there; infinities are no JSON, and become texts. */
static void write_argument(FILE *file, sqlite3_stmt *row, int column) {
    double number;
    fputs(sqlite3_column_name(row, column), file);
    switch (sqlite3_column_type(row, column)) {
    case SQLITE_INTEGER:
        fprintf(file, "\":%lld", (long long)sqlite3_column_int64(row, column));
        break;
    case SQLITE_FLOAT:
        number = sqlite3_column_double(row, column);
        fprintf(file, isfinite(number) ? "\":%.17g" : "\":\"%g\"", number);
        break;
    case SQLITE_BLOB:
        fputs("\":", file);
        fwrite(sqlite3_column_blob(row, column), 1, (size_t)sqlite3_column_bytes(row, column),
               file);
        break;
    default:
        fputs("\":", file);
        write_text(file, text_of(row, column));
    }
}

/* And the event's end. */
static void write_arguments(struct timeline *timeline, sqlite3_stmt *row) {
    const char *before = ",\"args\":{\"";
    for (int c = TIMELINE_ARGUMENTS; c < sqlite3_column_count(row); c++) {
        if (sqlite3_column_type(row, c) == SQLITE_NULL)
            continue;
        fputs(before, timeline->output.file);
        write_argument(timeline->output.file, row, c);
        before = ",\"";
    }
    fputs("}}", timeline->output.file);
}

/* moeperf_json(text). */
static void make_json(sqlite3_context *context, int count, sqlite3_value *argument[]) {
    const char *text = (const char *)sqlite3_value_text(argument[0]);
    size_t length = (size_t)sqlite3_value_bytes(argument[0]);
    (void)count;
    if (!text)
        return;
    json_t *value = json_loadb(text, length, JSON_DECODE_ANY, NULL);
    value = value ? value : output_text(text, length);
    char *made = value ? json_dumps(value, OUTPUT_JSON) : NULL;
    json_decref(value);
    if (made)
        sqlite3_result_blob64(context, made, strlen(made), free);
    else
        sqlite3_result_error_nomem(context);
}

/* ---- threads ---- */

/* What comes now is on threads of their own, which get their names as they are used. */
static int enter_thread(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    const struct text thread = text_of(row, TIMELINE_THREAD);
    int64_t key = sqlite3_column_int64(row, TIMELINE_KEY);
    if (timeline->thread && key == timeline->key && !strcmp(thread.at, timeline->thread))
        return MP_OK;
    json_t *name = output_text(thread.at, thread.length);
    free(timeline->thread);
    free(timeline->name);
    timeline->thread = strdup(thread.at);
    timeline->name = name ? strdup(json_string_value(name)) : NULL;
    timeline->key = key;
    json_decref(name);
    timeline->first_tid = sqlite3_column_type(row, TIMELINE_FIRST_TID) == SQLITE_NULL
                              ? timeline->next_tid
                              : sqlite3_column_int(row, TIMELINE_FIRST_TID);
    if (timeline->next_tid < timeline->first_tid + LANES)
        timeline->next_tid = timeline->first_tid + LANES;
    timeline->lanes = (struct lanes){0};
    return timeline->thread && timeline->name ? MP_OK : mp_no_memory(error);
}

/* The slice's lane, named where it is the first one there; a mark lies on the first. */
static int take_lane(struct timeline *timeline, struct slice *slice, bool is_mark,
                     struct mp_error *error) {
    int lane = is_mark ? 0 : lanes_take(&timeline->lanes, slice->start_ns, slice->end_ns);
    slice->tid = lane < LANES ? timeline->first_tid + lane : 0;
    if (lane == LANES || lane < timeline->lanes.used)
        return MP_OK;
    timeline->lanes.used = lane + 1;
    json_t *name =
        lane > 0 ? json_sprintf("%s (%d)", timeline->name, lane + 1) : json_string(timeline->name);
    if (!name)
        return mp_no_memory(error);
    MP_TRY(write_metadata(timeline, "thread_name", slice->tid, "name", name, error));
    return write_metadata(timeline, "thread_sort_index", slice->tid, "sort_index",
                          json_integer(slice->tid), error);
}

/* ---- what is drawn beside slices ---- */

/* Inserts a row of whole numbers into a temporary table. */
static int keep(struct timeline *timeline, sqlite3_stmt *insert, const int64_t values[], int count,
                struct mp_error *error) {
    for (int i = 0; i < count; i++)
        sqlite3_bind_int64(insert, i + 1, values[i]);
    int step = sqlite3_step(insert);
    sqlite3_reset(insert);
    return step == SQLITE_DONE
               ? MP_OK
               : mp_store_fail(timeline->output.store, "cannot keep a slice", error);
}

static void write_counter(struct timeline *timeline, sqlite3_stmt *row) {
    FILE *file = timeline->output.file;
    begin_event(timeline);
    fprintf(file, "{\"name\":\"layer %d\",\"ph\":\"C\",\"pid\":%d,\"ts\":",
            sqlite3_column_int(row, TIMELINE_LAYER), timeline->rank);
    write_time(file, sqlite3_column_int64(row, TIMELINE_START));
    fprintf(file, ",\"args\":{\"tokens\":%lld}}",
            (long long)sqlite3_column_int64(row, TIMELINE_COUNTED));
}

/* From what launched it, if that is known; not where the clocks differ by more than the launch
 * took: readers drop such arrows. */
static void write_launch(struct timeline *timeline, sqlite3_stmt *row, const struct slice *slice) {
    bool is_work = sqlite3_column_int(row, TIMELINE_WHAT) == TIMELINE_WORK;
    const struct text category = is_work ? TEXT("launch") : TEXT("collective");
    int64_t from_ns = sqlite3_column_int64(row, TIMELINE_FROM);
    if (sqlite3_column_type(row, TIMELINE_FROM_TID) == SQLITE_NULL || from_ns > slice->start_ns)
        return;
    timeline->exported->launches++;
    timeline->arrows++;
    write_point(timeline, slice->name, category, "\"s\"", timeline->rank,
                sqlite3_column_int(row, TIMELINE_FROM_TID), from_ns);
    write_point(timeline, slice->name, category, "\"f\",\"bp\":\"e\"", timeline->rank, slice->tid,
                slice->start_ns);
}

/* First a collective waits for ranks that came later, then it transfers. */
static void write_parts(struct timeline *timeline, sqlite3_stmt *row, const struct slice *whole) {
    if (sqlite3_column_type(row, TIMELINE_WAIT) == SQLITE_NULL)
        return;
    int64_t wait_ns = llround(sqlite3_column_double(row, TIMELINE_WAIT) * 1e6);
    int64_t length_ns = whole->end_ns - whole->start_ns;
    wait_ns = wait_ns < 0 ? 0 : wait_ns > length_ns ? length_ns : wait_ns;
    struct slice part = *whole;
    part.name = TEXT("wait");
    part.end_ns = whole->start_ns + wait_ns;
    write_part(timeline, &part);
    part.name = TEXT("transfer");
    part.start_ns = part.end_ns;
    part.end_ns = whole->end_ns;
    write_part(timeline, &part);
}

static int write_beside(struct timeline *timeline, sqlite3_stmt *row, const struct slice *slice,
                        struct mp_error *error) {
    bool is_exchange = sqlite3_column_type(row, TIMELINE_EXCHANGE) != SQLITE_NULL;
    if (sqlite3_column_type(row, TIMELINE_COUNTED) != SQLITE_NULL)
        write_counter(timeline, row);
    if (is_exchange && !timeline->draws_flows)
        timeline->exported->flows_left_out++;
    else if (is_exchange)
        MP_TRY(keep(timeline, timeline->keep_exchange,
                    (int64_t[]){sqlite3_column_int64(row, TIMELINE_ITERATION),
                                sqlite3_column_int64(row, TIMELINE_LAYER),
                                sqlite3_column_int64(row, TIMELINE_EXCHANGE),
                                sqlite3_column_int64(row, TIMELINE_DIRECTION), timeline->rank,
                                slice->tid, slice->start_ns, slice->end_ns},
                    8, error));
    if (timeline->keeps_launches && sqlite3_column_type(row, TIMELINE_PROCESS) != SQLITE_NULL)
        MP_TRY(keep(timeline, timeline->keep_launch,
                    (int64_t[]){sqlite3_column_int64(row, TIMELINE_PROCESS),
                                sqlite3_column_int64(row, TIMELINE_NUMBER), slice->tid,
                                slice->start_ns},
                    4, error));
    write_launch(timeline, row, slice);
    write_parts(timeline, row, slice);
    return MP_OK;
}

/* ---- slices ---- */

static void write_slice(struct timeline *timeline, sqlite3_stmt *row, const struct slice *slice) {
    FILE *file = timeline->output.file;
    bool is_open = slice->end_ns == INT64_MAX;
    write_head(timeline, slice,
               !slice->tid ? "\"b\""
               : is_open   ? "\"B\""
                           : "\"X\"",
               slice->start_ns);
    if (!slice->tid)
        fprintf(file, ",\"id\":%lld", (long long)slice->id);
    else if (!is_open)
        write_length(timeline, slice);
    write_arguments(timeline, row);
    if (slice->tid || is_open)
        return;
    write_head(timeline, slice, "\"e\"", slice->end_ns);
    fprintf(file, ",\"id\":%lld}", (long long)slice->id);
}

static int write_row(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    struct mp_results_exported *exported = timeline->exported;
    int64_t *const counts[] = {[TIMELINE_SPAN] = &exported->rows,
                               [TIMELINE_RANGE] = &exported->ranges,
                               [TIMELINE_CALL] = &exported->calls,
                               [TIMELINE_WORK] = &exported->gpu,
                               [TIMELINE_COLLECTIVE] = &exported->collectives,
                               [TIMELINE_MARK] = &exported->ranges};
    int what = sqlite3_column_int(row, TIMELINE_WHAT);
    struct slice slice = {.name = text_of(row, TIMELINE_NAME),
                          .category = text_of(row, TIMELINE_CATEGORY),
                          .start_ns = sqlite3_column_int64(row, TIMELINE_START),
                          .end_ns = sqlite3_column_int64(row, TIMELINE_END),
                          .id = sqlite3_column_int64(row, TIMELINE_ID)};
    if (sqlite3_column_type(row, TIMELINE_START) == SQLITE_NULL) {
        exported->gpu_left_out++;
        return MP_OK;
    }
    MP_TRY(enter_thread(timeline, row, error));
    MP_TRY(take_lane(timeline, &slice, what == TIMELINE_MARK, error));
    ++*counts[what];
    if (what == TIMELINE_MARK) {
        write_head(timeline, &slice, "\"i\",\"s\":\"t\"", slice.start_ns);
        write_arguments(timeline, row);
    } else {
        write_slice(timeline, row, &slice);
    }
    return slice.tid ? write_beside(timeline, row, &slice, error) : MP_OK;
}

/* All rows of a query about the rank, with what a caller makes of each. */
static int each_row(struct timeline *timeline, const char *sql,
                    int (*take)(struct timeline *timeline, sqlite3_stmt *row,
                                struct mp_error *error),
                    struct mp_error *error) {
    MP_AUTO(statement) sqlite3_stmt *row = NULL;
    int got;
    MP_TRY(mp_store_query(timeline->output.store, sql, timeline->value, VALUES, &row, error));
    while ((got = mp_store_next(timeline->output.store, row, error)) == 1)
        MP_TRY(take(timeline, row, error));
    return got;
}

/* ---- ranks ---- */

/* What belongs to no iteration is wanted where it overlaps those that are. */
static int choose_times(struct timeline *timeline, struct mp_error *error) {
    timeline->value[FROM_NS] = INT64_MIN;
    timeline->value[TO_NS] = INT64_MAX;
    return timeline->selection.some_iterations
               ? mp_store_numbers(
                     timeline->output.store,
                     "SELECT coalesce(min(start_ns), 0), coalesce(max(min(start_ns), "
                     "max(end_ns)), -9223372036854775808) FROM span WHERE span_id BETWEEN ?7 AND "
                     "?8 AND iteration BETWEEN ?2 AND ?3",
                     timeline->value, VALUES, &timeline->value[FROM_NS], 2, error)
               : MP_OK;
}

/* What may have launched GPU work is kept a rank at a time. */
static int begin_launches(struct timeline *timeline, struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    int64_t keeps_launches = 0;
    if (sqlite3_exec(mp_store_connection(store), "DELETE FROM temp.moeperf_launch", NULL, NULL,
                     NULL) != SQLITE_OK)
        return mp_store_fail(store, "cannot keep what launched GPU work", error);
    MP_TRY(mp_store_numbers(
        store, "SELECT EXISTS (SELECT 1 FROM device_spool WHERE run_id = ?1 AND rank = ?4)",
        timeline->value, VALUES, &keeps_launches, 1, error));
    timeline->keeps_launches = keeps_launches;
    return MP_OK;
}

static int name_rank(struct timeline *timeline, const char *host, struct mp_error *error) {
    json_t *on_host = host ? output_text(host, strlen(host)) : NULL;
    json_t *name = json_sprintf("rank %d%s%s", timeline->rank, on_host ? " on " : "",
                                on_host ? json_string_value(on_host) : "");
    json_decref(on_host);
    if (!name)
        return mp_no_memory(error);
    MP_TRY(write_metadata(timeline, "process_name", 0, "name", name, error));
    return write_metadata(timeline, "process_sort_index", 0, "sort_index",
                          json_integer(timeline->rank), error);
}

/* What the host did before what it launched. */
static int write_rank(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    static const char *const queries[] = {timeline_spans_sql, timeline_ranges_sql, timeline_gpu_sql,
                                          timeline_collectives_sql};
    timeline->value[RANK] = timeline->rank = sqlite3_column_int(row, 0);
    timeline->value[FIRST_SPAN] = sqlite3_column_int64(row, 2);
    timeline->value[LAST_SPAN] = sqlite3_column_int64(row, 3);
    timeline->draws_flows = sqlite3_column_int(row, 4);
    timeline->next_tid = 1 + 2 * LANES; /* behind compute and comm */
    MP_TRY(name_rank(timeline, (const char *)sqlite3_column_text(row, 1), error));
    MP_TRY(begin_launches(timeline, error));
    MP_TRY(choose_times(timeline, error));
    for (size_t i = 0; i < MP_LENGTH(queries); i++) {
        free(timeline->thread);
        timeline->thread = NULL;
        MP_TRY(each_row(timeline, queries[i], write_row, error));
    }
    return MP_OK;
}

/* From the rank that started an exchange last to another, into its last nanosecond. */
static int write_flow(struct timeline *timeline, sqlite3_stmt *row, struct mp_error *error) {
    const struct text name = text_of(row, 0), category = TEXT("exchange");
    int64_t end_ns = sqlite3_column_int64(row, 3), last_ns = sqlite3_column_int64(row, 6);
    (void)error;
    if (end_ns <= last_ns) {
        timeline->exported->flows_left_out++;
        return MP_OK;
    }
    timeline->exported->flows++;
    timeline->arrows++;
    write_point(timeline, name, category, "\"s\"", sqlite3_column_int(row, 4),
                sqlite3_column_int(row, 5), last_ns);
    write_point(timeline, name, category, "\"f\",\"bp\":\"e\"", sqlite3_column_int(row, 1),
                sqlite3_column_int(row, 2), end_ns - 1);
    return MP_OK;
}

/* ---- all of it ---- */

/* What is kept meanwhile goes into tables beside the database. */
static int prepare(struct timeline *timeline, struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    sqlite3 *connection = mp_store_connection(store);
    MP_AUTO(statement) sqlite3_stmt *fill = NULL;
    if (sqlite3_create_function(connection, "moeperf_json", 1,
                                SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, NULL,
                                make_json, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(connection, timeline_prepare_sql, NULL, NULL, NULL) != SQLITE_OK)
        return mp_store_fail(store, "cannot keep what is drawn", error);
    MP_TRY(mp_store_query(store,
                          "INSERT INTO temp.moeperf_exchange VALUES (?1, ?2, ?3, ?4, ?5, (SELECT "
                          "coalesce(max(turn), -1) + 1 FROM temp.moeperf_exchange WHERE "
                          "(iteration, layer, phase_id, direction, rank) = (?1, ?2, ?3, ?4, ?5)), "
                          "?6, ?7, ?8)",
                          NULL, 0, &timeline->keep_exchange, error));
    MP_TRY(mp_store_query(store,
                          "INSERT OR IGNORE INTO temp.moeperf_launch VALUES (?1, ?2, ?3, ?4)", NULL,
                          0, &timeline->keep_launch, error));
    MP_TRY(output_query(store,
                        "INSERT INTO temp.moeperf_collective SELECT rank, communicator, "
                        "communicator_rank, communicator_size, function, ordinal, operations, "
                        "bytes, start_ns, end_ns, wait_ms, transfer_ms, span_id "
                        "FROM v_collective WHERE run_id = ?1",
                        &timeline->selection, &fill, error));
    return mp_store_next(store, fill, error);
}

static int write_timeline(struct timeline *timeline, struct mp_error *error) {
    struct output *output = &timeline->output;
    int64_t rows = 0;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", output->file);
    MP_TRY(prepare(timeline, error));
    MP_TRY(each_row(timeline, timeline_ranks_sql, write_rank, error));
    MP_TRY(each_row(timeline, timeline_exchanges_sql, write_flow, error));
    fprintf(output->file,
            "\n],\n\"otherData\":{\"format\":\"moeperf timeline\",\"version\":1,"
            "\"flows_left_out\":%lld,\"gpu_left_out\":%lld,",
            (long long)timeline->exported->flows_left_out,
            (long long)timeline->exported->gpu_left_out);
    MP_TRY(output_rows(output, "run", "SELECT * FROM v_run WHERE run_id = ?1", 0,
                       &timeline->selection, &rows, error));
    fputc(',', output->file);
    MP_TRY(output_rows(output, "ranks", "SELECT * FROM v_rank WHERE run_id = ?1 ORDER BY rank", 0,
                       &timeline->selection, &rows, error));
    fputs("}}\n", output->file);
    return MP_OK;
}

int mp_results_perfetto(struct mp_store *store, const struct mp_results_selection *selection,
                        const char *path, struct mp_results_exported *exported,
                        struct mp_error *error) {
    MP_AUTO(timeline) struct timeline timeline = {.exported = exported};
    const struct mp_results_selection *chosen = &timeline.selection;
    *exported = (struct mp_results_exported){0};
    MP_TRY(output_choose(store, selection, &timeline.selection, error));
    timeline.value[RUN] = chosen->run_id;
    timeline.value[FIRST_ITERATION] = chosen->some_iterations ? chosen->first : INT64_MIN;
    timeline.value[LAST_ITERATION] = chosen->some_iterations ? chosen->last : INT64_MAX;
    MP_TRY(output_open(&timeline.output, store, path, error));
    MP_TRY(write_timeline(&timeline, error));
    return output_close(&timeline.output, error);
}
