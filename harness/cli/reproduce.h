/* Results of moeperf reproduce: tables for people, one JSON object for programs. */
#pragma once

#include "harness/reproduce/infer.h"
#include "results/report/html.h"
#include "results/report/table.h"

/* All print on standard output and return a code. */
int cli_print_reproduction(const struct mp_reproduction *reproduction,
                           const struct mp_reproduce_settings *settings,
                           enum mp_report_format format, bool details, struct mp_error *error);
/* As a page (results/report/html.h). */
int cli_draw_reproduction(const struct mp_reproduction *reproduction,
                          const struct mp_page_output *output, struct mp_error *error);
/* What was inferred, and that as a page. */
int cli_print_inference(const struct mp_inference *inference, enum mp_report_format format,
                        struct mp_error *error);
int cli_draw_inference(const struct mp_inference *inference, const struct mp_page_output *output,
                       struct mp_error *error);

/* A number in its unit, "1.50" or "+3.0 %"; and what is published, with a mark of its certainty. */
void cli_format_figure(enum mp_paper_unit unit, double value, char text[32]);
void cli_format_published(const struct mp_paper_row *row, char text[80]);
enum { CLI_MARKS = 512 };
/* What the marks mean that rows have; "": none has one. */
void cli_explain_marks(const struct mp_reproduced line[], int lines, char text[CLI_MARKS]);
/* The table of a paper's lines for other programs; its title explains the marks. */
void cli_write_lines(const char *paper, const struct mp_reproduced line[], int lines,
                     const struct table *table, enum mp_report_format format);
/* "1.50 .. 2.00 s" */
void cli_format_interval(enum mp_paper_unit unit, struct mp_infer_interval interval, char text[80]);

/* The rows without predicting anything. */
int cli_print_published(const struct mp_reproduction *reproduction, enum mp_report_format format,
                        struct mp_error *error);

/* A line of a published row beside our number, as people and programs get it. */
struct cli_line {
    const struct mp_reproduced *line;
    const char *first; /* the row's name where it begins, "" in its further lines */
    const char *id, *label, *verdict, *what, *unit, *certainty, *missing;
    double relation, low, high, value;
    bool is_inside, out_of_memory;
    /* Of those that were inferred: */
    const char *use;
    struct mp_infer_interval sampled, near;
};
extern const struct table_column cli_line_columns[];
enum { CLI_LINE_COLUMNS = 16, CLI_INFERRED_COLUMNS = CLI_LINE_COLUMNS + 6 }; /* those first */
/* Of line[i]. */
struct cli_line cli_line_of(const struct mp_reproduced line[], int i);
