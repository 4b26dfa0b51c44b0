#include "results/report/html.h"

#include <string.h>

#include "results/report/findings.h"
#include "results/report/page.h"
#include "results/report/query.h"

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

static int write_main(struct page *page, struct mp_error *error) {
    struct report_runs *runs = page->runs;
    FILE *out = page->out;
    const char *path = mp_store_path(page->store), *name = strrchr(path, '/');
    write_head(runs, name ? name + 1 : path, out);
    fputs("<main>\n", out);
    int code = write_busy(page->runs, out, error);
    fputs("<div data-choose=\"Setting\">\n<noscript><p>The charts need JavaScript; words and "
          "tables don't.</p></noscript>\n",
          out);
    for (int t = 0; !code && t < runs->tables; t++)
        code = page_setting(page, t, error);
    fputs("</div>\n</main>\n<footer><p>Written by moeperf. Medians are over steady iterations: "
          "those that "
          "every rank completed, without the first tenth. Charts: Vega. Nothing on this page is "
          "loaded from anywhere.</p></footer>\n",
          out);
    return code;
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    struct report_runs runs = {0};
    MP_TRY(report_runs_load(page->store, context, &runs, error));
    page->runs = &runs;
    snprintf(page->title, sizeof page->title, "moeperf: %.160s", runs.run[0].suite);
    int code = write_main(page, error);
    report_runs_free(&runs);
    return code;
}

int mp_report_html(struct mp_store *store, const struct mp_report_selection *selection,
                   const struct mp_page_output *output, struct mp_error *error) {
    struct page page = {.store = store};
    return page_write(output, &page, write_body, selection, error);
}
