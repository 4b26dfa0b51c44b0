#include "results/report/html.h"

#include <stdlib.h>
#include <string.h>

#include "reference/base/whole_file.h"
#include "results/report/findings.h"
#include "results/report/page.h"
#include "results/report/query.h"
#include "results/report/vega.h"

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

/* What all the rest is read with. */
static int write_busy(const struct report_runs *runs, FILE *out, struct mp_error *error) {
    json_t *findings = json_array();
    int code = findings_busy(runs, findings, error);
    if (!code && json_array_size(findings) > 0)
        page_findings(out, findings);
    json_decref(findings);
    return code;
}

static int write_body(struct mp_store *store, struct report_runs *runs, FILE *out, json_t *figures,
                      struct mp_error *error) {
    struct page page = {.store = store, .runs = runs, .out = out, .figures = figures};
    const char *path = mp_store_path(store), *name = strrchr(path, '/');
    write_head(runs, name ? name + 1 : path, out);
    fputs("<main>\n", out);
    int code = write_busy(runs, out, error);
    fputs("<div data-choose=\"Setting\">\n<noscript><p>The charts need JavaScript; words and "
          "tables don't.</p></noscript>\n",
          out);
    for (int t = 0; !code && t < runs->tables; t++)
        code = page_setting(&page, t, error);
    fputs("</div>\n</main>\n<footer><p>Written by moeperf. Medians are over steady iterations: "
          "those that "
          "every rank completed, without the first tenth. Charts: Vega. Nothing on this page is "
          "loaded from anywhere.</p></footer>\n",
          out);
    return code;
}

static int write_report(struct mp_store *store, const struct mp_report_selection *selection,
                        FILE *out, struct mp_error *error) {
    struct report_runs runs = {0};
    char *body = NULL, title[200];
    size_t size;
    int code = report_runs_load(store, selection, &runs, error);
    if (code)
        return code;
    json_t *figures = json_array();
    FILE *memory = open_memstream(&body, &size);
    if (!memory || !figures)
        code = mp_fail(error, MP_ENOMEM, "no memory for the report");
    if (!code)
        code = write_body(store, &runs, memory, figures, error);
    if (memory && fclose(memory) && !code)
        code = mp_fail(error, MP_ENOMEM, "no memory for the report");
    snprintf(title, sizeof title, "moeperf: %.160s", runs.run[0].suite);
    if (!code)
        code = page_assemble(title, body, figures, out, error);
    free(body);
    json_decref(figures);
    report_runs_free(&runs);
    return code ? code : check_printed(out, error);
}

int mp_report_html(struct mp_store *store, const struct mp_report_selection *selection,
                   const char *path, struct mp_error *error) {
    char folder[MP_VEGA_FOLDER];
    struct mp_whole_file file;
    int code = mp_vega_find(folder, error); /* before the work */
    if (code)
        return code;
    code = mp_whole_file_open(&file, path, error);
    if (!code)
        code = write_report(store, selection, file.stream, error);
    return mp_whole_file_close(&file, code, error);
}
