/* The HTML report and the data of its charts, for the tests of what is in them. */
#pragma once

#include <jansson.h>
#include <sys/stat.h>

#include "results/report/html.h"
#include "tests/results/browser.h"
#include "tests/results/json.h"
#include "tests/results/runs.h"

/* A folder in which each module is a line of its own: what is in the page is what was there. */
static inline void make_library(struct runs_folder *folder) {
    static const char *const modules[] = {
        "util",           "time",       "format",          "loader",     "dataflow",
        "statistics",     "canvas",     "scale",           "scenegraph", "expression",
        "event-selector", "selection",  "functions",       "parser",     "runtime",
        "view",           "transforms", "view-transforms", "encode",     "interpreter"};
    char path[160];
    snprintf(path, sizeof path, "%s/vega", folder->path);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv("MOEPERF_VEGA", path, 1);
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        snprintf(path, sizeof path, "%s/vega/vega-%s.min.js", folder->path, modules[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "module.exports = '%s </SCRIPT <!-- </g';", modules[i]);
        fclose(file);
    }
}

/* Writes the report; its path in path[128]. */
static inline void write_report(struct runs_folder *folder,
                                const struct mp_report_selection *selection, char path[128]) {
    snprintf(path, 128, "%s/report.html", folder->path);
    assert_works(
        mp_report_html(folder->store, selection, &(struct mp_page_output){path, NULL}, &error));
}

/* The report as a page with a library of its own; to be freed. */
static inline char *page_of(struct runs_folder *folder) {
    char path[128];
    make_library(folder);
    write_report(folder, NULL, path);
    return file_text(path);
}

static inline json_t *data_of(const char *page) {
    static const char before[] = "<script type=\"application/json\" id=\"report-data\">";
    const char *start = strstr(page, before);
    assert_non_null(start);
    start += strlen(before);
    json_error_t fault;
    json_t *data = json_loadb(start, (size_t)(strstr(start, "</script>") - start), 0, &fault);
    if (!data)
        fail_msg("data: %s", fault.text);
    return data;
}

/* The choices of the n-th figure with this chart. */
static const json_t *choices_of(json_t *data, const char *chart, int n) {
    size_t i;
    json_t *figure;
    json_array_foreach(json_object_get(data, "figures"), i, figure) {
        if (strcmp(json_string_value(json_object_get(figure, "chart")), chart) == 0 && n-- == 0)
            return json_object_get(figure, "choices");
    }
    return NULL;
}

/* The rows of one of them, and of the first. */
static inline json_t *rows_in(const json_t *choices, size_t choice) {
    return json_object_get(json_object_get(json_array_get(choices, choice), "table"), "rows");
}
static inline json_t *rows_of(json_t *data, const char *chart, int n) {
    return rows_in(choices_of(data, chart, n), 0);
}

/* The rows of a chart are these, numbers within a ten-thousandth. */
static inline void compare_rows(json_t *data, const char *chart, const char *expected) {
    assert_json(rows_of(data, chart, 0), 1e-4, expected);
}
