#include "results/report/speedup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "results/report/query.h"
#include "results/report/table.h"

#define OVERLAP_LEAST 1.2 /* iterations at once; fewer are ranks that begin or end one late */

#define RUN(member) offsetof(struct report_run, member)
#define ROW(member) offsetof(struct speedup_row, member)

/* What a row has of its complete runs, those without a value left out. */
static const struct {
    size_t from, to;
    enum { MEDIAN, LEAST, MOST, MOST_OF_ALL } how; /* MOST_OF_ALL: only if all have a value */
} folds[] = {
    {RUN(ms_per_iteration), ROW(ms), MEDIAN},
    {RUN(ms_per_iteration), ROW(ms_min), LEAST},
    {RUN(ms_per_iteration), ROW(ms_max), MOST},
    {RUN(ms_p99), ROW(p99), MEDIAN},
    {RUN(tokens_per_s), ROW(tokens_per_s), MEDIAN},
    {RUN(speedup_vs_ep), ROW(speedup), MEDIAN},
    {RUN(speedup_vs_ep), ROW(speedup_min), LEAST},
    {RUN(speedup_vs_ep), ROW(speedup_max), MOST},
    {RUN(speed_vs_balanced), ROW(vs_balanced), MEDIAN},
    {RUN(loss_final), ROW(loss_final), MEDIAN},
    {RUN(max_loss_difference), ROW(loss_difference), MOST_OF_ALL},
    {RUN(iterations_agreed), ROW(agreed), LEAST},
    {RUN(dropped), ROW(dropped), MEDIAN},
    {RUN(bound_ms), ROW(bound_ms), MEDIAN},
    {RUN(of_bound), ROW(of_bound), MEDIAN},
    {RUN(to_target), ROW(to_target), MEDIAN},
    {RUN(to_target), ROW(to_target_min), LEAST},
    {RUN(to_target), ROW(to_target_max), MOST},
    {RUN(s_to_target), ROW(s_to_target), MEDIAN},
};

/* `values` has room. */
static double fold(const struct report_runs *runs, const struct speedup_row *row, size_t field,
                   int how, double values[]) {
    int count = 0;
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        double value = *(const double *)(const void *)((const char *)run + field);
        if (run->group == row->group && run->complete && !isnan(value))
            values[count++] = value;
    }
    double median = mp_median_of(values, count); /* sorts */
    if (count == 0 || (how == MOST_OF_ALL && count < row->complete))
        return NAN;
    return how == MEDIAN ? median : values[how == LEAST ? 0 : count - 1];
}

static struct speedup_row row_of(const struct report_runs *runs, int group, double values[]) {
    const struct report_run *first = report_group_first(runs, group);
    struct speedup_row row = {.run = *first,
                              .refused = first->refused ? first->reason : NULL,
                              .group = group,
                              .target = NAN,
                              .window = NAN,
                              .taken = NAN};
    for (int i = 0; i < runs->count; i++) {
        if (runs->run[i].group != group)
            continue;
        row.rounds++;
        row.complete += runs->run[i].complete;
        row.ranks_share_cores = row.ranks_share_cores || runs->run[i].ranks_share_cores;
        row.unattainable = row.unattainable || runs->run[i].unattainable;
        row.serves = row.serves || runs->run[i].serves;
        row.taken = fmax(row.taken, runs->run[i].taken);
        row.reached += runs->run[i].complete && !isnan(runs->run[i].to_target);
        if (isnan(row.target)) {
            row.target = runs->run[i].target;
            row.window = runs->run[i].window;
        }
    }
    for (size_t i = 0; i < MP_LENGTH(folds); i++)
        *(double *)(void *)((char *)&row + folds[i].to) =
            fold(runs, &row, folds[i].from, folds[i].how, values);
    row.served_p99 = row.serves ? row.p99 : NAN;
    /* Processes that take turns on a core show who waited, not what a system gains. */
    if (row.ranks_share_cores)
        row.speedup = row.speedup_min = row.speedup_max = row.vs_balanced = NAN;
    return row;
}

int speedup_rows(const struct report_runs *runs, int table, struct speedup_row **rows, int *count,
                 struct mp_error *error) {
    MP_AUTO(memory) double *values = NULL;
    *rows = NULL;
    *count = 0;
    MP_TRY(MP_NEW(values, runs->count, error));
    for (int g = 0; g < runs->groups; g++) {
        if (table >= 0 && report_group_first(runs, g)->table != table)
            continue;
        MP_TRY(MP_APPEND(*rows, *count, error, row_of(runs, g, values)));
    }
    return MP_OK;
}

/* ---- the table ---- */

