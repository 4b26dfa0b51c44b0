/* Reading a run's recording: see waiting_read.h. */
#include "results/report/waiting_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "results/report/query.h"

enum { SPANS_LOOKED_AT = 200000 };

struct rank_rows {
    int64_t first, last;
};

struct reader {
    struct mp_store *store;
    int64_t run_id;
    struct waiting_recording *out;
    struct rank_rows *rows; /* [ranks] */
    int64_t most;           /* iterations that are looked at */
    size_t spans;
};

/* Steady iterations that are looked at, `at` in their order; ?1 is the run, ?2 the most. */
#define CHOSEN                                                                                     \
    "WITH steady AS (SELECT iteration, row_number() OVER (ORDER BY iteration) - 1 AS place, "      \
    "count(*) OVER () AS steady FROM iteration_summary WHERE run_id = ?1 AND steady = 1), "        \
    "chosen AS MATERIALIZED (SELECT iteration, place / ((steady + ?2 - 1) / ?2) AS at, steady "    \
    "FROM steady WHERE place % ((steady + ?2 - 1) / ?2) = 0) "

/* ---- ranks ---- */

static bool says(sqlite3_stmt *row, int column, const char *text) {
    return !strcmp(query_text(row, column), text);
}

static int read_ranks(struct reader *reader, struct mp_error *error) {
    static const char sql[] =
        "SELECT status, first_span, last_span, clock, clock_error_ns, "
        "(SELECT ranks_share_cores FROM run_summary WHERE run_id = ?1), "
        "(SELECT count(*) FROM iteration_summary WHERE run_id = ?1), "
        "(SELECT ranks FROM run WHERE run_id = ?1) FROM rank WHERE run_id = ?1 ORDER BY rank";
    struct mp_straggler_input *input = &reader->out->input;
    int64_t spans = 0, iterations = 1;
    int ranks = 0;
    struct query query = query_begin(reader->store, sql, reader->run_id, error);
    input->common_clock = true;
    while (query_next(&query)) {
        sqlite3_stmt *row = query.row;
        ranks = sqlite3_column_int(row, 7);
        reader->out->ranks_share_cores = sqlite3_column_int(row, 5);
        iterations = sqlite3_column_int64(row, 6) > 0 ? sqlite3_column_int64(row, 6) : 1;
        if (says(row, 0, "missing") || sqlite3_column_type(row, 1) == SQLITE_NULL)
            continue;
        if (!MP_ROOM(reader->rows, input->times.ranks)) {
            query.code = mp_no_memory(error);
            break;
        }
        struct rank_rows *rows = &reader->rows[input->times.ranks++];
        *rows = (struct rank_rows){sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2)};
        spans += rows->last - rows->first + 1;
        input->ranks_cut += !says(row, 0, "complete");
        input->common_clock &= !says(row, 3, "wall clock") && !says(row, 3, "");
        input->clock_error = fmax(input->clock_error, 1e-9 * (double)sqlite3_column_int64(row, 4));
    }
    input->ranks_missing = ranks - input->times.ranks;
    reader->most = SPANS_LOOKED_AT / (spans / iterations + 1);
    if (reader->most < MP_STRAGGLER_ITERATIONS)
        reader->most = MP_STRAGGLER_ITERATIONS;
    return query_end(&query);
}

static int read_iterations(struct reader *reader, struct mp_error *error) {
    struct waiting_recording *out = reader->out;
    struct query query =
        query_begin(reader->store, CHOSEN "SELECT iteration, steady FROM chosen ORDER BY at",
                    reader->run_id, error);
    sqlite3_bind_int64(query.row, 2, reader->most);
    while (query_next(&query))
        if (MP_ROOM(out->number, out->input.times.iterations)) {
            out->number[out->input.times.iterations++] = sqlite3_column_int64(query.row, 0);
            out->iterations = sqlite3_column_int(query.row, 1);
        } else {
            query.code = mp_no_memory(error);
        }
    return query_end(&query);
}

/* ---- spans ---- */

static struct mp_recorded_rank *rank_of(const struct reader *reader, int iteration, int rank) {
    return &reader->out
                ->rank[(size_t)iteration * (size_t)reader->out->input.times.ranks + (size_t)rank];
}

static bool add_span(struct reader *reader, struct mp_recorded_rank *own,
                     const struct mp_recorded_span *span) {
    size_t spans = reader->spans;
    if (!MP_ROOM(reader->out->collected, spans) || !MP_ROOM(reader->out->span, reader->spans))
        return false;
    if (own->count++ == 0)
        own->first = reader->spans;
    reader->out->collected[reader->spans] = 0;
    reader->out->span[reader->spans++] = *span;
    return true;
}

