#include "results/report/speedup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/report/query.h"
#include "results/report/table.h"

static double *field_of(struct report_run *run, int field) {
    double *fields[] = {&run->ms_per_iteration,  &run->tokens_per_s, &run->speedup_vs_ep,
                        &run->speed_vs_balanced, &run->loss_final,   &run->max_loss_difference,
                        &run->iterations_agreed, &run->dropped,      &run->ms_p99,
                        &run->bound_ms,          &run->of_bound};
    return fields[field];
}

enum {
    FIELD_MS,
    FIELD_TOKENS,
    FIELD_SPEEDUP,
    FIELD_BALANCED,
    FIELD_LOSS,
    FIELD_DIFFERENCE,
    FIELD_AGREED,
    FIELD_DROPPED,
    FIELD_P99,
    FIELD_BOUND,
    FIELD_OF_BOUND
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
    struct speedup_row row = {.group = group, .taken = NAN};
    for (int i = 0; i < runs->count; i++) {
        if (runs->run[i].group != group)
            continue;
        row.rounds++;
        row.complete += runs->run[i].complete;
        row.ranks_share_cores = row.ranks_share_cores || runs->run[i].ranks_share_cores;
        row.unattainable = row.unattainable || runs->run[i].unattainable;
        row.serves = row.serves || runs->run[i].serves;
        row.taken = fmax(row.taken, runs->run[i].taken);
    }
    int count = collect_field(runs, group, FIELD_MS, values);
    row.ms = report_median(values, count);
    row.ms_min = count ? values[0] : NAN;
    row.ms_max = count ? values[count - 1] : NAN;
    row.p99 = report_median(values, collect_field(runs, group, FIELD_P99, values));
    row.tokens_per_s = report_median(values, collect_field(runs, group, FIELD_TOKENS, values));
    count = collect_field(runs, group, FIELD_SPEEDUP, values);
    row.speedup = report_median(values, count);
    row.speedup_min = count ? values[0] : NAN;
    row.speedup_max = count ? values[count - 1] : NAN;
    row.vs_balanced = report_median(values, collect_field(runs, group, FIELD_BALANCED, values));
    row.loss_final = report_median(values, collect_field(runs, group, FIELD_LOSS, values));
    count = collect_field(runs, group, FIELD_DIFFERENCE, values);
    report_median(values, count);
    row.loss_difference = count && count == row.complete ? values[count - 1] : NAN;
    count = collect_field(runs, group, FIELD_AGREED, values);
    report_median(values, count);
    row.agreed = count ? values[0] : NAN;
    row.dropped = report_median(values, collect_field(runs, group, FIELD_DROPPED, values));
    row.bound_ms = report_median(values, collect_field(runs, group, FIELD_BOUND, values));
    row.of_bound = report_median(values, collect_field(runs, group, FIELD_OF_BOUND, values));
    /* Processes that take turns on a core show who waited, not what a system gains. */
    if (row.ranks_share_cores)
        row.speedup = row.speedup_min = row.speedup_max = row.vs_balanced = NAN;
    return row;
}

int speedup_rows(struct report_runs *runs, struct speedup_row **rows, struct mp_error *error) {
    *rows = malloc((size_t)runs->groups * sizeof **rows);
    double *values = malloc((size_t)runs->count * sizeof *values);
    int code = *rows && values ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the report");
    for (int g = 0; !code && g < runs->groups; g++)
        (*rows)[g] = row_of(runs, g, values);
    free(values);
    if (code) {
        free(*rows);
        *rows = NULL;
    }
    return code;
}

/* ---- text ---- */

enum {
    COLUMN_SYSTEM,
    COLUMN_MS,
    COLUMN_P99,
    COLUMN_RANGE,
    COLUMN_TOKENS,
    COLUMN_SPEEDUP,
    COLUMN_OF_BOUND,
    COLUMN_BALANCED,
    COLUMN_LOSS,
    COLUMN_DIFFERENCE,
    COLUMN_ROUNDS,
    COLUMN_DROPPED,
    COLUMNS
};

/* Narrow, so that names keep some of the 80 columns. */
static const struct table_column columns[COLUMNS] = {
    [COLUMN_SYSTEM] = {"system", TABLE_LEFT},
    [COLUMN_MS] = {"median\nms/it", TABLE_RIGHT},
    [COLUMN_P99] = {"p99\nms/it", TABLE_RIGHT},
    [COLUMN_RANGE] = {"min..max\nms/it", TABLE_RIGHT},
    [COLUMN_TOKENS] = {"tokens\nper s", TABLE_RIGHT},
    [COLUMN_SPEEDUP] = {"vs\nEP", TABLE_RIGHT},
    [COLUMN_OF_BOUND] = {"bound /\ntime %", TABLE_RIGHT},
    [COLUMN_BALANCED] = {"vs bal-\nanced", TABLE_RIGHT},
    [COLUMN_LOSS] = {"final\nloss", TABLE_RIGHT},
    [COLUMN_DIFFERENCE] = {"loss\ndiffers", TABLE_RIGHT},
    [COLUMN_ROUNDS] = {"rounds\ndone", TABLE_RIGHT},
    [COLUMN_DROPPED] = {"dropped\n%", TABLE_RIGHT}};

