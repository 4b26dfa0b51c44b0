#include "results/report/stragglers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/recorded.h"
#include "results/report/table.h"
#include "results/report/waiting_words.h"

/* ---- reading what the analysis needs of one run ---- */

/* Routes over all source ranks, and how many of them were dropped. */
struct loads {
    struct mp_arena memory; /* of the tables */
    uint32_t *routes, *dropped;
    int layers, experts;
};
MP_END(loads, struct loads, mp_arena_release(&it->memory))

static int make_loads(struct mp_store *store, const struct mp_recorded *recorded,
                      struct loads *loads, struct mp_error *error) {
    int64_t most[2];
    MP_TRY(mp_store_numbers(
        store, "SELECT max(layer) + 1, max(experts) FROM imbalance_summary WHERE run_id = ?1",
        &recorded->run_id, 1, most, 2, error));
    loads->layers = (int)most[0];
    loads->experts = (int)most[1];
    const size_t rows = (size_t)recorded->iterations * (size_t)loads->layers;
    if (rows == 0 || loads->experts <= 0)
        return MP_OK;
    MP_TAKE(&loads->memory, loads->routes, rows * (size_t)loads->experts);
    MP_TAKE(&loads->memory, loads->dropped, rows);
    return mp_arena_check(&loads->memory, error);
}

static int read_loads(struct mp_store *store, const struct mp_recorded *recorded,
                      struct loads *loads, struct mp_error *error) {
    static const char sql[] =
        RECORDED_CHOSEN "SELECT at, layer, routes, dropped FROM rank CROSS JOIN chosen "
                        "CROSS JOIN load USING (run_id, rank, iteration) "
                        "WHERE run_id = ?1 AND layer BETWEEN 0 AND ?3 - 1";
    MP_TRY(make_loads(store, recorded, loads, error));
    if (!loads->routes)
        return MP_OK;
    struct query query = query_begin(store, sql, recorded->run_id, error);
    sqlite3_bind_int64(query.row, 2, recorded->every);
    sqlite3_bind_int(query.row, 3, loads->layers);
    while (query_next(&query)) {
        size_t at = (size_t)sqlite3_column_int(query.row, 0) * (size_t)loads->layers +
                    (size_t)sqlite3_column_int(query.row, 1);
        query_add_list(query_text(query.row, 2), loads->routes + at * (size_t)loads->experts,
                       loads->experts);
        loads->dropped[at] +=
            (uint32_t)query_add_list(query_text(query.row, 3), NULL, loads->experts);
    }
    return query_end(&query);
}

/* ---- one run ---- */

/* What moeperf predict --run asks of a run (harness/predict): a clock in common to replay it, and
 * its job and loads to plan for it. */
static const char context_sql[] =
    "SELECT CASE executor WHEN 'predicted' THEN nodes ELSE hosts END = 1, processor_taken, NOT "
    "EXISTS (SELECT 1 FROM rank WHERE rank.run_id = ?1 AND coalesce(clock, 'wall clock') = 'wall "
    "clock'), (SELECT coalesce(job_text, '') <> '' FROM run WHERE run.run_id = ?1) AND EXISTS "
    "(SELECT 1 FROM load WHERE load.run_id = ?1), EXISTS (SELECT 1 FROM NVTX_EVENTS AS event WHERE "
    "event.run_id = ?1) FROM v_run WHERE run_id = ?1";

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

static int analyse(const struct mp_recorded *recorded, const struct loads *loads,
                   struct straggler *straggler, struct mp_error *error) {
    const struct mp_straggler_input input = {.times = {recorded->ranks, recorded->iterations,
                                                       recorded->rank, recorded->span,
                                                       recorded->spans},
                                             .number = recorded->number,
                                             .ranks_missing = recorded->missing,
                                             .ranks_cut = recorded->cut,
                                             .collected = recorded->collected,
                                             .between = recorded->between,
                                             .common_clock = recorded->common_clock,
                                             .clock_error = recorded->clock_error,
                                             .routes = loads->routes,
                                             .dropped = loads->dropped,
                                             .layers = loads->layers,
                                             .experts = loads->experts};
    straggler->iterations = recorded->steady;
    straggler->looked_at = recorded->iterations;
    straggler->shares_cores = recorded->ranks_share_cores;
    return mp_straggler_analyse(&input, &straggler->found, error);
}

