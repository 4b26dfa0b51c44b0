#include "results/report/intervals.h"

#include <stdio.h>

#include "results/report/page.h"
#include "results/report/query.h"

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
    struct table table;
    int code = MP_OK;
    table_init(&table, columns, sizeof columns / sizeof *columns);
    for (int i = 0; !code && i < count; i++) {
        const char *cell[] = {row[i].label, row[i].group, row[i].text};
        code = table_add(&table, NULL, error);
        for (int c = 0; !code && c < 3; c++)
            table_set(&table, c, "%s", cell[c]);
    }
    page_table(out, &table, NULL, NULL);
    table_free(&table);
    return code;
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    const struct mp_intervals_page *own = context;
    snprintf(page->title, sizeof page->title, "moeperf: %.160s", own->title);
    page_begin(page->out, own->title, own->about);
    int code = write_chart(page, own->row, own->rows, true, "Published and predicted",
                           own->unknowns == 0
                               ? "Band: what counts as published. Dot: predicted; hollow where it "
                                 "is outside."
                               : "Band: what counts as published. Thin line: prior, under all sets "
                                 "of assumptions that were drawn before any search. Thick line: "
                                 "under those nearly as good as the best. Dot: the best; hollow "
                                 "where it is outside.",
                           error);
    if (!code && own->unknowns > 0)
        code = write_chart(page, own->unknown, own->unknowns, false, "What is unknown",
                           "Thin line: the range that is plausible. Thick line: of the sets nearly "
                           "as good as the best; the wider, the less the figures say. Dot: the "
                           "best.",
                           error);
    if (*own->sentences) {
        fputs("<h2>What no set explains</h2>\n", page->out);
        page_lines(page->out, own->sentences);
    }
    fputs("<h2>In numbers</h2>\n", page->out);
    if (!code)
        code = write_table(page->out, own->row, own->rows, error);
    if (!code && own->unknowns > 0)
        code = write_table(page->out, own->unknown, own->unknowns, error);
    page_end(page->out);
    return code;
}

int mp_intervals_html(const struct mp_intervals_page *own, const struct mp_page_output *output,
                      struct mp_error *error) {
    struct page page = {0};
    return page_write(output, &page, write_body, own, error);
}
