#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* The rounds of one job put together; NAN where nothing is known. */
struct speedup_row {
    int group, rounds, complete;
    bool ranks_share_cores;
    double ms, ms_min, ms_max, tokens_per_s, speedup, vs_balanced, loss_final, loss_difference,
        agreed;
};

static double *field_of(struct report_run *run, int field) {
    double *fields[] = {&run->ms_per_iteration,  &run->tokens_per_s, &run->speedup_vs_ep,
                        &run->speed_vs_balanced, &run->loss_final,   &run->max_loss_difference,
                        &run->iterations_agreed};
    return fields[field];
}

enum {
    FIELD_MS,
    FIELD_TOKENS,
    FIELD_SPEEDUP,
    FIELD_BALANCED,
    FIELD_LOSS,
    FIELD_DIFFERENCE,
    FIELD_AGREED
};

/* Collects one field of the group's complete runs, NAN left out, sorted; `values` has room. */
static int collect_field(struct report_runs *runs, int group, int field, double values[]) {
    int count = 0;
    for (int i = 0; i < runs->count; i++) {
        double value = *field_of(&runs->run[i], field);
        if (runs->run[i].group == group && runs->run[i].complete && !isnan(value))
            values[count++] = value;
    }
    return count;
}

static struct speedup_row row_of(struct report_runs *runs, int group, double values[]) {
    struct speedup_row row = {.group = group};
    for (int i = 0; i < runs->count; i++) {
        if (runs->run[i].group != group)
            continue;
        row.rounds++;
        row.complete += runs->run[i].complete;
        row.ranks_share_cores = row.ranks_share_cores || runs->run[i].ranks_share_cores;
    }
    int count = collect_field(runs, group, FIELD_MS, values);
    row.ms = report_median(values, count);
    row.ms_min = count ? values[0] : NAN;
    row.ms_max = count ? values[count - 1] : NAN;
    row.tokens_per_s = report_median(values, collect_field(runs, group, FIELD_TOKENS, values));
    row.speedup = report_median(values, collect_field(runs, group, FIELD_SPEEDUP, values));
    row.vs_balanced = report_median(values, collect_field(runs, group, FIELD_BALANCED, values));
    row.loss_final = report_median(values, collect_field(runs, group, FIELD_LOSS, values));
    count = collect_field(runs, group, FIELD_DIFFERENCE, values);
    report_median(values, count);
    row.loss_difference = count && count == row.complete ? values[count - 1] : NAN;
    count = collect_field(runs, group, FIELD_AGREED, values);
    report_median(values, count);
    row.agreed = count ? values[0] : NAN;
    /* Processes that take turns on a core show who waited, not what a system gains. */
    if (row.ranks_share_cores)
        row.speedup = row.vs_balanced = NAN;
    return row;
}

/* ---- text ---- */

/* Narrow, so that names keep some of the 80 columns. */
static const struct table_column columns[] = {
    {"system", TABLE_LEFT},           {"median\nms/it", TABLE_RIGHT},
    {"min..max\nms/it", TABLE_RIGHT}, {"tokens\nper s", TABLE_RIGHT},
    {"vs\nEP", TABLE_RIGHT},          {"vs bal-\nanced", TABLE_RIGHT},
    {"final\nloss", TABLE_RIGHT},     {"loss\ndiffers", TABLE_RIGHT},
    {"rounds\ndone", TABLE_RIGHT}};

/* As many decimals as keep 4 or 5 digits. */
static int decimals_for(double ms) {
    return ms >= 1000 ? 0 : ms >= 100 ? 1 : 2;
}

