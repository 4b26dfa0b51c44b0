/* Parts of HTML pages: the report's, and those of others that show a trace, say. */
#pragma once

#include <jansson.h>

#include "results/report/groups.h"
#include "results/report/html.h"
#include "results/report/table.h"

extern const char page_template[], page_style[], page_script[]; /* results/report/page */

/* A specification as JSON text; ends with a NULL name. */
struct page_chart {
    const char *name, *text;
};
extern const struct page_chart page_charts[];
extern const char chart_speedup[], chart_iteration_time[], chart_loss[], chart_phases[],
    chart_timeline[], chart_imbalance[], chart_experts[], chart_scatter[], chart_predicted[],
    chart_grid[], chart_intervals[], chart_history[];

/* A page being written. */
struct page {
    struct mp_store *store;   /* NULL: it is not of a database */
    struct report_runs *runs; /* likewise */
    FILE *out;
    json_t *figures;  /* array, by number; see page_figure */
    int run_sections; /* so far */
    char title[200];
};

/* ---- HTML (page_write.c) ---- */

/* printf of HTML whose %s are escaped (markup_text); knows %s and %d alone. */
void page_print(FILE *out, const char *html, ...) __attribute__((format(printf, 2, 3)));

/* What stands around the charts of a page that is not a database's: its heading with every line of
 * `about` as a paragraph, and its foot. */
void page_begin(FILE *out, const char *heading, const char *about);
void page_end(FILE *out);
/* Every line of a text as a paragraph, with those behind it that are indented. */
void page_lines(FILE *out, const char *text);

/* A table (table.h) with its caption; nothing without rows.  `summary`: closed at first, under this
 * word; NULL: open. */
void page_table(FILE *out, const struct table *table, const char *caption, const char *summary);
/* The same of the rows of a query; ?1 is the run. */
int page_query(struct page *page, const char *sql, int64_t run_id,
               const struct table_column column[], int columns, const char *caption,
               const char *summary, struct mp_error *error);

/* A command to be copied, as command_text (command.h) makes it. */
void page_command(FILE *out, const char *command);
/* Findings (findings.h) as a list, warnings last. */
void page_findings(FILE *out, const json_t *findings);

/* Writes a page: what `body` makes of `context`, title included, inside of page/report.html.
 * Errors: its own, mp_vega_find's, page_paper's, MP_EIO, MP_ENOMEM, MP_ENOSPACE. */
typedef int page_body(const void *context, struct page *page, struct mp_error *error);
int page_write(const struct mp_page_output *output, struct page *page, page_body *body,
               const void *context, struct mp_error *error);
/* Writes a text to a file, whole or not at all.  Errors: MP_EIO, MP_ENOMEM, MP_ENOSPACE. */
int page_file(const char *path, const char *text, struct mp_error *error);
/* Puts the charts of a page, as HTML, into a folder (page_paper.c).  Errors: MP_ENOTFOUND (no
 * chart, or mp_browser_find's), MP_EINVAL, MP_EIO, MP_ENOMEM, MP_ENOSPACE. */
int page_paper(const char *html, const char *folder, struct mp_error *error);
/* Makes the folder and tries it; page_paper wants it there.  Errors: MP_EINVAL, MP_EIO. */
int page_paper_check(const char *folder, struct mp_error *error);

/* ---- figures (page_figure.c) ---- */

/* Data as it travels: {"columns": [names], "rows": [[values]]}.  NULL: no memory. */
json_t *page_data(void);
/* Adds the rows of a query whose ?1 is the run, and ?2, if it has one, `second`; with a label it
 * becomes the first column. */
int page_data_add(struct page *page, json_t *data, const char *sql, int64_t run_id, int64_t second,
                  const char *label, struct mp_error *error);
/* One choice of a figure; consumes `data` and `signals`, which may be NULL for none. */
json_t *page_choice(const char *label, json_t *data, json_t *signals);
/* A figure with its caption, title first.  Consumes `choices`; nothing for none.  `choose`: what is
 * chosen where there are several.  Errors: MP_ENOMEM. */
int page_figure(struct page *page, const char *chart, const char *title, const char *caption,
                const char *choose, json_t *choices, struct mp_error *error);
/* The same for a figure without choices; consumes `data`; nothing for no rows. */
int page_figure_of(struct page *page, const char *chart, const char *title, const char *caption,
                   json_t *data, struct mp_error *error);
/* The same for the rows of a query whose ?1 is the run. */
int page_figure_query(struct page *page, const char *chart, const char *title, const char *caption,
                      const char *sql, int64_t run_id, struct mp_error *error);

/* ---- kinds of work, by which spans are coloured ---- */

/* Of the column `phase`; their names are page_families. */
#define PAGE_FAMILY                                                                                \
    "CASE phase WHEN 'expert' THEN 0 WHEN 'weights' THEN 0 WHEN 'attention' THEN 1 WHEN "          \
    "'dispatch' THEN 3 "                                                                           \
    "WHEN 'combine' THEN 3 WHEN 'fetch' THEN 4 WHEN 'reduce' THEN 4 WHEN 'move' THEN 4 "           \
    "WHEN 'allreduce' THEN 5 WHEN 'data' THEN 6 WHEN 'plan' THEN 6 WHEN 'wait' THEN 8 ELSE 2 END"
enum { PAGE_NO_PHASE = 7, PAGE_WAITING = 8, PAGE_FAMILIES = 9 };
extern const char *const page_families[PAGE_FAMILIES];

/* Iterations that count: the steady ones, or all where none is; ?1 is the run. */
#define PAGE_COUNTED                                                                               \
    "WITH counted AS (SELECT * FROM v_iteration WHERE run_id = ?1 AND (steady OR NOT EXISTS "      \
    "(SELECT 1 FROM v_iteration WHERE run_id = ?1 AND steady))) "

/* ---- sections ---- */

/* Everything about one setting: what all its systems are compared by (page_setting.c). */
int page_setting(struct page *page, int table, struct mp_error *error);
/* Everything about one run (page_run.c). */
int page_run(struct page *page, const struct report_run *run, struct mp_error *error);
/* What ranks did when, in some iterations of a run (page_timeline.c). */
int page_timeline(struct page *page, const struct report_run *run, struct mp_error *error);