/* The columns of a table with these rows: the last is only there if a run has dropped something,
 * and what says least gives way first. */
static void begin_table(const struct report_runs *runs, const struct speedup_row rows[], int count,
                        struct table *table) {
    bool all_done = true, has_dropped = false;
    for (int i = 0; i < count; i++) {
        bool refused = report_group_first(runs, rows[i].group)->refused;
        all_done = all_done && (refused || rows[i].complete == rows[i].rounds);
        has_dropped = has_dropped || rows[i].dropped > 0;
    }
    table_init(table, columns, has_dropped ? COLUMNS : COLUMN_DROPPED);
    table->optional[COLUMN_RANGE] = 1;
    table->optional[COLUMN_ROUNDS] = all_done ? 3 : 0;
    table->optional[COLUMN_TOKENS] = 2;
    table->drops_empty = true;
}

/* As many decimals as keep 4 or 5 digits. */
static int decimals_for(double ms) {
    return ms >= 1000 ? 0 : ms >= 100 ? 1 : 2;
}

static int add_row(struct table *table, struct report_runs *runs, const struct speedup_row *row,
                   struct mp_error *error) {
    char refusal[REPORT_REFUSAL];
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, COLUMN_SYSTEM, "%s", report_group_label(runs, row->group));
    if (report_refusal(runs, row->group, refusal))
        return table_remark(table, refusal, error);
    int decimals = decimals_for(row->ms_max);
    table_set_number(table, COLUMN_MS, row->ms, decimals);
    if (row->serves)
        table_set_number(table, COLUMN_P99, row->p99, decimals);
    if (row->complete < 2) /* one round has no range */
        table_set(table, COLUMN_RANGE, "-");
    else
        table_set(table, COLUMN_RANGE, "%.*f..%.*f", decimals, row->ms_min, decimals, row->ms_max);
    table_set_number(table, COLUMN_TOKENS, row->tokens_per_s, 0);
    table_set_number(table, COLUMN_SPEEDUP, row->speedup, 2);
    table_set_number(table, COLUMN_OF_BOUND, 100 * row->of_bound, 1);
    table_set_number(table, COLUMN_BALANCED, row->vs_balanced, 2);
    table_set_number(table, COLUMN_LOSS, row->loss_final, 4);
    if (isnan(row->loss_difference))
        table_set(table, COLUMN_DIFFERENCE, "-");
    else
        table_set(table, COLUMN_DIFFERENCE, "%.1e", row->loss_difference);
    table_set(table, COLUMN_ROUNDS, "%d of %d", row->complete, row->rounds);
    if (table->columns > COLUMN_DROPPED)
        table_set_number(table, COLUMN_DROPPED, 100 * row->dropped, 2);
    return MP_OK;
}

static bool is_ep(const struct report_runs *runs, int group) {
    return strcmp(report_group_first(runs, group)->system, "ep") == 0;
}

/* What a system does with a model. */
static const char *verb_of(const struct speedup_row *row) {
    return row->serves ? "serves" : "trains";
}

/* "fssdp trains 1.32 x as fast as EP and at 0.95 of EP's speed with balanced routes (median of 3
 * rounds' ratios, 1.20 to 1.41)." */
static void print_speed(const struct report_runs *runs, const struct speedup_row *row,
                        const char *who, FILE *out) {
    char balanced[96] = "", rounds[96] = "median of 1 round";
    if (!isnan(row->vs_balanced))
        snprintf(balanced, sizeof balanced, " and at %.2f of EP's speed with balanced routes",
                 row->vs_balanced);
    if (row->complete > 1)
        snprintf(rounds, sizeof rounds, "median of %d rounds' ratios, %.2f to %.2f", row->complete,
                 row->speedup_min, row->speedup_max);
    table_paragraph(out, "%s%s %s %.2f x as fast as EP%s (%s).", who,
                    report_group_label(runs, row->group), verb_of(row), row->speedup, balanced,
                    rounds);
}

static const struct speedup_row *row_of_ep(const struct report_runs *runs,
                                           const struct speedup_row rows[], int count) {
    for (int i = 0; i < count; i++)
        if (is_ep(runs, rows[i].group) && rows[i].complete > 0)
            return &rows[i];
    return NULL;
}