static int add_row(struct table *table, struct report_runs *runs, const struct speedup_row *row,
                   struct mp_error *error) {
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, 0, "%s", report_group_label(runs, row->group));
    int decimals = decimals_for(row->ms_max);
    table_set_number(table, 1, row->ms, decimals);
    if (isnan(row->ms))
        table_set(table, 2, "-");
    else
        table_set(table, 2, "%.*f..%.*f", decimals, row->ms_min, decimals, row->ms_max);
    table_set_number(table, 3, row->tokens_per_s, 0);
    table_set_number(table, 4, row->speedup, 2);
    table_set_number(table, 5, row->vs_balanced, 2);
    table_set_number(table, 6, row->loss_final, 4);
    if (isnan(row->loss_difference))
        table_set(table, 7, "-");
    else
        table_set(table, 7, "%.1e", row->loss_difference);
    table_set(table, 8, "%d of %d", row->complete, row->rounds);
    return MP_OK;
}

static bool is_ep(const struct report_runs *runs, int group) {
    return strcmp(report_group_first(runs, group)->system, "ep") == 0;
}

/* The finding: the fastest system beside EP. */
static void print_finding(const struct report_runs *runs, const struct speedup_row rows[],
                          int count, FILE *out) {
    const struct speedup_row *best = NULL;
    bool shared = false, has_ep = false, has_other = false;
    for (int i = 0; i < count; i++) {
        shared = shared || rows[i].ranks_share_cores;
        has_ep = has_ep || (is_ep(runs, rows[i].group) && rows[i].complete > 0);
        has_other = has_other || !is_ep(runs, rows[i].group);
        if (!is_ep(runs, rows[i].group) && !isnan(rows[i].speedup) &&
            (!best || rows[i].speedup > best->speedup))
            best = &rows[i];
    }
    if (shared) {
        table_paragraph(
            out, "Ranks shared cores: these wall times are no speed-up, since processes that "
                 "take turns gain nothing from an even load. No ratios are printed.");
    } else if (best) {
        char balanced[96] = "";
        if (!isnan(best->vs_balanced))
            snprintf(balanced, sizeof balanced, " and at %.2f of EP's speed with balanced routes",
                     best->vs_balanced);
        table_paragraph(out, "%s trains %.2f x as fast as EP%s (median of %d round%s).",
                        report_group_label(runs, best->group), best->speedup, balanced,
                        best->complete, best->complete == 1 ? "" : "s");
    } else if (has_other && !has_ep) {
        table_paragraph(out, "There is no complete run of EP on this setting to compare with.");
    } else if (!has_other && has_ep) {
        table_paragraph(out, "EP alone: the reference for other systems on this setting.");
    } else {
        table_paragraph(out, "No complete run to compare with EP.");
    }
}

/* Where curves part although a system changes nothing that is computed. */
static void print_losses(const struct report_runs *runs, const struct speedup_row rows[], int count,
                         FILE *out) {
    for (int i = 0; i < count; i++) {
        if (isnan(rows[i].agreed) || !(rows[i].loss_difference > 1e-4))
            continue;
        table_paragraph(out,
                        "%s: its loss is EP's within 1e-4 for the first %.0f of %lld iterations. "
                        "Where rounding decides a near tie of the gate differently, two exact runs "
                        "part.",
                        report_group_label(runs, rows[i].group), rows[i].agreed,
                        (long long)report_group_example(runs, rows[i].group)->iterations);
    }
}

static int print_table(struct report_runs *runs, const struct speedup_row all[], int table_number,
                       FILE *out, struct mp_error *error) {
    struct table table;
    struct speedup_row *rows = malloc((size_t)runs->groups * sizeof *rows);
    int count = 0, code = rows ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the report");
    table_init(&table, columns, sizeof columns / sizeof *columns);
    for (int g = 0; !code && g < runs->groups; g++) {
        if (report_group_first(runs, g)->table != table_number)
            continue;
        rows[count++] = all[g];
        code = add_row(&table, runs, &all[g], error);
    }
    if (!code) {
        report_table_heading(runs, table_number, out);
        table_print(&table, out);
        print_finding(runs, rows, count, out);
        print_losses(runs, rows, count, out);
    }
    table_free(&table);
    free(rows);
    return code;
}

