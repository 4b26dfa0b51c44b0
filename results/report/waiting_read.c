/* Reading a run's recording: see waiting_read.h. */
#include "results/report/waiting_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "reference/base/arena.h"
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
    int64_t all_spans, all_iterations;
    size_t spans;
    int64_t stream;              /* id of "compute" */
    int64_t phase_id[MP_PHASES]; /* -1: none in this database */
};

static int no_memory(const struct reader *reader, struct mp_error *error) {
    return mp_fail(error, MP_ENOMEM, "no memory for the spans of run %lld",
                   (long long)reader->run_id);
}

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
    sqlite3_stmt *row;
    int got = 0, ranks = 0, code = query_open(reader->store, sql, reader->run_id, &row, error);
    input->common_clock = true;
    while (!code && (got = mp_store_next(reader->store, row, error)) == 1) {
        ranks = sqlite3_column_int(row, 7);
        reader->out->ranks_share_cores = sqlite3_column_int(row, 5);
        reader->all_iterations = sqlite3_column_int64(row, 6);
        if (says(row, 0, "missing") || sqlite3_column_type(row, 1) == SQLITE_NULL)
            continue;
        if (!MP_ROOM(reader->rows, input->times.ranks)) {
            code = no_memory(reader, error);
            break;
        }
        struct rank_rows *rows = &reader->rows[input->times.ranks++];
        *rows = (struct rank_rows){sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2)};
        reader->all_spans += rows->last - rows->first + 1;
        input->ranks_cut += !says(row, 0, "complete");
        input->common_clock &= !says(row, 3, "wall clock") && !says(row, 3, "");
        input->clock_error = fmax(input->clock_error, 1e-9 * (double)sqlite3_column_int64(row, 4));
    }
    sqlite3_finalize(row);
    input->ranks_missing = ranks - input->times.ranks;
    return code ? code : got;
}

static int read_names(struct reader *reader, struct mp_error *error) {
    sqlite3_stmt *row;
    int got = 0,
        code = query_open(reader->store, "SELECT id, value FROM StringIds", 0, &row, error);
    reader->stream = -1;
    for (int p = 0; p < MP_PHASES; p++)
        reader->phase_id[p] = -1;
    while (!code && (got = mp_store_next(reader->store, row, error)) == 1) {
        const char *name = query_text(row, 1);
        if (!strcmp(name, "compute"))
            reader->stream = sqlite3_column_int64(row, 0);
        enum mp_phase phase = mp_phase_find(name, strlen(name));
        if (phase < MP_PHASES)
            reader->phase_id[phase] = sqlite3_column_int64(row, 0);
    }
    sqlite3_finalize(row);
    return code ? code : got;
}

/* ---- iterations ---- */

static int read_iterations(struct reader *reader, struct mp_error *error) {
    static const char sql[] = "SELECT iteration, (SELECT count(*) FROM iteration_summary WHERE "
                              "run_id = ?1 AND steady = 1) FROM iteration_summary "
                              "WHERE run_id = ?1 AND steady = 1 ORDER BY iteration";
    sqlite3_stmt *row;
    struct waiting_recording *out = reader->out;
    int64_t all = reader->all_iterations > 0 ? reader->all_iterations : 1;
    int64_t each = reader->all_spans / all + 1, most = SPANS_LOOKED_AT / each, stride = 1;
    int got = 0, code = query_open(reader->store, sql, reader->run_id, &row, error);
    most = most < MP_STRAGGLER_ITERATIONS ? MP_STRAGGLER_ITERATIONS : most;
    while (!code && (got = mp_store_next(reader->store, row, error)) == 1) {
        int64_t steady = sqlite3_column_int64(row, 1);
        if (!out->number) {
            stride = (steady + most - 1) / most;
            out->number = calloc((size_t)(steady / stride + 1), sizeof *out->number);
            if (!out->number)
                code = no_memory(reader, error);
        }
        if (!code && out->iterations++ % stride == 0)
            out->number[out->input.times.iterations++] = sqlite3_column_int64(row, 0);
    }
    sqlite3_finalize(row);
    return code ? code : got;
}

