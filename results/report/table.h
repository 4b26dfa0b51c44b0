/* Tables, each written down once: a row per column, and where its value is found.  The same table
 * is text as wide as the terminal it is printed on (at most 80 columns elsewhere), JSON and CSV for
 * programs, Markdown, LaTeX and HTML. */
#pragma once

#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "results/report/report.h"

enum { TABLE_WIDTH = 80, PARAGRAPH_WIDTH = 100, TABLE_COLUMNS = 40, TABLE_CELL = 128 };

enum table_kind {
    TABLE_LEFT,   /* const char *, NULL: none */
    TABLE_RIGHT,  /* the same, aligned as numbers are */
    TABLE_LONG,   /* the same: sentences */
    TABLE_ARRAY,  /* char[], "": none */
    TABLE_NUMBER, /* double, NAN: none */
    TABLE_MS,     /* double, s in the row; given in ms everywhere */
    TABLE_COUNT,  /* int, or int64_t */
    TABLE_LARGE,
    TABLE_FLAG,   /* bool */
    TABLE_REMARK, /* const char *, NULL: none; why a row has nothing else to show but its name */
};

/* Of numbers, beside how many digits stand behind the point. */
enum {
    TABLE_POWER = -1,  /* 1.0e-03 */
    TABLE_EXACT = -2,  /* all ten digits */
    TABLE_SIGNED = 16, /* added to a count of digits: with its sign; */
    TABLE_FEWER = 32,  /* one fewer from 100, and one from 1000 on */
    TABLE_DIGITS = TABLE_FEWER + 2
};

/* Texts are borrowed. */
struct table_column {
    const char *header; /* for people; '\n' starts its second line, after '-' inside of a word.
                           NULL: the column is not for them */
    enum table_kind kind;
    const char *unit; /* behind the header; NULL: none.  "%": shares are shown times 100 */
    const char *key;  /* for programs: JSON, and CSV (there else the header).  NULL: not in JSON */
    size_t at;        /* offsetof the value in what table_fill gets */
    int decimals;
    int optional;   /* 0: always shown; else left out where room is short, the highest first */
    bool only_used; /* not shown where it is 0 in all rows */
    /* For people instead of the value; of texts for programs, too.  NULL: the value is shown. */
    void (*show)(const void *row, char text[TABLE_CELL]);
};

struct query;

struct table_cell {
    char text[TABLE_CELL]; /* for people, clean (reference/base/characters.h) */
    json_t *value;         /* for programs; NULL: null */
};

struct table {
    int columns, rows;
    const struct table_column *column;
    struct table_cell *cell; /* [rows][columns] */
    char **remark; /* [rows], what stands instead of a row's cells behind the first; NULL */
    int optional[TABLE_COLUMNS]; /* as the columns have it */
    bool lines_first;            /* columns are left out rather than cells broken into lines */
    bool drops_empty; /* columns behind the first are left out where no row has anything to say */
};

/* Without rows; `column` is borrowed. */
struct table table_of(const struct table_column column[], int columns);
void table_free(struct table *table);
MP_END(table, struct table, table_free(it))

/* Adds `count` rows, structs of `size` bytes.  Errors: MP_ENOMEM. */
int table_fill(struct table *table, const void *rows, int count, size_t size,
               struct mp_error *error);
/* Adds the rows that a query (query.h) has left, its columns in the table's order; or those of
 * `sql`, whose ?1 is the run.  Errors: MP_EIO, MP_ENOMEM. */
void table_query(struct table *table, struct query *query);
int table_read(struct table *table, struct mp_store *store, const char *sql, int64_t run_id,
               struct mp_error *error);

/* Adds a row of empty cells and makes `*row` its number.  Errors: MP_ENOMEM. */
int table_add(struct table *table, int *row, struct mp_error *error);
/* Fills a cell of the row added last. */
void table_set(struct table *table, int column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A number as its column has it; none for NAN. */
void table_number(struct table *table, int column, double value);
/* A number with that many decimals. */
void table_set_number(struct table *table, int column, double value, int decimals);

/* Says why the row added last has nothing in the columns behind the first, over all of them and as
 * many lines as it takes; clean as cells are.  Errors: MP_ENOMEM. */
int table_remark(struct table *table, const char *text, struct mp_error *error);

/* Columns that there are for what is printed to `out`: those of the terminal (COLUMNS, where it is
 * set, has the last word), or TABLE_WIDTH. */
int table_width(FILE *out);

/* Whether people see the column; not by how much room there is. */
bool table_shows(const struct table *table, int column);
/* Whether its cells are aligned as words are, and not as numbers. */
bool table_has_words(const struct table_column *column);

/* Where the table would be wider than that, optional columns are left out until its longest
 * words fit (or whole cells: lines_first); then left-aligned columns give way, the widest first,
 * and their cells go on in further lines, those of the first column also inside of words.  Where
 * not even that is enough, columns that have no room go on below, beside the first again. */
void table_print(const struct table *table, FILE *out);

/* ---- table_write.c ---- */

/* The table in a format, with a title; "": none.  CSV has every column, as programs
 * want it, behind one with the title: numbers as they are, NULL as nothing, and what a spreadsheet
 * would carry out marked by an apostrophe; an empty line follows.  Markdown is GitHub's, LaTeX a
 * table that needs the package booktabs. */
void table_write(const struct table *table, enum mp_report_format format, const char *title,
                 FILE *out);
/* An HTML table, its caption in front; NULL: none. */
void table_html(const struct table *table, const char *caption, FILE *out);
/* The rows as an array of objects; NULL: no memory. */
json_t *table_json(const struct table *table);
/* One struct as an object of the columns that have a key. */
json_t *table_object(const struct table_column column[], int columns, const void *row);

/* ---- words beside tables ---- */

/* Prints words, clean, in lines as wide as the terminal (PARAGRAPH_WIDTH at most), the last one
 * ended.  The first line goes on in column `at` <= indent; others, also behind '\n', begin at
 * `indent`. */
void table_filled(FILE *out, int at, int indent, const char *text);

/* Prints a paragraph broken at spaces, like the sentences under a table; lines of more than
 * PARAGRAPH_WIDTH are hard to read.  '\n' at its end: an empty line follows. */
void table_paragraph(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a command on a line of its own, however long, so that it can be copied; nothing for "". */
void table_command(FILE *out, const char *command);

/* Text of others inside HTML and XML, with everything escaped that means something there, in
 * elements and in quoted attributes; line ends and tabs as spaces, '?' for other characters that
 * can't be shown (reference/base/characters.h) and for bytes that are no UTF-8. */
void markup_text(FILE *out, const char *text);
