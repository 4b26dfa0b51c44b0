/* Rows of GPU work. */
#include "results/store/device.h"

#include <string.h>

/* A column's value; ROW_NULL is NULL. */
static void bind(sqlite3_stmt *insert, const int64_t values[], int count) {
    for (int i = 0; i < count; i++)
        if (values[i] != ROW_NULL)
            sqlite3_bind_int64(insert, i + 1, values[i]);
}

static int64_t or_null(int64_t value) {
    return value ? value : ROW_NULL;
}

static int64_t name_of(const struct device_spool *spool, uint32_t id) {
    return or_null(id < spool->name_count ? spool->names[id] : 0);
}

/* A time that is 0 was not known. */
static int64_t time_or_null(const struct device_spool *spool, int64_t own_ns) {
    return own_ns ? device_time(spool, own_ns) : ROW_NULL;
}

static int64_t global_pid(const struct device_spool *spool) {
    return ((int64_t)spool->header.pid & 0xFFFFFF) << 24;
}

/* ---- one kind each ---- */

enum { COLUMNS = 26 };

static int kernel_row(const struct device_spool *spool, const struct mp_activity *is,
                      int64_t row[COLUMNS]) {
    int64_t name = name_of(spool, is->name);
    const int64_t values[] = {time_or_null(spool, is->start_ns),
                              time_or_null(spool, is->end_ns),
                              is->device,
                              is->context,
                              is->stream,
                              is->correlation,
                              global_pid(spool),
                              name,
                              name,
                              name,
                              is->registers,
                              is->grid[0],
                              is->grid[1],
                              is->grid[2],
                              is->block[0],
                              is->block[1],
                              is->block[2],
                              is->static_shared,
                              is->dynamic_shared,
                              is->local,
                              (int64_t)is->local_total,
                              or_null((int64_t)is->graph_node),
                              spool->run_id,
                              spool->rank,
                              or_null(device_span_of(spool, is->correlation))};
    memcpy(row, values, sizeof values);
    return sizeof values / sizeof *values;
}

static int copy_row(const struct device_spool *spool, const struct mp_activity *is,
                    int64_t row[COLUMNS]) {
    const int64_t values[] = {time_or_null(spool, is->start_ns),
                              time_or_null(spool, is->end_ns),
                              is->device,
                              is->context,
                              is->stream,
                              is->correlation,
                              global_pid(spool),
                              (int64_t)is->value,
                              is->detail,
                              is->source,
                              is->target,
                              or_null((int64_t)is->graph_node),
                              spool->run_id,
                              spool->rank,
                              or_null(device_span_of(spool, is->correlation)),
                              is->result};
    memcpy(row, values, sizeof values);
    return sizeof values / sizeof *values;
}

static int set_row(const struct device_spool *spool, const struct mp_activity *is,
                   int64_t row[COLUMNS]) {
    const int64_t values[] = {time_or_null(spool, is->start_ns),
                              time_or_null(spool, is->end_ns),
                              is->device,
                              is->context,
                              is->stream,
                              is->correlation,
                              global_pid(spool),
                              is->detail,
                              (int64_t)is->value,
                              or_null((int64_t)is->graph_node),
                              is->target,
                              spool->run_id,
                              spool->rank,
                              or_null(device_span_of(spool, is->correlation))};
    memcpy(row, values, sizeof values);
    return sizeof values / sizeof *values;
}

static int call_row(const struct device_spool *spool, const struct mp_activity *is,
                    int64_t row[COLUMNS]) {
    const int64_t values[] = {time_or_null(spool, is->start_ns),
                              time_or_null(spool, is->end_ns),
                              global_pid(spool) | (is->thread & 0xFFFFFF),
                              is->correlation,
                              name_of(spool, is->name),
                              (int32_t)is->result,
                              spool->run_id,
                              spool->rank,
                              or_null(device_span_of(spool, is->correlation))};
    memcpy(row, values, sizeof values);
    return sizeof values / sizeof *values;
}

static int overhead_row(const struct device_spool *spool, const struct mp_activity *is,
                        int64_t row[COLUMNS]) {
    const int64_t values[] = {spool->run_id, spool->rank, time_or_null(spool, is->start_ns),
                              time_or_null(spool, is->end_ns), is->detail};
    memcpy(row, values, sizeof values);
    return sizeof values / sizeof *values;
}

