/* Figures for papers: a page's charts as SVG and PDF of a stated size, by a browser; and the
 * browser itself, which is spoken to over a pipe. */
#include <dirent.h>
#include <sys/stat.h>

#include "results/report/html.h"
#include "tests/results/browser.h"
#include "tests/results/runs.h"

static char *text_of(const char *folder, const char *name, size_t *size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return read_bytes(path, size);
}

static double number_behind(const char *text, const char *words) {
    const char *at = strstr(text, words);
    if (!at)
        fail_msg("no %s in %.300s", words, text);
    return strtod(at + strlen(words), NULL);
}

/* Both files of a figure: one size, nothing from elsewhere, letters of eight points. */
static void check_figure(const char *folder, const char *name, const char *suffix, double inches) {
    char file[256];
    size_t size;
    snprintf(file, sizeof file, "%s%s.svg", name, suffix);
    AUTO(text) char *svg = text_of(folder, file, &size);
    const double width = number_behind(svg, " width=\""), height = number_behind(svg, "height=\"");
    if (strncmp(svg, "<svg ", 5) != 0 || width > inches || width < inches - 0.02 || height < 0.5 ||
        height > 6 || !strstr(svg, "in\" viewBox"))
        fail_msg("%s: %.300s", file, svg);
    assert_contains(svg, "font-size=\"10.66");
    assert_null(strstr(svg, "href=\"http"));
    assert_null(strstr(svg, "NaN"));
    snprintf(file, sizeof file, "%s%s.pdf", name, suffix);
    AUTO(text) char *pdf = text_of(folder, file, &size);
    assert_memory_equal(pdf, "%PDF-", 5);
    const char *box = memmem(pdf, size, "/MediaBox [0 0 ", 15);
    assert_non_null(box);
    char *end;
    assert_true(fabs(strtod(box + 15, &end) - 72 * width) < 1);
    assert_true(fabs(strtod(end, NULL) - 72 * height) < 1);
    assert_null(memmem(box + 15, size - (size_t)(box + 15 - pdf), "/MediaBox", 9)); /* one page */
    assert_non_null(memmem(pdf, size, "/FontFile", 9)); /* letters, not pictures of them */
}

static int files_in(const char *folder) {
    int files = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries));)
        files += *entry->d_name != '.';
    closedir(entries);
    return files;
}

static void add_runs(struct runs_folder *folder) {
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add_usual(folder, "fssdp", &runs_fssdp);
}

RUNS_TEST(every_chart_is_a_figure) {
    char figures[128], charts[64], path[MP_BROWSER_PATH];
    size_t size;
    int count = 0;
    need_browser(path);
    add_runs(folder);
    snprintf(figures, sizeof figures, "%s/figures", folder->path);
    const struct mp_page_output output = {NULL, figures};
    assert_works(mp_report_html(folder->store, NULL, &output, &error));
    char *list = text_of(figures, "figures.txt", &size), *rest = list;
    for (char *line; (line = strsep(&rest, "\n")) && *line; count++) {
        char *title = strstr(line, ": ");
        assert_non_null(title);
        *title = '\0';
        snprintf(charts, sizeof charts, "%.60s", line);
        check_figure(figures, charts, "", 3.3);
        check_figure(figures, charts, "-wide", 7);
        if (count == 0) {
            assert_string_equal(line, "01-time-per-iteration");
            assert_string_equal(title + 2,
                                "Time per iteration; tiny: text, gate gshard, 2 ranks, measured");
            AUTO(text) char *svg = text_of(figures, "01-time-per-iteration.svg", &size);
            assert_contains(svg, ">fssdp</text>");
        }
    }
    free(list);
    assert_true(count > 8);
    assert_int_equal(files_in(figures), 4 * count + 1);
}

