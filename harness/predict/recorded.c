/* Recorded runs: see recorded.h. */
#include "harness/predict/recorded.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"

/* Who asks what. */
struct reader {
    struct mp_store *store;
    struct mp_recorded *run;
    int rank;  /* that is asked about */
    int at;    /* iteration of the row before */
    int found; /* rows that were of use */
};

static int fail_memory(const struct reader *reader, struct mp_error *error) {
    return mp_fail(error, MP_ENOMEM, "no memory for run %lld of %s", (long long)reader->run->run_id,
                   mp_store_path(reader->store));
}

/* Each row of a query whose ?1 is the run and ?2, if it has one, the rank. */
typedef int take_row(struct reader *reader, sqlite3_stmt *row, struct mp_error *error);
static int each_row(struct reader *reader, const char *sql, take_row *take,
                    struct mp_error *error) {
    const int64_t values[] = {reader->run->run_id, reader->rank};
    sqlite3_stmt *row;
    reader->at = reader->found = 0;
    int code = mp_store_query(reader->store, sql, values, 2, &row, error);
    while (!code && (code = mp_store_next(reader->store, row, error)) == 1)
        code = take(reader, row, error);
    sqlite3_finalize(row);
    return code;
}

static int take_run(struct reader *reader, sqlite3_stmt *row, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    const char **const text[] = {&run->suite,    &run->job,  &run->system, &run->executor,
                                 &run->workload, &run->gate, &run->model,  &run->job_text};
    run->ranks = sqlite3_column_int(row, 0);
    run->ranks_per_node = sqlite3_column_int(row, 1);
    run->clock_error = 1e-9 * (double)sqlite3_column_int64(row, 10);
    for (int i = 0; i < (int)(sizeof text / sizeof *text); i++) {
        const char *value = (const char *)sqlite3_column_text(row, i + 2);
        *text[i] = mp_arena_text(&run->memory, value ? value : "");
    }
    return mp_arena_check(&run->memory, error);
}

/* Ranks whose times can't be compared would make waiting look like work. */
static int take_bad_clock(struct reader *reader, sqlite3_stmt *row, struct mp_error *error) {
    if (reader->run->ranks == 1)
        return MP_OK;
    return mp_fail(
        error, MP_ENOTFOUND, "run %lld of %s has no common clock: rank %d was put on it by %s",
        (long long)reader->run->run_id, mp_store_path(reader->store), sqlite3_column_int(row, 0),
        sqlite3_column_type(row, 1) == SQLITE_NULL ? "nothing" : "its wall clock");
}

static int take_iteration(struct reader *reader, sqlite3_stmt *row, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    if (!MP_ROOM(run->number, run->iterations) || !MP_ROOM(run->seconds, run->iterations))
        return fail_memory(reader, error);
    run->number[run->iterations] = sqlite3_column_int64(row, 0);
    run->seconds[run->iterations++] = 1e-3 * sqlite3_column_double(row, 1);
    return MP_OK;
}

/* What is kept of the rank in the row's iteration, the first column; NULL: it is none of them. */
static struct mp_recorded_rank *own_of(struct reader *reader, sqlite3_stmt *row) {
    const struct mp_recorded *run = reader->run;
    int64_t number = sqlite3_column_int64(row, 0);
    while (reader->at < run->iterations && run->number[reader->at] < number)
        reader->at++;
    if (reader->at == run->iterations || run->number[reader->at] != number)
        return NULL;
    return &run->rank[(size_t)reader->at * (size_t)run->ranks + (size_t)reader->rank];
}

/* When every rank's iterations began and ended, in nanoseconds at first. */
static int take_bounds(struct reader *reader, sqlite3_stmt *row, struct mp_error *error) {
    struct mp_recorded_rank *own = own_of(reader, row);
    (void)error;
    if (!own)
        return MP_OK;
    reader->found++;
    own->start = (double)sqlite3_column_int64(row, 1);
    own->end = (double)sqlite3_column_int64(row, 2);
    return MP_OK;
}

static int direction_of(const char *name) {
    return !name ? MP_NO_DIRECTION : !strcmp(name, "forward") ? MP_FORWARD : MP_BACKWARD;
}

