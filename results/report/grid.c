#include "results/report/grid.h"

#include <stdio.h>

#include "results/report/page.h"
#include "results/report/query.h"

struct grids {
    const struct mp_grid *grid;
    int count;
    const char *title, *about;
};

static json_t *cells(const struct mp_grid *grid) {
    json_t *rows = json_array();
    for (int r = 0; r < grid->rows; r++)
        for (int c = 0; c < grid->columns; c++)
            json_array_append_new(rows, json_pack("[ooo]", json_text(grid->row_label[r]),
                                                  json_text(grid->column_label[c]),
                                                  json_number(grid->ratio[r][c])));
    return json_pack("{s[sss] so}", "columns", "row", "column", "ratio", "rows", rows);
}

static json_t *choices(const struct grids *grids) {
    json_t *list = json_array();
    for (int i = 0; i < grids->count; i++) {
        const struct mp_grid *grid = &grids->grid[i];
        json_array_append_new(list,
                              page_choice(grid->name, cells(grid),
                                          json_pack("{so so}", "rowTitle", json_text(grid->row),
                                                    "columnTitle", json_text(grid->column))));
    }
    return list;
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    const struct grids *grids = context;
    snprintf(page->title, sizeof page->title, "moeperf: %.160s", grids->title);
    page_print(page->out, "<header>\n<h1>%s</h1>\n", grids->title);
    if (grids->count == 1)
        page_print(page->out, "<p>%s</p>\n", grids->grid->name);
    page_lines(page->out, grids->about);
    fputs("</header>\n<main>\n<noscript><p>The chart needs JavaScript.</p></noscript>\n",
          page->out);
    const char *reference = grids->count > 0 ? grids->grid->reference : NULL;
    char title[128];
    snprintf(title, sizeof title, "Times as fast as %.80s",
             reference ? reference : "plain expert parallelism");
    int code =
        page_figure(page, "grid", title,
                    reference ? "Time of the reference over that of what is chosen. Orange: "
                                "faster than the reference; blue: slower."
                              : "Median time of an iteration under EP over that under the system. "
                                "Orange: faster than EP; blue: slower; an empty place: not "
                                "possible, or not with the memory that there is.",
                    reference ? "Chosen" : "System", choices(grids), error);
    fputs("</main>\n<footer><p>Written by moeperf. Chart: Vega. Nothing on this page is loaded "
          "from anywhere.</p></footer>\n",
          page->out);
    return code;
}

int mp_grid_html(const struct mp_grid grid[], int count, const char *title, const char *about,
                 const char *path, struct mp_error *error) {
    const struct grids grids = {grid, count, title, about};
    struct page page = {0};
    return page_file(path, &page, write_body, &grids, error);
}