/* What lies within the rank's last span is a part of that: garbage is collected in any phase. */
static bool is_within(struct reader *reader, const struct mp_recorded_rank *own,
                      const struct mp_recorded_span *span) {
    if (span->phase != MP_PHASE_COLLECT || own->count == 0 ||
        span->end > reader->out->span[reader->spans - 1].end)
        return false;
    reader->out->collected[reader->spans - 1] += 1e-9 * (span->end - span->start);
    return true;
}

/* Keeps what a rank did between the iteration that it is of and its neighbour, if that is looked
 * at: the longest. */
static void keep_between(struct reader *reader, int iteration, int rank,
                         const struct mp_recorded_span *span) {
    const struct mp_recorded_times *times = &reader->out->input.times;
    const bool after = span->end > rank_of(reader, iteration, rank)->end;
    const int at = iteration + after;
    if (at == times->iterations ||
        reader->out->number[at] != reader->out->number[iteration] + after)
        return;
    struct mp_recorded_between *between =
        &reader->out->between[(size_t)at * (size_t)times->ranks + (size_t)rank];
    const double seconds = 1e-9 * (span->end - span->start);
    if (seconds > between->seconds)
        *between = (struct mp_recorded_between){seconds, span->phase};
}

/* Times in ns at first.  Recorders have 16 bits for a layer. */
static struct mp_recorded_span span_of(sqlite3_stmt *row) {
    const char *phase = query_text(row, 1);
    return (struct mp_recorded_span){.phase = (uint8_t)mp_phase_find(phase, strlen(phase)),
                                     .layer = sqlite3_column_int(row, 2),
                                     .direction = (uint8_t)sqlite3_column_int(row, 3),
                                     .start = (double)sqlite3_column_int64(row, 4),
                                     .end = (double)sqlite3_column_int64(row, 5),
                                     .wait = 1e-9 * (double)sqlite3_column_int64(row, 6),
                                     .tokens = sqlite3_column_int64(row, 7)};
}

static int take_span(struct reader *reader, int rank, sqlite3_stmt *row, struct mp_error *error) {
    const int iteration = sqlite3_column_int(row, 0);
    const struct mp_recorded_span span = span_of(row);
    struct mp_recorded_rank *own = rank_of(reader, iteration, rank);
    if (span.phase == MP_PHASE_ITERATION) {
        own->start = span.start;
        own->end = span.end;
        own->cpu = 1e-9 * (double)sqlite3_column_int64(row, 8);
    } else if (is_within(reader, own, &span)) {
        return MP_OK;
    } else if (span.start < own->start || span.end > own->end) { /* validation, checkpoints */
        keep_between(reader, iteration, rank, &span);
    } else if (!add_span(reader, own, &span)) {
        return mp_no_memory(error);
    }
    return MP_OK;
}

/* An iteration's own span comes before what lies within it. */
static int read_rank(struct reader *reader, int rank, struct mp_error *error) {
    static const char sql[] = CHOSEN
        "SELECT at, phase.value, iif(layer BETWEEN 0 AND 32767, layer, -1), "
        "coalesce(direction, ?5), start_ns, end_ns, wait_ns, coalesce(tokens, -1), cpu_ns "
        "FROM span CROSS JOIN chosen USING (iteration) "
        "CROSS JOIN StringIds AS phase ON phase.id = phase_id WHERE span_id BETWEEN ?3 AND ?4 "
        "AND run_id = ?1 AND (stream_id = (SELECT id FROM StringIds WHERE value = 'compute') OR "
        "phase_id = (SELECT id FROM StringIds WHERE value = 'collect')) ORDER BY at, phase_id <> "
        "(SELECT id FROM StringIds WHERE value = 'iteration'), start_ns, end_ns, span_id";
    const int64_t values[] = {reader->run_id, reader->most, reader->rows[rank].first,
                              reader->rows[rank].last, MP_NO_DIRECTION};
    struct query query = {.store = reader->store, .error = error};
    query.code = mp_store_query(reader->store, sql, values, 5, &query.row, error);
    while (query_next(&query))
        query.code = take_span(reader, rank, query.row, error);
    return query_end(&query);
}

