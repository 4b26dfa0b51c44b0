/* Grids: how many times as fast as plain expert parallelism, or another reference, something is, by
 * two quantities. */
#ifndef MOEPERF_RESULTS_REPORT_GRID_H
#define MOEPERF_RESULTS_REPORT_GRID_H

#include "reference/base/error.h"

enum { MP_GRID_ROWS = 11, MP_GRID_COLUMNS = 11 };

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
};

/* A page with a heat map of each grid, one of which is seen at a time, and above them
 * the lines of `about`.  Written as mp_report_html writes, with its errors. */
int mp_grid_html(const struct mp_grid grid[], int count, const char *title, const char *about,
                 const char *path, struct mp_error *error);

#endif
