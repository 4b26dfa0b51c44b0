/* The GPU's work in Nsight Systems' export, and NCCL's part of it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/recordings/nsys_file.h"
#include "reference/base/arena.h"

/* A kernel of NCCL, and the call that launched it. */
struct collective {
    struct nsys_process *own;
    int64_t start_ns, end_ns;             /* it ran */
    int64_t called_ns, returned_ns;       /* it was launched; 0: not known */
    uint32_t correlation, thread, stream; /* thread: that launched it */
    char function[24], datatype[16];      /* datatype "": the kernel's name does not say it */
    uint32_t element;                     /* bytes */
};

/* A call of NCCL's, as its own NVTX ranges tell it. */
struct operation {
    struct nsys_process *own;
    int64_t start_ns;
    uint32_t thread;
    uint64_t communicator;
    int64_t bytes;
};

struct reading {
    struct nsys_file *file;
    struct collective *collective;
    size_t collectives;
    struct operation *operation;
    size_t operations;
    struct mp_error *error;
};

static uint32_t number(sqlite3_stmt *row, int column) {
    return (uint32_t)sqlite3_column_int64(row, column);
}

/* ---- NCCL's kernels ---- */

static const struct {
    const char *in_kernel, *before, *datatype;
    uint32_t bytes;
} datatypes[] = {{"i8", "int8", "ncclInt8", 1},       {"u8", "uint8", "ncclUint8", 1},
                 {"i32", "int32", "ncclInt32", 4},    {"u32", "uint32", "ncclUint32", 4},
                 {"i64", "int64", "ncclInt64", 8},    {"u64", "uint64", "ncclUint64", 8},
                 {"f16", "half", "ncclFloat16", 2},   {"f32", "float", "ncclFloat32", 4},
                 {"f64", "double", "ncclFloat64", 8}, {"bf16", "bfloat16", "ncclBfloat16", 2}};

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && !strncmp(text, word, length);
}

/* NCCL's src/device/generate.py: ncclDevKernel_FUNCTION[_REDUCTION_TYPE]_ALGORITHM_PROTOCOL; older
 * releases' ncclKernel_FUNCTION_ALGORITHM_PROTOCOL_REDUCTION_TYPE has C's types, of which _t and
 * __nv are words of their own here.  false: it is another kernel. */
static bool read_kernel_name(const char *name, struct collective *collective) {
    static const char *const prefixes[] = {"ncclDevKernel_", "ncclKernel_"};
    const char *at = NULL;
    for (int i = 0; i < 2 && !at; i++)
        if (name && !strncmp(name, prefixes[i], strlen(prefixes[i])))
            at = name + strlen(prefixes[i]);
    if (!at)
        return false;
    size_t length = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    snprintf(collective->function, sizeof collective->function, "%.*s",
             (int)(length < 23 ? length : 23), at);
    for (at += length; *at == '_'; at += length) {
        length = strcspn(++at, "_(<");
        for (size_t i = 0; i < MP_LENGTH(datatypes); i++)
            if (is_word(at, length, datatypes[i].in_kernel) ||
                is_word(at, length, datatypes[i].before)) {
                snprintf(collective->datatype, sizeof collective->datatype, "%s",
                         datatypes[i].datatype);
                collective->element = datatypes[i].bytes;
            }
    }
    return true;
}

MP_COMPARE(compare_correlations, struct collective,
           MP_ORDER(a->own, b->own) ?: MP_ORDER(a->correlation, b->correlation))

/* ---- kernels, copies, sets, calls ---- */

/* The columns that kernels, copies and sets share. */
enum { START, END, PID, CORRELATION, DEVICE, CONTEXT, STREAM, NODE, OWN };
#define SHARED_COLUMNS                                                                             \
    "start", "end", "globalPid", "correlationId", "deviceId", "contextId", "streamId", "graphNodeId"

static struct mp_activity shared(const struct nsys_file *file, sqlite3_stmt *row, int kind) {
    return (struct mp_activity){.start_ns = nsys_time(file, row, START),
                                .end_ns = nsys_time(file, row, END),
                                .correlation = number(row, CORRELATION),
                                .device = number(row, DEVICE),
                                .context = number(row, CONTEXT),
                                .stream = number(row, STREAM),
                                .graph_node = (uint64_t)sqlite3_column_int64(row, NODE),
                                .kind = (uint8_t)kind};
}

/* Whose it is: exports before globalPid have one process, or nobody can say. */
static struct nsys_process *owner(struct nsys_file *file, sqlite3_stmt *row) {
    if (sqlite3_column_type(row, PID) != SQLITE_NULL)
        return nsys_process_of(file, sqlite3_column_int64(row, PID));
    if (file->processes == 1 && file->item[0].process)
        return &file->item[0];
    file->foreign++;
    return NULL;
}

