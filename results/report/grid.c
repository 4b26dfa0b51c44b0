#include "results/report/grid.h"

#include <stdio.h>

#include "results/report/page.h"
#include "results/report/query.h"

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
                       "The bound on all systems that drop nothing, keep the gate and send "
                       "rows as the job's exchange does, as a share of the system's mean "
                       "time: none can be faster than 100 %. "
                       "An empty place: not possible, not known, or a system that the bound "
                       "says nothing of.",
                       choose, choices(grids, true), error);
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    const struct mp_grids *grids = context;
    snprintf(page->title, sizeof page->title, "moeperf: %.160s", grids->title);
    page_begin(page->out, grids->title, grids->about);
    if (grids->count == 1)
        page_print(page->out, "<p>%s</p>\n", grids->grid->name);
    int code = write_figures(grids, page, error);
    if (!code && grids->table)
        table_html(grids->table, grids->table_caption, page->out);
    page_end(page->out);
    return code;
}

int mp_grid_html(const struct mp_grids *grids, const struct mp_page_output *output,
                 struct mp_error *error) {
    struct page page = {0};
    return page_write(output, &page, write_body, grids, error);
}
