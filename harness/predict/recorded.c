/* Recorded runs: see recorded.h. */
#include "harness/predict/recorded.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "reference/base/arena.h"

/* Who asks what. */
struct reader {
    struct mp_store *store;
    const char *database;
    struct mp_recorded *run;
};

static int fail_memory(const struct reader *reader, struct mp_error *error) {
    return mp_fail(error, MP_ENOMEM, "no memory for run %lld of %s", (long long)reader->run->run_id,
                   reader->database);
}

/* A query whose ?1 is the run and ?2, if it has one, `rank`. */
static int prepare(const struct reader *reader, const char *sql, int rank, sqlite3_stmt **statement,
                   struct mp_error *error) {
    const int64_t values[] = {reader->run->run_id, rank};
    return mp_store_query(reader->store, sql, values, 2, statement, error);
}

static int find_only_run(struct reader *reader, struct mp_error *error) {
    sqlite3_stmt *row;
    int64_t runs = 0;
    int code = prepare(reader, "SELECT count(*), min(run_id) FROM run", 0, &row, error);
    if (!code && (code = mp_store_next(reader->store, row, error)) == 1) {
        runs = sqlite3_column_int64(row, 0);
        reader->run->run_id = sqlite3_column_int64(row, 1);
    }
    sqlite3_finalize(row);
    if (code >= 0 && runs != 1)
        return mp_fail(error, MP_EINVAL,
                       "%s has %lld runs, and one is asked about: --run names it (moeperf report "
                       "--db %s --runs lists them)",
                       reader->database, (long long)runs, reader->database);
    return code < 0 ? code : MP_OK;
}

static bool copy_texts(struct mp_recorded *run, sqlite3_stmt *row) {
    char **const text[] = {&run->suite,    &run->job,  &run->system, &run->executor,
                           &run->workload, &run->gate, &run->model,  &run->job_text};
    for (int i = 0; i < (int)(sizeof text / sizeof *text); i++) {
        const char *value = (const char *)sqlite3_column_text(row, i + 2);
        *text[i] = strdup(value ? value : "");
        if (!*text[i])
            return false;
    }
    return true;
}

static int read_run(struct reader *reader, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    sqlite3_stmt *row;
    int code = prepare(reader,
                       "SELECT ranks, ranks_per_node, suite, job, system, executor, workload, "
                       "gate, model, job_text, (SELECT max(clock_error_ns) FROM rank "
                       "WHERE rank.run_id = run.run_id) FROM run WHERE run_id = ?1",
                       0, &row, error);
    if (!code)
        code = mp_store_next(reader->store, row, error);
    if (code == 1) {
        run->ranks = sqlite3_column_int(row, 0);
        run->ranks_per_node = sqlite3_column_int(row, 1);
        run->clock_error = 1e-9 * (double)sqlite3_column_int64(row, 10);
        code = copy_texts(run, row) ? MP_OK : fail_memory(reader, error);
    } else if (code == 0) {
        code = mp_fail(error, MP_ENOTFOUND,
                       "%s has no run %lld; moeperf report --db %s --runs lists them",
                       reader->database, (long long)run->run_id, reader->database);
    }
    sqlite3_finalize(row);
    return code;
}

/* Ranks whose times can't be compared would make waiting look like work. */
static int check_clocks(struct reader *reader, struct mp_error *error) {
    sqlite3_stmt *row;
    int code = prepare(reader,
                       "SELECT rank, clock FROM rank WHERE run_id = ?1 AND "
                       "coalesce(clock, 'no clock') IN ('wall clock', 'no clock') ORDER BY rank",
                       0, &row, error);
    if (!code && (code = mp_store_next(reader->store, row, error)) == 1 && reader->run->ranks > 1)
        code = mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has no common clock: rank %d was put on it by %s",
                       (long long)reader->run->run_id, reader->database, sqlite3_column_int(row, 0),
                       sqlite3_column_type(row, 1) == SQLITE_NULL ? "nothing" : "its wall clock");
    sqlite3_finalize(row);
    return code < 0 ? code : MP_OK;
}

static int read_iterations(struct reader *reader, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    sqlite3_stmt *row;
    int code = prepare(reader,
                       "SELECT iteration, ms FROM v_iteration WHERE run_id = ?1 AND steady = 1 "
                       "ORDER BY iteration",
                       0, &row, error);
    while (!code && (code = mp_store_next(reader->store, row, error)) == 1) {
        if (!MP_ROOM(run->number, run->iterations) || !MP_ROOM(run->seconds, run->iterations)) {
            code = fail_memory(reader, error);
            break;
        }
        run->number[run->iterations] = sqlite3_column_int64(row, 0);
        run->seconds[run->iterations++] = 1e-3 * sqlite3_column_double(row, 1);
        code = MP_OK;
    }
    sqlite3_finalize(row);
    if (!code && run->iterations == 0)
        code = mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has no steady iteration that every rank recorded",
                       (long long)run->run_id, reader->database);
    return code;
}

/* Index of an iteration, from `from` on; -1 if it is none of them. */
static int find_iteration(const struct mp_recorded *run, int64_t number, int from) {
    while (from < run->iterations && run->number[from] < number)
        from++;
    return from < run->iterations && run->number[from] == number ? from : -1;
}

