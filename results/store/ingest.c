/* Adding one run.  The recordings are read twice: first for everything but spans, because putting
 * times on the common clock needs the samples taken at the end and the start of the earliest rank;
 * then for the spans, rank after rank, so that each rank's rows follow each other. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "results/store/internal.h"
#include "results/store/recording.h"

/* ---- identity ---- */

/* The name of the fact (rank -1) that keeps it. */
#define IDENTITY_FACT "run.identity"

enum { IDENTITY_SIZE = 17 };

static uint64_t add(uint64_t digest, uint64_t word) {
    digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
    return digest ^ digest >> 32;
}

/* The zero at the end is part of it: "ab", "c" is not "a", "bc". */
static uint64_t add_text(uint64_t digest, const char *text) {
    if (!text)
        return add(digest, UINT64_MAX);
    do
        digest = add(digest, (unsigned char)*text);
    while (*text++);
    return digest;
}

static uint64_t digest_description(const struct mp_store_run *run) {
    const char *const texts[] = {run->suite,  run->suite_run, run->job,       run->system,
                                 run->status, run->reason,    run->started_at};
    uint64_t digest = add(1, (uint64_t)run->round);
    for (size_t i = 0; i < MP_LENGTH(texts); i++)
        digest = add_text(digest, texts[i]);
    return digest;
}

/* 16 hexadecimal digits: a digest of all that the ranks' recordings have, whose first records name
 * process, host and the nanosecond they began in, and of the job's file, which may be given later;
 * of a run without any recording, a digest of which job of which suite run it was and how it went.
 */
static void identity_of(const struct mp_store_run *run, const struct recordings *recordings,
                        char identity[IDENTITY_SIZE]) {
    uint64_t digest = run->job_text && *run->job_text ? add_text(0, run->job_text) : 0;
    bool recorded = false;
    for (int r = 0; r < recordings->ranks; r++) {
        recorded = recorded || recordings->rank[r].usable;
        digest = add(digest, recordings->rank[r].digest);
    }
    snprintf(identity, IDENTITY_SIZE, "%016" PRIx64, recorded ? digest : digest_description(run));
}

/* The run with this identity; 0: none.  Runs of databases from before there were identities have
 * none.  Run by run, because facts are ordered by run: some microseconds for thousands of runs. */
static const char same_run_sql[] =
    "SELECT run.run_id FROM run CROSS JOIN fact ON fact.run_id = run.run_id "
    "AND fact.name = '" IDENTITY_FACT "' AND fact.rank = -1 "
    "WHERE fact.value = ?9 ORDER BY run.run_id LIMIT 1";

struct ingest {
    struct mp_store *store;
    int64_t run_id;
    int64_t same_run_id; /* this one, added before; 0: it is new */
    int64_t origin_ns;
    int64_t phase_ids[MP_PHASES];
    int64_t unknown_phase_id;
    struct strings strings;
    struct recordings recordings;
    struct summary summary;
};

/* ---- the run itself ---- */

static int check_run(const struct mp_store *store, const struct mp_store_run *run,
                     struct mp_error *error) {
    const struct {
        const char *name, *value;
    } required[] = {
        {"suite", run->suite},         {"job", run->job},
        {"suite_run", run->suite_run}, {"system", run->system},
        {"executor", run->executor},   {"workload", run->workload},
        {"status", run->status},       {"started_at", run->started_at},
    };
    for (size_t i = 0; i < MP_LENGTH(required); i++)
        if (!required[i].value)
            return mp_fail(error, MP_EINVAL, "%s: a run needs a %s", store->path, required[i].name);
    static const char *const statuses[] = {"complete", "failed", "interrupted", "timeout",
                                           "refused"};
    if (!MP_ANY(i, MP_LENGTH(statuses), !strcmp(statuses[i], run->status)))
        return mp_fail(
            error, MP_EINVAL,
            "%s: a run's status is complete, failed, interrupted, timeout or refused, not '%s'",
            store->path, run->status);
    if (run->ranks < 1)
        return mp_fail(error, MP_EINVAL, "%s: a run has at least 1 rank, not %d", store->path,
                       run->ranks);
    return MP_OK;
}