/* From nanoseconds since the run's begin to seconds since the iteration's. */
static void shift_times(struct reader *reader) {
    const struct mp_recorded_times *times = &reader->out->input.times;
    for (int i = 0; i < times->iterations; i++) {
        double begin = INFINITY;
        for (int r = 0; r < times->ranks; r++)
            begin = fmin(begin, rank_of(reader, i, r)->start);
        for (int r = 0; r < times->ranks; r++) {
            struct mp_recorded_rank *own = rank_of(reader, i, r);
            own->start = 1e-9 * (own->start - begin);
            own->end = 1e-9 * (own->end - begin);
            for (int s = 0; s < own->count; s++) {
                struct mp_recorded_span *span = &reader->out->span[own->first + (size_t)s];
                span->start = 1e-9 * (span->start - begin);
                span->end = 1e-9 * (span->end - begin);
            }
        }
    }
}

static int read_spans(struct reader *reader, struct mp_error *error) {
    struct mp_recorded_times *times = &reader->out->input.times;
    MP_TAKE_EACH(&reader->out->memory, (size_t)times->iterations * (size_t)times->ranks + 1,
                 reader->out->rank, reader->out->between);
    MP_TRY(mp_arena_check(&reader->out->memory, error));
    for (int r = 0; reader->rows && r < times->ranks && times->iterations > 0; r++)
        MP_TRY(read_rank(reader, r, error));
    shift_times(reader);
    times->rank = reader->out->rank;
    times->span = reader->out->span;
    times->spans = reader->spans;
    reader->out->input.collected = reader->out->collected;
    reader->out->input.between = reader->out->between;
    return MP_OK;
}

/* ---- loads ---- */

static int make_loads(struct reader *reader, struct mp_error *error) {
    static const char sql[] = "SELECT max(layer) + 1, max(experts) FROM imbalance_summary "
                              "WHERE run_id = ?1";
    struct waiting_recording *out = reader->out;
    struct mp_straggler_input *input = &out->input;
    int64_t most[2];
    MP_TRY(mp_store_numbers(reader->store, sql, &reader->run_id, 1, most, 2, error));
    input->layers = (int)most[0];
    input->experts = (int)most[1];
    size_t rows = (size_t)input->times.iterations * (size_t)input->layers;
    if (rows == 0 || input->experts <= 0)
        return MP_OK;
    input->routes = MP_TAKE(&out->memory, out->routes, rows * (size_t)input->experts);
    input->dropped = MP_TAKE(&out->memory, out->dropped, rows);
    return mp_arena_check(&out->memory, error);
}

static int read_loads(struct reader *reader, struct mp_error *error) {
    static const char sql[] =
        CHOSEN "SELECT at, layer, routes, dropped FROM rank CROSS JOIN chosen "
               "CROSS JOIN load USING (run_id, rank, iteration) "
               "WHERE run_id = ?1 AND layer BETWEEN 0 AND ?3 - 1";
    const struct mp_straggler_input *input = &reader->out->input;
    MP_TRY(make_loads(reader, error));
    if (!input->routes)
        return MP_OK;
    struct query query = query_begin(reader->store, sql, reader->run_id, error);
    sqlite3_bind_int64(query.row, 2, reader->most);
    sqlite3_bind_int(query.row, 3, input->layers);
    while (query_next(&query)) {
        size_t at = (size_t)sqlite3_column_int(query.row, 0) * (size_t)input->layers +
                    (size_t)sqlite3_column_int(query.row, 1);
        query_add_list(query_text(query.row, 2), reader->out->routes + at * (size_t)input->experts,
                       input->experts);
        reader->out->dropped[at] +=
            (uint32_t)query_add_list(query_text(query.row, 3), NULL, input->experts);
    }
    return query_end(&query);
}

static int read_all(struct reader *reader, struct mp_error *error) {
    MP_TRY(read_ranks(reader, error));
    MP_TRY(read_iterations(reader, error));
    MP_TRY(read_spans(reader, error));
    return read_loads(reader, error);
}

int waiting_read(struct mp_store *store, int64_t run_id, struct waiting_recording *recording,
                 struct mp_error *error) {
    struct reader reader = {.store = store, .run_id = run_id, .out = recording};
    *recording = (struct waiting_recording){0};
    int code = read_all(&reader, error);
    recording->input.number = recording->number;
    free(reader.rows);
    return code;
}

void waiting_free(struct waiting_recording *recording) {
    mp_arena_release(&recording->memory);
    free(recording->number);
    free(recording->span);
    free(recording->collected);
    *recording = (struct waiting_recording){0};
}
