/* The pieces of which a timeline is made. */
#include <stdlib.h>
#include <string.h>

#include "results/export/timeline.h"

void timeline_begin(struct timeline *timeline) {
    fputs(timeline->has_events ? ",\n" : "\n", timeline->output.file);
    timeline->has_events = true;
}

void timeline_time(FILE *file, int64_t ns) {
    uint64_t magnitude = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    fprintf(file, "%s%llu.%03u", ns < 0 ? "-" : "", (unsigned long long)(magnitude / 1000),
            (unsigned)(magnitude % 1000));
}

void timeline_number(struct timeline *timeline, const char *name, sqlite3_stmt *row, int column) {
    if (sqlite3_column_type(row, column) != SQLITE_NULL)
        fprintf(timeline->output.file, ",\"%s\":%lld", name,
                (long long)sqlite3_column_int64(row, column));
}

void timeline_bind(struct timeline *timeline, sqlite3_stmt *query) {
    sqlite3_bind_int(query, 4, timeline->rank);
    sqlite3_bind_int64(query, 5, timeline->from_ns);
    sqlite3_bind_int64(query, 6, timeline->to_ns);
}

/* ---- names ---- */

static void forget_name(struct timeline_name *name) {
    free(name->text);
    free(name->json);
    *name = (struct timeline_name){0};
}

void timeline_forget_names(struct timeline *timeline) {
    for (int i = 0; i < timeline->names; i++)
        forget_name(&timeline->name[i]);
    timeline->names = 0;
}

static int read_name(struct timeline *timeline, struct timeline_name *name,
                     struct mp_error *error) {
    struct mp_store *store = timeline->output.store;
    sqlite3_stmt *row = timeline->select_name;
    sqlite3_bind_int64(row, 1, name->id);
    int got = mp_store_next(store, row, error);
    const char *text = got == 1 ? (const char *)sqlite3_column_text(row, 0) : "?";
    json_t *value = text ? output_text(text, strlen(text)) : NULL;
    name->text = text ? strdup(text) : NULL;
    name->json = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    sqlite3_reset(row);
    if (got >= 0 && name->text && name->json)
        return MP_OK;
    forget_name(name);
    return got < 0 ? got : mp_no_memory(error);
}

const struct timeline_name *timeline_name(struct timeline *timeline, int64_t id,
                                          struct mp_error *error) {
    for (int i = 0; i < timeline->names; i++)
        if (timeline->name[i].id == id)
            return &timeline->name[i];
    struct timeline_name name = {.id = id};
    if (read_name(timeline, &name, error))
        return NULL;
    struct timeline_name *place = &timeline->name[timeline->names];
    if (timeline->names < TIMELINE_NAMES) {
        timeline->names++;
    } else {
        place = &timeline->name[timeline->oldest_name];
        timeline->oldest_name = (timeline->oldest_name + 1) % TIMELINE_NAMES;
        forget_name(place);
    }
    *place = name;
    return place;
}

/* ---- threads ---- */

int timeline_metadata(struct timeline *timeline, const char *kind, int tid, const char *key,
                      json_t *value, struct mp_error *error) {
    timeline_begin(timeline);
    json_t *event = json_pack("{s:s, s:s, s:i, s:{s:o}}", "name", kind, "ph", "M", "pid",
                              timeline->rank, "args", key, value);
    if (event && tid > 0)
        json_object_set_new(event, "tid", json_integer(tid));
    return output_json(&timeline->output, event, error);
}

int timeline_enter(struct timeline *timeline, int first_tid, json_t *name, struct mp_error *error) {
    free(timeline->threads);
    timeline->threads = name ? strdup(json_string_value(name)) : NULL;
    json_decref(name);
    timeline->first_tid = first_tid;
    if (timeline->next_tid < first_tid + LANES)
        timeline->next_tid = first_tid + LANES;
    timeline->lanes = (struct lanes){0};
    return timeline->threads ? MP_OK : mp_no_memory(error);
}

int timeline_enter_next(struct timeline *timeline, json_t *name, struct mp_error *error) {
    return timeline_enter(timeline, timeline->next_tid, name, error);
}

static int name_lane(struct timeline *timeline, int lane, struct mp_error *error) {
    int tid = timeline->first_tid + lane;
    json_t *name = lane > 0 ? json_sprintf("%s (%d)", timeline->threads, lane + 1)
                            : json_string(timeline->threads);
    if (!name)
        return mp_no_memory(error);
    int code = timeline_metadata(timeline, "thread_name", tid, "name", name, error);
    return code ? code
                : timeline_metadata(timeline, "thread_sort_index", tid, "sort_index",
                                    json_integer(tid), error);
}

/* ---- slices ---- */

static void write_head(struct timeline *timeline, const struct timeline_slice *slice,
                       const char *ph, int64_t at_ns) {
    FILE *file = timeline->output.file;
    timeline_begin(timeline);
    fprintf(file,
            "{\"name\":%s,\"cat\":%s,\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", slice->name,
            slice->category, ph, timeline->rank, slice->tid ? slice->tid : timeline->first_tid);
    timeline_time(file, at_ns);
}

/* Perfetto gives each id of a pair a track of its own. */
int timeline_slice(struct timeline *timeline, struct timeline_slice *slice,
                   struct mp_error *error) {
    FILE *file = timeline->output.file;
    int known = timeline->lanes.used;
    int lane = lanes_take(&timeline->lanes, slice->start_ns, slice->end_ns);
    int code = lane < LANES && lane >= known ? name_lane(timeline, lane, error) : MP_OK;
    if (code)
        return code;
    slice->tid = lane < LANES ? timeline->first_tid + lane : 0;
    bool is_open = slice->end_ns == TIMELINE_OPEN;
    write_head(timeline, slice, !slice->tid ? "b" : is_open ? "B" : "X", slice->start_ns);
    if (!slice->tid) {
        fprintf(file, ",\"id\":%lld", (long long)slice->id);
    } else if (!is_open) {
        fputs(",\"dur\":", file);
        timeline_time(file, slice->end_ns - slice->start_ns);
    }
    return MP_OK;
}

void timeline_slice_end(struct timeline *timeline, const struct timeline_slice *slice) {
    FILE *file = timeline->output.file;
    fputc('}', file);
    if (slice->tid || slice->end_ns == TIMELINE_OPEN)
        return;
    write_head(timeline, slice, "e", slice->end_ns);
    fprintf(file, ",\"id\":%lld}", (long long)slice->id);
}

void timeline_slice_inside(struct timeline *timeline, const struct timeline_slice *slice) {
    write_head(timeline, slice, "X", slice->start_ns);
    fputs(",\"dur\":", timeline->output.file);
    timeline_time(timeline->output.file, slice->end_ns - slice->start_ns);
    fputc('}', timeline->output.file);
}

/* ---- arrows ---- */

static void write_point(struct timeline *timeline, const char *name, const char *category,
                        const char *ph, const struct timeline_point *point) {
    FILE *file = timeline->output.file;
    timeline_begin(timeline);
    fprintf(file,
            "{\"name\":%s,\"cat\":%s,\"ph\":%s\"id\":%lld,\"pid\":%d,\"tid\":%d,\"ts\":", name,
            category, ph, (long long)timeline->arrows, point->rank, point->tid);
    timeline_time(file, point->at_ns);
    fputc('}', file);
}

void timeline_arrow(struct timeline *timeline, const char *name, const char *category,
                    const struct timeline_point *from, const struct timeline_point *to) {
    timeline->arrows++;
    write_point(timeline, name, category, "\"s\",", from);
    write_point(timeline, name, category, "\"f\",\"bp\":\"e\",", to);
}
