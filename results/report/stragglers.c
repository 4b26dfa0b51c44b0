#include "results/report/stragglers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"
#include "reference/base/arena.h"
#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/table.h"
#include "results/report/waiting_words.h"

/* ---- reading what the analysis needs of one run ---- */

struct waiting_recording {
    struct mp_straggler_input input; /* borrows what follows */
    int iterations;                  /* steady ones; input may have every second, third, ... */
    int ranks_share_cores;           /* 1: yes */
    int64_t *number;
    struct mp_recorded_span *span;
    double *collected;
    struct mp_arena memory; /* of what follows */
    struct mp_recorded_rank *rank;
    struct mp_recorded_between *between;
    uint32_t *routes, *dropped;
};

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

static int read_spans(struct reader *reader, struct mp_error *error) {
    struct mp_recorded_times *times = &reader->out->input.times;
    MP_TAKE_EACH(&reader->out->memory, (size_t)times->iterations * (size_t)times->ranks + 1,
                 reader->out->rank, reader->out->between);
    MP_TRY(mp_arena_check(&reader->out->memory, error));
    for (int r = 0; reader->rows && r < times->ranks && times->iterations > 0; r++)
        MP_TRY(read_rank(reader, r, error));
    mp_recorded_shift(reader->out->rank, reader->out->span, times);
    times->rank = reader->out->rank;
    times->span = reader->out->span;
    times->spans = reader->spans;
    reader->out->input.collected = reader->out->collected;
    reader->out->input.between = reader->out->between;
    return MP_OK;
}

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

/* Steady iterations of a run; of a long run evenly chosen ones, so that at most about 200,000 spans
 * are looked at.  To be freed, also after an error. */
static int waiting_read(struct mp_store *store, int64_t run_id, struct waiting_recording *recording,
                        struct mp_error *error) {
    struct reader reader = {.store = store, .run_id = run_id, .out = recording};
    *recording = (struct waiting_recording){0};
    int code = read_all(&reader, error);
    recording->input.number = recording->number;
    free(reader.rows);
    return code;
}

static void waiting_free(struct waiting_recording *recording) {
    mp_arena_release(&recording->memory);
    free(recording->number);
    free(recording->span);
    free(recording->collected);
    *recording = (struct waiting_recording){0};
}

/* ---- one run ---- */

/* What moeperf predict --run asks of a run (harness/predict): a clock in common to replay it, and
 * its job and loads to plan for it. */
static const char context_sql[] =
    "SELECT CASE executor WHEN 'predicted' THEN nodes ELSE hosts END = 1, processor_taken, "
    "NOT EXISTS (SELECT 1 FROM rank WHERE rank.run_id = ?1 AND "
    "coalesce(clock, 'wall clock') = 'wall clock'), "
    "(SELECT coalesce(job_text, '') <> '' FROM run WHERE run.run_id = ?1) AND "
    "EXISTS (SELECT 1 FROM load WHERE load.run_id = ?1), "
    "EXISTS (SELECT 1 FROM NVTX_EVENTS AS event WHERE event.run_id = ?1) "
    "FROM v_run WHERE run_id = ?1";

static int read_context(struct mp_store *store, struct waiting_context *context,
                        struct mp_error *error) {
    struct query query = query_begin(store, context_sql, context->run_id, error);
    if (query_next(&query)) {
        context->one_host = sqlite3_column_int(query.row, 0) == 1;
        context->taken = query_double(query.row, 1);
        context->can_replay = sqlite3_column_int(query.row, 2) == 1;
        context->can_plan = context->can_replay && sqlite3_column_int(query.row, 3) == 1;
        context->others = sqlite3_column_int(query.row, 4) == 1;
    }
    return query_end(&query);
}

static int find(struct mp_store *store, struct waiting_recording *recording,
                struct straggler *straggler, struct mp_error *error) {
    const int64_t run_id = straggler->context.run_id;
    MP_TRY(waiting_read(store, run_id, recording, error));
    MP_TRY(mp_straggler_analyse(&recording->input, &straggler->found, error));
    MP_TRY(recording_cost_read(store, run_id, &straggler->cost, error));
    return read_context(store, &straggler->context, error);
}

int straggler_find(struct mp_store *store, int64_t run_id, struct straggler *straggler,
                   struct mp_error *error) {
    struct waiting_recording recording;
    *straggler = (struct straggler){
        .context = {.database = mp_store_path(store), .run_id = run_id, .taken = NAN}};
    int code = find(store, &recording, straggler, error);
    straggler->iterations = recording.iterations;
    straggler->looked_at = recording.input.times.iterations;
    straggler->shares_cores = recording.ranks_share_cores == 1;
    waiting_free(&recording);
    return code;
}

void straggler_free(struct straggler *straggler) {
    mp_straggler_destroy(&straggler->found);
}

