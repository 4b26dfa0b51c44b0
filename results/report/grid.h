/* Grids: how many times as fast as plain expert parallelism, or another reference, something is,
 * and what share of its time the bound is, by two quantities. */
#ifndef MOEPERF_RESULTS_REPORT_GRID_H
#define MOEPERF_RESULTS_REPORT_GRID_H

#include "results/report/html.h"
#include "results/report/table.h"

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

#endif
