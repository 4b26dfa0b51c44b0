/* A history as a page: what changed in a table, and a chart of each series. */
#include <math.h>

#include "results/compare/history.h"
#include "results/report/page.h"
#include "results/report/query.h"
#include "results/report/table.h"

enum { CELL = 64, NAME = 320 };

/* The change that begins at a point; NULL: none. */
static const struct mp_change *change_at(const struct mp_history_series *series, int point) {
    return MP_FIND(series->change, c, series->changes, series->change[c].index == point);
}

/* "+3.1 %"; of an exact measure with the same sum only its parts are others. */
static void format_change(const struct mp_change *change, char text[CELL]) {
    if (change->before == change->after)
        snprintf(text, CELL, "parts differ");
    else if (change->before == 0)
        snprintf(text, CELL, "from 0");
    else
        snprintf(text, CELL, "%+.3g %%", 100 * (change->after / change->before - 1));
}

static void format_revision(const struct mp_history_point *point, char text[CELL]) {
    snprintf(text, CELL, "%.*s", MP_HISTORY_REVISION,
             *point->revision ? point->revision : "unknown");
}

static void format_job(const struct mp_history_series *series, char text[NAME]) {
    snprintf(text, NAME, "%.80s, %.80s, %d rank%s, %.80s", series->suite, series->job,
             series->ranks, series->ranks == 1 ? "" : "s", series->machine);
}

/* ---- charts ---- */

static json_t *pack_point(const struct mp_history_series *series, int i, double level) {
    const struct mp_history_point *point = &series->point[i];
    const struct mp_change *change = change_at(series, i);
    char revision[CELL], by[CELL], words[2 * CELL + 2];
    format_revision(point, revision);
    if (change) {
        format_change(change, by);
        snprintf(words, sizeof words, "%s %s", revision, by);
    }
    return json_pack("[oooooioo]", text_value(revision), number_value(point->value),
                     number_value(point->low), number_value(point->high), number_value(level),
                     point->runs, text_value(point->started_at),
                     change ? text_value(words) : json_null());
}

static json_t *pack_series(const struct mp_history_series *series) {
    json_t *rows = json_array();
    double level = series->changes > 0 ? series->change[0].before : NAN;
    for (int i = 0; i < series->points; i++) {
        const struct mp_change *change = change_at(series, i);
        level = change ? change->after : level;
        json_array_append_new(rows, pack_point(series, i, level));
    }
    return page_choice(series->measure,
                       json_pack("{s[ssssssss] so}", "columns", "revision", "value", "low", "high",
                                 "level", "runs", "day", "change", "rows", rows),
                       json_pack("{so}", "axisTitle", text_value(series->measure)));
}

static const char changed_caption[] =
    "Points: the median of a revision's runs; bars: the least and the most. Lines: levels. Where "
    "one begins, its first revision is named.";

/* What changed has a chart in sight, the timed series has it anyway; the rest are chosen. */
static int write_job(struct page *page, const struct mp_history_series series[], int count,
                     struct mp_error *error) {
    char name[NAME];
    MP_AUTO(json) json_t *rest = json_array();
    format_job(series, name);
    page_print(page->out, "<section data-label=\"%s\"><h2>%s</h2>\n", name, name);
    for (int i = 0; i < count; i++) {
        json_t *choice = pack_series(&series[i]);
        if (series[i].exact && series[i].changes == 0)
            json_array_append_new(rest, choice);
        else
            MP_TRY(page_figure(page, "history", series[i].measure, changed_caption, "",
                               json_pack("[o]", choice), error));
    }
    MP_TRY(page_figure(page, "history", "Exact measures that did not change",
                       "Routes, bytes, copies and predicted times: any difference would be a "
                       "change.",
                       "Measure", json_incref(rest), error));
    if (json_array_size(rest) > 0) /* no figures for papers: some sixty flat lines of each job */
        json_object_set_new(json_array_get(page->figures, json_array_size(page->figures) - 1),
                            "aside", json_true());
    fputs("</section>\n", page->out);
    return MP_OK;
}

/* ---- what changed ---- */

enum { JOB, MEASURE, FIRST, SINCE, BEFORE, AFTER, CHANGE, P, COLUMNS };

static const struct table_column columns[COLUMNS] = {
    [JOB] = {.header = "job", .kind = TABLE_LEFT},
    [MEASURE] = {.header = "measure", .kind = TABLE_LEFT},
    [FIRST] = {.header = "first revision", .kind = TABLE_LEFT},
    [SINCE] = {.header = "since", .kind = TABLE_LEFT},
    [BEFORE] = {.header = "before", .kind = TABLE_RIGHT},
    [AFTER] = {.header = "after", .kind = TABLE_RIGHT},
    [CHANGE] = {.header = "change", .kind = TABLE_RIGHT},
    [P] = {.header = "p", .kind = TABLE_RIGHT},
};

static int add_change(const struct mp_history_series *series, const struct mp_change *change,
                      struct table *table, struct mp_error *error) {
    const struct mp_history_point *point = &series->point[change->index];
    const int digits = series->exact ? 12 : 4;
    char job[NAME], text[CELL];
    MP_TRY(table_add(table, NULL, error));
    format_job(series, job);
    table_set(table, JOB, "%s", job);
    table_set(table, MEASURE, "%s", series->measure);
    format_revision(point, text);
    table_set(table, FIRST, "%s", text);
    table_set(table, SINCE, "%.*s", MP_HISTORY_DAY, point->started_at);
    table_set(table, BEFORE, "%.*g", digits, change->before);
    table_set(table, AFTER, "%.*g", digits, change->after);
    format_change(change, text);
    table_set(table, CHANGE, "%s", text);
    if (!series->exact)
        table_set(table, P, "%.3f", change->p);
    return MP_OK;
}

static int write_changes(const struct mp_history *history, FILE *out, struct mp_error *error) {
    MP_AUTO(table) struct table table = table_of(columns, COLUMNS);
    for (int i = 0; i < history->count; i++)
        for (int c = 0; c < history->series[i].changes; c++)
            MP_TRY(add_change(&history->series[i], &history->series[i].change[c], &table, error));
    if (table.rows == 0)
        fputs("<p>Nothing changed.</p>\n", out);
    page_table(out, &table, "What changed, and with which revision first", NULL);
    return MP_OK;
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    const struct mp_history *history = context;
    char about[256];
    snprintf(about, sizeof about,
             "%zu run%s. Times change where the values in front and behind are too far apart for "
             "chance; exact measures where two revisions differ.",
             json_array_size(history->rows), json_array_size(history->rows) == 1 ? "" : "s");
    snprintf(page->title, sizeof page->title, "moeperf: history");
    page_begin(page->out, "History", about);
    MP_TRY(write_changes(history, page->out, error));
    for (int first = 0, end; first < history->count; first = end) {
        end = mp_history_job_end(history, first);
        MP_TRY(write_job(page, &history->series[first], end - first, error));
    }
    page_end(page->out);
    return MP_OK;
}

int mp_history_html(const struct mp_history *history, const struct mp_page_output *output,
                    struct mp_error *error) {
    struct page page = {0};
    return page_write(output, &page, write_body, history, error);
}
