/* Rows of GPU work. */
#include "results/store/device.h"

#include <string.h>

#include "reference/base/arena.h"

/* 64 bits for a column that has to have a value. */
static int64_t not_null(uint64_t value) {
    return (int64_t)value == ROW_NULL ? ROW_NULL + 1 : (int64_t)value;
}

/* A count, or as many as a column can say. */
static int64_t count_of(uint64_t value) {
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static int64_t name_of(const struct device_spool *spool, uint32_t id) {
    return store_or_null(id < spool->name_count ? spool->names[id].string_id : 0);
}

/* A time that is 0 was not known. */
static int64_t time_or_null(const struct device_spool *spool, int64_t own_ns) {
    return own_ns ? device_time(spool, own_ns) : ROW_NULL;
}

/* ---- activities ---- */

enum { BATCH = 16384 };

/* Activities of all kinds on their way into the database, and those of one kind as rows. */
struct batch {
    struct device_spool *spool;
    int count, at, kind;
    struct mp_activity activity[BATCH];
};

static void fill_row(struct device_spool *spool, const struct mp_activity *is,
                     int64_t row[ROW_COLUMNS]) {
    const int64_t common[] = {time_or_null(spool, is->start_ns),
                              time_or_null(spool, is->end_ns),
                              is->correlation,
                              store_or_null(device_span_of(spool, is->correlation)),
                              name_of(spool, is->name),
                              is->device,
                              is->context,
                              is->stream,
                              store_or_null((int64_t)is->graph_node)};
    const int64_t kernel[] = {is->registers,
                              is->grid[0],
                              is->grid[1],
                              is->grid[2],
                              is->block[0],
                              is->block[1],
                              is->block[2],
                              is->static_shared,
                              is->dynamic_shared,
                              is->local,
                              (int64_t)is->local_total};
    const int64_t other[] = {count_of(is->value), is->detail,          is->source,
                             is->target,          (int32_t)is->result, is->thread & 0xFFFFFF};
    _Static_assert(sizeof common + sizeof kernel == ROW_COLUMNS * sizeof *row, "a row");
    memcpy(row, common, sizeof common);
    if (is->kind == MP_ACTIVITY_KERNEL)
        memcpy(row + sizeof common / sizeof *row, kernel, sizeof kernel);
    else
        memcpy(row + sizeof common / sizeof *row, other, sizeof other);
}

/* ?1 run, ?2 rank, ?3 the process; c0 .. c19 as fill_row puts them: c0 start, c1 end, c2
 * correlation, c3 span, c4 name, c5 device, c6 context, c7 stream, c8 node of a graph; then of a
 * kernel c9 registers, c10 .. c12 grid, c13 .. c15 block, c16 .. c19 memory; of the others c9
 * value, c10 detail, c11 source, c12 target, c13 result, c14 thread.  No statement: what the rows
 * refer to, and no row itself. */
static const char *const insert_activities[MP_ACTIVITIES] = {
    [MP_ACTIVITY_KERNEL] =
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, contextId, streamId, "
        "correlationId, globalPid, demangledName, shortName, mangledName, registersPerThread, "
        "gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, "
        "localMemoryPerThread, localMemoryTotal, graphNodeId, run_id, rank, span_id) "
        "SELECT c0, c1, c5, c6, c7, c2, ?3, c4, c4, c4, c9, c10, c11, c12, c13, c14, c15, c16, "
        "c17, c18, c19, c8, ?1, ?2, c3 FROM moeperf_rows",
    [MP_ACTIVITY_COPY] =
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, \"end\", deviceId, contextId, streamId, "
        "correlationId, globalPid, bytes, copyKind, srcKind, dstKind, graphNodeId, run_id, rank, "
        "span_id, copies) SELECT c0, c1, c5, c6, c7, c2, ?3, c9, c10, c11, c12, c8, ?1, ?2, c3, "
        "c13 FROM moeperf_rows",
    [MP_ACTIVITY_SET] =
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, \"end\", deviceId, contextId, streamId, "
        "correlationId, globalPid, value, bytes, graphNodeId, memKind, run_id, rank, span_id) "
        "SELECT c0, c1, c5, c6, c7, c2, ?3, c10, c9, c8, c12, ?1, ?2, c3 FROM moeperf_rows",
    [MP_ACTIVITY_CALL] =
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, \"end\", globalTid, correlationId, "
        "nameId, returnValue, run_id, rank, span_id) "
        "SELECT c0, c1, ?3 | c14, c2, c4, c13, ?1, ?2, c3 FROM moeperf_rows",
    [MP_ACTIVITY_OVERHEAD] = "INSERT INTO gpu_overhead (run_id, rank, start_ns, end_ns, kind) "
                             "SELECT ?1, ?2, c0, c1, c10 FROM moeperf_rows",
};

static int next_activity(void *context, int64_t row[ROW_COLUMNS], struct mp_error *error) {
    struct batch *batch = context;
    (void)error;
    while (batch->at < batch->count && batch->activity[batch->at].kind != batch->kind)
        batch->at++;
    if (batch->at == batch->count)
        return 0;
    fill_row(batch->spool, &batch->activity[batch->at++], row);
    return 1;
}

/* Kind after kind, each inside one statement. */
static int insert_batch(struct batch *batch, struct mp_error *error) {
    const struct device_spool *spool = batch->spool;
    const int64_t values[] = {spool->run_id, spool->rank,
                              (((int64_t)spool->header.pid & 0xFFFFFF) << 24)};
    for (int kind = 0; kind < MP_ACTIVITIES && batch->count > 0; kind++) {
        struct row_source source = {.next = next_activity, .context = batch};
        if (!insert_activities[kind])
            continue;
        batch->kind = kind;
        batch->at = 0;
        MP_TRY(store_insert_rows(spool->store, insert_activities[kind], values,
                                 kind == MP_ACTIVITY_OVERHEAD ? 2 : 3, &source,
                                 "cannot store GPU work", error));
    }
    batch->count = 0;
    return MP_OK;
}

/* ---- collectives ---- */

/* The GPU's timer on the run's clock. */
static int64_t timer_time(const struct device_spool *spool, uint64_t timer, int64_t about_ns) {
    int64_t offset_ns = 0;
    if (!timer || !clock_timer_offset(spool->timers, spool->timer_count, about_ns, &offset_ns))
        return ROW_NULL;
    return device_time(spool, (int64_t)(timer + (uint64_t)offset_ns));
}

static const char collective_sql[] =
    "INSERT INTO collective (run_id, rank, communicator, function_id, is_pair, sequence, "
    "group_ordinal, communicator_rank, communicator_size, peer, datatype_id, count, bytes, "
    "algorithm_id, protocol_id, channels, timed_channels, queue_start_ns, queue_end_ns, start_ns, "
    "end_ns, span_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/* NULL for a type whose size is not known. */
static int64_t bytes_of(const struct device_spool *spool, const struct mp_collective *is) {
    int size = is->datatype < spool->name_count ? spool->names[is->datatype].size : 0;
    return size > 0 && is->count <= INT64_MAX / 8 ? (int64_t)is->count * size : ROW_NULL;
}

static int insert_collective(const struct device_spool *spool, const struct mp_collective *is,
                             struct mp_error *error) {
    sqlite3_stmt *insert;
    int64_t queue_start_ns = device_time(spool, is->start_ns);
    bool timed = is->timer_start && is->timer_end >= is->timer_start;
    const int64_t values[] = {
        spool->run_id,
        spool->rank,
        not_null(is->communicator),
        name_of(spool, is->function),
        is->is_pair,
        count_of(is->sequence),
        count_of(is->group),
        is->rank,
        is->ranks,
        is->peer,
        name_of(spool, is->datatype),
        count_of(is->count),
        bytes_of(spool, is),
        name_of(spool, is->algorithm),
        name_of(spool, is->protocol),
        is->channels,
        is->timed_channels,
        queue_start_ns,
        time_or_null(spool, is->queued_ns),
        timed ? timer_time(spool, is->timer_start, is->start_ns) : ROW_NULL,
        timed ? timer_time(spool, is->timer_end, is->start_ns) : ROW_NULL,
        store_or_null(device_span_at(spool, queue_start_ns)),
    };
    MP_TRY(store_statement(spool->store, collective_sql, &insert, error));
    store_bind_known(insert, 1, values, MP_LENGTH(values));
    return store_run(spool->store, insert, "cannot store a collective", error);
}

/* ---- all of it ---- */

static int insert_record(struct batch *batch, const struct mp_spool_record *record,
                         struct mp_error *error) {
    const struct device_spool *spool = batch->spool;
    switch (record->type) {
    case MP_SPOOL_ACTIVITY:
        batch->activity[batch->count++] = record->as.activity;
        return batch->count < BATCH ? MP_OK : insert_batch(batch, error);
    case MP_SPOOL_COLLECTIVE:
        return insert_collective(spool, &record->as.collective, error);
    case MP_SPOOL_NUMBER:
        return strings_number(spool->strings, spool->run_id, spool->rank, record, error);
    default:
        return MP_OK;
    }
}

int device_insert(struct device_spool *spool, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    MP_AUTO(memory) struct batch *batch = NULL;
    struct mp_spool_record record;
    MP_TRY(MP_NEW(batch, 1, error));
    MP_TRY(mp_spool_open(spool->path, &reader, error));
    batch->spool = spool;
    while (mp_spool_next(reader, &record, NULL) == 1)
        MP_TRY(insert_record(batch, &record, error));
    return insert_batch(batch, error);
}
