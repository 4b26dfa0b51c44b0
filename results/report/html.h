/* The report as one HTML file: words first, then tables and charts; it asks no network for
 * anything.
 *
 * Words and tables are HTML.  Charts are Vega specifications (results/report/charts), drawn by the
 * library that is embedded (vega.h) from data which is aggregated here, by SQL where it can be: the
 * file's size depends on how much is shown, not on how much was recorded.  All names are escaped,
 * and the page's own policy keeps it from fetching anything. */
#pragma once

#include <stdbool.h>

#include "results/report/report.h"
#include "results/report/table.h"

/* Where a page goes; NULL: not there. */
struct mp_page_output {
    const char *html;    /* a file, written first beside it and then renamed: never half a page */
    const char *figures; /* a folder, made if it is not there: every chart as SVG and PDF, 3.3 and,
                          * NAME-wide, 7 inches wide with letters of 8 points, and figures.txt with
                          * a line "NAME: title" for each.  A browser draws them (browser.h). */
};

/* Whether there is all that it takes to write a page: Vega, for figures a browser, and room for the
 * file and in the folder, which is then there; MP_OK without either.  Writing one begins so; who
 * computes long before asks before. */
int mp_page_check(const struct mp_page_output *output, struct mp_error *error);

/* Writes the report of the selected runs.  Per setting: findings, speed-up with the range of
 * rounds, iteration times, losses, phases, predicted beside measured; per system, of at most
 * MP_HTML_RUNS: who waits for whom, a timeline of the slowest, the median and the fastest steady
 * iteration, how uneven the routes were by layer, expert and iteration, tokens beside waiting, what
 * recording cost, environment.
 *
 * Errors: MP_ENOTFOUND (no such run; Vega is not installed, or for figures no browser), MP_EIO,
 * MP_ENOMEM, MP_ENOSPACE. */
int mp_report_html(struct mp_store *store, const struct mp_report_selection *selection,
                   const struct mp_page_output *output, struct mp_error *error);

enum { MP_HTML_RUNS = 16 }; /* with charts of their own */

/* Intervals: published ranges, what is predicted under many assumptions, and those assumptions. */

/* One line of a chart; NAN where there is nothing to draw. */
struct mp_interval {
    char label[128], text[512]; /* text: all of it in words */
    const char *group;          /* borrowed */
    bool is_inside;
    double given[2]; /* what is published */
    double all[2];   /* prior; under sets nearly as good as the best: */
    double near[2], best;
};

/* All texts are borrowed. */
struct mp_intervals_page {
    const char *title, *about;     /* lines of `about` are paragraphs */
    const struct mp_interval *row; /* in logarithms to base 10 of ratios to what is published */
    int rows;
    const struct mp_interval *unknown; /* from 0, the least of the range, to 1 */
    int unknowns;                      /* 0: the rows are of one prediction, and have no ranges */
    const char *sentences;             /* on what holds under no set, one a line */
};

/* A page with a chart of each.  Written as mp_report_html writes, with its errors. */
int mp_intervals_html(const struct mp_intervals_page *page, const struct mp_page_output *output,
                      struct mp_error *error);

/* Grids: how many times as fast as plain expert parallelism, or another reference, something is,
 * and what share of its time the bound is, by two quantities. */

enum { MP_GRID_ROWS = 256, MP_GRID_COLUMNS = 11 };

/* All texts are borrowed. */
struct mp_grid {
    const char *name;         /* a system, or what else is compared */
    const char *row, *column; /* the quantities */
    int rows, columns;
    const char *row_label[MP_GRID_ROWS], *column_label[MP_GRID_COLUMNS];
    /* NAN: not possible; 0: needs more memory than there is; INFINITY: plain expert parallelism
     * needs more. */
    double ratio[MP_GRID_ROWS][MP_GRID_COLUMNS];
    const char *reference; /* what is compared with; the same of all grids.  NULL: EP */
    bool has_shares;
    double share[MP_GRID_ROWS][MP_GRID_COLUMNS]; /* 0 .. 1 if it has shares; NAN: not known */
};

/* A page of them.  All is borrowed. */
struct mp_grids {
    const struct mp_grid *grid; /* [count] */
    int count;
    const char *title, *about; /* `about`: lines above the maps */
    const struct table *table; /* below them, with a caption; NULL: none */
    const char *table_caption;
};

/* Writes a page with a heat map of each grid, one of which is seen at a time; of grids that have
 * shares another one of these.  Written as mp_report_html writes, with its errors. */
int mp_grid_html(const struct mp_grids *grids, const struct mp_page_output *output,
                 struct mp_error *error);
