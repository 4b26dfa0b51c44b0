#include <math.h>
#include <string.h>

#include "results/report/groups.h"
#include "results/report/phases.h"
#include "results/report/query.h"
#include "results/report/recording_cost.h"
#include "results/report/stragglers.h"
#include "results/report/table.h"

/* ---- all runs ---- */

enum { LIST_STATUS = 7, LIST_COLUMNS };
static const struct table_column list_columns[LIST_COLUMNS] = {
    {"run", TABLE_COUNT, .key = "run_id"},
    {"started (UTC)", TABLE_RIGHT, .key = "started_at"},
    {"suite", TABLE_LEFT, .key = "suite"},
    {"job", TABLE_LEFT, .key = "job"},
    {"workload", TABLE_LEFT, .key = "workload"},
    {"ranks", TABLE_COUNT, .key = "ranks", .optional = 2},
    {"ms/it-\neration", TABLE_NUMBER, .key = "ms_per_iteration", .decimals = 2},
    [LIST_STATUS] = {"status", TABLE_LEFT, .key = "status"},
};

#define SELECTED                                                                                   \
    "FROM v_run JOIN v_speedup USING (run_id) "                                                    \
    "WHERE (?1 = 0 OR v_run.run_id = ?1) AND (?2 IS NULL OR v_run.suite_run = ?2) "                \
    "AND (?3 IS NULL OR v_run.suite = ?3) ORDER BY v_run.run_id"

static const char list_sql[] =
    "SELECT v_run.run_id, substr(started_at, 1, 10) || ' ' || substr(started_at, 12, 5), "
    "v_run.suite, "
    "v_run.job || CASE v_run.unattainable WHEN 1 THEN '" REPORT_UNATTAINABLE "' ELSE '' END "
    "|| CASE v_run.executor WHEN 'predicted' THEN '" REPORT_PREDICTED "' ELSE '' END, "
    "v_run.workload, v_run.ranks, "
    "ms_per_iteration, v_run.status " SELECTED;

static const char list_json_sql[] =
    "SELECT v_run.*, ms_per_iteration, tokens_per_s, loss_final " SELECTED;

static void list_runs(struct query *query, enum mp_report_format format, FILE *out) {
    bool all_complete = true;
    MP_AUTO(table) struct table table = table_of(list_columns, LIST_COLUMNS);
    table_query(&table, query);
    for (int r = 0; r < table.rows; r++)
        all_complete =
            all_complete && !strcmp(table.cell[r * LIST_COLUMNS + LIST_STATUS].text, "complete");
    table.lines_first = true;
    table.optional[LIST_STATUS] = all_complete;
    if (!query->code && table.rows == 0)
        query->code =
            mp_fail(query->error, MP_ENOTFOUND, "%s: no such runs", mp_store_path(query->store));
    if (!query->code)
        table_write(&table, format, format == MP_REPORT_TEXT ? "" : "runs", out);
}

int mp_report_runs(struct mp_store *store, const struct mp_report_selection *selection,
                   enum mp_report_format format, FILE *out, struct mp_error *error) {
    const struct mp_report_selection any = {0};
    const struct mp_report_selection *wanted = selection ? selection : &any;
    const bool is_json = format == MP_REPORT_JSON;
    struct query query =
        query_begin(store, is_json ? list_json_sql : list_sql, wanted->run_id, error);
    json_t *rows = NULL;
    sqlite3_bind_text(query.row, 2, wanted->suite_run, -1, SQLITE_STATIC);
    sqlite3_bind_text(query.row, 3, wanted->suite, -1, SQLITE_STATIC);
    if (is_json)
        rows = query_rows_json(&query);
    else
        list_runs(&query, format, out);
    MP_TRY(query_end(&query));
    return is_json ? print_object(json_pack("{ss so}", "report", "runs", "rows", rows), out, error)
                   : check_printed(out, error);
}

/* ---- one run ---- */

static const struct {
    const char *name, *sql;
} sections[] = {
    {"iterations", "SELECT * FROM v_iteration WHERE run_id = ?1 ORDER BY iteration"},
    {"phases", "SELECT * FROM v_phase WHERE run_id = ?1 ORDER BY exposed_ms DESC, phase"},
    {"imbalance", "SELECT * FROM v_imbalance WHERE run_id = ?1 ORDER BY iteration, layer"},
    {"ranks", "SELECT * FROM v_rank WHERE run_id = ?1 ORDER BY rank"},
    {"numbers", "SELECT name, rank, value FROM v_number WHERE run_id = ?1 AND iteration = -1"},
    {"facts", "SELECT name, rank, value FROM v_fact WHERE run_id = ?1"},
};
enum { SECTIONS = MP_LENGTH(sections), FINDINGS_SHOWN = 4 };

