/* Exports of Nsight Systems, made by its documented schema: two ranks of which the second's experts
 * take twice as long, so that the first waits for it. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "tests/support.h"

enum { STEPS = 6, RANKS = 2, US = 1000, MS = 1000 * US };
#define PID(rank) (8000000 + 7 * (rank))
#define TID(rank) 9000001 /* as of containers, each with numbers of its own */

struct export {
    char path[128];
    sqlite3 *database;
    int rows; /* of StringIds */
    int correlation;
};

static inline void run_sql(struct export *export, const char *sql) {
    if (sqlite3_exec(export->database, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(export->database));
}

#define SQL(export, ...)                                                                           \
    do {                                                                                           \
        char *sql_ = sqlite3_mprintf(__VA_ARGS__);                                                 \
        run_sql(export, sql_);                                                                     \
        sqlite3_free(sql_);                                                                        \
    } while (0)

static inline int string_id(struct export *export, const char *text) {
    SQL(export, "INSERT INTO StringIds VALUES (%d, %Q)", ++export->rows, text);
    return export->rows;
}

/* Columns as the schema reference of 2023 and later has them; `is_old`: those of 2019. */
static inline void create(struct export *export, const char *folder, const char *name,
                          bool is_old) {
    *export = (struct export){.database = NULL};
    snprintf(export->path, sizeof export->path, "%s/%s", folder, name);
    unlink(export->path);
    assert_int_equal(sqlite3_open(export->path, &export->database), SQLITE_OK);
    run_sql(export, "PRAGMA page_size = 1024; BEGIN");
    run_sql(export,
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)");
    SQL(export,
        "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT "
        "NULL, rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, "
        "endGlobalTid INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, "
        "doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL%s)",
        is_old ? "" : ", textId INTEGER, jsonTextId INTEGER, jsonText TEXT");
    SQL(export,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, "
        "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, "
        "correlationId INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, "
        "registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, "
        "gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER "
        "NOT NULL%s)",
        is_old ? "" : ", globalPid INTEGER, graphNodeId INTEGER");
    run_sql(export,
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER "
            "NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, "
            "nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL)");
    if (is_old)
        return;
    run_sql(export,
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT "
            "NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT "
            "NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind "
            "INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER)");
    run_sql(export,
            "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, "
            "localTime TEXT)");
    run_sql(export,
            "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, "
            "name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL)");
    run_sql(export, "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT); INSERT INTO "
                    "META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.15.1')");
    run_sql(export,
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (NULL, 'd', 'Hostname', 0, 'alpha')");
}

static inline void set_start(struct export *export, int64_t epoch_ns) {
    SQL(export, "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (%lld, '', '')",
        (long long)epoch_ns);
}

static inline void finish(struct export *export) {
    run_sql(export, "COMMIT");
    assert_int_equal(sqlite3_close(export->database), SQLITE_OK);
}

/* Of a host above the process's 24 bits. */
static inline long long global_of(int rank, int thread) {
    return (0x4243LL << 48) | ((long long)PID(rank) << 24) | thread;
}

static inline void range(struct export *export, int rank, const char *name, int domain,
                         int64_t start, int64_t end, const char *more, const char *values) {
    SQL(export,
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId%s) VALUES "
        "(%lld, %lld, 59, %Q, %lld, %d%s)",
        more, (long long)start, (long long)end, name, global_of(rank, TID(rank)), domain, values);
}

/* A kernel, launched `before` it runs. */
static inline void kernel(struct export *export, int rank, const char *name, int stream,
                          int64_t launched, int64_t start, int64_t end) {
    const int correlation = ++export->correlation, id = string_id(export, name);
    SQL(export, "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (%lld, %lld, 0, %lld, %d, %d, 0)",
        (long long)launched, (long long)launched + 5 * US, global_of(rank, TID(rank)), correlation,
        string_id(export, "cudaLaunchKernel_v7000"));
    SQL(export,
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, "
        "correlationId, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, "
        "blockY, blockZ, globalPid) VALUES (%lld, %lld, %d, 1, %d, %d, %d, %d, 32, 4, 5, 6, 128, "
        "1, 1, %lld)",
        (long long)start, (long long)end, rank, stream, correlation, id, id, global_of(rank, 0));
}

/* One step: experts, of which rank 1's take longer, and an exchange that ends together. */
static inline void add_step(struct export *export, int rank, int step, int64_t from,
                            bool says_nccl) {
    const int64_t began = from + step * 10 * MS, work = (rank == 1 ? 6 : 3) * MS,
                  ends = began + 7 * MS;
    char name[32], json[200];
    snprintf(name, sizeof name, "step %d", step);
    range(export, rank, name, 0, began, began + 9 * MS, "", "");
    snprintf(json, sizeof json,
             ", textId, jsonText, category) VALUES (%lld, %lld, 59, NULL, %lld, 5, %d, "
             "'{\"layer\":2,\"tokens\":%d,\"what\":\"x\",\"share\":0.5}', 9)",
             (long long)began, (long long)began + work, global_of(rank, TID(rank)),
             string_id(export, "experts"), 64 + step);
    SQL(export, "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId%s",
        json);
    kernel(export, rank, "void gemm<float>(int)", 7, began + 10 * US, began + 20 * US,
           began + 20 * US + work / 2);
    range(export, rank, "exchange", 0, began + work, ends, ", uint32Value", ", 4096");
    snprintf(json, sizeof json,
             ", '{\"Communicator ID\":17293822569102704640,\"Message size [bytes]\":%d}'",
             4096 << rank);
    if (says_nccl)
        range(export, rank, "ncclAllReduce", 6, began + (10 + rank) * US, began + work + 40 * US,
              ", jsonText", json);
    kernel(export, rank,
           step % 2
               ? "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
               : "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
           20, began + work + 20 * US, began + work + 50 * US, ends - 10 * US);
}

static inline void add_rank(struct export *export, int rank, int64_t from, bool says_nccl) {
    const long long global = global_of(rank, TID(rank));
    SQL(export,
        "INSERT INTO NVTX_EVENTS (start, eventType, text, textId, globalTid, domainId) VALUES (0, "
        "75, 'model', NULL, %lld, 5), (0, 75, NULL, %d, %lld, 6)",
        global, string_id(export, "NCCL"), global);
    range(export, rank, "loss", 0, from, from + 1, ", doubleValue", ", 0.25");
    SQL(export,
        "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid) VALUES (%lld, 60, 'open', "
        "%lld)",
        (long long)from, global);
    SQL(export,
        "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId, category) VALUES "
        "(0, 33, 'heavy', %lld, 5, 9)",
        global);
    for (int step = 0; step < STEPS; step++)
        add_step(export, rank, step, from, says_nccl);
    SQL(export,
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (%lld, %lld, %d, 1, 7, 9999, %lld, 1234, 1, "
        "0, 2)",
        (long long)from + 100 * US, (long long)from + 200 * US, rank, global_of(rank, 0));
}

/* Of so many ranks, whose session began at epoch_ns. */
static inline struct export make_export(const char *folder, const char *name, int64_t epoch_ns,
                                        int ranks, bool says_nccl) {
    struct export export;
    create(&export, folder, name, false);
    set_start(&export, epoch_ns);
    for (int rank = 0; rank < ranks; rank++)
        add_rank(&export, rank, 0, says_nccl);
    finish(&export);
    return export;
}