enum {
    NAME = OWN,
    REGISTERS = NAME + 2,
    GRID,
    BLOCK = GRID + 3,
    STATIC = BLOCK + 3,
    DYNAMIC,
    LOCAL,
    LOCAL_TOTAL
};
static const char *const kernel_columns[] = {SHARED_COLUMNS,
                                             "@demangledName",
                                             "@shortName",
                                             "registersPerThread",
                                             "gridX",
                                             "gridY",
                                             "gridZ",
                                             "blockX",
                                             "blockY",
                                             "blockZ",
                                             "staticSharedMemory",
                                             "dynamicSharedMemory",
                                             "localMemoryPerThread",
                                             "localMemoryTotal",
                                             NULL};

static int take_kernel(void *context, sqlite3_stmt *row) {
    struct reading *reading = context;
    struct nsys_process *own = owner(reading->file, row);
    const char *name = nsys_text(row, NAME);
    if (!own)
        return MP_OK;
    struct mp_activity kernel = shared(reading->file, row, MP_ACTIVITY_KERNEL);
    kernel.registers = number(row, REGISTERS);
    for (int i = 0; i < 3; i++) {
        kernel.grid[i] = sqlite3_column_int(row, GRID + i);
        kernel.block[i] = sqlite3_column_int(row, BLOCK + i);
    }
    kernel.static_shared = number(row, STATIC);
    kernel.dynamic_shared = number(row, DYNAMIC);
    kernel.local = number(row, LOCAL);
    kernel.local_total = (uint64_t)sqlite3_column_int64(row, LOCAL_TOTAL);
    MP_TRY(mp_recording_activity(own->process, &kernel, name, reading->error));
    struct collective collective = {.own = own,
                                    .start_ns = kernel.start_ns,
                                    .end_ns = kernel.end_ns,
                                    .correlation = kernel.correlation,
                                    .stream = kernel.stream};
    return read_kernel_name(name, &collective)
               ? MP_APPEND(reading->collective, reading->collectives, reading->error, collective)
               : MP_OK;
}

static const char *const copy_columns[] = {SHARED_COLUMNS, "bytes",   "copyKind",
                                           "srcKind",      "dstKind", NULL};
static const char *const set_columns[] = {SHARED_COLUMNS, "bytes",   "value",
                                          "memKind",      "memKind", NULL};

static int take_memory(struct reading *reading, sqlite3_stmt *row, int kind) {
    const struct nsys_process *own = owner(reading->file, row);
    struct mp_activity activity = shared(reading->file, row, kind);
    activity.value = (uint64_t)sqlite3_column_int64(row, OWN);
    activity.detail = number(row, OWN + 1);
    activity.source = (uint8_t)number(row, OWN + 2);
    activity.target = (uint8_t)number(row, OWN + 3);
    activity.result = 1;
    return own ? mp_recording_activity(own->process, &activity, NULL, reading->error) : MP_OK;
}

static int take_copy(void *context, sqlite3_stmt *row) {
    return take_memory(context, row, MP_ACTIVITY_COPY);
}

static int take_set(void *context, sqlite3_stmt *row) {
    return take_memory(context, row, MP_ACTIVITY_SET);
}

static void note_launch(struct reading *reading, const struct nsys_process *own,
                        const struct mp_activity *call) {
    const struct collective key = {.own = (struct nsys_process *)(uintptr_t)own,
                                   .correlation = call->correlation};
    struct collective *found = reading->collectives > 0
                                   ? bsearch(&key, reading->collective, reading->collectives,
                                             sizeof key, compare_correlations)
                                   : NULL;
    if (!found)
        return;
    found->called_ns = call->start_ns;
    found->returned_ns = call->end_ns;
    found->thread = call->thread;
}

static const char *const call_columns[] = {"start",   "end",         "globalTid", "correlationId",
                                           "@nameId", "returnValue", NULL};

static int take_call(void *context, sqlite3_stmt *row) {
    struct reading *reading = context;
    const int64_t global = sqlite3_column_int64(row, 2);
    struct nsys_process *own = nsys_process_of(reading->file, global);
    if (!own)
        return MP_OK;
    const struct mp_activity call = {.start_ns = nsys_time(reading->file, row, 0),
                                     .end_ns = nsys_time(reading->file, row, 1),
                                     .correlation = number(row, 3),
                                     .thread = nsys_thread(global),
                                     .result = number(row, 5),
                                     .kind = MP_ACTIVITY_CALL};
    note_launch(reading, own, &call);
    return mp_recording_activity(own->process, &call, (const char *)sqlite3_column_text(row, 4),
                                 reading->error);
}