static int add_sections(struct mp_store *store, int64_t run_id, json_t *object,
                        struct mp_error *error) {
    json_t *rows;
    struct recording_cost cost;
    MP_TRY(query_json(store,
                      "SELECT v_run.*, ms_per_iteration, tokens_per_s, speedup_vs_ep, "
                      "speed_vs_balanced, loss_final, max_loss_difference, steady_iterations, "
                      "dropped_fraction FROM v_run JOIN v_speedup USING (run_id) WHERE run_id = ?1",
                      run_id, &rows, error));
    json_object_set(object, "run", json_array_get(rows, 0));
    json_decref(rows);
    MP_TRY(recording_cost_read(store, run_id, &cost, error));
    json_object_set_new(object, "recording_cost", recording_cost_json(&cost));
    for (int i = 0; i < SECTIONS; i++) {
        MP_TRY(query_json(store, sections[i].sql, run_id, &rows, error));
        json_object_set_new(object, sections[i].name, rows);
    }
    return MP_OK;
}

static int run_json(struct mp_store *store, int64_t run_id, FILE *out, struct mp_error *error) {
    MP_AUTO(json) json_t *object = json_pack("{ss}", "report", "run");
    MP_TRY(add_sections(store, run_id, object, error));
    return print_object(json_incref(object), out, error);
}

static void print_line(FILE *out, const char *name, const char *text) {
    enum { INDENT = 20 };
    if (text[0]) {
        fprintf(out, "%-*s", INDENT, name);
        table_filled(out, INDENT, INDENT, text);
    }
}

static void print_number(FILE *out, const char *name, double value, const char *format) {
    char text[64];
    if (isnan(value))
        return;
    snprintf(text, sizeof text, format, value);
    print_line(out, name, text);
}

static void print_head(const struct report_run *run, FILE *out) {
    char text[128];
    fprintf(out, "Run %lld\n", (long long)run->run_id);
    print_line(out, "suite", run->suite);
    print_line(out, "job", run->job);
    snprintf(text, sizeof text, "%.100s%s", run->system,
             run->unattainable ? REPORT_UNATTAINABLE : "");
    print_line(out, "system", text);
    print_line(out, "executor", run->executor);
    print_line(out, "workload", run->workload);
    print_line(out, "gate", run->gate);
    print_line(out, "model", run->model);
    print_line(out, "started", run->started_at);
    snprintf(text, sizeof text, "%d%s", run->ranks,
             run->ranks_share_cores ? ", sharing cores: wall times are no speed-up" : "");
    print_line(out, "ranks", text);
    snprintf(text, sizeof text, "%lld of %lld", (long long)run->iterations,
             (long long)run->iterations_wanted);
    print_line(out, "iterations", text);
    print_line(out, "status", run->status);
    print_line(out, "reason", run->reason);
    print_number(out, "ms/iteration", run->ms_per_iteration, "%.3f");
    print_number(out, "tokens/s", run->tokens_per_s, "%.0f");
    if (!run->ranks_share_cores) {
        print_number(out, "x EP", run->speedup_vs_ep, "%.3f");
        print_number(out, "x EP, balanced", run->speed_vs_balanced, "%.3f");
    }
    print_number(out, "final loss", run->loss_final, "%.6f");
    print_number(out, "max loss difference", run->max_loss_difference, "%.2e");
    if (run->dropped > 0)
        print_number(out, "dropped routes, %", 100 * run->dropped, "%.2f");
}

/* Where ranks begin iterations before others have ended the last one, less time is from one to the
 * next than each lasts. */
static int print_period(struct mp_store *store, const struct report_run *run, FILE *out,
                        struct mp_error *error) {
    struct query query = query_begin(
        store,
        "SELECT (max(start_ms) - min(start_ms)) / (count(*) - 1) FROM v_iteration WHERE run_id = "
        "?1 AND steady HAVING max(iteration) - min(iteration) + 1 = count(*)",
        run->run_id, error);
    if (query_next(&query) && query_double(query.row, 0) < 0.98 * run->ms_per_iteration)
        print_number(out, "one begins every", query_double(query.row, 0),
                     "%.3f ms, before all ranks have ended the last one");
    return query_end(&query);
}

