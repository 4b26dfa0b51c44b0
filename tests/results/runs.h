/* Recordings with known numbers, for the tests of results/: a folder of its own for every test,
 * spools written by the real recorder, and queries as text. */
#pragma once

#include "tests/errors.h"

#include <sqlite3.h>

#include "profiler/record/record.h"
#include "tests/files.h"
#include "tests/results/ends.h"

#define RUNS_T0 1000000000000 /* ns, when the first iteration starts on rank 0's clock */

struct runs_folder {
    char path[64];
    char database[96];
    struct mp_store *store;
    int spools; /* written so far, for their names */
};

static inline void runs_ok(int code, const struct mp_error *error) {
    if (code)
        fail_msg("%s: %s", mp_code_name(code), error->text);
}

static inline void runs_create(struct runs_folder *folder) {
    *folder = (struct runs_folder){.path = "/tmp/moeperf-results-XXXXXX"};
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->database, sizeof folder->database, "%s/results.db", folder->path);
    assert_works(mp_store_open(folder->database, &folder->store, &error));
}

static inline void runs_destroy(struct runs_folder *folder) {
    mp_store_close(folder->store);
    remove_tree(folder->path);
}

/* A test's state: a folder of its own. */
static inline int runs_setup(void **state) {
    static struct runs_folder folder;
    runs_create(&folder);
    *state = &folder;
    return 0;
}

/* For processes of no launcher, whatever started this one. */
static inline int runs_setup_alone(void **state) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                            "MV2_COMM_WORLD_RANK",  "RANK",
                                            "SLURM_PROCID",         "MOEPERF_NVTX_RANK"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return runs_setup(state);
}

static inline int runs_teardown(void **state) {
    runs_destroy(*state);
    return 0;
}

