/* Intervals: published ranges, what is predicted under many assumptions, and those assumptions. */
#ifndef MOEPERF_RESULTS_REPORT_INTERVALS_H
#define MOEPERF_RESULTS_REPORT_INTERVALS_H

#include <stdbool.h>

#include "results/report/html.h"

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

#endif