static bool has_analysis(const struct straggler *straggler) {
    return straggler->found.slowdowns.rank != NULL;
}

void straggler_print(const struct straggler *straggler, const char *label, int most, FILE *out) {
    const struct mp_straggler *found = &straggler->found;
    char text[WAITING_TEXT], command[COMMAND_TEXT];
    struct waiting_advice advice;
    if (found->findings == 0)
        table_paragraph(out, "%s: %s", label, waiting_nothing(found, text, sizeof text));
    for (int f = 0; f < found->findings && f < most; f++) {
        waiting_advise(found, &found->finding[f], &straggler->context, &advice);
        table_paragraph(out, "%s: %s %s", label,
                        waiting_text(found, &found->finding[f], text, sizeof text), advice.words);
        table_command(out, advice.command);
    }
    if (found->findings > most) {
        table_paragraph(out, "%s: %d more:", label, found->findings - most);
        table_command(out, command_text(command, straggler->context.database,
                                        "report --stragglers --run %lld",
                                        (long long)straggler->context.run_id));
    }
    for (unsigned bit = MP_ABSTAINS_CLOCKS; bit < 1u << MP_ABSTENTIONS && has_analysis(straggler);
         bit *= 2)
        if (found->abstentions & bit)
            table_paragraph(out, "%s: not said: %s.", label,
                            mp_abstention_text((enum mp_abstention)bit));
}

/* ---- the report ---- */

enum {
    ROWS_IN_WORDS = 5,
    FINDINGS_IN_WORDS = 2
}; /* of more, sentences would be too many to read */

/* What the table says of a group: its first finding, which may be none; of the waiting per rank,
 * which it is a part of. */
struct waiting_row {
    const char *label;
    double waiting, of_it, tokens, saved; /* s, but for tokens */
    const char *most_for, *cause;
    char where[80];
};
#define ROW(member) offsetof(struct waiting_row, member)
static const struct table_column columns[] = {
    {"system", TABLE_LEFT, NULL, "system", .at = ROW(label)},
    {"waits ms\nper rank", TABLE_MS, NULL, "waiting_ms", ROW(waiting), .decimals = 2},
    {"most\nfor", TABLE_RIGHT, NULL, "most_for", .at = ROW(most_for)},
    {"of it", TABLE_MS, "ms", "of_it_ms", ROW(of_it), .decimals = 2},
    {"why", TABLE_LEFT, NULL, "cause", .at = ROW(cause)},
    {"where", TABLE_ARRAY, NULL, "where", .at = ROW(where)},
    {"tokens\nx mean", TABLE_NUMBER, NULL, "tokens_over_mean", ROW(tokens), .decimals = 2},
    {"would\nsave", TABLE_MS, "ms", "would_save_ms", ROW(saved), .decimals = 2},
};

static int add_row(struct table *table, const char *label, const struct straggler *straggler,
                   struct mp_error *error) {
    const struct mp_straggler *found = &straggler->found;
    const struct mp_straggler_finding *finding = found->findings ? &found->finding[0] : NULL;
    char rank[16];
    struct waiting_row row = {.label = label,
                              .waiting =
                                  has_analysis(straggler) ? found->waiting / found->ranks : NAN,
                              .most_for = "-",
                              .cause = "-",
                              .where = "-",
                              .of_it = finding ? finding->caused / found->ranks : NAN,
                              .tokens = finding ? finding->tokens : NAN,
                              .saved = finding ? finding->saved : NAN};
    if (finding) {
        row.cause = waiting_cause(finding->cause);
        waiting_place(finding->phase, finding->layer, row.where, sizeof row.where);
        snprintf(rank, sizeof rank, finding->rank < 0 ? "all" : "%d", finding->rank);
        row.most_for = rank;
    }
    return table_fill(table, &row, 1, sizeof row, error);
}

/* Where nothing was started nobody waits. */
static bool is_in_table(const struct report_runs *runs, int group, int table) {
    const struct report_run *example = report_group_example(runs, group);
    return example->table == table && !example->refused;
}

static int print_table(const struct report_runs *runs, const struct straggler stragglers[],
                       int table_number, enum mp_report_format format, FILE *out,
                       struct mp_error *error) {
    struct table table;
    char command[COMMAND_TEXT], invocation[COMMAND_WORD], heading[REPORT_HEADING];
    int code = MP_OK;
    table_init(&table, columns, sizeof columns / sizeof *columns);
    table.drops_empty = true;
    for (int g = 0; !code && g < runs->groups; g++)
        if (is_in_table(runs, g, table_number))
            code = add_row(&table, report_group_label(runs, g), &stragglers[g], error);
    report_table_heading(runs, table_number, heading);
    if (!code && table.rows > 0)
        table_write(&table, format, heading, out);
    if (!code && table.rows > 0 && format == MP_REPORT_TEXT) {
        for (int g = 0; g < runs->groups && table.rows <= ROWS_IN_WORDS; g++)
            if (is_in_table(runs, g, table_number))
                straggler_print(&stragglers[g], report_group_label(runs, g), FINDINGS_IN_WORDS,
                                out);
        if (table.rows > ROWS_IN_WORDS) {
            table_paragraph(out, "In words and in full (with --run ID, for one run):");
            table_command(out, command_text(command, stragglers[0].context.database,
                                            "report --stragglers --suite-run %s",
                                            command_word(invocation, runs->run[0].suite_run)));
        }
        report_print_yardsticks(runs, table_number, out);
    }
    table_free(&table);
    return code;
}

