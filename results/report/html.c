#include "results/report/html.h"

#include <stdio.h>
#include <string.h>

#include "results/report/findings.h"
#include "results/report/page.h"
#include "results/report/query.h"

/* ---- intervals ---- */

static json_t *pack(const struct mp_interval row[], int count) {
    json_t *rows = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(rows,
                              json_pack("[ooobooooooo]", text_value(row[i].label),
                                        text_value(row[i].group), text_value(row[i].text),
                                        row[i].is_inside, number_value(row[i].given[0]),
                                        number_value(row[i].given[1]), number_value(row[i].all[0]),
                                        number_value(row[i].all[1]), number_value(row[i].near[0]),
                                        number_value(row[i].near[1]), number_value(row[i].best)));
    return json_pack("{s[sssssssssss] so}", "columns", "label", "group", "text", "inside", "given",
                     "given2", "all", "all2", "near", "near2", "best", "rows", rows);
}

static int write_chart(struct page *page, const struct mp_interval row[], int count, bool is_ratio,
                       const char *title, const char *caption, struct mp_error *error) {
    json_t *signals = json_pack("{sb ss}", "isRatio", is_ratio, "axisTitle",
                                is_ratio ? "predicted over published" : "place in the range");
    return page_figure(page, "intervals", title, caption, "",
                       json_pack("[o]", page_choice("", pack(row, count), signals)), error);
}

/* The same in numbers and words, for those who see no chart. */
static int write_table(FILE *out, const struct mp_interval row[], int count,
                       struct mp_error *error) {
    static const struct table_column columns[] = {
        {"what", .kind = TABLE_LEFT}, {"use", .kind = TABLE_LEFT}, {"numbers", .kind = TABLE_LONG}};
    MP_AUTO(table) struct table table = table_of(columns, MP_LENGTH(columns));
    for (int i = 0; i < count; i++) {
        const char *cell[] = {row[i].label, row[i].group, row[i].text};
        MP_TRY(table_add(&table, NULL, error));
        for (int c = 0; c < 3; c++)
            table_set(&table, c, "%s", cell[c]);
    }
    page_table(out, &table, NULL, NULL);
    return MP_OK;
}

static int write_intervals(const void *context, struct page *page, struct mp_error *error) {
    const struct mp_intervals_page *own = context;
    snprintf(page->title, sizeof page->title, "moeperf: %.160s", own->title);
    page_begin(page->out, own->title, own->about);
    MP_TRY(write_chart(page, own->row, own->rows, true, "Published and predicted",
                       own->unknowns == 0
                           ? "Band: what counts as published. Dot: predicted; hollow where it "
                             "is outside."
                           : "Band: what counts as published. Thin line: prior, under all sets "
                             "of assumptions that were drawn before any search. Thick line: "
                             "under those nearly as good as the best. Dot: the best; hollow "
                             "where it is outside.",
                       error));
    if (own->unknowns > 0)
        MP_TRY(write_chart(page, own->unknown, own->unknowns, false, "What is unknown",
                           "Thin line: the range that is plausible. Thick line: of the sets nearly "
                           "as good as the best; the wider, the less the figures say. Dot: the "
                           "best.",
                           error));
    if (*own->sentences) {
        fputs("<h2>What is outside, and why</h2>\n", page->out);
        page_lines(page->out, own->sentences);
    }
    fputs("<h2>In numbers</h2>\n", page->out);
    MP_TRY(write_table(page->out, own->row, own->rows, error));
    if (own->unknowns > 0)
        MP_TRY(write_table(page->out, own->unknown, own->unknowns, error));
    page_end(page->out);
    return MP_OK;
}

int mp_intervals_html(const struct mp_intervals_page *own, const struct mp_page_output *output,
                      struct mp_error *error) {
    struct page page = {0};
    return page_write(output, &page, write_intervals, own, error);
}

/* ---- grids ---- */

static json_t *cells(const struct mp_grid *grid, bool shares) {
    json_t *rows = json_array();
    for (int r = 0; r < grid->rows; r++)
        for (int c = 0; c < grid->columns; c++) {
            double value = shares ? grid->share[r][c] : grid->ratio[r][c];
            json_array_append_new(rows, json_pack("[ooo]", text_value(grid->row_label[r]),
                                                  text_value(grid->column_label[c]),
                                                  number_value(value)));
        }
    return json_pack("{s[sss] so}", "columns", "row", "column", "ratio", "rows", rows);
}

