/* A history as a page: what changed in a table, and a chart of each series. */
#include <math.h>
#include <string.h>

#include "results/compare/history.h"
#include "results/report/page.h"
#include "results/report/query.h"

enum { CELL = 64, NAME = 320 };

/* The change that begins at a point; NULL: none. */
static const struct mp_change *change_at(const struct mp_history_series *series, int point) {
    for (int c = 0; c < series->changes; c++)
        if (series->change[c].index == point)
            return &series->change[c];
    return NULL;
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
    return json_pack("[oooooioo]", json_text(revision), json_number(point->value),
                     json_number(point->low), json_number(point->high), json_number(level),
                     point->runs, json_text(point->started_at),
                     change ? json_text(words) : json_null());
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
                       json_pack("{so}", "axisTitle", json_text(series->measure)));
}

static const char changed_caption[] =
    "Points: the median of a revision's runs; bars: the least and the most. Lines: levels. Where "
    "one begins, its first revision is named.";

/* What changed has a chart in sight, the timed series has it anyway; the rest are chosen. */
static int write_job(struct page *page, const struct mp_history_series series[], int count,
                     struct mp_error *error) {
    char name[NAME];
    int code = MP_OK;
    json_t *rest = json_array();
    format_job(series, name);
    page_print(page->out, "<section data-label=\"%s\"><h2>%s</h2>\n", name, name);
    for (int i = 0; i < count && !code; i++) {
        json_t *choice = pack_series(&series[i]);
        if (series[i].exact && series[i].changes == 0)
            json_array_append_new(rest, choice);
        else
            code = page_figure(page, "history", series[i].measure, changed_caption, "",
                               json_pack("[o]", choice), error);
    }
    if (!code)
        code = page_figure(page, "history", "Exact measures that did not change",
                           "Routes, bytes, copies and predicted times: any difference would be "
                           "a change.",
                           "Measure", rest, error);
    fputs("</section>\n", page->out);
    return code;
}

/* ---- what changed ---- */

static const struct page_column columns[] = {
    {"job", PAGE_WORDS},     {"measure", PAGE_WORDS}, {"first revision", PAGE_WORDS},
    {"since", PAGE_WORDS},   {"before", PAGE_NUMBER}, {"after", PAGE_NUMBER},
    {"change", PAGE_NUMBER}, {"p", PAGE_NUMBER},      {0}};

static void write_change(const struct mp_history_series *series, const struct mp_change *change,
                         FILE *out) {
    const struct mp_history_point *point = &series->point[change->index];
    const char *number = series->exact ? "%.12g" : "%.4g";
    char job[NAME], cell[6][CELL] = {""};
    format_job(series, job);
    format_revision(point, cell[0]);
    snprintf(cell[1], CELL, "%.*s", MP_HISTORY_DAY, point->started_at);
    snprintf(cell[2], CELL, number, change->before);
    snprintf(cell[3], CELL, number, change->after);
    format_change(change, cell[4]);
    if (!series->exact)
        snprintf(cell[5], CELL, "%.3f", change->p);
    page_table_cell(out, columns, 0, job);
    page_table_cell(out, columns, 1, series->measure);
    for (int c = 0; c < 6; c++)
        page_table_cell(out, columns, c + 2, cell[c]);
}

static void write_changes(const struct mp_history *history, FILE *out) {
    int changes = 0;
    for (int i = 0; i < history->count; i++)
        changes += history->series[i].changes;
    if (changes == 0) {
        fputs("<p>Nothing changed.</p>\n", out);
        return;
    }
    page_table_open(out, columns, "What changed, and with which revision first");
    for (int i = 0; i < history->count; i++)
        for (int c = 0; c < history->series[i].changes; c++)
            write_change(&history->series[i], &history->series[i].change[c], out);
    page_table_close(out);
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    const struct mp_history *history = context;
    int code = MP_OK;
    snprintf(page->title, sizeof page->title, "moeperf: history");
    page_print(page->out,
               "<header>\n<h1>History</h1>\n<p class=\"muted\">%d runs. Times change where the "
               "values in front and behind are too far apart for chance; exact measures where two "
               "revisions differ.</p>\n</header>\n<main>\n",
               (int)json_array_size(history->rows));
    write_changes(history, page->out);
    for (int first = 0, end; first < history->count && !code; first = end) {
        end = mp_history_job_end(history, first);
        code = write_job(page, &history->series[first], end - first, error);
    }
    fputs("</main>\n<footer><p>Written by moeperf. Charts: Vega. Nothing on this page is loaded "
          "from anywhere.</p></footer>\n",
          page->out);
    return code;
}

int mp_history_html(const struct mp_history *history, const struct mp_page_output *output,
                    struct mp_error *error) {
    struct page page = {0};
    return page_write(output, &page, write_body, history, error);
}