/* No statement: what the rows refer to, and no row itself. */
static const struct {
    const char *sql;
    int (*row)(const struct device_spool *spool, const struct mp_activity *is,
               int64_t row[COLUMNS]);
} kinds[MP_ACTIVITIES] = {
    [MP_ACTIVITY_KERNEL] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, contextId, streamId, "
         "correlationId, globalPid, demangledName, shortName, mangledName, registersPerThread, "
         "gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, "
         "localMemoryPerThread, localMemoryTotal, graphNodeId, run_id, rank, span_id) VALUES "
         "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         kernel_row},
    [MP_ACTIVITY_COPY] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, \"end\", deviceId, contextId, streamId, "
         "correlationId, globalPid, bytes, copyKind, srcKind, dstKind, graphNodeId, run_id, rank, "
         "span_id, copies) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         copy_row},
    [MP_ACTIVITY_SET] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, \"end\", deviceId, contextId, streamId, "
         "correlationId, globalPid, value, bytes, graphNodeId, memKind, run_id, rank, span_id) "
         "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         set_row},
    [MP_ACTIVITY_CALL] =
        {"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, \"end\", globalTid, correlationId, "
         "nameId, returnValue, run_id, rank, span_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
         call_row},
    [MP_ACTIVITY_OVERHEAD] =
        {"INSERT INTO gpu_overhead (run_id, rank, start_ns, end_ns, kind) VALUES (?, ?, ?, ?, ?)",
         overhead_row},
};

/* ---- collectives ---- */

/* NULL for a type that NCCL may have got since. */
static int64_t bytes_of(const char *datatype, uint64_t count) {
    static const struct {
        const char *ending;
        int bytes;
    } types[] = {{"Int8", 1},       {"Uint8", 1},   {"Char", 1},     {"Float8e4m3", 1},
                 {"Float8e5m2", 1}, {"Float16", 2}, {"Bfloat16", 2}, {"Half", 2},
                 {"Int32", 4},      {"Uint32", 4},  {"Int", 4},      {"Float32", 4},
                 {"Float", 4},      {"Int64", 8},   {"Uint64", 8},   {"Float64", 8},
                 {"Double", 8}};
    static const char prefix[] = "nccl";
    if (strncmp(datatype, prefix, sizeof prefix - 1) == 0)
        datatype += sizeof prefix - 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(datatype, types[i].ending) == 0 && count <= INT64_MAX / 8)
            return (int64_t)count * types[i].bytes;
    return ROW_NULL;
}

/* The GPU's timer on the run's clock: with the pair of readings that lies nearest in time. */
static int64_t timer_time(const struct device_spool *spool, uint64_t timer, int64_t about_ns) {
    int64_t offset_ns = 0;
    uint64_t nearest = UINT64_MAX;
    for (int low = 0, high = spool->timer_count; low < high;) {
        int middle = low + (high - low) / 2;
        int64_t at_ns = spool->timers[middle].at_ns;
        uint64_t apart = at_ns < about_ns ? (uint64_t)about_ns - (uint64_t)at_ns
                                          : (uint64_t)at_ns - (uint64_t)about_ns;
        if (apart < nearest) {
            nearest = apart;
            offset_ns = spool->timers[middle].offset_ns;
        }
        if (at_ns < about_ns)
            low = middle + 1;
        else
            high = middle;
    }
    if (!timer || nearest == UINT64_MAX)
        return ROW_NULL;
    return device_time(spool, (int64_t)(timer + (uint64_t)offset_ns));
}

static const char insert_collective[] =
    "INSERT INTO collective (run_id, rank, communicator, function_id, is_pair, sequence, "
    "group_ordinal, communicator_rank, communicator_size, peer, datatype_id, count, bytes, "
    "algorithm_id, protocol_id, channels, timed_channels, queue_start_ns, queue_end_ns, start_ns, "
    "end_ns, span_id) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/* The name of the datatype is needed as text, once per row: SQLite has it at hand. */
static int64_t collective_bytes(const struct device_spool *spool, sqlite3_stmt *name,
                                const struct mp_collective *is) {
    int64_t bytes = ROW_NULL, id = name_of(spool, is->datatype);
    if (id == ROW_NULL)
        return bytes;
    sqlite3_bind_int64(name, 1, id);
    if (sqlite3_step(name) == SQLITE_ROW)
        bytes = bytes_of((const char *)sqlite3_column_text(name, 0), is->count);
    sqlite3_reset(name);
    return bytes;
}