/* Means over the iterations. */
static int print_imbalance(struct mp_store *store, int64_t run_id, FILE *out,
                           struct mp_error *error) {
    MP_AUTO(table) struct table table = {0};
    MP_TRY(imbalance_table(store, run_id, &table, error));
    if (table.rows > 0) {
        fputs("\nRoutes, mean over the iterations\n", out);
        table_print(&table, out);
    }
    return MP_OK;
}

static int print_pairs(struct mp_store *store, const char *title, const char *sql, int64_t run_id,
                       FILE *out, struct mp_error *error) {
    struct query query = query_begin(store, sql, run_id, error);
    for (int rows = 0; query_next(&query); rows++) {
        if (rows == 0)
            fprintf(out, "\n%s\n", title);
        table_paragraph(out, "%s: %s", query_text(query.row, 0), query_text(query.row, 1));
    }
    return query_end(&query);
}

static int run_text(struct mp_store *store, const struct report_runs *runs, FILE *out,
                    struct mp_error *error) {
    const struct report_run *run = &runs->run[0];
    MP_AUTO(stragglers) struct straggler_list list = {0};
    struct recording_cost cost;
    char words[RECORDING_COST_TEXT];
    MP_TRY(recording_cost_read(store, run->run_id, &cost, error));
    report_print_busy(runs, out);
    print_head(run, out);
    MP_TRY(print_period(store, run, out, error));
    print_line(out, "recording cost", recording_cost_words(&cost, words));
    fprintf(out, "\nPhases, mean over iterations and ranks%s\n",
            run->predicted ? REPORT_PREDICTED : "");
    MP_TRY(phases_print(store, run->run_id, run->label, out, error));
    MP_TRY(straggler_list_make(&list, 1, error));
    MP_TRY(straggler_find(store, run->run_id, list.one, error));
    fputs("\nStragglers\n", out);
    straggler_print(list.one, run->label, FINDINGS_SHOWN, out);
    MP_TRY(print_imbalance(store, run->run_id, out, error));
    MP_TRY(print_pairs(store, "Ranks that did not complete",
                       "SELECT 'rank ' || rank || ' ' || status, reason FROM "
                       "v_rank WHERE run_id = ?1 AND status <> 'complete' ORDER BY rank",
                       run->run_id, out, error));
    MP_TRY(print_pairs(store, "Numbers",
                       "SELECT name, printf('%.6g', max(value)) FROM v_number WHERE "
                       "run_id = ?1 AND iteration = -1 GROUP BY name ORDER BY name",
                       run->run_id, out, error));
    MP_TRY(print_pairs(store, "Facts",
                       "SELECT CASE WHEN count(*) OVER (PARTITION BY name) > 1 THEN name || "
                       "' (rank ' || rank || ')' ELSE name END, value FROM v_fact WHERE "
                       "run_id = ?1 AND length(value) <= 200 ORDER BY name, rank",
                       run->run_id, out, error));
    return check_printed(out, error);
}

static int run_tables(struct mp_store *store, int64_t run_id, enum mp_report_format format,
                      FILE *out, struct mp_error *error) {
    MP_AUTO(table) struct table phases = {0}, imbalance = {0};
    MP_TRY(phases_table(store, run_id, &phases, error));
    MP_TRY(imbalance_table(store, run_id, &imbalance, error));
    table_write(&phases, format, "Phases, mean over iterations and ranks", out);
    fputc('\n', out);
    table_write(&imbalance, format, "Routes, mean over the iterations", out);
    return check_printed(out, error);
}

int mp_report_run(struct mp_store *store, int64_t run_id, enum mp_report_format format, FILE *out,
                  struct mp_error *error) {
    MP_AUTO(runs) struct report_runs runs = {0};
    if (run_id <= 0)
        return mp_fail(error, MP_ENOTFOUND, "%s: no run %lld", mp_store_path(store),
                       (long long)run_id);
    struct mp_report_selection selection = {.run_id = run_id};
    MP_TRY(report_runs_load(store, &selection, &runs, error));
    return format == MP_REPORT_JSON   ? run_json(store, run_id, out, error)
           : format == MP_REPORT_TEXT ? run_text(store, &runs, out, error)
                                      : run_tables(store, run_id, format, out, error);
}
