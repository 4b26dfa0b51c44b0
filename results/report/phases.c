#include "results/report/phases.h"

#include <stdbool.h>
#include <string.h>

#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/recording_cost.h"

#define PHASES_SUM "iteration" /* what the row is called that has the sum */

/* Phases of the iteration, what they leave of it and its sum, then what lies between iterations. */
static const char phases_sql[] =
    "WITH own AS (SELECT phase, exposed_ms / n AS ms, share, wait_ms / n AS waits, "
    "overlapped_ms / n AS hidden, iteration_ms / n AS whole FROM v_phase, (SELECT count(*) * 1.0 "
    "AS n FROM v_iteration WHERE run_id = ?1) WHERE run_id = ?1), "
    "inside AS (SELECT sum(ms) AS ms, sum(waits) AS waits, sum(hidden) AS hidden, max(whole) AS "
    "whole FROM own WHERE share IS NOT NULL HAVING count(*)) "
    "SELECT phase, ms, share, waits, hidden FROM ("
    "SELECT 3 * (share IS NULL) AS place, phase, ms, share, waits, hidden FROM own UNION ALL "
    "SELECT 1, '(no phase)', max(0, whole - ms), max(0, 1 - ms / whole), NULL, NULL FROM inside "
    "UNION ALL SELECT 2, '" PHASES_SUM "', whole, 1, waits, hidden FROM inside) "
    "ORDER BY place, ms DESC, phase";

enum { PHASE, EXPOSED, SHARE, WAITING, OVERLAPPED, COLUMNS };
static const struct table_column columns[COLUMNS] = {
    [PHASE] = {"phase", TABLE_LEFT, .key = "phase"},
    [EXPOSED] = {"ms/it-\neration", TABLE_NUMBER, .key = "ms_per_iteration", .decimals = 3},
    [SHARE] = {"share", TABLE_NUMBER, "%", "share", .decimals = 1},
    [WAITING] = {"of it\nblocked", TABLE_NUMBER, "ms", "wait_ms", .decimals = 3},
    [OVERLAPPED] = {"besides, over-\nlapped", TABLE_NUMBER, "ms", "overlapped_ms", .decimals = 3},
};

int phases_table(struct mp_store *store, int64_t run_id, struct table *table,
                 struct mp_error *error) {
    *table = table_of(columns, COLUMNS);
    return table_read(table, store, phases_sql, run_id, error);
}

int imbalance_table(struct mp_store *store, int64_t run_id, struct table *table,
                    struct mp_error *error) {
    static const struct table_column column[] = {
        {"layer", TABLE_COUNT, .key = "layer"},
        {"experts", TABLE_COUNT, .key = "experts"},
        {"expert max\nover mean", TABLE_NUMBER, .key = "expert_max_over_mean", .decimals = 2},
        {"rank max\nover mean", TABLE_NUMBER, .key = "rank_max_over_mean", .decimals = 2},
        {"effective\nexperts", TABLE_NUMBER, .key = "effective_experts", .decimals = 2},
        {"dead", TABLE_NUMBER, "%", "dead_fraction", .decimals = 1},
        {"dropped", TABLE_NUMBER, "%", "dropped_fraction", .decimals = 1}};
    *table = table_of(column, MP_LENGTH(column));
    return table_read(table, store,
                      "SELECT layer, max(experts), avg(expert_max_over_mean), "
                      "avg(rank_max_over_mean), avg(effective_experts), avg(dead_fraction), "
                      "avg(dropped_fraction) FROM v_imbalance WHERE run_id = ?1 GROUP BY layer",
                      run_id, error);
}

static double number_in(const struct table *table, int row, int column) {
    return json_number_value(table->cell[row * table->columns + column].value);
}

