/* Ranges of NVTX and MPI in Nsight Systems' export. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "harness/recordings/nsys_file.h"
#include "reference/base/arena.h"

enum {
    EVENT_CATEGORY = 33, /* ENUM_NSYS_EVENT_TYPE */
    EVENT_MARK = 34,
    EVENT_THREAD = 39,
    EVENT_PUSHED = 59,
    EVENT_DOMAIN = 75,
    FIELDS = 32,
    SIGNATURE_BYTES = 1024,
    NAMES_LIMIT = 65536
};

/* A domain of a process. */
struct domain {
    int64_t key, id;
    const char *name;
};

/* Which fields a payload has, as recorded for one process and domain. */
struct shape {
    const struct mp_recording_process *process;
    const char *signature; /* domain and names, each with a line's end */
    uint64_t schema;
};

struct reading {
    struct nsys_file *file;
    struct domain *domain;
    int domains;
    struct shape *shape;
    int shapes;
    struct mp_arena texts;
    struct mp_error *error;
};

/* ---- names of domains, categories, threads ---- */

static const char *domain_of(const struct reading *reading, int64_t key, int64_t id) {
    for (int i = reading->domains - 1; i >= 0; i--)
        if (reading->domain[i].key == key && reading->domain[i].id == id)
            return reading->domain[i].name;
    return NULL;
}

enum { NAME_GLOBAL, NAME_EVENT, NAME_DOMAIN, NAME_CATEGORY, NAME_TEXT };
static const char *const name_columns[] = {"globalTid", "eventType", "domainId", "category",
                                           "text",      "@textId",   NULL};

static int take_name(void *context, sqlite3_stmt *row) {
    struct reading *reading = context;
    const int64_t global = sqlite3_column_int64(row, NAME_GLOBAL),
                  domain = sqlite3_column_int64(row, NAME_DOMAIN);
    const char *text = nsys_text(row, NAME_TEXT);
    struct nsys_process *own = nsys_process_of(reading->file, global);
    if (!own || !text)
        return MP_OK;
    switch (sqlite3_column_int(row, NAME_EVENT)) {
    case EVENT_DOMAIN:
        if (reading->domains == NAMES_LIMIT || !text)
            return MP_OK;
        MP_TRY(MP_GROW(reading->domain, reading->domains, reading->error));
        reading->domain[reading->domains] =
            (struct domain){nsys_key(global), domain, mp_arena_text(&reading->texts, text)};
        return reading->domain[reading->domains++].name ? MP_OK : mp_no_memory(reading->error);
    case EVENT_THREAD:
        return mp_recording_name(own->process, MP_NAME_THREAD, NULL, nsys_thread(global), text,
                                 reading->error);
    case EVENT_CATEGORY:
        return mp_recording_name(
            own->process, MP_NAME_CATEGORY, domain_of(reading, nsys_key(global), domain),
            (uint32_t)sqlite3_column_int64(row, NAME_CATEGORY), text, reading->error);
    default:
        return MP_OK;
    }
}

/* ---- payloads ---- */

struct fields {
    const char *name[FIELDS];
    int64_t value[FIELDS];
    int count;
};

/* Numbers of 64 bits without a sign may be larger than a JSON integer can be here: such a payload
 * is read with its numbers as fractions, and those that are whole are taken. */
static json_t *read_json(const char *text) {
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    return json || !text ? json : json_loads(text, JSON_DECODE_INT_AS_REAL, NULL);
}

static bool whole(const json_t *value, int64_t *number) {
    const double real = json_real_value(value); /* 0: it is none */
    if (json_is_integer(value) || !(real > -9e15 && real < 9e15)) {
        *number = json_integer_value(value);
        return json_is_integer(value);
    }
    *number = (int64_t)real;
    return json_is_real(value) && (double)*number == real;
}

static void take_fields(json_t *object, struct fields *fields) {
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        if (fields->count < FIELDS && strlen(name) < 48 &&
            whole(value, &fields->value[fields->count]))
            fields->name[fields->count++] = name;
    }
}

/* Several payloads of a range are an array of objects. */
static void take_payloads(json_t *json, struct fields *fields) {
    size_t i;
    json_t *item;
    take_fields(json, fields);
    json_array_foreach(json, i, item) take_fields(item, fields);
}

static int find_shape(struct reading *reading, struct mp_recording_process *process,
                      const char *domain, const struct fields *fields, uint64_t *schema) {
    char signature[SIGNATURE_BYTES];
    struct mp_error full;
    size_t length = (size_t)snprintf(signature, sizeof signature, "%s\n", domain ? domain : "");
    for (int i = 0; i < fields->count && length < sizeof signature; i++)
        length += (size_t)snprintf(signature + length, sizeof signature - length, "%s\n",
                                   fields->name[i]);
    *schema = 0;
    if (length >= sizeof signature)
        return MP_OK;
    for (int i = reading->shapes - 1; i >= 0; i--)
        if (reading->shape[i].process == process &&
            !strcmp(reading->shape[i].signature, signature)) {
            *schema = reading->shape[i].schema;
            return MP_OK;
        }
    MP_TRY(MP_GROW(reading->shape, reading->shapes, reading->error));
    struct shape *made = &reading->shape[reading->shapes++];
    *made = (struct shape){process, mp_arena_text(&reading->texts, signature), 0};
    if (!made->signature)
        return mp_no_memory(reading->error);
    int code = mp_recording_fields(process, domain, fields->name, fields->count, schema, &full);
    made->schema = *schema;
    return code == MP_OK || code == MP_ELIMIT ? MP_OK
                                              : mp_fail(reading->error, code, "%s", full.text);
}

