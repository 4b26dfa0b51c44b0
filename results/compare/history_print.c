/* A history in words, with pictures of a line; and as JSON. */
#include <math.h>
#include <string.h>

#include "reference/base/characters.h"
#include "results/compare/history.h"
#include "results/report/query.h"

enum { SPARKS = 60 };

/* ---- text ---- */

/* The latest points, between the least and the largest of them. */
static void print_sparkline(const struct mp_history_series *series, bool is_flat, FILE *out) {
    static const char *const heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int first = series->points > SPARKS ? series->points - SPARKS : 0;
    double least = INFINITY, most = -INFINITY;
    for (int i = first; i < series->points; i++) {
        least = fmin(least, series->point[i].value);
        most = fmax(most, series->point[i].value);
    }
    fputs("  ", out);
    for (int i = first; i < series->points; i++) {
        const double share = most > least ? (series->point[i].value - least) / (most - least) : 0;
        fputs(heights[(int)lround(7 * share)], out);
    }
    fprintf(out, "  %.4g", least);
    if (most > least)
        fprintf(out, " .. %.4g", most);
    fprintf(out, " ms%s\n", is_flat ? ", no change found" : "");
}

/* "3f2a9c1d04ab, 2026-11-02". */
static void print_point(const struct mp_history_point *point, FILE *out) {
    char revision[64];
    mp_clean_text(revision, sizeof revision, *point->revision ? point->revision : "one run");
    fprintf(out, "%.*s, %.*s", MP_HISTORY_REVISION, revision, MP_HISTORY_DAY, point->started_at);
}

static void print_change(const struct mp_history_series *series, const struct mp_change *change,
                         FILE *out) {
    char name[96];
    if (series->exact && change->before == change->after)
        fprintf(out, "  %s the same in sum, and not in its parts, from ",
                mp_clean_text(name, sizeof name, series->measure));
    else if (series->exact)
        fprintf(out, "  %s %.12g to %.12g from ", mp_clean_text(name, sizeof name, series->measure),
                change->before, change->after);
    else
        fprintf(out, "  %+.1f %% (%.4g to %.4g) from ", 100 * (change->after / change->before - 1),
                change->before, change->after);
    print_point(&series->point[change->index], out);
    if (series->exact)
        fputs(" on\n", out);
    else
        fprintf(out, " on (p %.3f)\n", change->p);
}

static void print_disagreements(const struct mp_history_series *series, FILE *out) {
    char name[96];
    for (int i = 0; i < series->points; i++) {
        if (!series->point[i].differs)
            continue;
        fprintf(out, "  %s differs between the %d runs of ",
                mp_clean_text(name, sizeof name, series->measure), series->point[i].runs);
        print_point(&series->point[i], out);
        fputs("\n", out);
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

/* What a job has: the timed series first, if there is one. */
static void print_job(const struct mp_history_series series[], int count, FILE *out) {
    char suite[96], job[96], machine[96];
    int changes = 0, changed = 0;
    for (int i = 0; i < count; i++) {
        changes += series[i].changes;
        changed += series[i].exact && series[i].changes > 0;
    }
    fprintf(out, "%s, %s, %d rank%s, %s: ", mp_clean_text(suite, sizeof suite, series->suite),
            mp_clean_text(job, sizeof job, series->job), series->ranks,
            series->ranks == 1 ? "" : "s", mp_clean_text(machine, sizeof machine, series->machine));
    const char *last = series->point[series->points - 1].started_at;
    fprintf(out, "%d %s%s, %.*s", series->points, *series->point[0].revision ? "revision" : "run",
            series->points == 1 ? "" : "s", MP_HISTORY_DAY, series->point[0].started_at);
    if (strncmp(series->point[0].started_at, last, MP_HISTORY_DAY) != 0)
        fprintf(out, " to %.*s", MP_HISTORY_DAY, last);
    fprintf(out, "\n");
    if (!series->exact)
        print_sparkline(series, changes == 0, out);
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