/* A case with a folder of its own. */
#define RUNS_TEST(function)                                                                        \
    TEST_TAKING(function, struct runs_folder *folder, runs_setup, runs_teardown, 1, #function, NULL)

#define RUNS_TEST_ALONE(function)                                                                  \
    TEST_TAKING(function, struct runs_folder *folder, runs_setup_alone, runs_teardown, 1,          \
                #function, NULL)

/* The result of a query: columns separated by '|', one line per row, NULL as "NULL". */
static inline const char *runs_query(struct mp_store *store, const char *sql) {
    static char text[16384];
    sqlite3_stmt *statement = NULL;
    size_t at = 0;
    text[0] = '\0';
    if (sqlite3_prepare_v2(mp_store_connection(store), sql, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(mp_store_connection(store)));
    while (sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(statement); i++) {
            const char *value = (const char *)sqlite3_column_text(statement, i);
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s",
                                   i    ? "|"
                                   : at ? "\n"
                                        : "",
                                   value ? value : "NULL");
            assert_true(at < sizeof text);
        }
    }
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    return text;
}

/* Runs statements without results. */
static inline void runs_execute(struct mp_store *store, const char *sql) {
    if (sqlite3_exec(mp_store_connection(store), sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(mp_store_connection(store)));
}

static inline void assert_rows(struct mp_store *store, const char *sql, const char *expected) {
    const char *rows = runs_query(store, sql);
    if (strcmp(rows, expected) != 0)
        fail_msg("%s:\n%s\ninstead of\n%s", sql, rows, expected);
}

/* A rank that records. */
struct runs_rank {
    struct mp_recorder *recorder;
    struct mp_record_thread *compute, *comm;
    int rank;
    char path[128];
};

static inline void runs_rank_open(struct runs_folder *folder, int rank, int ranks,
                                  struct runs_rank *own) {
    *own = (struct runs_rank){.rank = rank};
    snprintf(own->path, sizeof own->path, "%s/%d.spool", folder->path, folder->spools++);
    struct mp_recorder_config config = {.path = own->path, .rank = rank, .ranks = ranks, .node = 0};
    assert_works(mp_recorder_create(&config, &own->recorder, &error));
    assert_works(mp_recorder_thread(own->recorder, "compute", &own->compute, &error));
    assert_works(mp_recorder_thread(own->recorder, "comm", &own->comm, &error));
}

static inline void runs_rank_close(struct runs_rank *own, int status, const char *reason) {
    assert_works(mp_recorder_finish(&own->recorder, status, reason, &error));
}

/* Ends the recordings and ingests them, in no order; returns the run's number. */
static inline int64_t runs_ingest(struct runs_folder *folder,
                                  const struct mp_store_run *description, struct runs_rank ranks[],
                                  int count) {
    const char *paths[8];
    int64_t run_id = 0;
    assert_in_range(count, 1, 8);
    for (int r = 0; r < count; r++) {
        if (ranks[r].recorder)
            runs_rank_close(&ranks[r], MP_OK, "");
        paths[count - 1 - r] = ranks[r].path;
    }
    assert_works(mp_store_ingest(folder->store, description, paths, count, &run_id, &error));
    return run_id;
}

/* What a clock that is `ns` behind RUNS_T0 on rank 0 shows on another rank: 5 ms ahead and 0.1 %
 * fast, so that leaving either out of the alignment shows. */
static inline int64_t runs_clock(int rank, int64_t ns) {
    return RUNS_T0 + ns + (rank ? 5000000 + ns / 1000 : 0);
}

static inline void runs_clock_samples(struct runs_rank *own) {
    for (int64_t ns = 0; ns <= 1000000000; ns += 1000000000)
        mp_record_clock(own->compute, runs_clock(own->rank, ns),
                        runs_clock(own->rank, ns) - RUNS_T0 - ns,
                        own->rank ? 700 + ns / 1000000 : 0);
}

/* Times in microseconds since RUNS_T0.  */
struct runs_span {
    enum mp_phase phase;
    enum mp_direction direction;
    int64_t start_us, length_us, wait_us;
    int layer;
    int64_t tokens, flops;
    bool in_flight;
};

static inline void runs_record(struct runs_rank *own, int iteration, const struct runs_span *span) {
    int64_t start_ns = runs_clock(own->rank, span->start_us * 1000);
    int64_t end_ns = runs_clock(own->rank, (span->start_us + span->length_us) * 1000);
    mp_record_span(span->in_flight ? own->comm : own->compute,
                   &(struct mp_span){.start_ns = start_ns,
                                     .end_ns = end_ns,
                                     .wait_ns = span->wait_us * 1000,
                                     .cpu_ns = -1,
                                     .tokens = span->tokens,
                                     .bytes = -1,
                                     .flops = span->flops,
                                     .iteration = iteration,
                                     .layer = (int16_t)span->layer,
                                     .phase = (uint8_t)span->phase,
                                     .direction = span->direction});
}

/* One of these values, in the order of its members. */
#define runs_record_one(own, iteration, ...)                                                       \
    runs_record(own, iteration, &(const struct runs_span){__VA_ARGS__})

/* So many of an array, or all. */
static inline void runs_record_some(struct runs_rank *own, int iteration,
                                    const struct runs_span spans[], int count) {
    for (int i = 0; i < count; i++)
        runs_record(own, iteration, &spans[i]);
}
#define runs_record_all(own, iteration, spans)                                                     \
    runs_record_some(own, iteration, spans, sizeof(spans) / sizeof *(spans))

/* The standard run: 2 ranks, 1 layer with routes and 1 without, 4 experts, `count` iterations. */
struct runs_standard {
    int count;
    int ms[16];      /* of each iteration: latest end - earliest start */
    double loss[16]; /* NAN is recorded as it is */
    bool shares_cores;
    bool drops_nothing; /* else rank 1 drops 5 of its 50 routes */
    bool has_target;    /* a loss of 2.5 over 2 iterations, */
    int reached;        /* after so many of them, or with 0 not at all */
    double taken;       /* rank 1's core was others' for that share of the time, half on rank 0 */
};

static inline void runs_standard_layer(struct runs_rank *own, int iteration, int64_t at,
                                       bool drops) {
    bool first = own->rank == 0;
    const struct runs_span spans[] = {
        {MP_PHASE_ATTENTION, MP_FORWARD, at, 2000, 0, 0, 100, -1, false},
        {MP_PHASE_FETCH, MP_FORWARD, at, 500, first ? 250 : 0, 0, -1, -1, false},
        {MP_PHASE_FETCH, MP_FORWARD, at, first ? 1500 : 250, 0, 0, -1, -1, true},
        {MP_PHASE_EXPERT, MP_FORWARD, at + 2500, first ? 4000 : 2000, 0, 0, first ? 60 : 20,
         first ? 1000 : 500, false},
        {MP_PHASE_COMBINE, MP_FORWARD, at + 6500, first ? 1000 : 3000, first ? 0 : 2000, 0, -1, -1,
         false},
        {MP_PHASE_EXPERT, MP_BACKWARD, at + 7500, first ? 4000 : 2000, 0, 0, first ? 60 : 20, -1,
         false},
    };
    runs_record_all(own, iteration, spans);
    static const uint32_t routes[] = {30, 10, 10, 0}, dropped[] = {5, 0, 0, 0},
                          none[] = {0, 0, 0, 0};
    mp_record_load(own->compute, iteration, 0, 4, routes, first || !drops ? NULL : dropped);
    mp_record_load(own->compute, iteration, 1, 4, none, NULL);
}

/* Rank 0 starts 1 ms earlier and ends 1 ms earlier than rank 1. */
static inline void runs_standard_rank(struct runs_rank *own, const struct runs_standard *run) {
    int64_t at = 0;
    for (int i = 0; i < run->count; i++) {
        int64_t length = run->ms[i] * 1000 - 1000;
        struct runs_span whole = {MP_PHASE_ITERATION,
                                  MP_NO_DIRECTION,
                                  at + (own->rank ? 1000 : 0),
                                  length,
                                  0,
                                  -1,
                                  50,
                                  -1,
                                  false};
        runs_record(own, i, &whole);
        runs_standard_layer(own, i, whole.start_us, !run->drops_nothing);
        if (own->rank == 0)
            mp_record_number(own->compute, i, -1, "loss", run->loss[i]);
        at += run->ms[i] * 1000 + 500;
    }
    /* After the last iteration, and under the number of the next. */
    runs_record_one(own, run->count, MP_PHASE_VALIDATE, MP_NO_DIRECTION, at, 8000, 3000, -1, 400,
                    -1, false);
    mp_record_number(own->compute, -1, -1, "ranks-share-cores", run->shares_cores);
    if (own->rank == 0 && run->has_target) {
        mp_record_number(own->compute, -1, -1, "target-loss", 2.5);
        mp_record_number(own->compute, -1, -1, "target-window", 2);
        if (run->reached)
            mp_record_number(own->compute, -1, -1, "iterations-to-target", run->reached);
    }
    if (run->taken > 0) {
        mp_record_number(own->compute, -1, -1, "training-seconds", run->ms[0]);
        mp_record_number(own->compute, -1, -1, "processor-wait-seconds",
                         run->taken * run->ms[0] * (own->rank ? 1 : 0.5));
    }
    mp_record_text(own->compute, "environment.host", own->rank ? "second" : "first");
    runs_clock_samples(own);
}

static inline struct mp_store_run runs_description(const char *system, const char *workload) {
    return (struct mp_store_run){.suite = "tiny",
                                 .job = system,
                                 .suite_run = "tiny-1",
                                 .system = system,
                                 .executor = "measured",
                                 .workload = workload,
                                 .gate = "gshard",
                                 .status = "complete",
                                 .started_at = "2025-01-31T12:00:00Z",
                                 .ranks = 2,
                                 .nodes = 1,
                                 .ranks_per_node = 2,
                                 .iterations_wanted = 4};
}

/* Records and ingests a standard run; returns its run_id. */
static inline int64_t runs_add(struct runs_folder *folder, const struct mp_store_run *description,
                               const struct runs_standard *run) {
    struct runs_rank ranks[2];
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        runs_standard_rank(&ranks[r], run);
    }
    return runs_ingest(folder, description, ranks, 2);
}

static inline int64_t runs_add_usual(struct runs_folder *folder, const char *system,
                                     const struct runs_standard *run) {
    const struct mp_store_run description = runs_description(system, "text");
    return runs_add(folder, &description, run);
}

/* A job that left no recording. */
static inline void runs_add_unrecorded(struct runs_folder *folder, const char *system,
                                       const char *status, const char *reason) {
    struct mp_store_run run = runs_description(system, "text");
    run.status = status;
    run.reason = reason;
    assert_works(mp_store_ingest(folder->store, &run, NULL, 0, NULL, &error));
}

static const struct runs_standard runs_ep = {
    .count = 4, .ms = {40, 20, 28, 24}, .loss = {5, 4, 3, 2}};
static const struct runs_standard runs_fssdp = {
    .count = 4, .ms = {20, 10, 14, 12}, .loss = {5, 4.4, 3, 2.1}};
static const struct runs_standard runs_balanced = {
    .count = 4, .ms = {16, 9, 10, 8}, .loss = {5, 4, 3, 2.5}};

/* Rank r of a run with tokens unlike: ten iterations of 6.5 ms on two ranks, layer 0: attention for
 * 2 ms, experts for 4 ms (60 tokens) on rank 0 and 2 ms (20) on rank 1, then both leave the
 * exchange 0.5 ms after rank 0 has come.  Each routes 30, 0, 10 and 0 to the four experts, and
 * drops as many of them (NULL: none).  Opens the rank. */
static inline void runs_uneven_rank(struct runs_folder *folder, int r, const uint32_t dropped[],
                                    struct runs_rank *rank) {
    static const uint32_t routes[] = {30, 0, 10, 0};
    int64_t work = r ? 2000 : 4000, tokens = r ? 20 : 60;
    runs_rank_open(folder, r, 2, rank);
    for (int i = 0; i < 10; i++) {
        int64_t at = i * 10000;
        const struct runs_span spans[] = {
            {MP_PHASE_ATTENTION, MP_FORWARD, at, 2000, 0, 0, 100, -1, false},
            {MP_PHASE_EXPERT, MP_FORWARD, at + 2000, work, 0, 0, tokens, -1, false},
            {MP_PHASE_COMBINE, MP_FORWARD, at + 2000 + work, 4500 - work, 4500 - work, 0, 100, -1,
             false},
            {MP_PHASE_ITERATION, MP_NO_DIRECTION, at, 6500, 4500 - work, -1, 100, -1, false},
        };
        runs_record_all(rank, i, spans);
        mp_record_load(rank->compute, i, 0, 4, routes, dropped);
    }
    runs_clock_samples(rank);
}

static inline void runs_add_uneven(struct runs_folder *folder, const char *system) {
    struct mp_store_run run = runs_description(system, "text");
    struct runs_rank ranks[2];
    run.iterations_wanted = 10;
    for (int r = 0; r < 2; r++)
        runs_uneven_rank(folder, r, NULL, &ranks[r]);
    runs_ingest(folder, &run, ranks, 2);
}