/* ---- NCCL's ranges ---- */

/* The whole number behind "KEY": in a JSON text; a communicator's has 64 bits without a sign. */
static bool number_of(const char *text, const char *key, uint64_t *value) {
    const char *at = strstr(text, key);
    at = at ? at + strlen(key) + strspn(at + strlen(key), "\": ") : "";
    *value = strtoull(at, NULL, 10);
    return isdigit((unsigned char)*at);
}

static const char *const operation_columns[] = {"start", "globalTid", "jsonText", "@jsonTextId",
                                                NULL};

/* NCCL's payloads say the communicator (src/include/nvtx_payload_schemas.h). */
static int take_operation(void *context, sqlite3_stmt *row) {
    struct reading *reading = context;
    const char *text = nsys_text(row, 2);
    const int64_t global = sqlite3_column_int64(row, 1);
    struct operation operation = {.start_ns = nsys_time(reading->file, row, 0),
                                  .thread = nsys_thread(global)};
    uint64_t bytes;
    if (!text || !number_of(text, "Communicator ID", &operation.communicator))
        return MP_OK;
    operation.own = nsys_process_of(reading->file, global);
    operation.bytes = number_of(text, "Message size [bytes]", &bytes) ? (int64_t)bytes : -1;
    if (!operation.own)
        return MP_OK;
    return MP_APPEND(reading->operation, reading->operations, reading->error, operation);
}

/* The last call of NCCL's before the launch, on its thread; NULL: none says its communicator. */
static const struct operation *operation_of(const struct reading *reading,
                                            const struct collective *collective) {
    size_t end = MP_BISECT(i, reading->operations, /* they are in the order of time */
                           reading->operation[i].start_ns <= collective->called_ns);
    while (end-- > 0)
        if (reading->operation[end].own == collective->own &&
            reading->operation[end].thread == collective->thread)
            return &reading->operation[end];
    return NULL;
}

static int write_collectives(struct reading *reading) {
    bool by_stream = false;
    for (size_t i = 0; i < reading->collectives; i++) {
        const struct collective *own = &reading->collective[i];
        const struct operation *operation = own->called_ns ? operation_of(reading, own) : NULL;
        char stream[32];
        snprintf(stream, sizeof stream, "stream %u", own->stream);
        const bool has_bytes = operation && operation->bytes >= 0;
        const struct mp_recorded_collective collective = {
            .is = {.start_ns = own->called_ns ? own->called_ns : own->start_ns,
                   .queued_ns = own->called_ns ? own->returned_ns : own->start_ns,
                   .timer_start = (uint64_t)own->start_ns,
                   .timer_end = (uint64_t)own->end_ns,
                   .communicator = operation ? operation->communicator
                                             : mp_recording_communicator(stream, NULL),
                   .count = has_bytes
                                ? (uint64_t)operation->bytes / (own->element ? own->element : 1)
                                : 0,
                   .rank = own->own->rank,
                   .peer = -1},
            .function = own->function,
            .datatype = !has_bytes       ? NULL
                        : *own->datatype ? own->datatype
                                         : "ncclInt8"};
        MP_TRY(mp_recording_collective(own->own->process, &collective, reading->error));
        if (!operation && !by_stream)
            mp_recording_note(
                own->own->process,
                "NCCL's ranges are not in the file, so communicators are told apart by "
                "the streams of their kernels: right where all ranks made them in the same order");
        by_stream = by_stream || !operation;
    }
    return MP_OK;
}

MP_END(reading, struct reading, (free(it->collective), free(it->operation)))

int nsys_read_work(struct nsys_file *file, struct mp_error *error) {
    MP_AUTO(reading) struct reading reading = {.file = file, .error = error};
    MP_TRY(nsys_each_row(file, "CUPTI_ACTIVITY_KIND_KERNEL", kernel_columns, "", take_kernel,
                         &reading));
    MP_SORT(reading.collective, reading.collectives, compare_correlations);
    MP_TRY(
        nsys_each_row(file, "CUPTI_ACTIVITY_KIND_RUNTIME", call_columns, "", take_call, &reading));
    MP_TRY(
        nsys_each_row(file, "CUPTI_ACTIVITY_KIND_MEMCPY", copy_columns, "", take_copy, &reading));
    MP_TRY(nsys_each_row(file, "CUPTI_ACTIVITY_KIND_MEMSET", set_columns, "", take_set, &reading));
    if (reading.collectives > 0)
        MP_TRY(nsys_each_row(file, "NVTX_EVENTS", operation_columns,
                             "WHERE eventType = 59 ORDER BY start", take_operation, &reading));
    return write_collectives(&reading);
}