static void bind_collective(const struct device_spool *spool, sqlite3_stmt *insert,
                            const struct mp_collective *is, int64_t bytes) {
    int64_t queue_start_ns = device_time(spool, is->start_ns);
    bool timed = is->timer_start && is->timer_end >= is->timer_start;
    const int64_t values[] = {
        spool->run_id,
        spool->rank,
        (int64_t)is->communicator,
        name_of(spool, is->function),
        is->is_pair,
        (int64_t)is->sequence,
        (int64_t)is->group,
        is->rank,
        is->ranks,
        is->peer,
        name_of(spool, is->datatype),
        (int64_t)is->count,
        bytes,
        name_of(spool, is->algorithm),
        name_of(spool, is->protocol),
        is->channels,
        is->timed_channels,
        queue_start_ns,
        time_or_null(spool, is->queued_ns),
        timed ? timer_time(spool, is->timer_start, is->start_ns) : ROW_NULL,
        timed ? timer_time(spool, is->timer_end, is->start_ns) : ROW_NULL,
        or_null(device_span_at(spool, queue_start_ns)),
    };
    bind(insert, values, sizeof values / sizeof *values);
}

/* ---- all of it ---- */

enum { COLLECTIVE = MP_ACTIVITIES, NUMBER, DATATYPE, STATEMENTS };

static int prepare(struct mp_store *store, sqlite3_stmt *statement[STATEMENTS],
                   struct mp_error *error) {
    int code = MP_OK;
    for (int kind = 0; !code && kind < MP_ACTIVITIES; kind++)
        if (kinds[kind].sql)
            code = store_prepare(store, kinds[kind].sql, &statement[kind], error);
    if (!code)
        code = store_prepare(store, insert_collective, &statement[COLLECTIVE], error);
    if (!code)
        code = store_prepare(store, "INSERT OR REPLACE INTO number VALUES (?, ?, ?, ?, ?, ?)",
                             &statement[NUMBER], error);
    if (!code)
        code = store_prepare(store, "SELECT value FROM StringIds WHERE id = ?",
                             &statement[DATATYPE], error);
    return code;
}

static int insert_activity(const struct device_spool *spool, sqlite3_stmt *statement[STATEMENTS],
                           const struct mp_activity *activity, struct mp_error *error) {
    int64_t row[COLUMNS];
    if (activity->kind >= MP_ACTIVITIES || !kinds[activity->kind].sql)
        return MP_OK; /* a link, or of a later build */
    bind(statement[activity->kind], row, kinds[activity->kind].row(spool, activity, row));
    return store_run(spool->store, statement[activity->kind], "cannot store GPU work", error);
}

static int insert_number(const struct device_spool *spool, sqlite3_stmt *insert,
                         const struct mp_spool_record *record, struct mp_error *error) {
    int64_t name_id = 0;
    int code = strings_id(spool->strings, record->as.number.name, &name_id, error);
    if (code)
        return code;
    const int64_t values[] = {spool->run_id, spool->rank, record->as.number.iteration,
                              record->as.number.layer, name_id};
    bind(insert, values, sizeof values / sizeof *values);
    sqlite3_bind_double(insert, 6, record->as.number.value);
    return store_run(spool->store, insert, "cannot store a number", error);
}

static int insert_record(const struct device_spool *spool, sqlite3_stmt *statement[STATEMENTS],
                         const struct mp_spool_record *record, struct mp_error *error) {
    switch (record->type) {
    case MP_SPOOL_ACTIVITY:
        return insert_activity(spool, statement, &record->as.activity, error);
    case MP_SPOOL_COLLECTIVE:
        bind_collective(spool, statement[COLLECTIVE], &record->as.collective,
                        collective_bytes(spool, statement[DATATYPE], &record->as.collective));
        return store_run(spool->store, statement[COLLECTIVE], "cannot store a collective", error);
    case MP_SPOOL_NUMBER:
        return insert_number(spool, statement[NUMBER], record, error);
    default:
        return MP_OK;
    }
}

int device_insert(struct device_spool *spool, struct mp_error *error) {
    struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    sqlite3_stmt *statement[STATEMENTS] = {NULL};
    int code = prepare(spool->store, statement, error);
    if (!code)
        code = mp_spool_open(spool->path, &reader, error);
    while (!code && mp_spool_next(reader, &record, NULL) == 1)
        code = insert_record(spool, statement, &record, error);
    mp_spool_close(reader);
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(statement[i]);
    return code;
}