/* Before any work, and with what to do. */
RUNS_TEST(a_missing_browser_is_named) {
    char figures[128];
    struct stat status;
    add_runs(folder);
    snprintf(figures, sizeof figures, "%s/figures", folder->path);
    const struct mp_page_output output = {NULL, figures};
    setenv("MOEPERF_BROWSER", "/nowhere/chromium", 1);
    assert_sentence(mp_report_html(folder->store, NULL, &output, &error), MP_ENOTFOUND,
                    "MOEPERF_BROWSER=/nowhere/chromium: No such file or directory");
    assert_int_not_equal(stat(figures, &status), 0);
    unsetenv("MOEPERF_BROWSER");
    AUTO(text) char *path = strdup(getenv("PATH"));
    setenv("PATH", folder->path, 1);
    assert_fails(mp_report_html(folder->store, NULL, &output, &error), MP_ENOTFOUND,
                 "apt-get install chromium");
    setenv("PATH", path, 1);
    setenv("MOEPERF_BROWSER", "/bin/true", 1);
    snprintf(figures, sizeof figures, "%s/results.db", folder->path);
    assert_fails(mp_page_check(&output, &error), MP_EIO, "results.db/figures.txt");
    unsetenv("MOEPERF_BROWSER");
}

RUNS_TEST(a_program_that_is_no_browser_is_named) {
    struct mp_browser *browser;
    setenv("MOEPERF_BROWSER", "/bin/true", 1);
    setenv("TMPDIR", folder->path, 1);
    const int before = files_in(folder->path);
    assert_fails(mp_browser_open(&browser, "<p>", &error), MP_EIO,
                 "/bin/true, which draws charts, ended");
    assert_null(browser);
    assert_int_equal(files_in(folder->path), before);
    unsetenv("TMPDIR");
    unsetenv("MOEPERF_BROWSER");
}

/* Some of a browser's processes outlive it for a moment, and write into its profile. */
RUNS_TEST(nothing_is_left_of_a_browser) {
    struct mp_browser *browser;
    char program[128];
    snprintf(program, sizeof program, "%s/browser", folder->path);
    FILE *script = fopen(program, "w");
    assert_non_null(script);
    fputs("#!/bin/sh\n"
          "for argument; do case $argument in --user-data-dir=*) profile=${argument#*=};; esac; "
          "done\n"
          "(for i in $(seq 1000); do mkdir -p \"$profile/late\"; sleep 0.001; done) 3>&- 4>&- &\n",
          script);
    assert_int_equal(fchmod(fileno(script), 0700) | fclose(script), 0);
    setenv("MOEPERF_BROWSER", program, 1);
    setenv("TMPDIR", folder->path, 1);
    const int before = files_in(folder->path);
    assert_fails(mp_browser_open(&browser, "<p>", &error), MP_EIO, "which draws charts, ended");
    usleep(50000);
    assert_int_equal(files_in(folder->path), before);
    unsetenv("TMPDIR");
    unsetenv("MOEPERF_BROWSER");
}

/* Texts of any length and letter come back as they were sent, in turn. */
RUNS_TEST(a_browser_answers) {
    static const char *const letters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "<"};
    struct mp_browser *browser;
    json_t *value;
    char path[MP_BROWSER_PATH];
    need_browser(path);
    setenv("TMPDIR", folder->path, 1);
    assert_works(
        mp_browser_open(&browser, "<p id=p>text</p><script>const three = 3;</script>", &error));
    assert_works(
        mp_browser_evaluate(browser, "Promise.resolve(three + p.textContent)", &value, &error));
    assert_string_equal(json_string_value(value), "3text");
    json_decref(value);
    for (int length = 1; length < 300000; length *= 17) {
        AUTO(text) char *sent = NULL;
        size_t size;
        FILE *memory = open_memstream(&sent, &size);
        fputs("String('", memory);
        for (int i = 0; i < length; i++)
            fputs(letters[(i + length) % 5], memory);
        fputs("')", memory);
        fclose(memory);
        assert_works(mp_browser_evaluate(browser, sent, &value, &error));
        assert_int_equal(json_string_length(value), size - strlen("String('')"));
        assert_memory_equal(json_string_value(value), sent + strlen("String('"),
                            json_string_length(value));
        json_decref(value);
    }
    assert_fails(mp_browser_evaluate(browser, "nothing()", &value, &error), MP_EIO,
                 "nothing is not defined");
    mp_browser_close(browser);
    char profile[256];
    snprintf(profile, sizeof profile, "ls -d %s/moeperf-browser-* 2>/dev/null", folder->path);
    assert_int_not_equal(system(profile), 0); // NOLINT(cert-env33-c)
    unsetenv("TMPDIR");
}