static json_t *choices(const struct mp_grids *grids, bool shares) {
    json_t *list = json_array();
    for (int i = 0; i < grids->count; i++) {
        const struct mp_grid *grid = &grids->grid[i];
        if (shares && !grid->has_shares)
            continue;
        json_array_append_new(
            list,
            page_choice(grid->name, cells(grid, shares),
                        json_pack("{so so sb}", "rowTitle", text_value(grid->row), "columnTitle",
                                  text_value(grid->column), "isShare", shares)));
    }
    return list;
}

static int write_figures(const struct mp_grids *grids, struct page *page, struct mp_error *error) {
    const char *reference = grids->count > 0 ? grids->grid->reference : NULL;
    const char *choose = reference ? "Chosen" : "System";
    char title[128];
    snprintf(title, sizeof title, "Times as fast as %.80s",
             reference ? reference : "plain expert parallelism");
    MP_TRY(page_figure(page, "grid", title,
                       reference
                           ? "Time of the reference over that of what is chosen. Orange: "
                             "faster than the reference; blue: slower."
                           : "Median time of an iteration under EP over that under the system. "
                             "Orange: faster than EP; blue: slower; an empty place: not "
                             "possible, or not with the memory that there is.",
                       choose, choices(grids, false), error));
    return page_figure(page, "grid", "How near to the bound",
                       "The bound on all systems that drop nothing, keep the gate, leave experts "
                       "whole and send rows as "
                       "the job's exchange does, as a share of the system's mean time: none can be "
                       "faster than 100 %. An empty place: not possible, not known, or a system "
                       "that the bound says nothing of.",
                       choose, choices(grids, true), error);
}

static int write_grids(const void *context, struct page *page, struct mp_error *error) {
    const struct mp_grids *grids = context;
    snprintf(page->title, sizeof page->title, "moeperf: %.160s", grids->title);
    page_begin(page->out, grids->title, grids->about);
    if (grids->count == 1)
        page_print(page->out, "<p>%s</p>\n", grids->grid->name);
    MP_TRY(write_figures(grids, page, error));
    if (grids->table)
        table_html(grids->table, grids->table_caption, page->out);
    page_end(page->out);
    return MP_OK;
}

int mp_grid_html(const struct mp_grids *grids, const struct mp_page_output *output,
                 struct mp_error *error) {
    struct page page = {0};
    return page_write(output, &page, write_grids, grids, error);
}

/* ---- reports ---- */

static void write_head(const struct report_runs *runs, const char *path, FILE *out) {
    const struct report_run *first = runs->run;
    int complete = 0;
    for (int i = 0; i < runs->count; i++)
        complete += runs->run[i].complete;
    page_print(out, "<header>\n<h1>%s</h1>\n<p class=\"muted\">%d run%s of %s, ", first->suite,
               runs->count, runs->count == 1 ? "" : "s", first->suite_run);
    if (complete == runs->count)
        fputs("all complete", out);
    else
        page_print(out, "%d complete", complete);
    page_print(out, "; started %s; from %s</p>\n</header>\n", first->started_at, path);
}

static int write_main(struct page *page, struct mp_error *error) {
    struct report_runs *runs = page->runs;
    FILE *out = page->out;
    const char *path = mp_store_path(page->store), *name = strrchr(path, '/');
    write_head(runs, name ? name + 1 : path, out);
    fputs("<main>\n", out);
    MP_AUTO(json) json_t *findings = json_array();
    MP_TRY(findings_busy(page->runs, findings, error));
    if (json_array_size(findings) > 0)
        page_findings(out, findings);
    fputs("<div data-choose=\"Setting\">\n<noscript><p>The charts need JavaScript; words and "
          "tables don't.</p></noscript>\n",
          out);
    for (int t = 0; t < runs->tables; t++)
        MP_TRY(page_setting(page, t, error));
    fputs("</div>\n</main>\n<footer><p>Written by moeperf. Medians are over steady iterations: "
          "those that every rank completed, without the first tenth. Charts: Vega. Nothing on this "
          "page is loaded from anywhere.</p></footer>\n",
          out);
    return MP_OK;
}

static int write_report(const void *context, struct page *page, struct mp_error *error) {
    MP_AUTO(runs) struct report_runs runs = {0};
    MP_TRY(report_runs_load(page->store, context, &runs, error));
    page->runs = &runs;
    snprintf(page->title, sizeof page->title, "moeperf: %.160s", runs.run[0].suite);
    return write_main(page, error);
}

int mp_report_html(struct mp_store *store, const struct mp_report_selection *selection,
                   const struct mp_page_output *output, struct mp_error *error) {
    struct page page = {.store = store};
    return page_write(output, &page, write_report, selection, error);
}
