#include "results/report/phases.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "reference/base/characters.h"
#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/recording_cost.h"
#include "results/report/table.h"

static const char phases_sql[] =
    "SELECT phase, exposed_ms / n, 100 * share, wait_ms / n, overlapped_ms / n, iteration_ms / n "
    "FROM v_phase, (SELECT count(*) * 1.0 AS n FROM v_iteration WHERE run_id = ?1) "
    "WHERE run_id = ?1 ORDER BY share IS NULL, exposed_ms DESC, phase";

static const struct table_column columns[] = {
    {"phase", TABLE_LEFT},
    {"ms/it-\neration", TABLE_RIGHT},
    {"share\n%", TABLE_RIGHT},
    {"of it\nwaiting ms", TABLE_RIGHT},
    {"besides, over-\nlapped ms", TABLE_RIGHT},
};

/* What the sentence under the table says. */
struct phase_totals {
    double exposed, waiting, overlapped, iteration, largest_share;
    char largest[48];
    bool largest_waits; /* for more than half of its time */
};

static void set_numbers(struct table *table, double exposed, double share, double waiting,
                        double overlapped) {
    table_set_number(table, 1, exposed, 3);
    table_set_number(table, 2, share, 1);
    table_set_number(table, 3, waiting, 3);
    table_set_number(table, 4, overlapped, 3);
}

static int add_phase(struct table *table, sqlite3_stmt *row, struct phase_totals *totals,
                     struct mp_error *error) {
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, 0, "%s", query_text(row, 0));
    set_numbers(table, query_double(row, 1), query_double(row, 2), query_double(row, 3),
                query_double(row, 4));
    if (isnan(query_double(row, 2)))
        return MP_OK;
    if (table->rows == 1) {
        mp_clean_text(totals->largest, sizeof totals->largest, query_text(row, 0));
        totals->largest_share = query_double(row, 2);
        totals->largest_waits = query_double(row, 3) > query_double(row, 1) / 2;
    }
    totals->exposed += query_double(row, 1);
    totals->waiting += query_double(row, 3);
    totals->overlapped += query_double(row, 4);
    totals->iteration = query_double(row, 5);
    return MP_OK;
}

static int add_rest(struct table *table, const struct phase_totals *totals,
                    struct mp_error *error) {
    double rest = fmax(0, totals->iteration - totals->exposed);
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, 0, "(no phase)");
    set_numbers(table, rest, 100 * rest / totals->iteration, NAN, NAN);
    code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, 0, "iteration");
    set_numbers(table, totals->iteration, 100, totals->waiting, totals->overlapped);
    return MP_OK;
}

/* Phases of the iteration, what they leave of it and its sum, then what lies between iterations. */
static int add_rows(struct mp_store *store, int64_t run_id, struct table *table,
                    struct phase_totals *totals, struct mp_error *error) {
    sqlite3_stmt *statement = NULL;
    bool summed = false;
    int got = 0, code = query_open(store, phases_sql, run_id, &statement, error);
    while (!code && (got = query_next(store, statement, error)) == 1) {
        if (!summed && totals->iteration > 0 && isnan(query_double(statement, 2))) {
            code = add_rest(table, totals, error);
            summed = true;
        }
        if (!code)
            code = add_phase(table, statement, totals, error);
    }
    sqlite3_finalize(statement);
    code = code ? code : got;
    return code || summed || !(totals->iteration > 0) ? code : add_rest(table, totals, error);
}

int phases_print(struct mp_store *store, int64_t run_id, const char *label, FILE *out,
                 struct mp_error *error) {
    struct table table;
    struct phase_totals totals = {0};
    table_init(&table, columns, sizeof columns / sizeof *columns);
    int code = add_rows(store, run_id, &table, &totals, error);
    if (!code && !(totals.iteration > 0)) {
        table_paragraph(out, "%s: no iteration was recorded.", label);
    } else if (!code) {
        table_print(&table, out);
        table_paragraph(out,
                        "%s: %s takes %.0f %% of the iteration%s; ranks wait %.0f %% of it for "
                        "each other; %.2f ms of transfers are hidden behind computation.",
                        label, totals.largest, totals.largest_share,
                        totals.largest_waits ? ", most of it waiting" : "",
                        100 * totals.waiting / totals.iteration, totals.overlapped);
    }
    table_free(&table);
    return code;
}

static int print_text(struct mp_store *store, const struct report_runs *runs, FILE *out,
                      struct mp_error *error) {
    struct recording_cost cost;
    char words[RECORDING_COST_TEXT];
    int code = MP_OK;
    bool is_first = true;
    for (int g = 0; !code && g < runs->groups; g++) {
        const struct report_run *example = report_group_example(runs, g);
        if (example->refused) /* nothing was started */
            continue;
        if (!is_first)
            fputc('\n', out);
        is_first = false;
        table_paragraph(out, "%s, %s, run %lld%s: mean over its iterations and %d rank%s",
                        report_group_label(runs, g), example->workload, (long long)example->run_id,
                        example->predicted ? REPORT_PREDICTED : "", example->ranks,
                        example->ranks == 1 ? "" : "s");
        code = phases_print(store, example->run_id, report_group_label(runs, g), out, error);
        if (!code)
            code = recording_cost_read(store, example->run_id, &cost, error);
        if (!code && *recording_cost_words(&cost, words))
            table_paragraph(out, "Recording cost: %s.", words);
    }
    return code ? code : check_printed(out, error);
}

static int print_json(struct mp_store *store, const struct report_runs *runs, FILE *out,
                      struct mp_error *error) {
    json_t *rows = json_array();
    int code = MP_OK;
    for (int g = 0; !code && g < runs->groups; g++) {
        const struct report_run *example = report_group_example(runs, g);
        json_t *phases = NULL;
        code = query_json(store,
                          "SELECT *, (SELECT count(*) FROM v_iteration WHERE run_id = ?1) AS "
                          "iterations FROM v_phase WHERE run_id = ?1 ORDER BY exposed_ms DESC",
                          example->run_id, &phases, error);
        if (!code)
            json_array_append_new(
                rows,
                json_pack("{sI so so so sb so so}", "run_id", (json_int_t)example->run_id, "job",
                          json_text(example->job), "system", json_text(example->system), "executor",
                          json_text(example->executor), "unattainable", example->unattainable,
                          "workload", json_text(example->workload), "phases", phases));
    }
    if (code) {
        json_decref(rows);
        return code;
    }
    return json_print(json_pack("{ss so}", "report", "phases", "rows", rows), out, error);
}

int mp_report_phases(struct mp_store *store, const struct mp_report_selection *selection,
                     enum mp_report_format format, FILE *out, struct mp_error *error) {
    struct report_runs runs;
    int code = report_runs_load(store, selection, &runs, error);
    if (code)
        return code;
    code = format == MP_REPORT_JSON ? print_json(store, &runs, out, error)
                                    : print_text(store, &runs, out, error);
    report_runs_free(&runs);
    return code;
}