/* One round has no range. */
static void show_range(const struct speedup_row *row, double least, double most,
                       char text[TABLE_CELL]) {
    int decimals = most >= 1000 ? 0 : most >= 100 ? 1 : 2;
    if (row->complete < 2 || isnan(least))
        snprintf(text, TABLE_CELL, "-");
    else
        snprintf(text, TABLE_CELL, "%.*f..%.*f", decimals, least, decimals, most);
}

static void show_times(const void *row, char text[TABLE_CELL]) {
    const struct speedup_row *own = row;
    show_range(own, own->ms_min, own->ms_max, text);
}

static void show_ratios(const void *row, char text[TABLE_CELL]) {
    const struct speedup_row *own = row;
    show_range(own, own->speedup_min, own->speedup_max, text);
}

static void show_rounds(const void *row, char text[TABLE_CELL]) {
    const struct speedup_row *own = row;
    snprintf(text, TABLE_CELL, "%d of %d", own->complete, own->rounds);
}

/* Headers are narrow, so that names keep some of 80 columns; the ratio stands where a telephone
 * still shows it, and what says least gives way first. */
static const struct table_column columns[] = {
    {"system", TABLE_LEFT, .at = ROW(run.label)},
    {"median", TABLE_NUMBER, "ms/it", "ms_per_iteration", ROW(ms), .decimals = TABLE_DIGITS},
    {"vs\nEP", TABLE_NUMBER, NULL, "speedup_vs_ep", ROW(speedup), .decimals = 2},
    {"min..max\nvs EP", TABLE_RIGHT, .optional = 4, .show = show_ratios},
    {"bound /\ntime", TABLE_NUMBER, "%", "of_bound", ROW(of_bound), .decimals = 1},
    {"p99", TABLE_NUMBER, "ms/it", .at = ROW(served_p99), .decimals = TABLE_DIGITS},
    {"min..max", TABLE_RIGHT, "ms/it", .optional = 1, .show = show_times},
    {"tokens", TABLE_NUMBER, "per s", "tokens_per_s", ROW(tokens_per_s), .optional = 2},
    {"vs bal-\nanced", TABLE_NUMBER, NULL, "speed_vs_balanced", ROW(vs_balanced), .decimals = 2},
    {"final\nloss", TABLE_NUMBER, NULL, "loss_final", ROW(loss_final), .decimals = 4},
    {"loss\ndiffers", TABLE_NUMBER, NULL, "max_loss_difference", ROW(loss_difference),
     .decimals = TABLE_POWER},
    {"rounds\ndone", TABLE_RIGHT, .optional = 3, .show = show_rounds},
    {"dropped", TABLE_NUMBER, "%", "dropped_fraction", ROW(dropped), 2, .only_used = true},
    {"refused", TABLE_REMARK, NULL, "refused", .at = ROW(refused)},
    {.key = "suite_run", .at = ROW(run.suite_run)},
    {.key = "job", .at = ROW(run.job)},
    {.key = "system", .at = ROW(run.system)},
    {.key = "workload", .at = ROW(run.workload)},
    {.key = "gate", .at = ROW(run.gate)},
    {.key = "model", .at = ROW(run.model)},
    {.key = "executor", .at = ROW(run.executor)},
    {NULL, TABLE_COUNT, NULL, "ranks", .at = ROW(run.ranks)},
    {NULL, TABLE_COUNT, NULL, "rounds", .at = ROW(rounds)},
    {NULL, TABLE_COUNT, NULL, "rounds_complete", .at = ROW(complete)},
    {NULL, TABLE_FLAG, NULL, "ranks_share_cores", .at = ROW(ranks_share_cores)},
    {NULL, TABLE_FLAG, NULL, "unattainable", .at = ROW(unattainable)},
    {NULL, TABLE_FLAG, NULL, "serves", .at = ROW(serves)},
    {NULL, TABLE_NUMBER, NULL, "ms_per_iteration_p99", .at = ROW(p99)},
    {NULL, TABLE_NUMBER, NULL, "ms_per_iteration_min", .at = ROW(ms_min)},
    {NULL, TABLE_NUMBER, NULL, "ms_per_iteration_max", .at = ROW(ms_max)},
    {NULL, TABLE_NUMBER, NULL, "speedup_vs_ep_min", .at = ROW(speedup_min)},
    {NULL, TABLE_NUMBER, NULL, "speedup_vs_ep_max", .at = ROW(speedup_max)},
    {NULL, TABLE_NUMBER, NULL, "iterations_agreed", .at = ROW(agreed)},
    {NULL, TABLE_NUMBER, NULL, "processor_taken", .at = ROW(taken)},
    {NULL, TABLE_NUMBER, NULL, "bound_ms", .at = ROW(bound_ms)},
};
enum { COLUMNS = MP_LENGTH(columns) };