static int insert_run(struct ingest *ingest, const struct mp_store_run *run,
                      struct mp_error *error) {
    MP_TRY(STORE_PUT(
        ingest->store, "cannot store the run", error,
        "INSERT INTO run (suite, suite_run, job, system, executor, workload, gate, model, status, "
        "reason, started_at, command, suite_text, job_text, round, ranks, nodes, ranks_per_node, "
        "iterations_wanted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        V(run->suite), V(run->suite_run), V(run->job), V(run->system), V(run->executor),
        V(run->workload), V(run->gate), V(run->model), V(run->status), V(run->reason),
        V(run->started_at), V(run->command), V(run->suite_text), V(run->job_text), V(run->round),
        V(run->ranks), V(run->nodes), V(run->ranks_per_node), V(run->iterations_wanted)));
    ingest->run_id = sqlite3_last_insert_rowid(ingest->store->connection);
    return MP_OK;
}

/* ---- spans ---- */

/* The spans of one rank on their way into the database. */
struct span_rows {
    struct ingest *ingest;
    struct mp_spool_reader *reader;
    int rank;
    int64_t left;    /* as many as the first reading found: a killed rank's file may still grow */
    int64_t span_id; /* of the next row */
};

static int64_t or_null(int64_t value) {
    return value < 0 ? ROW_NULL : value;
}

static int next_span_row(void *context, int64_t row[ROW_COLUMNS], struct mp_error *error) {
    struct span_rows *rows = context;
    struct recording *recording = &rows->ingest->recordings.rank[rows->rank];
    struct mp_spool_record record = {0};
    int got = 0;
    if (rows->left > 0) {
        do
            got = mp_spool_next(rows->reader, &record, NULL);
        while (got == 1 && record.type != MP_SPOOL_SPAN);
    }
    if (got != 1)
        return 0; /* also where the disk failed: the first reading has said so */
    rows->left--;
    struct mp_span *span = &record.as.span;
    span->start_ns = clock_bounded(clock_fit_apply(&recording->fit, span->start_ns));
    span->end_ns = clock_bounded(clock_fit_apply(&recording->fit, span->end_ns));
    struct ingest *ingest = rows->ingest;
    const int64_t values[ROW_COLUMNS] = {
        ingest->run_id,
        rows->rank,
        ingest->recordings.rank[rows->rank].stream_ids[span->stream],
        span->iteration,
        span->layer,
        span->phase < MP_PHASES ? ingest->phase_ids[span->phase] : ingest->unknown_phase_id,
        span->direction < MP_NO_DIRECTION ? span->direction : ROW_NULL,
        span->start_ns - ingest->origin_ns,
        span->end_ns - ingest->origin_ns,
        clock_bounded(span->wait_ns),
        or_null(span->cpu_ns),
        or_null(span->tokens),
        or_null(span->bytes),
        or_null(span->flops)};
    memcpy(row, values, sizeof values);
    rows->span_id++;
    MP_TRY(summary_add_span(&rows->ingest->summary, rows->rank, span,
                            recording->in_flight[span->stream], error));
    return 1;
}

static int insert_spans(struct ingest *ingest, int rank, int64_t *span_id, struct mp_error *error) {
    struct recording *recording = &ingest->recordings.rank[rank];
    struct span_rows rows = {
        .ingest = ingest, .rank = rank, .left = recording->spans, .span_id = *span_id};
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct row_source source = {.next = next_span_row, .context = &rows};
    if (mp_spool_open(recording->path, &reader, NULL))
        return MP_OK; /* gone since the first reading, which counted it */
    rows.reader = reader;
    /* NULL: SQLite takes the largest span_id plus one, the same that is counted here, and appends
     * without looking for its place: an eighth less time than with the number given. */
    MP_TRY(store_insert_rows(
        ingest->store,
        "INSERT INTO span SELECT NULL, c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13 "
        "FROM moeperf_rows",
        NULL, 0, &source, "cannot store spans", error));
    if (rows.span_id > *span_id) {
        recording->first_span = *span_id;
        recording->last_span = rows.span_id - 1;
    }
    *span_id = rows.span_id;
    return MP_OK;
}

/* ---- all of it ---- */

/* Looks for the run in the database, and gives a new one its identity. */
static int identify_run(struct ingest *ingest, const struct mp_store_run *run,
                        struct mp_error *error) {
    char identity[IDENTITY_SIZE];
    identity_of(run, &ingest->recordings, identity);
    const struct mp_store_fact fact = {IDENTITY_FACT, identity};
    MP_TRY(store_numbers_of(ingest->store, same_run_sql, identity, NULL, 0, &ingest->same_run_id, 1,
                            error));
    return ingest->same_run_id ? MP_OK
                               : mp_store_add_fact(ingest->store, ingest->run_id, &fact, error);
}