/* Ratios that their row seems to contradict: a median of ratios is no ratio of medians. */
static void print_contradictions(const struct report_runs *runs, const struct speedup_row rows[],
                                 int count, FILE *out) {
    const struct speedup_row *ep = row_of_ep(runs, rows, count);
    char list[1024] = "";
    size_t length = 0;
    for (int i = 0; i < count && ep; i++) {
        const struct speedup_row *row = &rows[i];
        if (isnan(row->speedup) || fabs(ep->ms / row->ms - row->speedup) < 0.01 ||
            length + 200 > sizeof list)
            continue;
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%.100s %.2f to %.2f",
                                   length ? ", " : "", report_group_label(runs, row->group),
                                   row->speedup_min, row->speedup_max);
    }
    if (length > 0)
        table_paragraph(out,
                        "Ratios are medians of the rounds' own, not ratios of the medians beside "
                        "them; over the rounds: %s.",
                        list);
}

/* The fastest that anyone could run and that drops nothing; NULL for none. */
static const struct speedup_row *fastest(const struct report_runs *runs,
                                         const struct speedup_row rows[], int count) {
    const struct speedup_row *best = NULL;
    for (int i = 0; i < count; i++) {
        const struct speedup_row *row = &rows[i];
        if (!is_ep(runs, row->group) && !isnan(row->speedup) && !row->unattainable &&
            !(row->dropped > 0) && (!best || row->speedup > best->speedup))
            best = row;
    }
    return best;
}

/* The finding: the fastest system beside EP.  Bounds don't compete, and what drops routes only
 * where nothing else is there. */
static void print_finding(const struct report_runs *runs, const struct speedup_row rows[],
                          int count, double taken, FILE *out) {
    const struct speedup_row *best = fastest(runs, rows, count);
    bool shared = false, has_ep = row_of_ep(runs, rows, count), has_other = false;
    bool has_dropped = false, foreign = true;
    for (int i = 0; i < count; i++) {
        const struct speedup_row *row = &rows[i];
        bool other = !is_ep(runs, row->group);
        shared = shared || row->ranks_share_cores;
        foreign = foreign && report_group_first(runs, row->group)->foreign;
        has_other = has_other || other;
        has_dropped = has_dropped ||
                      (other && !isnan(row->speedup) && !row->unattainable && row->dropped > 0);
    }
    if (shared) {
        table_paragraph(
            out, "Ranks shared cores: these wall times are no speed-up, since processes that "
                 "take turns gain nothing from an even load. No ratios are printed.");
    } else if ((best || has_dropped) && taken > REPORT_TAKEN_MOST) {
        table_paragraph(out,
                        "Which system is faster can't be told: other programs had the processors "
                        "for up to %.0f %% of the time.",
                        100 * taken);
    } else if (best) {
        print_speed(runs, best, has_dropped ? "Of the systems that drop nothing, " : "", out);
    } else if (has_other && !has_ep && !foreign) {
        table_paragraph(out, "There is no complete run of EP on this setting to compare with.");
    } else if (!has_other && has_ep) {
        table_paragraph(out, "EP alone: the reference for other systems on this setting.");
    } else if (!has_dropped && !foreign) {
        table_paragraph(out, "No complete run to compare with EP.");
    }
}

/* Droppers: time and what survives belong together. */
static void print_droppers(const struct report_runs *runs, const struct speedup_row rows[],
                           int count, double taken, FILE *out) {
    for (int i = 0; i < count; i++) {
        const struct speedup_row *row = &rows[i];
        char speed[64] = "";
        if (!(row->dropped > 0))
            continue;
        if (!isnan(row->speedup) && !is_ep(runs, row->group) && !(taken > REPORT_TAKEN_MOST))
            snprintf(speed, sizeof speed, " and %s %.2f x as fast as EP with the rest",
                     verb_of(row), row->speedup);
        table_paragraph(out,
                        "%s drops %.2f %% of the routes%s; what is dropped %s, so its loss is its "
                        "own.",
                        report_group_label(runs, row->group), 100 * row->dropped, speed,
                        row->serves ? "is missing in what it answers" : "is not learnt from");
    }
}

/* Where curves part although a system changes nothing that is computed. */
static void print_losses(const struct report_runs *runs, const struct speedup_row rows[], int count,
                         FILE *out) {
    for (int i = 0; i < count; i++) {
        if (isnan(rows[i].agreed) || !(rows[i].loss_difference > 1e-4) || rows[i].dropped > 0)
            continue;
        table_paragraph(out,
                        "%s: its loss is EP's within 1e-4 for the first %.0f of %lld iterations. "
                        "Where rounding decides a near tie of the gate differently, two exact runs "
                        "part; options that change what is computed part them at once.",
                        report_group_label(runs, rows[i].group), rows[i].agreed,
                        (long long)report_group_example(runs, rows[i].group)->iterations);
    }
}