int speedup_table(const struct speedup_row rows[], int count, struct table *table,
                  struct mp_error *error) {
    *table = table_of(columns, COLUMNS);
    table->drops_empty = true;
    for (int i = 0; i < count; i++) /* rounds that are missing are always seen */
        for (int c = 0; c < COLUMNS && !rows[i].refused && rows[i].complete < rows[i].rounds; c++)
            if (columns[c].show == show_rounds)
                table->optional[c] = 0;
    return table_fill(table, rows, count, sizeof *rows, error);
}

/* ---- words ---- */

static bool is_ep(const struct speedup_row *row) {
    return strcmp(row->run.system, "ep") == 0;
}

/* What a system does with a model. */
static const char *verb_of(const struct speedup_row *row) {
    return row->serves ? "serves" : "trains";
}

/* "fssdp trains 1.32 x as fast as EP and at 0.95 of EP's speed with balanced routes (median of 3
 * rounds' ratios, 1.20 to 1.41)." */
static void print_speed(const struct speedup_row *row, const char *who, FILE *out) {
    char balanced[96] = "", rounds[96] = "median of 1 round";
    if (!isnan(row->vs_balanced))
        snprintf(balanced, sizeof balanced, " and at %.2f of EP's speed with balanced routes",
                 row->vs_balanced);
    if (row->complete > 1)
        snprintf(rounds, sizeof rounds, "median of %d rounds' ratios, %.2f to %.2f", row->complete,
                 row->speedup_min, row->speedup_max);
    table_paragraph(out, "%s%s %s %.2f x as fast as EP%s (%s).", who, row->run.label, verb_of(row),
                    row->speedup, balanced, rounds);
}

static const struct speedup_row *row_of_ep(const struct speedup_row rows[], int count) {
    return MP_FIND(rows, i, count, is_ep(&rows[i]) && rows[i].complete > 0);
}

/* Ratios that their row seems to contradict: a median of ratios is no ratio of medians. */
static void print_contradictions(const struct speedup_row rows[], int count, FILE *out) {
    const struct speedup_row *ep = row_of_ep(rows, count);
    char list[1024] = "";
    size_t length = 0;
    for (int i = 0; i < count && ep; i++) {
        const struct speedup_row *row = &rows[i];
        if (isnan(row->speedup) || fabs(ep->ms / row->ms - row->speedup) < 0.01 ||
            length + 200 > sizeof list)
            continue;
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%.100s %.2f to %.2f",
                                   length ? ", " : "", row->run.label, row->speedup_min,
                                   row->speedup_max);
    }
    if (length > 0)
        table_paragraph(out,
                        "Ratios are medians of the rounds' own, not ratios of the medians beside "
                        "them; over the rounds: %s.",
                        list);
}

/* The fastest that anyone could run and that drops nothing; NULL for none. */
static const struct speedup_row *fastest(const struct speedup_row rows[], int count) {
    const struct speedup_row *best = NULL;
    for (int i = 0; i < count; i++) {
        const struct speedup_row *row = &rows[i];
        if (!is_ep(row) && !isnan(row->speedup) && !row->unattainable && !(row->dropped > 0) &&
            (!best || row->speedup > best->speedup))
            best = row;
    }
    return best;
}

/* The finding: the fastest system beside EP.  Bounds don't compete, and what drops routes only
 * where nothing else is there. */
static void print_finding(const struct speedup_row rows[], int count, double taken, FILE *out) {
    const struct speedup_row *best = fastest(rows, count);
    bool shared = false, has_ep = row_of_ep(rows, count), has_other = false;
    bool has_dropped = false, foreign = true;
    for (int i = 0; i < count; i++) {
        const struct speedup_row *row = &rows[i];
        bool other = !is_ep(row);
        shared = shared || row->ranks_share_cores;
        foreign = foreign && row->run.foreign;
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
        print_speed(best, has_dropped ? "Of the systems that drop nothing, " : "", out);
    } else if (has_other && !has_ep && !foreign) {
        table_paragraph(out, "There is no complete run of EP on this setting to compare with.");
    } else if (!has_other && has_ep) {
        table_paragraph(out, "EP alone: the reference for other systems on this setting.");
    } else if (!has_dropped && !foreign) {
        table_paragraph(out, "No complete run to compare with EP.");
    }
}

