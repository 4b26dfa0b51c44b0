/* A page's charts for papers: a browser (browser.h) draws them, page/script.js says how. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "reference/base/whole_file.h"
#include "results/report/browser.h"
#include "results/report/page.h"
#include "results/report/query.h"

enum { PATH = 768 };

/* Of two-column papers: a column, and the text of a page. */
static const struct {
    double inches;
    const char *suffix;
} widths[] = {{3.3, ""}, {7, "-wide"}};

/* One chart at one width: what the browser shows is printed, too. */
static int write_chart(struct mp_browser *browser, size_t number, const char *stem, double inches,
                       struct mp_error *error) {
    char expression[96], path[PATH];
    MP_AUTO(json) json_t *drawn = NULL;
    snprintf(expression, sizeof expression, "sheets.show(%zu, %.1f)", number, inches);
    MP_TRY(mp_browser_evaluate(browser, expression, &drawn, error));
    const char *svg = json_string_value(json_object_get(drawn, "svg"));
    if (!svg)
        return mp_fail(error, MP_EIO, "%.500s: the page's script draws nothing", stem);
    snprintf(path, sizeof path, "%s.svg", stem);
    MP_TRY(page_file(path, svg, error));
    snprintf(path, sizeof path, "%s.pdf", stem);
    return mp_browser_print(browser, json_number_value(json_object_get(drawn, "width")),
                            json_number_value(json_object_get(drawn, "height")), path, error);
}

/* Every chart, and in figures.txt what each is called in the page. */
static int write_charts(struct mp_browser *browser, const char *folder, const json_t *list,
                        struct mp_error *error) {
    char stem[PATH - 8], path[PATH];
    MP_AUTO(whole_file) struct mp_whole_file names = {0};
    size_t i;
    json_t *sheet;
    snprintf(path, sizeof path, "%.700s/figures.txt", folder);
    MP_TRY(mp_whole_file_open(&names, path, error));
    json_array_foreach(list, i, sheet) {
        const char *name = json_string_value(json_object_get(sheet, "name"));
        for (size_t w = 0; w < MP_LENGTH(widths); w++) {
            snprintf(stem, sizeof stem, "%.500s/%.200s%s", folder, name, widths[w].suffix);
            MP_TRY(write_chart(browser, i, stem, widths[w].inches, error));
        }
        fprintf(names.stream, "%s: %s\n", name, json_string_value(json_object_get(sheet, "title")));
    }
    return mp_whole_file_close(&names, MP_OK, error);
}

int page_paper_check(const char *folder, struct mp_error *error) {
    char path[PATH];
    if (strlen(folder) > 500)
        return mp_fail(error, MP_EINVAL, "%.40s...: a folder's name of at most 500 bytes, please",
                       folder);
    if (mkdir(folder, 0777) && errno != EEXIST)
        return mp_fail(error, MP_EIO, "%s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%.700s/figures.txt", folder);
    return mp_whole_file_try(path, error);
}

int page_paper(const char *html, const char *folder, struct mp_error *error) {
    MP_AUTO(browser) struct mp_browser *browser = NULL;
    MP_AUTO(json) json_t *list = NULL;
    MP_TRY(mp_browser_open(&browser, html, error));
    MP_TRY(mp_browser_evaluate(browser, "sheets.list()", &list, error));
    return json_array_size(list) == 0
               ? mp_fail(error, MP_ENOTFOUND, "there is no chart to put into %s", folder)
               : write_charts(browser, folder, list, error);
}