/* Columns: iteration, phase, direction, layer, start, end, wait, tokens. */
static int take_span(struct reader *reader, sqlite3_stmt *row, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    struct mp_recorded_rank *own = own_of(reader, row);
    const char *phase = (const char *)sqlite3_column_text(row, 1);
    double start = (double)sqlite3_column_int64(row, 4);
    double end = (double)sqlite3_column_int64(row, 5);
    if (!own || start < own->start || end > own->end) /* validation, checkpoints */
        return MP_OK;
    if (!MP_ROOM(run->span, run->spans))
        return fail_memory(reader, error);
    if (own->count++ == 0)
        own->first = run->spans;
    reader->found++;
    run->span[run->spans++] = (struct mp_recorded_span){
        .start = start,
        .end = end,
        .wait = 1e-9 * (double)sqlite3_column_int64(row, 6),
        .tokens = sqlite3_column_type(row, 7) == SQLITE_NULL ? -1 : sqlite3_column_int64(row, 7),
        .layer = sqlite3_column_int(row, 3),
        .phase = (uint8_t)mp_phase_find(phase, strlen(phase)),
        .direction = (uint8_t)direction_of((const char *)sqlite3_column_text(row, 2)),
    };
    return MP_OK;
}

static int read_rank(struct reader *reader, struct mp_error *error) {
    const struct mp_recorded *run = reader->run;
    MP_TRY(each_row(reader,
                    "SELECT iteration, start_ns, end_ns FROM v_span WHERE run_id = ?1 AND "
                    "rank = ?2 AND phase = 'iteration' ORDER BY iteration",
                    take_bounds, error));
    if (reader->found != run->iterations)
        return mp_fail(error, MP_ENOTFOUND, "run %lld of %s: rank %d has no spans of %d iterations",
                       (long long)run->run_id, mp_store_path(reader->store), reader->rank,
                       run->iterations - reader->found);
    MP_TRY(each_row(reader,
                    "SELECT iteration, phase, direction, layer, start_ns, end_ns, "
                    "coalesce(wait_ns, 0), tokens FROM v_span WHERE run_id = ?1 AND rank = ?2 "
                    "AND stream = 'compute' AND phase <> 'iteration' "
                    "ORDER BY iteration, start_ns, end_ns",
                    take_span, error));
    if (reader->found == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s: rank %d has no spans inside its iterations",
                       (long long)run->run_id, mp_store_path(reader->store), reader->rank);
    return MP_OK;
}

static int read_all(struct reader *reader, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    MP_TRY(mp_store_choose_run(reader->store, &run->run_id, error));
    MP_TRY(each_row(reader,
                    "SELECT ranks, ranks_per_node, suite, job, system, executor, workload, gate, "
                    "model, job_text, (SELECT max(clock_error_ns) FROM rank WHERE rank.run_id = "
                    "run.run_id) FROM run WHERE run_id = ?1",
                    take_run, error));
    MP_TRY(each_row(reader,
                    "SELECT rank, clock FROM rank WHERE run_id = ?1 AND "
                    "coalesce(clock, 'no clock') IN ('wall clock', 'no clock') ORDER BY rank",
                    take_bad_clock, error));
    MP_TRY(each_row(reader,
                    "SELECT iteration, ms FROM v_iteration WHERE run_id = ?1 AND steady = 1 "
                    "ORDER BY iteration",
                    take_iteration, error));
    if (run->iterations == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has no steady iteration that every rank recorded",
                       (long long)run->run_id, mp_store_path(reader->store));
    MP_TAKE(&run->memory, run->rank, (size_t)run->iterations * (size_t)run->ranks);
    MP_TRY(mp_arena_check(&run->memory, error));
    for (reader->rank = 0; reader->rank < run->ranks; reader->rank++)
        MP_TRY(read_rank(reader, error));
    mp_recorded_shift(
        run->rank, run->span,
        &(struct mp_recorded_times){.ranks = run->ranks, .iterations = run->iterations});
    return MP_OK;
}

int mp_recorded_read(struct mp_store *store, int64_t run_id, struct mp_recorded *recorded,
                     struct mp_error *error) {
    struct reader reader = {.store = store, .run = recorded};
    *recorded = (struct mp_recorded){.run_id = run_id};
    int code = read_all(&reader, error);
    if (code)
        mp_recorded_destroy(recorded);
    return code;
}

void mp_recorded_destroy(struct mp_recorded *recorded) {
    mp_arena_release(&recorded->memory);
    free(recorded->number);
    free(recorded->seconds);
    free(recorded->span);
    *recorded = (struct mp_recorded){0};
}