/* Droppers: time and what survives belong together. */
static void print_droppers(const struct speedup_row rows[], int count, double taken, FILE *out) {
    for (int i = 0; i < count; i++) {
        const struct speedup_row *row = &rows[i];
        char speed[64] = "";
        if (!(row->dropped > 0))
            continue;
        if (!isnan(row->speedup) && !is_ep(row) && !(taken > REPORT_TAKEN_MOST))
            snprintf(speed, sizeof speed, " and %s %.2f x as fast as EP with the rest",
                     verb_of(row), row->speedup);
        table_paragraph(out,
                        "%s drops %.2f %% of the routes%s; what is dropped %s, so its loss is its "
                        "own.",
                        row->run.label, 100 * row->dropped, speed,
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
                        rows[i].run.label, rows[i].agreed,
                        (long long)report_group_example(runs, rows[i].group)->iterations);
    }
}

/* How long an iteration lasts is no pace then.  Ranks of a suite's runs meet in each. */
static void print_overlaps(const struct report_runs *runs, const struct speedup_row rows[],
                           int count, FILE *out) {
    for (int i = 0; i < count; i++) {
        const struct report_run *run = report_group_example(runs, rows[i].group);
        if (run->foreign && run->at_once > OVERLAP_LEAST)
            table_paragraph(out,
                            "%s: iterations overlap: on average %.2f are under way at once, so "
                            "that one ends every %.2f ms.",
                            run->label, run->at_once, run->ms_per_iteration / run->at_once);
    }
}

static void print_bound(const struct speedup_row rows[], int count, FILE *out) {
    bool known = false;
    for (int i = 0; i < count; i++)
        known = known || !isnan(rows[i].of_bound);
    if (known)
        table_paragraph(out,
                        "bound: no system that drops nothing, keeps the gate, leaves experts whole "
                        "and sends rows as "
                        "the job's exchange does takes less for these loads, wherever it places "
                        "and copies experts.");
}

void speedup_print_words(const struct report_runs *runs, const struct speedup_row rows[], int count,
                         int table, FILE *out) {
    double taken = report_taken(runs, table);
    print_finding(rows, count, taken, out);
    print_contradictions(rows, count, out);
    print_droppers(rows, count, taken, out);
    print_losses(runs, rows, count, out);
    print_overlaps(runs, rows, count, out);
    print_bound(rows, count, out);
    report_print_yardsticks(runs, table, out);
}

static int print_table(const struct report_runs *runs, int table_number,
                       enum mp_report_format format, FILE *out, struct mp_error *error) {
    MP_AUTO(table) struct table table = {0};
    MP_AUTO(speedup_rows) struct speedup_row *rows = NULL;
    char heading[REPORT_HEADING];
    int count;
    MP_TRY(speedup_rows(runs, table_number, &rows, &count, error));
    MP_TRY(speedup_table(rows, count, &table, error));
    table_write(&table, format, report_table_heading(runs, table_number, heading), out);
    if (format == MP_REPORT_TEXT)
        speedup_print_words(runs, rows, count, table_number, out);
    return MP_OK;
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

static int print_json(const struct report_runs *runs, FILE *out, struct mp_error *error) {
    MP_AUTO(speedup_rows) struct speedup_row *rows = NULL;
    int count;
    MP_TRY(speedup_rows(runs, -1, &rows, &count, error));
    json_t *list = json_array(), *incomplete = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, table_object(columns, COLUMNS, &rows[i]));
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        if (!run->complete)
            json_array_append_new(
                incomplete,
                json_pack("{sI so so sb si so so sI sI}", "run_id", (json_int_t)run->run_id, "job",
                          text_value(run->job), "system", text_value(run->system), "unattainable",
                          run->unattainable, "round", run->round, "status", text_value(run->status),
                          "reason", text_value(run->reason), "iterations",
                          (json_int_t)run->iterations, "iterations_wanted",
                          (json_int_t)run->iterations_wanted));
    }
    return print_object(
        json_pack("{ss so so}", "report", "speedup", "rows", list, "incomplete", incomplete), out,
        error);
}

int mp_report_speedup(struct mp_store *store, const struct mp_report_selection *selection,
                      enum mp_report_format format, FILE *out, struct mp_error *error) {
    MP_AUTO(runs) struct report_runs runs = {0};
    MP_TRY(report_runs_load(store, selection, &runs, error));
    if (format == MP_REPORT_TEXT)
        report_print_busy(&runs, out);
    if (format == MP_REPORT_JSON)
        MP_TRY(print_json(&runs, out, error));
    for (int t = 0; format != MP_REPORT_JSON && t < runs.tables; t++) {
        if (t > 0)
            fputc('\n', out);
        MP_TRY(print_table(&runs, t, format, out, error));
    }
    if (format == MP_REPORT_TEXT)
        print_incomplete(&runs, out);
    return format == MP_REPORT_JSON ? MP_OK : check_printed(out, error);
}