static json_t *row_json(const struct report_run *run, const struct straggler *straggler,
                        bool in_full) {
    return json_pack("{sI so so sb so so si sb so so so}", "run_id", (json_int_t)run->run_id, "job",
                     text_value(run->job), "system", text_value(run->system), "unattainable",
                     run->unattainable, "workload", text_value(run->workload), "status",
                     text_value(run->status), "ranks", run->ranks, "ranks_share_cores",
                     straggler->shares_cores, "processor_taken", number_value(run->taken),
                     "recording_cost", recording_cost_json(&straggler->cost), "analysis",
                     stragglers_detail_json(straggler, in_full));
}

static int print_json(const struct report_runs *runs, const struct straggler stragglers[],
                      bool in_full, FILE *out, struct mp_error *error) {
    json_t *rows = json_array();
    for (int g = 0; g < runs->groups; g++)
        json_array_append_new(rows,
                              row_json(report_group_example(runs, g), &stragglers[g], in_full));
    return print_object(json_pack("{ss so}", "report", "stragglers", "rows", rows), out, error);
}

static int print_in_full(const struct report_runs *runs, const struct straggler stragglers[],
                         FILE *out, struct mp_error *error) {
    char words[RECORDING_COST_TEXT];
    report_print_busy(runs, out);
    for (int g = 0; g < runs->groups; g++) {
        const struct report_run *example = report_group_example(runs, g);
        if (g > 0)
            fputc('\n', out);
        table_paragraph(out, "%s, %s, run %lld%s: %d rank%s, %d of %d steady iterations",
                        report_group_label(runs, g), example->workload, (long long)example->run_id,
                        example->predicted ? REPORT_PREDICTED : "", example->ranks,
                        example->ranks == 1 ? "" : "s", stragglers[g].looked_at,
                        stragglers[g].iterations);
        straggler_print(&stragglers[g], report_group_label(runs, g), 1 << 20, out);
        if (*recording_cost_words(&stragglers[g].cost, words))
            table_paragraph(out, "Recording cost: %s.", words);
        MP_TRY(stragglers_detail_print(&stragglers[g], out, error));
    }
    return MP_OK;
}

static int print_all(const struct report_runs *runs, const struct straggler stragglers[],
                     enum mp_report_format format, bool in_full, FILE *out,
                     struct mp_error *error) {
    if (format == MP_REPORT_JSON)
        return print_json(runs, stragglers, in_full, out, error);
    if (in_full && format == MP_REPORT_TEXT)
        MP_TRY(print_in_full(runs, stragglers, out, error));
    for (int t = 0; !(in_full && format == MP_REPORT_TEXT) && t < runs->tables; t++) {
        if (t > 0)
            fputc('\n', out);
        MP_TRY(print_table(runs, stragglers, t, format, out, error));
    }
    return check_printed(out, error);
}

static int report(struct mp_store *store, const struct mp_report_selection *selection,
                  enum mp_report_format format, bool in_full, FILE *out, struct mp_error *error) {
    struct report_runs runs;
    int code = report_runs_load(store, selection, &runs, error);
    if (code)
        return code;
    struct straggler *stragglers = calloc((size_t)runs.groups + 1, sizeof *stragglers);
    if (!stragglers)
        code = mp_no_memory(error);
    for (int g = 0; g < runs.groups && !code; g++)
        code = straggler_find(store, report_group_example(&runs, g)->run_id, &stragglers[g], error);
    if (!code)
        code = print_all(&runs, stragglers, format, in_full, out, error);
    for (int g = 0; g < runs.groups && stragglers; g++)
        straggler_free(&stragglers[g]);
    free(stragglers);
    report_runs_free(&runs);
    return code;
}

int mp_report_stragglers(struct mp_store *store, const struct mp_report_selection *selection,
                         enum mp_report_format format, FILE *out, struct mp_error *error) {
    return report(store, selection, format, false, out, error);
}

int mp_report_stragglers_in_full(struct mp_store *store,
                                 const struct mp_report_selection *selection,
                                 enum mp_report_format format, FILE *out, struct mp_error *error) {
    return report(store, selection, format, true, out, error);
}
