/* What ingest_bench.c shares with ingest_device.c. */
#ifndef MOEPERF_TESTS_BENCH_INGEST_BENCH_H
#define MOEPERF_TESTS_BENCH_INGEST_BENCH_H

#include <stdint.h>

#include "reference/base/error.h"

enum { INGEST_RANKS = 4, INGEST_PATH_SIZE = 256 };

struct ingest_work {
    char folder[128], database[INGEST_PATH_SIZE];
    char spool[INGEST_RANKS][INGEST_PATH_SIZE], device[INGEST_RANKS][INGEST_PATH_SIZE];
    long iterations;
    long device_rows; /* of all ranks together */
};

/* PRAGMAs for a floor: the store's settings. */
extern const char ingest_floor_settings[];

/* Steps of GPU work: its spools are written; they are added to the run that is there; and SQLite
 * takes the same rows and nothing else, into tables without and with the store's indexes. */
int ingest_device_record(const struct ingest_work *work, struct mp_error *error);
int ingest_device_add(const struct ingest_work *work, struct mp_error *error);
int ingest_device_floor(const struct ingest_work *work, struct mp_error *error);
int ingest_device_floor_indexed(const struct ingest_work *work, struct mp_error *error);

/* The time when about this share of a rank's spans is over: 0 its begin, 1 its end. */
int64_t ingest_time(const struct ingest_work *work, double share);

#endif