static void print_bound(const struct speedup_row rows[], int count, FILE *out) {
    bool known = false;
    for (int i = 0; i < count; i++)
        known = known || !isnan(rows[i].of_bound);
    if (known)
        table_paragraph(out,
                        "bound: no system that drops nothing and keeps the gate takes less for "
                        "these loads, wherever it places and copies experts.");
}

void speedup_print_words(const struct report_runs *runs, const struct speedup_row rows[], int count,
                         int table, FILE *out) {
    double taken = report_taken(runs, table);
    print_finding(runs, rows, count, taken, out);
    print_contradictions(runs, rows, count, out);
    print_droppers(runs, rows, count, taken, out);
    print_losses(runs, rows, count, out);
    print_bound(rows, count, out);
    report_print_yardsticks(runs, table, out);
}

static int print_table(struct report_runs *runs, const struct speedup_row all[], int table_number,
                       FILE *out, struct mp_error *error) {
    struct table table;
    struct speedup_row *rows = malloc((size_t)runs->groups * sizeof *rows);
    int count = 0, code = rows ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the report");
    for (int g = 0; !code && g < runs->groups; g++)
        if (report_group_first(runs, g)->table == table_number)
            rows[count++] = all[g];
    begin_table(runs, rows, count, &table);
    for (int i = 0; !code && i < count; i++)
        code = add_row(&table, runs, &rows[i], error);
    if (!code) {
        report_table_heading(runs, table_number, out);
        table_print(&table, out);
        speedup_print_words(runs, rows, count, table_number, out);
    }
    table_free(&table);
    free(rows);
    return code;
}

static void print_incomplete(const struct report_runs *runs, FILE *out) {
    bool first = true;
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        if (run->complete || run->refused)
            continue;
        if (first)
            fputc('\n', out);
        first = false;
        const char *reason = run->reason[0] ? run->reason : "no reason was recorded";
        table_paragraph(out, "Run %lld (%s%s%s, round %d) %s after %lld of %lld iterations: %s%s",
                        (long long)run->run_id, run->job,
                        run->unattainable ? REPORT_UNATTAINABLE : "",
                        run->predicted ? REPORT_PREDICTED : "", run->round + 1,
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
    return json_pack("{so so so so so so so so si si si sb sb so so so so so so so so so so so so "
                     "so so so so so}",                                                  //
                     "suite_run", json_text(first->suite_run),                           //
                     "job", json_text(first->job),                                       //
                     "system", json_text(first->system),                                 //
                     "workload", json_text(first->workload),                             //
                     "gate", json_text(first->gate),                                     //
                     "model", json_text(first->model),                                   //
                     "executor", json_text(first->executor),                             //
                     "refused", first->refused ? json_text(first->reason) : json_null(), //
                     "ranks", first->ranks, "rounds", row->rounds,                       //
                     "rounds_complete", row->complete,                                   //
                     "ranks_share_cores", row->ranks_share_cores,                        //
                     "unattainable", row->unattainable,                                  //
                     "ms_per_iteration", json_number(row->ms),                           //
                     "ms_per_iteration_min", json_number(row->ms_min),                   //
                     "ms_per_iteration_max", json_number(row->ms_max),                   //
                     "tokens_per_s", json_number(row->tokens_per_s),                     //
                     "speedup_vs_ep", json_number(row->speedup),                         //
                     "speedup_vs_ep_min", json_number(row->speedup_min),                 //
                     "speedup_vs_ep_max", json_number(row->speedup_max),                 //
                     "speed_vs_balanced", json_number(row->vs_balanced),                 //
                     "loss_final", json_number(row->loss_final),                         //
                     "max_loss_difference", json_number(row->loss_difference),           //
                     "iterations_agreed", json_number(row->agreed),                      //
                     "dropped_fraction", json_number(row->dropped),                      //
                     "processor_taken", json_number(row->taken),                         //
                     "ms_per_iteration_p99", json_number(row->p99),                      //
                     "serves", json_boolean(row->serves),                                //
                     "bound_ms", json_number(row->bound_ms),                             //
                     "of_bound", json_number(row->of_bound));
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
                json_pack("{sI so so sb si so so sI sI}", "run_id", (json_int_t)run->run_id, "job",
                          json_text(run->job), "system", json_text(run->system), "unattainable",
                          run->unattainable, "round", run->round, "status", json_text(run->status),
                          "reason", json_text(run->reason), "iterations",
                          (json_int_t)run->iterations, "iterations_wanted",
                          (json_int_t)run->iterations_wanted));
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
    struct speedup_row *rows = NULL;
    code = speedup_rows(&runs, &rows, error);
    if (!code && format == MP_REPORT_TEXT)
        report_print_busy(&runs, out);
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
    free(rows);
    report_runs_free(&runs);
    return code;
}
