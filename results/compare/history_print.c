/* A history in words, with pictures of a line; and as JSON. */
#include <math.h>
#include <string.h>

#include "reference/base/characters.h"
#include "results/compare/history.h"
#include "results/report/query.h"
#include "results/report/table.h"

enum { SPARKS = 60, INDENT = 2, LINE = 1024 };

/* ---- text ---- */

static void print_line(FILE *out, const char *text) {
    table_filled(out, 0, INDENT, text);
}

/* The latest points, between the least and the largest of them. */
static void print_sparkline(const struct mp_history_series *series, const char *remark, FILE *out) {
    static const char *const heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int room = table_width(out) - INDENT, most_points = room < SPARKS ? room : SPARKS,
              first = series->points > most_points ? series->points - most_points : 0;
    double least = INFINITY, most = -INFINITY;
    char line[LINE] = "";
    for (int i = first; i < series->points; i++) {
        least = fmin(least, series->point[i].value);
        most = fmax(most, series->point[i].value);
    }
    for (int i = first; i < series->points; i++) {
        const double share = most > least ? (series->point[i].value - least) / (most - least) : 0;
        mp_text_add(line, sizeof line, "", "%s", heights[(int)lround(7 * share)]);
    }
    mp_text_add(line, sizeof line, " ", "%.4g", least);
    if (most > least)
        mp_text_add(line, sizeof line, " .. ", "%.4g", most);
    mp_text_add(line, sizeof line, " ", "ms%s", remark);
    print_line(out, line);
}

/* Adds "3f2a9c1d04ab, 2026-11-02". */
static void add_point(char line[LINE], const struct mp_history_point *point) {
    mp_text_add(line, LINE, "", "%.*s, %.*s", MP_HISTORY_REVISION,
                *point->revision ? point->revision : "one run", MP_HISTORY_DAY, point->started_at);
}

static void print_change(const struct mp_history_series *series, const struct mp_change *change,
                         FILE *out) {
    char line[LINE];
    if (series->exact && change->before == change->after)
        snprintf(line, sizeof line, "%.96s the same in sum, and not in its parts, from ",
                 series->measure);
    else if (series->exact)
        snprintf(line, sizeof line, "%.96s %.12g to %.12g from ", series->measure, change->before,
                 change->after);
    else
        snprintf(line, sizeof line, "%+.1f %% (%.4g to %.4g) from ",
                 100 * (change->after / change->before - 1), change->before, change->after);
    add_point(line, &series->point[change->index]);
    mp_text_add(line, sizeof line, "", " on");
    if (!series->exact)
        mp_text_add(line, sizeof line, "", " (p %.3f)", change->p);
    print_line(out, line);
}

static void print_disagreements(const struct mp_history_series *series, FILE *out) {
    char line[LINE];
    for (int i = 0; i < series->points; i++) {
        if (!series->point[i].differs)
            continue;
        snprintf(line, sizeof line, "%.96s differs between the %d runs of ", series->measure,
                 series->point[i].runs);
        add_point(line, &series->point[i]);
        print_line(out, line);
    }
}

static bool same_job(const struct mp_history_series *a, const struct mp_history_series *b) {
    return !strcmp(a->key, b->key) && !strcmp(a->suite, b->suite) && !strcmp(a->job, b->job) &&
           !strcmp(a->machine, b->machine);
}

int mp_history_job_end(const struct mp_history *history, int first) {
    int end = first + 1;
    while (end < history->count && same_job(&history->series[first], &history->series[end]))
        end++;
    return end;
}

/* "ci, ep, 2 ranks, AMD EPYC 9654: 31 revisions, 2026-10-01 to 2026-11-02". */
static void print_title(const struct mp_history_series *series, FILE *out) {
    const char *first = series->point[0].started_at,
               *last = series->point[series->points - 1].started_at;
    char line[LINE];
    snprintf(line, sizeof line, "%.96s, %.96s, %d rank%s, %.96s: %d %s%s, %.*s", series->suite,
             series->job, series->ranks, series->ranks == 1 ? "" : "s", series->machine,
             series->points, *series->point[0].revision ? "revision" : "run",
             series->points == 1 ? "" : "s", MP_HISTORY_DAY, first);
    if (strncmp(first, last, MP_HISTORY_DAY) != 0)
        mp_text_add(line, sizeof line, " to ", "%.*s", MP_HISTORY_DAY, last);
    table_filled(out, 0, 0, line);
}

/* What a job has: the timed series first, if there is one. */
static void print_job(const struct mp_history_series series[], int count, FILE *out) {
    int changes = 0, changed = 0;
    for (int i = 0; i < count; i++) {
        changes += series[i].changes;
        changed += series[i].exact && series[i].changes > 0;
    }
    print_title(series, out);
    if (!series->exact)
        print_sparkline(series,
                        series->points == 1 ? ", nothing to compare it with"
                        : changes > 0       ? ""
                                            : ", no change found",
                        out);
    for (int i = 0; i < count; i++) {
        for (int c = 0; c < series[i].changes; c++)
            print_change(&series[i], &series[i].change[c], out);
        print_disagreements(&series[i], out);
    }
    if (changed > 0)
        fprintf(out, "  %d of %d exact measures changed\n", changed, count - !series->exact);
}

int mp_history_print(const struct mp_history *history, FILE *out, struct mp_error *error) {
    for (int first = 0, end; first < history->count; first = end) {
        end = mp_history_job_end(history, first);
        print_job(&history->series[first], end - first, out);
    }
    return check_printed(out, error);
}

/* ---- JSON ---- */

static json_t *pack_points(const struct mp_history_series *series) {
    json_t *points = json_array();
    for (int i = 0; i < series->points; i++) {
        const struct mp_history_point *point = &series->point[i];
        json_array_append_new(
            points, json_pack("{s:s, s:s, s:o, s:o, s:o, s:i, s:b}", "revision", point->revision,
                              "started_at", point->started_at, "value", number_value(point->value),
                              "low", number_value(point->low), "high", number_value(point->high),
                              "runs", point->runs, "runs_differ", point->differs));
    }
    return points;
}

static json_t *pack_changes(const struct mp_history_series *series) {
    json_t *changes = json_array();
    for (int i = 0; i < series->changes; i++) {
        const struct mp_change *change = &series->change[i];
        json_array_append_new(changes,
                              json_pack("{s:s, s:i, s:o, s:o, s:o}", "revision",
                                        series->point[change->index].revision, "index",
                                        change->index, "before", number_value(change->before),
                                        "after", number_value(change->after), "p",
                                        number_value(series->exact ? NAN : change->p)));
    }
    return changes;
}

int mp_history_print_json(const struct mp_history *history, FILE *out, struct mp_error *error) {
    json_t *all = json_array();
    for (int i = 0; i < history->count; i++) {
        const struct mp_history_series *series = &history->series[i];
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:b, s:o, s:o}",
                                             "suite", series->suite, "job", series->job, "system",
                                             series->system, "machine", series->machine, "ranks",
                                             series->ranks, "measure", series->measure, "exact",
                                             series->exact, "points", pack_points(series),
                                             "changes", pack_changes(series)));
    }
    return print_object(json_pack("{s:o}", "series", all), out, error);
}