static void print_words(const struct table *table, const char *label, FILE *out) {
    const int sum = MP_PLACE(r, table->rows, !strcmp(table->cell[r * COLUMNS].text, PHASES_SUM));
    if (sum == table->rows) {
        table_paragraph(out, "%s: no iteration was recorded.", label);
        return;
    }
    table_print(table, out);
    table_paragraph(out,
                    "%s: %s takes %.0f %% of the iteration%s; ranks are blocked %.0f %% of it, "
                    "until others come and by transfers; %.2f ms of transfers are hidden behind "
                    "computation.",
                    label, table->cell[PHASE].text, 100 * number_in(table, 0, SHARE),
                    number_in(table, 0, WAITING) > number_in(table, 0, EXPOSED) / 2
                        ? ", most of it blocked"
                        : "",
                    100 * number_in(table, sum, WAITING) / number_in(table, sum, EXPOSED),
                    number_in(table, sum, OVERLAPPED));
}

int phases_print(struct mp_store *store, int64_t run_id, const char *label, FILE *out,
                 struct mp_error *error) {
    MP_AUTO(table) struct table table = {0};
    MP_TRY(phases_table(store, run_id, &table, error));
    print_words(&table, label, out);
    return MP_OK;
}

static int print_group(struct mp_store *store, const struct report_run *run,
                       enum mp_report_format format, FILE *out, struct mp_error *error) {
    struct recording_cost cost;
    MP_AUTO(table) struct table table = {0};
    char words[RECORDING_COST_TEXT], title[REPORT_HEADING];
    snprintf(title, sizeof title, "%s, %s, run %lld%s: mean over its iterations and %d rank%s",
             run->label, run->workload, (long long)run->run_id,
             run->predicted ? REPORT_PREDICTED : "", run->ranks, run->ranks == 1 ? "" : "s");
    MP_TRY(phases_table(store, run->run_id, &table, error));
    if (format != MP_REPORT_TEXT) {
        table_write(&table, format, title, out);
        return MP_OK;
    }
    table_paragraph(out, "%s", title);
    print_words(&table, run->label, out);
    MP_TRY(recording_cost_read(store, run->run_id, &cost, error));
    if (*recording_cost_words(&cost, words))
        table_paragraph(out, "Recording cost: %s.", words);
    return MP_OK;
}

static int print_tables(struct mp_store *store, const struct report_runs *runs,
                        enum mp_report_format format, FILE *out, struct mp_error *error) {
    bool is_first = true;
    for (int g = 0; g < runs->groups; g++) {
        const struct report_run *example = report_group_example(runs, g);
        if (example->refused) /* nothing was started */
            continue;
        if (!is_first)
            fputc('\n', out);
        is_first = false;
        MP_TRY(print_group(store, example, format, out, error));
    }
    return check_printed(out, error);
}

static int print_json(struct mp_store *store, const struct report_runs *runs, FILE *out,
                      struct mp_error *error) {
    MP_AUTO(json) json_t *rows = json_array();
    for (int g = 0; g < runs->groups; g++) {
        const struct report_run *example = report_group_example(runs, g);
        json_t *phases = NULL;
        MP_TRY(
            query_json(store,
                       "SELECT *, (SELECT count(*) FROM v_iteration WHERE run_id = ?1) AS "
                       "iterations FROM v_phase WHERE run_id = ?1 ORDER BY exposed_ms DESC, phase",
                       example->run_id, &phases, error));
        json_array_append_new(
            rows,
            json_pack("{sI so so so sb so so}", "run_id", (json_int_t)example->run_id, "job",
                      text_value(example->job), "system", text_value(example->system), "executor",
                      text_value(example->executor), "unattainable", example->unattainable,
                      "workload", text_value(example->workload), "phases", phases));
    }
    return print_object(json_pack("{ss sO}", "report", "phases", "rows", rows), out, error);
}

int mp_report_phases(struct mp_store *store, const struct mp_report_selection *selection,
                     enum mp_report_format format, FILE *out, struct mp_error *error) {
    MP_AUTO(runs) struct report_runs runs = {0};
    MP_TRY(report_runs_load(store, selection, &runs, error));
    return format == MP_REPORT_JSON ? print_json(store, &runs, out, error)
                                    : print_tables(store, &runs, format, out, error);
}
