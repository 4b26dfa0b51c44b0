#include "results/report/page.h"
#include "results/report/query.h"

const struct page_chart page_charts[] = {{"speedup", chart_speedup},
                                         {"iteration-time", chart_iteration_time},
                                         {"loss", chart_loss},
                                         {"phases", chart_phases},
                                         {"timeline", chart_timeline},
                                         {"imbalance", chart_imbalance},
                                         {"experts", chart_experts},
                                         {"scatter", chart_scatter},
                                         {"predicted", chart_predicted},
                                         {"grid", chart_grid},
                                         {"intervals", chart_intervals},
                                         {"history", chart_history},
                                         {0}};

const char *const page_families[PAGE_FAMILIES] = {
    "expert",     "attention",         "other computation", "token exchange", "moving experts",
    "all-reduce", "data and planning", "no phase",          "blocked"};

json_t *page_data(void) {
    return json_pack("{s[] s[]}", "columns", "rows");
}

int page_data_add(struct page *page, json_t *data, const char *sql, int64_t run_id, int64_t second,
                  const char *label, struct mp_error *error) {
    json_t *columns = json_object_get(data, "columns"), *rows = json_object_get(data, "rows");
    struct query query = query_begin(page->store, sql, run_id, error);
    const int count = sqlite3_column_count(query.row);
    int failed = !rows;
    if (sqlite3_bind_parameter_count(query.row) > 1)
        sqlite3_bind_int64(query.row, 2, second);
    if (json_array_size(columns) == 0 && !query.code) {
        if (label)
            failed |= json_array_append_new(columns, json_string("label"));
        for (int c = 0; c < count; c++)
            failed |=
                json_array_append_new(columns, json_string(sqlite3_column_name(query.row, c)));
    }
    while (!failed && query_next(&query)) {
        json_t *row = json_array();
        if (label)
            failed |= json_array_append_new(row, text_value(label));
        for (int c = 0; c < count; c++)
            failed |= json_array_append_new(row, query_value(query.row, c));
        failed |= json_array_append_new(rows, row);
    }
    if (failed && !query.code)
        query.code = mp_no_memory(error);
    return query_end(&query);
}

json_t *page_choice(const char *label, json_t *data, json_t *signals) {
    return json_pack("{so so so}", "label", text_value(label), "table", data, "signals",
                     signals ? signals : json_object());
}

int page_figure(struct page *page, const char *chart, const char *title, const char *caption,
                const char *choose, json_t *choices, struct mp_error *error) {
    if (choices && json_array_size(choices) == 0) {
        json_decref(choices);
        return MP_OK;
    }
    json_t *figure = json_pack("{ss ss so}", "chart", chart, "choose", choose, "choices", choices);
    int number = (int)json_array_size(page->figures);
    if (!figure || json_array_append_new(page->figures, figure))
        return mp_no_memory(error);
    page_print(page->out, "<h3>%s</h3>\n<figure><figcaption>%s</figcaption>\n", title, caption);
    page_print(page->out,
               "<div class=\"chart\" data-figure=\"%d\" data-chart=\"%s\"></div></figure>\n",
               number, chart);
    return MP_OK;
}

int page_figure_of(struct page *page, const char *chart, const char *title, const char *caption,
                   json_t *data, struct mp_error *error) {
    json_t *choices = json_array();
    if (json_array_size(json_object_get(data, "rows")) == 0)
        json_decref(data);
    else if (json_array_append_new(choices, page_choice("", data, NULL)))
        return mp_no_memory(error);
    return page_figure(page, chart, title, caption, "", choices, error);
}

int page_figure_query(struct page *page, const char *chart, const char *title, const char *caption,
                      const char *sql, int64_t run_id, struct mp_error *error) {
    MP_AUTO(json) json_t *data = page_data();
    MP_TRY(page_data_add(page, data, sql, run_id, 0, NULL, error));
    return page_figure_of(page, chart, title, caption, json_incref(data), error);
}