static void print_incomplete(const struct report_runs *runs, FILE *out) {
    bool first = true;
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        if (run->complete)
            continue;
        if (first)
            fputc('\n', out);
        first = false;
        const char *reason = run->reason[0] ? run->reason : "no reason was recorded";
        table_paragraph(out, "Run %lld (%s, round %d) %s after %lld of %lld iterations: %s%s",
                        (long long)run->run_id, run->job, run->round + 1,
                        strcmp(run->status, "timeout") == 0       ? "ran out of time"
                        : strcmp(run->status, "interrupted") == 0 ? "was interrupted"
                                                                  : run->status,
                        (long long)run->iterations, (long long)run->iterations_wanted, reason,
                        reason[strlen(reason) - 1] == '.' ? "" : ".");
    }
}

/* ---- JSON ---- */

static json_t *row_json(const struct report_runs *runs, const struct speedup_row *row) {
    const struct report_run *first = report_group_first(runs, row->group);
    return json_pack("{so so so so so so so si si si sb so so so so so so so so so}", //
                     "suite_run", json_text(first->suite_run),                        //
                     "job", json_text(first->job),                                    //
                     "system", json_text(first->system),                              //
                     "workload", json_text(first->workload),                          //
                     "gate", json_text(first->gate),                                  //
                     "model", json_text(first->model),                                //
                     "executor", json_text(first->executor),                          //
                     "ranks", first->ranks, "rounds", row->rounds,                    //
                     "rounds_complete", row->complete,                                //
                     "ranks_share_cores", row->ranks_share_cores,                     //
                     "ms_per_iteration", json_number(row->ms),                        //
                     "ms_per_iteration_min", json_number(row->ms_min),                //
                     "ms_per_iteration_max", json_number(row->ms_max),                //
                     "tokens_per_s", json_number(row->tokens_per_s),                  //
                     "speedup_vs_ep", json_number(row->speedup),                      //
                     "speed_vs_balanced", json_number(row->vs_balanced),              //
                     "loss_final", json_number(row->loss_final),                      //
                     "max_loss_difference", json_number(row->loss_difference),        //
                     "iterations_agreed", json_number(row->agreed));
}

static int print_json(const struct report_runs *runs, const struct speedup_row rows[], FILE *out,
                      struct mp_error *error) {
    json_t *list = json_array(), *incomplete = json_array();
    for (int g = 0; g < runs->groups; g++)
        json_array_append_new(list, row_json(runs, &rows[g]));
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        if (!run->complete)
            json_array_append_new(
                incomplete,
                json_pack("{sI so so si so so sI sI}", "run_id", (json_int_t)run->run_id, "job",
                          json_text(run->job), "system", json_text(run->system), "round",
                          run->round, "status", json_text(run->status), "reason",
                          json_text(run->reason), "iterations", (json_int_t)run->iterations,
                          "iterations_wanted", (json_int_t)run->iterations_wanted));
    }
    return json_print(
        json_pack("{ss so so}", "report", "speedup", "rows", list, "incomplete", incomplete), out,
        error);
}

int mp_report_speedup(struct mp_store *store, const struct mp_report_selection *selection,
                      enum mp_report_format format, FILE *out, struct mp_error *error) {
    struct report_runs runs;
    int code = report_runs_load(store, selection, &runs, error);
    if (code)
        return code;
    struct speedup_row *rows = malloc((size_t)runs.groups * sizeof *rows);
    double *values = malloc((size_t)runs.count * sizeof *values);
    if (!rows || !values)
        code = mp_fail(error, MP_ENOMEM, "no memory for the report");
    for (int g = 0; !code && g < runs.groups; g++)
        rows[g] = row_of(&runs, g, values);
    if (!code && format == MP_REPORT_JSON)
        code = print_json(&runs, rows, out, error);
    for (int t = 0; !code && format == MP_REPORT_TEXT && t < runs.tables; t++) {
        if (t > 0)
            fputc('\n', out);
        code = print_table(&runs, rows, t, out, error);
    }
    if (!code && format == MP_REPORT_TEXT) {
        print_incomplete(&runs, out);
        code = check_printed(out, error);
    }
    free(values);
    free(rows);
    report_runs_free(&runs);
    return code;
}