/* When every rank's iterations began and ended, in nanoseconds at first. */
static int read_bounds(struct reader *reader, int rank, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    sqlite3_stmt *row;
    int found = 0, at = 0;
    int code = prepare(reader,
                       "SELECT iteration, start_ns, end_ns FROM v_span WHERE run_id = ?1 AND "
                       "rank = ?2 AND phase = 'iteration' ORDER BY iteration",
                       rank, &row, error);
    while (!code && (code = mp_store_next(reader->store, row, error)) == 1) {
        int i = find_iteration(run, sqlite3_column_int64(row, 0), at);
        code = MP_OK;
        if (i < 0)
            continue;
        at = i;
        found++;
        struct mp_recorded_rank *own = &run->rank[(size_t)i * (size_t)run->ranks + (size_t)rank];
        own->start = (double)sqlite3_column_int64(row, 1);
        own->end = (double)sqlite3_column_int64(row, 2);
    }
    sqlite3_finalize(row);
    if (!code && found != run->iterations)
        code = mp_fail(error, MP_ENOTFOUND, "run %lld of %s: rank %d has no spans of %d iterations",
                       (long long)run->run_id, reader->database, rank, run->iterations - found);
    return code;
}

static struct mp_recorded_span *add_span(struct mp_recorded *run) {
    return MP_ROOM(run->span, run->spans) ? &run->span[run->spans++] : NULL;
}

static int direction_of(const char *name) {
    return !name ? MP_NO_DIRECTION : !strcmp(name, "forward") ? MP_FORWARD : MP_BACKWARD;
}

/* Columns: iteration, phase, direction, layer, start, end, wait, tokens. */
static bool take_span(struct mp_recorded *run, int i, int rank, sqlite3_stmt *row) {
    struct mp_recorded_rank *own = &run->rank[(size_t)i * (size_t)run->ranks + (size_t)rank];
    const char *phase = (const char *)sqlite3_column_text(row, 1);
    double start = (double)sqlite3_column_int64(row, 4);
    double end = (double)sqlite3_column_int64(row, 5);
    if (start < own->start || end > own->end) /* validation, checkpoints */
        return true;
    struct mp_recorded_span *span = add_span(run);
    if (!span)
        return false;
    if (own->count++ == 0)
        own->first = run->spans - 1;
    *span = (struct mp_recorded_span){
        .start = start,
        .end = end,
        .wait = 1e-9 * (double)sqlite3_column_int64(row, 6),
        .tokens = sqlite3_column_type(row, 7) == SQLITE_NULL ? -1 : sqlite3_column_int64(row, 7),
        .layer = sqlite3_column_int(row, 3),
        .phase = (uint8_t)mp_phase_find(phase, strlen(phase)),
        .direction = (uint8_t)direction_of((const char *)sqlite3_column_text(row, 2)),
    };
    return true;
}

static int read_spans(struct reader *reader, int rank, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    size_t before = run->spans;
    sqlite3_stmt *row;
    int at = 0;
    int code = prepare(reader,
                       "SELECT iteration, phase, direction, layer, start_ns, end_ns, "
                       "coalesce(wait_ns, 0), tokens FROM v_span WHERE run_id = ?1 AND rank = ?2 "
                       "AND stream = 'compute' AND phase <> 'iteration' "
                       "ORDER BY iteration, start_ns, end_ns",
                       rank, &row, error);
    while (!code && (code = mp_store_next(reader->store, row, error)) == 1) {
        int i = find_iteration(run, sqlite3_column_int64(row, 0), at);
        code = MP_OK;
        if (i < 0)
            continue;
        at = i;
        if (!take_span(run, i, rank, row))
            code = fail_memory(reader, error);
    }
    sqlite3_finalize(row);
    if (!code && run->spans == before)
        code = mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s: rank %d has no spans inside its iterations",
                       (long long)run->run_id, reader->database, rank);
    return code;
}

/* From nanoseconds since the run's begin to seconds since the iteration's. */
static void shift_times(struct mp_recorded *run) {
    for (int i = 0; i < run->iterations; i++) {
        struct mp_recorded_rank *rank = &run->rank[(size_t)i * (size_t)run->ranks];
        double begin = rank[0].start;
        for (int r = 1; r < run->ranks; r++)
            begin = rank[r].start < begin ? rank[r].start : begin;
        for (int r = 0; r < run->ranks; r++) {
            rank[r].start = 1e-9 * (rank[r].start - begin);
            rank[r].end = 1e-9 * (rank[r].end - begin);
            for (int s = 0; s < rank[r].count; s++) {
                struct mp_recorded_span *span = &run->span[rank[r].first + (size_t)s];
                span->start = 1e-9 * (span->start - begin);
                span->end = 1e-9 * (span->end - begin);
            }
        }
    }
}

static int read_all(struct reader *reader, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    int code = run->run_id ? MP_OK : find_only_run(reader, error);
    if (!code)
        code = read_run(reader, error);
    if (!code)
        code = check_clocks(reader, error);
    if (!code)
        code = read_iterations(reader, error);
    if (code)
        return code;
    run->rank = calloc((size_t)run->iterations * (size_t)run->ranks, sizeof *run->rank);
    if (!run->rank)
        return fail_memory(reader, error);
    for (int r = 0; r < run->ranks && !code; r++)
        code = read_bounds(reader, r, error);
    for (int r = 0; r < run->ranks && !code; r++)
        code = read_spans(reader, r, error);
    if (!code)
        shift_times(run);
    return code;
}

int mp_recorded_read(struct mp_store *store, const char *database, int64_t run_id,
                     struct mp_recorded *recorded, struct mp_error *error) {
    struct reader reader = {store, database, recorded};
    *recorded = (struct mp_recorded){.run_id = run_id};
    int code = read_all(&reader, error);
    if (code)
        mp_recorded_destroy(recorded);
    return code;
}

void mp_recorded_destroy(struct mp_recorded *recorded) {
    void *const memory[] = {recorded->suite,    recorded->job,    recorded->system,
                            recorded->executor, recorded->gate,   recorded->workload,
                            recorded->model,    recorded->number, recorded->job_text,
                            recorded->seconds,  recorded->rank,   recorded->span};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    *recorded = (struct mp_recorded){0};
}
