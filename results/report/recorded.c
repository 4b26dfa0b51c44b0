#include "results/report/recorded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/straggler/causes.h"
#include "results/report/query.h"

enum { SPANS_LOOKED_AT = 200000 };

struct rank_rows {
    int64_t first, last;
};

struct reader {
    struct mp_store *store;
    struct mp_recorded *run;
    struct rank_rows *rows; /* [ranks] */
    bool is_whole;          /* nothing may be missing, and nothing is left out */
};

static bool says(sqlite3_stmt *row, int column, const char *text) {
    return !strcmp(query_text(row, column), text);
}

static void take_rank(struct reader *reader, sqlite3_stmt *row) {
    struct mp_recorded *run = reader->run;
    struct rank_rows *rows = &reader->rows[run->ranks++];
    *rows = (struct rank_rows){sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2)};
    run->cut += !says(row, 0, "complete");
    run->common_clock &= !says(row, 3, "wall clock") && !says(row, 3, "");
    run->clock_error = fmax(run->clock_error, 1e-9 * (double)sqlite3_column_int64(row, 4));
}

static int read_ranks(struct reader *reader, struct mp_error *error) {
    static const char sql[] =
        "SELECT status, first_span, last_span, clock, clock_error_ns, (SELECT ranks_share_cores "
        "FROM run_summary WHERE run_id = ?1), (SELECT count(*) FROM iteration_summary WHERE run_id "
        "= ?1), (SELECT count(*) FROM iteration_summary WHERE run_id = ?1 AND steady = 1), (SELECT "
        "ranks FROM run WHERE run_id = ?1) FROM rank WHERE run_id = ?1 ORDER BY rank";
    struct mp_recorded *run = reader->run;
    int64_t spans = 0, iterations = 0, most;
    int ranks = 0;
    struct query query = query_begin(reader->store, sql, run->run_id, error);
    run->common_clock = true;
    while (query_next(&query)) {
        run->ranks_share_cores = sqlite3_column_int(query.row, 5) == 1;
        iterations = sqlite3_column_int64(query.row, 6);
        run->steady = sqlite3_column_int(query.row, 7);
        ranks = sqlite3_column_int(query.row, 8);
        if (!reader->is_whole &&
            (says(query.row, 0, "missing") || sqlite3_column_type(query.row, 1) == SQLITE_NULL))
            continue;
        query.code = MP_GROW(reader->rows, run->ranks, error);
        if (!query.code)
            take_rank(reader, query.row);
    }
    for (int r = 0; reader->rows && r < run->ranks; r++)
        spans += reader->rows[r].last - reader->rows[r].first + 1;
    run->missing = ranks - run->ranks;
    most = SPANS_LOOKED_AT / (spans / (iterations > 0 ? iterations : 1) + 1);
    most = most < MP_STRAGGLER_ITERATIONS ? MP_STRAGGLER_ITERATIONS : most;
    run->every = reader->is_whole || run->steady == 0 ? 1 : (run->steady + most - 1) / most;
    return query_end(&query);
}

static int read_iterations(struct reader *reader, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    struct query query =
        query_begin(reader->store, RECORDED_CHOSEN "SELECT iteration, ms FROM chosen ORDER BY at",
                    run->run_id, error);
    sqlite3_bind_int64(query.row, 2, run->every);
    while (query_next(&query))
        if (MP_ROOM(run->number, run->iterations) && MP_ROOM(run->seconds, run->iterations)) {
            run->number[run->iterations] = sqlite3_column_int64(query.row, 0);
            run->seconds[run->iterations++] = 1e-3 * sqlite3_column_double(query.row, 1);
        } else {
            query.code = mp_no_memory(error);
        }
    return query_end(&query);
}

/* ---- spans ---- */

static struct mp_recorded_rank *rank_of(const struct mp_recorded *run, int iteration, int rank) {
    return &run->rank[(size_t)iteration * (size_t)run->ranks + (size_t)rank];
}

static bool add_span(struct mp_recorded *run, struct mp_recorded_rank *own,
                     const struct mp_recorded_span *span) {
    if (!MP_ROOM(run->collected, run->spans) || !MP_ROOM(run->span, run->spans))
        return false;
    if (own->count++ == 0)
        own->first = run->spans;
    run->collected[run->spans] = 0;
    run->span[run->spans++] = *span;
    return true;
}