/* Where nobody saw the run's end, its ranks may have. */
static int judge_end(struct ingest *ingest, const struct mp_store_run *run,
                     struct mp_error *error) {
    return run->unless_completed
               ? STORE_PUT(ingest->store, "cannot store the run's end", error,
                           "UPDATE run SET status = 'complete', reason = NULL WHERE run_id = ?1 "
                           "AND NOT EXISTS (SELECT 1 FROM rank WHERE run_id = ?1 AND "
                           "rank.status <> 'complete')",
                           V(ingest->run_id))
               : MP_OK;
}

static int ingest_recordings(struct ingest *ingest, const struct mp_store_run *run,
                             struct mp_error *error) {
    struct recordings *recordings = &ingest->recordings;
    recordings->strings = &ingest->strings;
    recordings->summary = &ingest->summary;
    for (int r = 0; r < recordings->ranks; r++)
        ingest->summary.recorded[r] = recordings->rank[r].usable;
    int64_t span_id;
    MP_TRY(recordings_collect(recordings, error));
    MP_TRY(identify_run(ingest, run, error));
    if (ingest->same_run_id)
        return MP_OK;
    MP_TRY(mp_store_numbers(ingest->store, "SELECT coalesce(max(span_id), 0) + 1 FROM span", NULL,
                            0, &span_id, 1, error));
    ingest->origin_ns =
        clock_bounded(recordings_align(recordings, &ingest->summary.clocks_comparable));
    ingest->summary.origin_ns = ingest->origin_ns;
    for (int r = 0; r < recordings->ranks; r++)
        if (recordings->rank[r].usable)
            MP_TRY(insert_spans(ingest, r, &span_id, error));
    for (int r = 0; r < recordings->ranks; r++)
        if (recordings->rank[r].usable)
            MP_TRY(ranges_ingest(recordings, r, ingest->origin_ns, error));
    MP_TRY(recordings_write(recordings, error));
    MP_TRY(judge_end(ingest, run, error));
    return store_set_origin(ingest->store, ingest->run_id, ingest->origin_ns, error);
}

static int ingest_run(struct ingest *ingest, const struct mp_store_run *run,
                      const char *const paths[], int count, struct mp_error *error) {
    MP_TRY(insert_run(ingest, run, error));
    /* What holds for the run even if no rank has recorded anything. */
    static const struct mp_store_fact unattainable = {"system.unattainable", "yes"};
    const struct mp_store_fact setting = {"setting.key", run->setting_key};
    if (run->setting_key)
        MP_TRY(mp_store_add_fact(ingest->store, ingest->run_id, &setting, error));
    if (run->unattainable)
        MP_TRY(mp_store_add_fact(ingest->store, ingest->run_id, &unattainable, error));
    for (int i = 0; i < run->facts; i++)
        MP_TRY(mp_store_add_fact(ingest->store, ingest->run_id, &run->fact[i], error));
    MP_TRY(strings_id(&ingest->strings, "?", &ingest->unknown_phase_id, error));
    for (int phase = 0; phase < MP_PHASES; phase++)
        MP_TRY(strings_id(&ingest->strings, mp_phase_name((enum mp_phase)phase),
                          &ingest->phase_ids[phase], error));
    MP_TRY(summary_init(&ingest->summary, run->ranks, error));
    ingest->summary.slice = run->slice;
    ingest->summary.slices = run->slices;
    MP_TRY(recordings_init(&ingest->recordings, ingest->store, ingest->run_id, run->ranks, paths,
                           count, error));
    MP_TRY(ingest_recordings(ingest, run, error));
    return ingest->same_run_id ? MP_OK
                               : summary_write(&ingest->summary, ingest->store, ingest->run_id,
                                               ingest->phase_ids, error);
}

int mp_store_ingest(struct mp_store *store, const struct mp_store_run *run,
                    const char *const spool_paths[], int count, int64_t *run_id,
                    struct mp_error *error) {
    struct ingest ingest = {.store = store, .strings = {.store = store}};
    MP_TRY(check_run(store, run, error));
    MP_TRY(store_execute(store, "BEGIN IMMEDIATE", "cannot write", error));
    int code = ingest_run(&ingest, run, spool_paths, count, error);
    recordings_free(&ingest.recordings);
    strings_free(&ingest.strings);
    summary_free(&ingest.summary);
    if (ingest.same_run_id) /* what was added before it was found goes */
        sqlite3_exec(store->connection, "ROLLBACK", NULL, NULL, NULL);
    else
        code = store_end(store, code, "cannot store the run", error);
    if (!code && run_id)
        *run_id = ingest.same_run_id ? ingest.same_run_id : ingest.run_id;
    return code;
}