enum {
    RANGE_START,
    RANGE_END,
    RANGE_EVENT,
    RANGE_GLOBAL,
    RANGE_DOMAIN,
    RANGE_CATEGORY,
    RANGE_TEXT,
    RANGE_JSON = RANGE_TEXT + 2,
    RANGE_VALUE = RANGE_JSON + 2 /* six: U64, I64, DOUBLE, U32, I32, FLOAT */
};
static const char *const range_columns[] = {
    "start",       "end",         "eventType",  "globalTid",   "domainId",    "category",
    "text",        "@textId",     "jsonText",   "@jsonTextId", "uint64Value", "int64Value",
    "doubleValue", "uint32Value", "int32Value", "floatValue",  NULL};

/* One column has the value; where old versions fill all with zeros, the one that is none. */
static void take_value(sqlite3_stmt *row, struct mp_recorded_range *range) {
    int said = 0, only = -1, other = -1;
    for (int i = 0; i < 6; i++) {
        if (sqlite3_column_type(row, RANGE_VALUE + i) == SQLITE_NULL)
            continue;
        said++;
        only = i;
        if (other < 0 && sqlite3_column_double(row, RANGE_VALUE + i) != 0)
            other = i;
    }
    const int which = said == 1 ? only : other;
    if (which < 0)
        return;
    range->value_type = (uint8_t)(MP_VALUE_U64 + which);
    if (range->value_type == MP_VALUE_DOUBLE) {
        const double value = sqlite3_column_double(row, RANGE_VALUE + which);
        memcpy(&range->value, &value, sizeof value);
    } else if (range->value_type == MP_VALUE_FLOAT) {
        const float value = (float)sqlite3_column_double(row, RANGE_VALUE + which);
        memcpy(&range->value, &value, sizeof value);
    } else {
        range->value = (uint64_t)sqlite3_column_int64(row, RANGE_VALUE + which);
    }
}

MP_END(json, json_t *, json_decref(*it))

static int take_range(void *context, sqlite3_stmt *row) {
    struct reading *reading = context;
    struct nsys_file *file = reading->file;
    const int64_t global = sqlite3_column_int64(row, RANGE_GLOBAL);
    const int event = sqlite3_column_int(row, RANGE_EVENT);
    struct nsys_process *own = nsys_process_of(file, global);
    if (!own)
        return MP_OK;
    struct mp_recorded_range range = {
        .start_ns = nsys_time(file, row, RANGE_START),
        .name = nsys_text(row, RANGE_TEXT),
        .domain = domain_of(reading, nsys_key(global), sqlite3_column_int64(row, RANGE_DOMAIN)),
        .thread = nsys_thread(global),
        .category = (uint32_t)sqlite3_column_int64(row, RANGE_CATEGORY),
        .kind = event == EVENT_MARK     ? MP_RANGE_MARK
                : event == EVENT_PUSHED ? MP_RANGE_PUSHED
                                        : MP_RANGE_STARTED};
    if (event == EVENT_MARK)
        range.end_ns = range.start_ns;
    else if (sqlite3_column_type(row, RANGE_END) != SQLITE_NULL)
        range.end_ns = nsys_time(file, row, RANGE_END);
    take_value(row, &range);
    MP_AUTO(json) json_t *json = read_json(nsys_text(row, RANGE_JSON));
    struct fields fields = {.count = 0};
    take_payloads(json, &fields);
    if (fields.count > 0)
        MP_TRY(find_shape(reading, own->process, range.domain, &fields, &range.schema));
    range.field = fields.value;
    return mp_recording_range(own->process, &range, reading->error);
}

/* MPI's functions are ranges called like them, in the domain MPI; sizes are their values. */
static int take_mpi(void *context, sqlite3_stmt *row) {
    const struct reading *reading = context;
    const int64_t global = sqlite3_column_int64(row, 2);
    struct nsys_process *own = nsys_process_of(reading->file, global);
    const bool has_end = sqlite3_column_type(row, 1) != SQLITE_NULL,
               has_size = sqlite3_column_type(row, 4) != SQLITE_NULL;
    const struct mp_recorded_range range = {.start_ns = nsys_time(reading->file, row, 0),
                                            .end_ns =
                                                has_end ? nsys_time(reading->file, row, 1) : 0,
                                            .name = (const char *)sqlite3_column_text(row, 3),
                                            .domain = "MPI",
                                            .thread = nsys_thread(global),
                                            .value_type = has_size ? MP_VALUE_I64 : MP_VALUE_NONE,
                                            .value = (uint64_t)sqlite3_column_int64(row, 4)};
    return own ? mp_recording_range(own->process, &range, reading->error) : MP_OK;
}

MP_END(reading, struct reading, (free(it->domain), free(it->shape), mp_arena_release(&it->texts)))

int nsys_read_ranges(struct nsys_file *file, struct mp_error *error) {
    MP_AUTO(reading) struct reading reading = {.file = file, .error = error};
    static const char *const mpi[] = {"MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS",
                                      "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS"};
    static const char *const mpi_columns[] = {"start", "end", "globalTid", "@textId", "size", NULL};
    MP_TRY(nsys_each_row(reading.file, "NVTX_EVENTS", name_columns,
                         "WHERE eventType IN (33, 39, 75)", take_name, &reading));
    MP_TRY(nsys_each_row(reading.file, "NVTX_EVENTS", range_columns,
                         "WHERE eventType IN (34, 59, 60)", take_range, &reading));
    for (size_t i = 0; i < MP_LENGTH(mpi); i++)
        MP_TRY(nsys_each_row(reading.file, mpi[i], mpi_columns, "", take_mpi, &reading));
    return MP_OK;
}