/* What lies within the rank's last span is a part of that: garbage is collected in any phase. */
static bool is_within(struct mp_recorded *run, const struct mp_recorded_rank *own,
                      const struct mp_recorded_span *span) {
    if (span->phase != MP_PHASE_COLLECT || own->count == 0 ||
        span->end > run->span[run->spans - 1].end)
        return false;
    run->collected[run->spans - 1] += 1e-9 * (span->end - span->start);
    return true;
}

/* Keeps what a rank did between the iteration that it is of and its neighbour, if that is here: the
 * longest. */
static void keep_between(struct mp_recorded *run, int iteration, int rank,
                         const struct mp_recorded_span *span) {
    const bool after = span->end > rank_of(run, iteration, rank)->end;
    const int at = iteration + after;
    if (at == run->iterations || run->number[at] != run->number[iteration] + after)
        return;
    struct mp_recorded_between *between =
        &run->between[(size_t)at * (size_t)run->ranks + (size_t)rank];
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

static int take_span(struct mp_recorded *run, int rank, sqlite3_stmt *row, struct mp_error *error) {
    const int iteration = sqlite3_column_int(row, 0);
    const struct mp_recorded_span span = span_of(row);
    struct mp_recorded_rank *own = rank_of(run, iteration, rank);
    if (span.phase == MP_PHASE_ITERATION) {
        own->start = span.start;
        own->end = span.end;
        own->cpu = 1e-9 * (double)sqlite3_column_int64(row, 8);
    } else if (is_within(run, own, &span)) {
        return MP_OK;
    } else if (span.start < own->start || span.end > own->end) { /* validation, checkpoints */
        keep_between(run, iteration, rank, &span);
    } else if (!add_span(run, own, &span)) {
        return mp_no_memory(error);
    }
    return MP_OK;
}

/* An iteration's own span comes before what lies within it. */
static int read_rank(struct reader *reader, int rank, struct mp_error *error) {
    static const char sql[] = RECORDED_CHOSEN
        "SELECT at, phase.value, iif(layer BETWEEN 0 AND 32767, layer, -1), coalesce(direction, "
        "?5), start_ns, end_ns, wait_ns, coalesce(tokens, -1), cpu_ns FROM span CROSS JOIN chosen "
        "USING (iteration) CROSS JOIN StringIds AS phase ON phase.id = phase_id WHERE span_id "
        "BETWEEN ?3 AND ?4 AND run_id = ?1 AND (stream_id = (SELECT id FROM StringIds WHERE value "
        "= 'compute') OR NOT ?6 AND phase_id = (SELECT id FROM StringIds WHERE value = 'collect')) "
        "ORDER BY at, phase_id <> (SELECT id FROM StringIds WHERE value = 'iteration'), start_ns, "
        "end_ns, span_id";
    const int64_t values[] = {reader->run->run_id,     reader->run->every, reader->rows[rank].first,
                              reader->rows[rank].last, MP_NO_DIRECTION,    reader->is_whole};
    struct query query = {.store = reader->store, .error = error};
    query.code = mp_store_query(reader->store, sql, values, 6, &query.row, error);
    while (query_next(&query))
        query.code = take_span(reader->run, rank, query.row, error);
    return query_end(&query);
}

/* What a rank lacks for a replay. */
static int check_rank(const struct reader *reader, int rank, struct mp_error *error) {
    const struct mp_recorded *run = reader->run;
    int spans = 0, lacking = 0;
    for (int i = 0; i < run->iterations; i++) {
        const struct mp_recorded_rank *own = rank_of(run, i, rank);
        spans += own->count;
        lacking += own->start == 0 && own->end == 0;
    }
    if (lacking)
        return mp_fail(error, MP_ENOTFOUND, "run %lld of %s: rank %d has no spans of %d iterations",
                       (long long)run->run_id, mp_store_path(reader->store), rank, lacking);
    return spans ? MP_OK
                 : mp_fail(error, MP_ENOTFOUND,
                           "run %lld of %s: rank %d has no spans inside its iterations",
                           (long long)run->run_id, mp_store_path(reader->store), rank);
}

static int read_spans(struct reader *reader, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    const struct mp_recorded_times times = {.ranks = run->ranks, .iterations = run->iterations};
    MP_TAKE_EACH(&run->memory, (size_t)run->iterations * (size_t)run->ranks + 1, run->rank,
                 run->between);
    MP_TRY(mp_arena_check(&run->memory, error));
    for (int r = 0; reader->rows && r < run->ranks && run->iterations > 0; r++) {
        MP_TRY(read_rank(reader, r, error));
        if (reader->is_whole)
            MP_TRY(check_rank(reader, r, error));
    }
    mp_recorded_shift(run->rank, run->span, &times, 1e-9);
    return MP_OK;
}

/* ---- whole runs, and what there is of others ---- */

#define RUN(member) offsetof(struct mp_recorded, member)
static const struct query_field words[] = {{"suite", QUERY_TEXT, RUN(suite)},
                                           {"job", QUERY_TEXT, RUN(job)},
                                           {"system", QUERY_TEXT, RUN(system)},
                                           {"executor", QUERY_TEXT, RUN(executor)},
                                           {"workload", QUERY_TEXT, RUN(workload)},
                                           {"gate", QUERY_TEXT, RUN(gate)},
                                           {"model", QUERY_TEXT, RUN(model)},
                                           {"job_text", QUERY_TEXT, RUN(job_text)},
                                           {"ranks_per_node", QUERY_COUNT, RUN(ranks_per_node)}};
enum { WORDS = MP_LENGTH(words) };

/* Ranks whose times can't be compared would make waiting look like work. */
static int check_clocks(struct reader *reader, struct mp_error *error) {
    const struct mp_recorded *run = reader->run;
    struct query query = query_begin(
        reader->store,
        "SELECT rank, iif(clock IS NULL, 'nothing', 'its wall clock') FROM rank WHERE run_id = ?1 "
        "AND coalesce(clock, 'wall clock') = 'wall clock' AND (SELECT ranks FROM run WHERE run_id "
        "= ?1) > 1 ORDER BY rank",
        run->run_id, error);
    if (query_next(&query))
        query.code = mp_fail(error, MP_ENOTFOUND,
                             "run %lld of %s has no common clock: rank %d was put on it by %s",
                             (long long)run->run_id, mp_store_path(reader->store),
                             sqlite3_column_int(query.row, 0), query_text(query.row, 1));
    return query_end(&query);
}

static int read_all(struct reader *reader, struct mp_error *error) {
    struct mp_recorded *run = reader->run;
    if (reader->is_whole) {
        MP_TRY(mp_store_choose_run(reader->store, &run->run_id, error));
        struct query query = query_fields(reader->store, words, WORDS, "FROM run WHERE run_id = ?1",
                                          run->run_id, error);
        if (query_next(&query))
            query_struct(&query, words, WORDS, run);
        MP_TRY(query_end(&query));
        MP_TRY(check_clocks(reader, error));
    }
    MP_TRY(read_ranks(reader, error));
    MP_TRY(read_iterations(reader, error));
    if (reader->is_whole && run->iterations == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "run %lld of %s has no steady iteration that every rank recorded",
                       (long long)run->run_id, mp_store_path(reader->store));
    return read_spans(reader, error);
}

static int read_run(struct mp_store *store, int64_t run_id, bool is_whole,
                    struct mp_recorded *recorded, struct mp_error *error) {
    struct reader reader = {.store = store, .run = recorded, .is_whole = is_whole};
    *recorded = (struct mp_recorded){.run_id = run_id};
    int code = read_all(&reader, error);
    free(reader.rows);
    if (code)
        mp_recorded_destroy(recorded);
    return code;
}

int mp_recorded_read(struct mp_store *store, int64_t run_id, struct mp_recorded *recorded,
                     struct mp_error *error) {
    return read_run(store, run_id, true, recorded, error);
}

int recorded_sample(struct mp_store *store, int64_t run_id, struct mp_recorded *recorded,
                    struct mp_error *error) {
    return read_run(store, run_id, false, recorded, error);
}

void mp_recorded_destroy(struct mp_recorded *recorded) {
    query_free_texts(words, WORDS, recorded);
    mp_arena_release(&recorded->memory);
    free(recorded->number);
    free(recorded->seconds);
    free(recorded->span);
    free(recorded->collected);
    *recorded = (struct mp_recorded){0};
}
