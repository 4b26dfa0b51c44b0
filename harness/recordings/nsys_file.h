/* Nsight Systems' SQLite export: opening it, and its tables, whose columns differ by version.
 *
 * Schema: Nsight Systems' documentation, "SQLite Schema Reference", of 2021.5 (Exporter) to 2025
 * (User Guide).  Tables are made when there is something for them, so any may be missing; columns
 * came over time (globalPid, jsonText, greenContextId).  What is missing reads as NULL.
 *
 * A globalTid is bits 24 to 47 the process's id, bits 0 to 23 the thread's, and above what host it
 * was; a globalPid has zeros for the thread.  Times are ns since the session began. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "harness/recordings/writer.h"

enum { NSYS_PROCESSES = 4096 };

struct nsys_process {
    int64_t key; /* globalTid >> 24 */
    bool has_ranges, has_work;
    int rank;                             /* -1: not yet known */
    struct mp_recording_process *process; /* NULL: is left out */
};

struct nsys_file {
    sqlite3 *database;
    const char *path;
    int64_t epoch_ns; /* of the session's beginning, 0: not said; times are told from 1970 on */
    struct nsys_process item[NSYS_PROCESSES]; /* [processes] by key */
    int processes;
    int64_t foreign;  /* rows of processes that are left out, or of none */
    char damage[256]; /* a sentence once reading has failed */
};

static inline int64_t nsys_key(int64_t global) {
    return (int64_t)((uint64_t)global >> 24);
}
static inline uint32_t nsys_thread(int64_t global) {
    return (uint32_t)(global & 0xffffff);
}

/* A column's time, since 1970.  A damaged file may hold any number. */
static inline int64_t nsys_time(const struct nsys_file *file, sqlite3_stmt *row, int column) {
    return (int64_t)((uint64_t)file->epoch_ns + (uint64_t)sqlite3_column_int64(row, column));
}

/* A column's text, or else that of the next one; NULL: neither has any. */
static inline const char *nsys_text(sqlite3_stmt *row, int column) {
    const char *text = (const char *)sqlite3_column_text(row, column);
    return text ? text : (const char *)sqlite3_column_text(row, column + 1);
}

/* Hands `take` each row of a table, up to the first error, which is returned.  Its columns: "name",
 * or "@name" for the text of StringIds that it refers to.  NULL stands for columns that this
 * version does not have.  No such table has no rows; one that can't be read is damage. */
typedef int nsys_take_row(void *context, sqlite3_stmt *row);
int nsys_each_row(struct nsys_file *file, const char *table, const char *const column[],
                  const char *condition, nsys_take_row *take, void *context);

/* The process to which a row belongs; NULL: it is left out, and counted. */
struct nsys_process *nsys_process_of(struct nsys_file *file, int64_t global);

/* Ranges of NVTX and MPI, with their domains, categories, payloads. */
int nsys_read_ranges(struct nsys_file *file, struct mp_error *error);

/* Kernels, copies, sets and calls of CUDA, and NCCL's kernels as collectives. */
int nsys_read_work(struct nsys_file *file, struct mp_error *error);
