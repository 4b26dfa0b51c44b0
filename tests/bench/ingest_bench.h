/* What ingest_bench.c shares with ingest_device.c. */
#ifndef MOEPERF_TESTS_BENCH_INGEST_BENCH_H
#define MOEPERF_TESTS_BENCH_INGEST_BENCH_H

#include <sqlite3.h>

#include "profiler/record/record.h"
#include "results/store/store.h"
#include "tests/bench/bench.h"

enum { INGEST_RANKS = 4, INGEST_PATH_SIZE = 256 };
typedef char ingest_paths[INGEST_RANKS][INGEST_PATH_SIZE];

struct ingest_work {
    char folder[MP_BENCH_FOLDER], database[INGEST_PATH_SIZE];
    ingest_paths spool, device;
    int64_t iterations;
    int64_t device_rows; /* of all ranks together */
};

/* Writes a spool per rank. */
typedef int ingest_writer(const struct ingest_work *work, int rank, struct mp_recorder *recorder,
                          struct mp_record_thread *thread, struct mp_error *error);
int ingest_record(const struct ingest_work *work, const ingest_paths path, const char *thread,
                  ingest_writer *write, struct mp_error *error);

/* Hands those to the store, which ends with it. */
typedef int ingest_reader(struct mp_store *store, const struct ingest_work *work,
                          const char *const paths[], struct mp_error *error);
int ingest_store(const struct ingest_work *work, const ingest_paths path, ingest_reader *read,
                 struct mp_error *error);

/* SQLite with the store's settings and nothing of its program: `fill` between BEGIN and COMMIT, in
 * a database of its own whose name ends in `ending`; a code of SQLite's, SQLITE_OK if it is well.
 */
typedef int ingest_filler(const struct ingest_work *work, sqlite3 *floor, bool indexed);
int ingest_floor(const struct ingest_work *work, const char *ending, ingest_filler *fill,
                 bool indexed, struct mp_error *error);

/* Steps of GPU work: its spools are written; they are added to the run that is there; and SQLite
 * takes the same rows and nothing else, into tables without and with the store's indexes. */
int ingest_device_record(const struct ingest_work *work, struct mp_error *error);
int ingest_device_add(const struct ingest_work *work, struct mp_error *error);
int ingest_device_floor(const struct ingest_work *work, struct mp_error *error);
int ingest_device_floor_indexed(const struct ingest_work *work, struct mp_error *error);

/* The time when about this share of a rank's spans is over: 0 its begin, 1 its end. */
int64_t ingest_time(const struct ingest_work *work, double share);

#endif
