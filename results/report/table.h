/* Text tables, as wide as the terminal they are printed on, and of at most 80 columns elsewhere. */
#ifndef MOEPERF_RESULTS_REPORT_TABLE_H
#define MOEPERF_RESULTS_REPORT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "reference/base/error.h"

enum { TABLE_WIDTH = 80, PARAGRAPH_WIDTH = 100, TABLE_COLUMNS = 12, TABLE_CELL = 128 };

struct table_column {
    const char *header; /* unit included; '\n' starts its second line */
    enum { TABLE_LEFT, TABLE_RIGHT } align;
};

struct table {
    int columns, rows, capacity;
    const struct table_column *column;
    char (*cell)[TABLE_CELL]; /* [rows][columns] */
    char **remark; /* [rows], what stands instead of a row's cells behind the first; NULL */
    /* 0, as table_init leaves it: the column is always shown; else it is left out where room is
     * short, the highest first. */
    int optional[TABLE_COLUMNS];
    bool lines_first; /* columns are left out rather than cells broken into lines */
    bool drops_empty; /* columns behind the first are left out where no row has anything to say */
};

/* `column` is borrowed. */
void table_init(struct table *table, const struct table_column column[], int columns);
void table_free(struct table *table);

/* Adds a row of empty cells and makes `*row` its number.  Errors: MP_ENOMEM. */
int table_add(struct table *table, int *row, struct mp_error *error);
/* Fills a cell of the row added last, with a clean text (reference/base/characters.h). */
void table_set(struct table *table, int column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A number with that many decimals; "-" for NAN. */
void table_set_number(struct table *table, int column, double value, int decimals);

/* Says why the row added last has nothing in the columns behind the first, over all of them and as
 * many lines as it takes; clean as cells are.  Errors: MP_ENOMEM. */
int table_remark(struct table *table, const char *text, struct mp_error *error);

/* Columns that there are for what is printed to `out`: those of the terminal (COLUMNS, where it is
 * set, has the last word), or TABLE_WIDTH. */
int table_width(FILE *out);

/* Where the table would be wider than that, optional columns are left out until its longest
 * words fit (or whole cells: lines_first); then left-aligned columns give way, the widest first,
 * and their cells go on in further lines. */
void table_print(const struct table *table, FILE *out);

/* Prints a paragraph broken at spaces, like the sentences under a table; lines of more than
 * PARAGRAPH_WIDTH are hard to read.  '\n' at its end: an empty line follows. */
void table_paragraph(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a command on a line of its own, however long, so that it can be copied; nothing for "". */
void table_command(FILE *out, const char *command);

#endif