int straggler_find(struct mp_store *store, int64_t run_id, struct straggler *straggler,
                   struct mp_error *error) {
    MP_AUTO(recorded) struct mp_recorded recorded = {0};
    MP_AUTO(loads) struct loads loads = {.routes = NULL};
    *straggler = (struct straggler){
        .context = {.database = mp_store_path(store), .run_id = run_id, .taken = NAN}};
    MP_TRY(recorded_sample(store, run_id, &recorded, error));
    MP_TRY(read_loads(store, &recorded, &loads, error));
    MP_TRY(analyse(&recorded, &loads, straggler, error));
    MP_TRY(recording_cost_read(store, run_id, &straggler->cost, error));
    return read_context(store, &straggler->context, error);
}

void straggler_list_free(struct straggler_list *list) {
    for (int i = 0; list->one && i < list->count; i++)
        mp_straggler_destroy(&list->one[i].found);
    mp_arena_release(&list->memory);
}

int straggler_list_make(struct straggler_list *list, int count, struct mp_error *error) {
    *list = (struct straggler_list){.count = count};
    MP_TAKE(&list->memory, list->one, count + 1);
    return mp_arena_check(&list->memory, error);
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
    {"of it", TABLE_MS, "ms", "of_it_ms", ROW(of_it), 2, .optional = 1},
    {"why", TABLE_LEFT, NULL, "cause", .at = ROW(cause)},
    {"where", TABLE_ARRAY, NULL, "where", .at = ROW(where)},
    {"tokens\nx mean", TABLE_NUMBER, NULL, "tokens_over_mean", ROW(tokens), 2, .optional = 2},
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
    char command[COMMAND_TEXT], invocation[COMMAND_WORD], heading[REPORT_HEADING];
    MP_AUTO(table) struct table table = table_of(columns, MP_LENGTH(columns));
    table.drops_empty = true;
    for (int g = 0; g < runs->groups; g++)
        if (is_in_table(runs, g, table_number))
            MP_TRY(add_row(&table, report_group_label(runs, g), &stragglers[g], error));
    report_table_heading(runs, table_number, heading);
    if (table.rows > 0)
        table_write(&table, format, heading, out);
    if (table.rows > 0 && format == MP_REPORT_TEXT) {
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
    return MP_OK;
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
    if (format == MP_REPORT_JSON) {
        json_t *rows = json_array();
        for (int g = 0; g < runs->groups; g++) {
            const struct report_run *run = report_group_example(runs, g);
            json_array_append_new(
                rows,
                json_pack("{sI so so sb so so si sb so so so}", "run_id", (json_int_t)run->run_id,
                          "job", text_value(run->job), "system", text_value(run->system),
                          "unattainable", run->unattainable, "workload", text_value(run->workload),
                          "status", text_value(run->status), "ranks", run->ranks,
                          "ranks_share_cores", stragglers[g].shares_cores, "processor_taken",
                          number_value(run->taken), "recording_cost",
                          recording_cost_json(&stragglers[g].cost), "analysis",
                          stragglers_detail_json(&stragglers[g], in_full)));
        }
        return print_object(json_pack("{ss so}", "report", "stragglers", "rows", rows), out, error);
    }
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
    MP_AUTO(runs) struct report_runs runs = {0};
    MP_AUTO(stragglers) struct straggler_list list = {0};
    MP_TRY(report_runs_load(store, selection, &runs, error));
    MP_TRY(straggler_list_make(&list, runs.groups, error));
    for (int g = 0; g < runs.groups; g++)
        MP_TRY(straggler_find(store, report_group_example(&runs, g)->run_id, &list.one[g], error));
    return print_all(&runs, list.one, format, in_full, out, error);
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
