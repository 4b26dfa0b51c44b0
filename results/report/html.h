/* The report as one HTML file: words first, then tables and charts; it asks no network for
 * anything.
 *
 * Words and tables are HTML.  Charts are Vega specifications (results/report/charts), drawn by the
 * library that is embedded (vega.h) from data which is aggregated here, by SQL where it can be: the
 * file's size depends on how much is shown, not on how much was recorded.  All names are escaped,
 * and the page's own policy keeps it from fetching anything. */
#ifndef MOEPERF_RESULTS_REPORT_HTML_H
#define MOEPERF_RESULTS_REPORT_HTML_H

#include "results/report/report.h"

/* Where a page goes; NULL: not there. */
struct mp_page_output {
    const char *html;    /* a file, written first beside it and then renamed: never half a page */
    const char *figures; /* a folder, made if it is not there: every chart as SVG and PDF, 3.3 and,
                          * NAME-wide, 7 inches wide with letters of 8 points, and figures.txt with
                          * a line "NAME: title" for each.  A browser draws them (browser.h). */
};

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

#endif