/* Index of an iteration; -1 if it is none of them. */
static int find_iteration(const struct reader *reader, int64_t number) {
    int low = 0, high = reader->out->input.times.iterations;
    while (low < high) {
        int middle = (low + high) / 2;
        if (reader->out->number[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < reader->out->input.times.iterations && reader->out->number[low] == number;
    return found ? low : -1;
}

/* ---- spans ---- */

/* A span with its iteration, times in ns at first. */
struct row {
    struct mp_recorded_span span;
    double cpu; /* s */
    int iteration;
};

static int compare_rows(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    if (a->iteration != b->iteration)
        return a->iteration - b->iteration;
    if (a->span.start != b->span.start)
        return a->span.start < b->span.start ? -1 : 1;
    return (a->span.end > b->span.end) - (a->span.end < b->span.end);
}

static int phase_of(const struct reader *reader, int64_t id) {
    int phase = 0;
    while (phase < MP_PHASES && reader->phase_id[phase] != id)
        phase++;
    return phase;
}

/* Recorders have 16 bits for it. */
static int layer_of(sqlite3_stmt *row, int column) {
    int64_t layer = sqlite3_column_int64(row, column);
    return layer >= 0 && layer <= INT16_MAX ? (int)layer : -1;
}

static struct row read_row(const struct reader *reader, sqlite3_stmt *row) {
    bool known = sqlite3_column_type(row, 7) != SQLITE_NULL;
    return (struct row){{.start = (double)sqlite3_column_int64(row, 4),
                         .end = (double)sqlite3_column_int64(row, 5),
                         .wait = 1e-9 * (double)sqlite3_column_int64(row, 6),
                         .tokens = known ? sqlite3_column_int64(row, 7) : -1,
                         .layer = layer_of(row, 1),
                         .phase = (uint8_t)phase_of(reader, sqlite3_column_int64(row, 2)),
                         .direction = (uint8_t)(sqlite3_column_type(row, 3) == SQLITE_NULL
                                                    ? MP_NO_DIRECTION
                                                    : sqlite3_column_int(row, 3))},
                        1e-9 * (double)sqlite3_column_int64(row, 8),
                        find_iteration(reader, sqlite3_column_int64(row, 0))};
}

static int read_rows(struct reader *reader, int rank, struct row **rows, int *count,
                     struct mp_error *error) {
    static const char sql[] =
        "SELECT iteration, layer, phase_id, direction, start_ns, end_ns, "
        "wait_ns, tokens, cpu_ns FROM span WHERE span_id BETWEEN ?2 AND ?3 AND "
        "(stream_id = ?4 OR phase_id = ?5) AND run_id = ?1";
    sqlite3_stmt *statement;
    int got = 0;
    int code = query_open(reader->store, sql, reader->run_id, &statement, error);
    if (code)
        return code;
    sqlite3_bind_int64(statement, 2, reader->rows[rank].first);
    sqlite3_bind_int64(statement, 3, reader->rows[rank].last);
    sqlite3_bind_int64(statement, 4, reader->stream);
    sqlite3_bind_int64(statement, 5, reader->phase_id[MP_PHASE_COLLECT]);
    while (!code && (got = mp_store_next(reader->store, statement, error)) == 1) {
        struct row row = read_row(reader, statement);
        if (row.iteration < 0)
            continue;
        if (!MP_ROOM(*rows, *count)) {
            code = no_memory(reader, error);
            break;
        }
        (*rows)[(*count)++] = row;
    }
    sqlite3_finalize(statement);
    return code ? code : got;
}

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

static int read_rank(struct reader *reader, int rank, struct mp_error *error) {
    struct row *rows = NULL;
    int count = 0, code = read_rows(reader, rank, &rows, &count, error);
    for (int i = 0; i < count && !code; i++)
        if (rows[i].span.phase == MP_PHASE_ITERATION) {
            rank_of(reader, rows[i].iteration, rank)->start = rows[i].span.start;
            rank_of(reader, rows[i].iteration, rank)->end = rows[i].span.end;
            rank_of(reader, rows[i].iteration, rank)->cpu = rows[i].cpu;
        }
    if (!code && count > 0)
        qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    for (int i = 0; i < count && !code; i++) {
        struct mp_recorded_rank *own = rank_of(reader, rows[i].iteration, rank);
        const struct mp_recorded_span *span = &rows[i].span;
        if (span->phase == MP_PHASE_ITERATION || is_within(reader, own, span))
            continue;
        if (span->start < own->start || span->end > own->end) /* validation, checkpoints */
            keep_between(reader, rows[i].iteration, rank, span);
        else if (!add_span(reader, own, span))
            code = no_memory(reader, error);
    }
    free(rows);
    return code;
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
    reader->out->rank =
        calloc((size_t)times->iterations * (size_t)times->ranks + 1, sizeof *reader->out->rank);
    reader->out->between =
        calloc((size_t)times->iterations * (size_t)times->ranks + 1, sizeof *reader->out->between);
    if (!reader->out->rank || !reader->out->between)
        return no_memory(reader, error);
    for (int r = 0; r < times->ranks && times->iterations > 0; r++)
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

/* Adds the numbers of a JSON array to sum[count] and returns their sum. */
static uint32_t add_numbers(const char *text, uint32_t sum[], int count) {
    uint32_t all = 0;
    int index = 0;
    for (const char *at = text; *at && index < count; at++)
        if (*at >= '0' && *at <= '9') {
            char *end;
            uint32_t number = (uint32_t)strtoul(at, &end, 10);
            all += number;
            if (sum)
                sum[index] += number;
            index++;
            at = end - 1;
        }
    return all;
}

static int make_loads(struct reader *reader, struct mp_error *error) {
    static const char sql[] = "SELECT max(layer) + 1, max(experts) FROM imbalance_summary "
                              "WHERE run_id = ?1";
    struct mp_straggler_input *input = &reader->out->input;
    int64_t most[2];
    int code = mp_store_numbers(reader->store, sql, &reader->run_id, 1, most, 2, error);
    input->layers = (int)most[0];
    input->experts = (int)most[1];
    size_t rows = (size_t)input->times.iterations * (size_t)input->layers;
    if (code || rows == 0 || input->experts <= 0)
        return code;
    reader->out->routes = calloc(rows * (size_t)input->experts, sizeof *reader->out->routes);
    reader->out->dropped = calloc(rows, sizeof *reader->out->dropped);
    if (!reader->out->routes || !reader->out->dropped)
        return no_memory(reader, error);
    input->routes = reader->out->routes;
    input->dropped = reader->out->dropped;
    return MP_OK;
}

static int read_loads(struct reader *reader, struct mp_error *error) {
    static const char sql[] = "SELECT layer, routes, dropped FROM load WHERE run_id = ?1 AND "
                              "rank = ?2 AND iteration = ?3";
    struct mp_straggler_input *input = &reader->out->input;
    sqlite3_stmt *row = NULL;
    int code = make_loads(reader, error);
    if (code || !input->routes)
        return code;
    code = query_open(reader->store, sql, reader->run_id, &row, error);
    for (int i = 0; i < input->times.iterations * input->times.ranks && !code; i++) {
        int iteration = i / input->times.ranks, got;
        sqlite3_reset(row);
        sqlite3_bind_int(row, 2, i % input->times.ranks);
        sqlite3_bind_int64(row, 3, reader->out->number[iteration]);
        while ((got = mp_store_next(reader->store, row, error)) == 1) {
            int layer = sqlite3_column_int(row, 0);
            if (layer < 0 || layer >= input->layers)
                continue;
            size_t at = (size_t)iteration * (size_t)input->layers + (size_t)layer;
            add_numbers(query_text(row, 1), reader->out->routes + at * (size_t)input->experts,
                        input->experts);
            reader->out->dropped[at] += add_numbers(query_text(row, 2), NULL, input->experts);
        }
        code = got;
    }
    sqlite3_finalize(row);
    return code;
}

int waiting_read(struct mp_store *store, int64_t run_id, struct waiting_recording *recording,
                 struct mp_error *error) {
    struct reader reader = {.store = store, .run_id = run_id, .out = recording};
    *recording = (struct waiting_recording){0};
    int code = read_ranks(&reader, error);
    if (!code)
        code = read_names(&reader, error);
    if (!code)
        code = read_iterations(&reader, error);
    if (!code)
        code = read_spans(&reader, error);
    if (!code)
        code = read_loads(&reader, error);
    recording->input.number = recording->number;
    free(reader.rows);
    return code;
}

void waiting_free(struct waiting_recording *recording) {
    free(recording->number);
    free(recording->rank);
    free(recording->span);
    free(recording->collected);
    free(recording->between);
    free(recording->routes);
    free(recording->dropped);
    *recording = (struct waiting_recording){0};
}
