/* The HTML report of runs whose numbers are known: what stands in it, that names are only names,
 * and in a browser, where there is one, that every chart is drawn. */
#include "tests/results/report/pages.h"

/* What must stay text, in every place that a name can get to. */
#define HOSTILE                                                                                    \
    "\"'><script id=injected>window.injected=1</script><img src=x onerror=\"injected=1\">"         \
    "<!--{{style}}\xff\x01\xe2\x80\xae&lt;"

/* Two settings: EP and FSSDP measured in two rounds, EP predicted.  `name`: of everything that has
 * one; NULL: something usual. */
static void add_runs(struct runs_folder *folder, const char *name, bool shares_cores) {
    struct mp_store_run run[] = {runs_description("ep", name ? name : "text"),
                                 runs_description("fssdp", name ? name : "text"),
                                 runs_description("ep", name ? name : "text")};
    struct runs_standard standard[] = {runs_ep, runs_fssdp, runs_fssdp};
    run[2].executor = "predicted";
    if (name)
        run[1].system = "turns \xe2\x80\xae round"; /* it gets into the figures, too */
    for (int i = 0; i < 3; i++) {
        standard[i].shares_cores = shares_cores;
        standard[i].drops_nothing = true;
        run[i].model = "2 x 256";
        if (name)
            run[i].suite = run[i].model = run[i].gate = run[i].reason = run[i].job = name;
        for (int round = 0; round < (i < 2 ? 2 : 1); round++) {
            run[i].round = round;
            runs_add(folder, &run[i], &standard[i]);
        }
    }
}

RUNS_TEST(words_tables_and_data_are_there) {
    add_runs(folder, NULL, false);
    AUTO(text) char *page = page_of(folder);
    assert_contains(
        page, "<title>moeperf: tiny</title>",
        "fssdp trains 2.00 x as fast as EP (median of 2 rounds&#39; ratios, 2.00 to 2.00).",
        "12.00..12.00", "run 5 (predicted)</p>", "<summary>Waiting, in full</summary>",
        "<th scope=\"row\" class=\"words\">layer 0 expert</th>",
        "and the run did not measure what one costs");
    assert_count(page, "<section data-label=", 2 + 3); /* settings and systems */
    AUTO(json) json_t *data = data_of(page);
    assert_int_equal(json_array_size(rows_of(data, "speedup", 0)), 2);
    assert_json(json_array_get(rows_of(data, "speedup", 0), 0), 0, "['ep', 24, 24, 24, 2, false]");
    assert_int_equal(json_array_size(rows_of(data, "iteration-time", 0)), 8);
    assert_int_equal(json_array_size(rows_of(data, "loss", 0)), 8);
    /* Three experts with 2 x 30, 20 and 20 routes, one with none: 2.4, 0.8, 0.8 and 0 x the mean.
     */
    assert_int_equal(json_array_size(rows_of(data, "experts", 0)), 16);
    assert_json(json_array_get(rows_of(data, "experts", 0), 0), 1e-9, "[0, 0, 2.4]");
    /* 24 ms measured, 12 ms predicted. */
    assert_json(json_array_get(rows_of(data, "predicted", 0), 0), 0, "['ep', 24, 12]");
}

/* Of the 2.5 and 0.5 ms in which ranks are blocked 2 are rank 1's for rank 0, the rest is transfer.
 */
RUNS_TEST(waiting_is_apart_from_transfers) {
    runs_add_uneven(folder, "ep");
    AUTO(text) char *page = page_of(folder);
    AUTO(json) json_t *data = data_of(page);
    compare_rows(data, "phases",
                 "[['ep', 0, 3], ['ep', 1, 2], ['ep', 3, 0.5], ['ep', 7, 0], ['ep', 8, 1]]");
}

/* One run of each, nothing dropped, with iterations of 40 20 28 24 and 20 10 14 12 ms. */
RUNS_TEST(charts_show_what_was_recorded) {
    struct mp_store_run fssdp = runs_description("fssdp", "text");
    struct runs_standard first = runs_ep, second = runs_fssdp;
    first.drops_nothing = second.drops_nothing = true;
    runs_add_usual(folder, "ep", &first);
    runs_add(folder, &fssdp, &second);
    fssdp.round = 1;
    second.ms[1] = second.ms[2] = second.ms[3] = 16;
    runs_add(folder, &fssdp, &second);
    runs_execute(
        folder->store,
        "UPDATE imbalance_summary SET expert_max_over_mean = expert_max_over_mean + "
        "iteration * run_id, rank_max_over_mean = rank_max_over_mean + iteration * run_id");
    AUTO(text) char *page = page_of(folder);
    AUTO(json) json_t *data = data_of(page);
    compare_rows(data, "speedup",
                 "[['ep', 24, 24, 24, 1, false], ['fssdp', 14, 12, 16, 2, false]]");
    compare_rows(data, "iteration-time",
                 "[['ep', 0, 40, 40, 0], ['ep', 1, 20, 20, 1], ['ep', 2, 28, 28, 1], ['ep', 3, 24, "
                 "24, 1], ['fssdp', 0, 20, 20, 0], ['fssdp', 1, 10, 10, 1], ['fssdp', 2, 14, 14, "
                 "1], ['fssdp', 3, 12, 12, 1]]");
    compare_rows(data, "loss",
                 "[['ep', 0, 5], ['ep', 1, 4], ['ep', 2, 3], ['ep', 3, 2], ['fssdp', 0, 5], "
                 "['fssdp', 1, 4.4], ['fssdp', 2, 3], ['fssdp', 3, 2.1]]");
    /* Families: 0 experts (8 + 4) / 2, 1 attention, 3 exchange (1 + 3) / 2, 4 copies, 7 nothing of
     * (39 + 19 + 27 + 23) / 4 = 27 and (19 + 9 + 13 + 11) / 4 = 13 ms, 8 waiting: rank 1 is blocked
     * for 2 ms and came last. */
    compare_rows(data, "phases",
                 "[['ep', 0, 6], ['ep', 1, 2], ['ep', 3, 2], ['ep', 4, 0.5], ['ep', 7, 16.5], "
                 "['ep', 8, 0], ['fssdp', 0, 6], ['fssdp', 1, 2], ['fssdp', 3, 2], ['fssdp', 4, "
                 "0.5], ['fssdp', 7, 2.5], ['fssdp', 8, 0]]");
    /* 60 of 100 routes on one of four experts, 60 and 20 tokens, and what was added; 2 ms in the
     * exchange and 0.25 in the copies. */
    compare_rows(data, "imbalance",
                 "[[0, 0, 2.4, 1.5], [1, 0, 3.4, 2.5], [2, 0, 4.4, 3.5], [3, 0, 5.4, 4.5]]");
    compare_rows(data, "scatter",
                 "[[0, 0, 0, 1.5, 2.25], [0, 1, 0, 1.5, 2.25],"
                 " [0, 2, 0, 1.5, 2.25], [0, 3, 0, 1.5, 2.25]]");
    /* 24 / 12, and nothing to compare with in the round of 16; the ratio comes before what is wide.
     */
    assert_contains(page,
                    "<tr><th scope=\"row\" class=\"words\">fssdp</th><td>14.00</td>"
                    "<td>2.00</td><td>2.00..2.00</td><td>12.00..16.00</td>"
                    "<td>7292</td><td>2.1000</td><td>–</td>"
                    "<td>2 of 2</td></tr>",
                    "<tr><th scope=\"row\" class=\"words\">combine</th><td>2.000</td>"
                    "<td>7.4</td><td>1.000</td><td>0.000</td></tr>",
                    "<tr><th scope=\"row\" class=\"words\">layer 0 expert</th>"
                    "<td>4.000</td><td>2.250</td><td>0</td><td>100</td>"
                    "<td>1.50</td></tr>\n<tr><th scope=\"row\" class=\"words\">layer 0 fetch</th>"
                    "<td>0.250</td><td>2.250</td><td>1</td><td>100</td><td>–</td></tr>\n</tbody>",
                    "<tr><th scope=\"row\">0</th><td>4</td><td>3.90</td><td>3.00</td>"
                    "<td>2.59</td><td>25.0</td><td>0.0</td></tr>");
}

/* Before everything else on the page, and nobody is called the fastest. */
RUNS_TEST(a_busy_machine_is_said_first) {
    struct runs_standard run = runs_fssdp;
    run.taken = 0.3;
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add_usual(folder, "fssdp", &run);
    AUTO(text) char *page = page_of(folder);
    const char *busy = strstr(page, "<strong>The machine was busy</strong> For up to 30 % of the");
    assert_non_null(busy);
    assert_true(busy < strstr(page, "<section"));
    assert_contains(page, "Which system is faster can&#39;t be told");
    assert_null(strstr(page, "x as fast"));
    assert_null(strstr(page, "Fastest on this setting"));
}

/* Uneven routes take 6.5 ms.  Whoever is said to be faster could be run, ended, and drops nothing.
 */
RUNS_TEST(advice_names_who_is_faster) {
    static const struct {
        const char *system, *status;
        int ms;
        bool drops, unattainable;
    } others[] = {{"fssdp", "complete", 6, false, false},
                  {"slower", "complete", 7, false, false},
                  {"dropper", "complete", 5, true, false},
                  {"failed", "failed", 5, false, false},
                  {"yardstick", "complete", 5, false, true}};
    runs_add_uneven(folder, "ep");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct mp_store_run run = runs_description(others[i].system, "text");
        struct runs_standard as = {.count = 2, .drops_nothing = !others[i].drops};
        run.status = others[i].status;
        run.unattainable = others[i].unattainable;
        as.ms[0] = as.ms[1] = others[i].ms;
        runs_add(folder, &run, &as);
    }
    AUTO(text) char *page = page_of(folder);
    assert_contains(page, "Fastest on this setting: fssdp. A system that");
}

/* Where the run has measured it: 4 x 7 + 1 spans per rank, 1,000 ns each, of 28 ms on average. */
RUNS_TEST(what_recording_cost_is_said) {
    runs_add_usual(folder, "ep", &runs_ep);
    runs_execute(folder->store, "INSERT INTO StringIds (value) VALUES ('record-span-ns'); "
                                "INSERT INTO number SELECT run_id, 0, -1, -1, StringIds.id, 1000 "
                                "FROM run, StringIds WHERE value = 'record-span-ns'");
    AUTO(text) char *page = page_of(folder);
    assert_contains(page, "<p>Recording cost: 7 spans per iteration at 1000 ns: 0.026 % of "
                          "an iteration; 58 in all");
}

RUNS_TEST(nothing_is_loaded_from_anywhere) {
    add_runs(folder, NULL, false);
    AUTO(text) char *page = page_of(folder);
    assert_contains(page, "content=\"default-src 'none'; ");
    assert_count(page, " src=", 0);
    assert_count(page, "<link", 0);
    assert_count(page, "@import", 0);
    assert_count(page, "url(", 0);
}

/* Of a job that died before it recorded anything there is nothing to draw, and that is said. */
RUNS_TEST(a_run_without_recordings_is_shown) {
    runs_add_unrecorded(folder, "ep", "failed", "mpirun was not found");
    AUTO(text) char *page = page_of(folder);
    assert_contains(page, "failed after 0 of 4 iterations</strong> mpirun was not found",
                    "Who waits can");
    assert_null(strstr(page, "No straggler"));
    AUTO(json) json_t *data = data_of(page);
    assert_int_equal(json_array_size(json_object_get(data, "figures")), 0);
}

/* Where EP was refused, the first that ran stands for the setting. */
RUNS_TEST(a_refusal_does_not_stand_for_the_others) {
    runs_add_unrecorded(folder, "ep", "refused", "32 experts can't be shared by 3 ranks");
    runs_add_usual(folder, "fssdp", &runs_fssdp);
    AUTO(text) char *page = page_of(folder);
    const char *summary = strstr(page, "<ul class=\"findings\">");
    assert_non_null(summary);
    char *end = strstr(summary, "</ul>");
    *end = '\0';
    assert_null(strstr(summary, "recorded by every rank"));
    assert_contains(summary, "fssdp", "refused, so it was never started</strong> 32 experts can");
}

RUNS_TEST(shared_cores_get_no_ratios) {
    add_runs(folder, NULL, true);
    AUTO(text) char *page = page_of(folder);
    assert_contains(page, "<strong>Ranks shared cores</strong>");
    assert_null(strstr(page, "2.00 x as fast"));
    assert_null(strstr(page, "<td>2.00</td>"));
}

/* The page's own three scripts are all there are, whatever anything is called. */
RUNS_TEST(names_stay_names) {
    add_runs(folder, HOSTILE, false);
    AUTO(text) char *page = page_of(folder);
    assert_count(page, "<script", 3);
    assert_count(page, "</script", 3);
    assert_count(page, "<img", 0);
    assert_count(page, "<!--", 0);
    assert_count(page, "\xe2\x80\xae", 0);
    assert_count(page, "</SCRIPT", 0);
    assert_count(page, "<\\/SCRIPT <\\!-- </g", 20);
    assert_contains(page, "&quot;&#39;&gt;&lt;script id=injected&gt;window.injected=1&lt;",
                    "{{style}}???&amp;lt;");
    AUTO(json) json_t *data = data_of(page);
    const char *label =
        json_string_value(json_array_get(json_array_get(rows_of(data, "speedup", 0), 0), 0));
    assert_string_equal(label, "ep");
}

RUNS_TEST(a_missing_library_is_named) {
    char path[128], module[160];
    make_library(folder);
    add_runs(folder, NULL, false);
    snprintf(module, sizeof module, "%s/vega/vega-scale.min.js", folder->path);
    assert_int_equal(unlink(module), 0);
    snprintf(path, sizeof path, "%s/report.html", folder->path);
    assert_fails(mp_report_html(folder->store, NULL, &(struct mp_page_output){path, NULL}, &error),
                 MP_ENOTFOUND, "/vega-scale.min.js: ", "apt-get install libjs-vega");
    assert_int_equal(access(path, F_OK), -1);
}

RUNS_TEST(a_report_that_fails_leaves_the_old_one) {
    const struct mp_report_selection nothing = {.run_id = 99};
    char path[128], command[160];
    make_library(folder);
    add_runs(folder, NULL, false);
    write_report(folder, NULL, path);
    AUTO(text) char *before = file_text(path);
    assert_fails(
        mp_report_html(folder->store, &nothing, &(struct mp_page_output){path, NULL}, &error),
        MP_ENOTFOUND, "");
    AUTO(text) char *after = file_text(path);
    assert_string_equal(before, after);
    snprintf(command, sizeof command, "test -z \"$(ls %s/*.part 2>/dev/null)\"", folder->path);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
    assert_fails(mp_report_html(folder->store, NULL,
                                &(struct mp_page_output){"/nowhere/at/all.html", NULL}, &error),
                 MP_EIO, "/nowhere/at/all.html");
}

/* ---- in a browser ---- */

static char browser[MP_BROWSER_PATH];

/* What tests/results/report/probe.html found in the report. */
static json_t *probe(const struct runs_folder *folder, const char *path, int width, bool dark) {
    char command[2048], file[128];
    snprintf(command, sizeof command,
             "timeout 600 %s --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
             "--allow-file-access-from-files --user-data-dir=%s/browser --enable-logging=stderr "
             "--blink-settings=preferredColorScheme=%d --virtual-time-budget=60000 "
             "--window-size=1400,1000 --dump-dom 'file://" MOEPERF_PROBE "#%d,file://%s' "
             ">%s/dom 2>%s/log",
             browser, folder->path, !dark, width, path, folder->path, folder->path);
    int status = system(command); // NOLINT(cert-env33-c)
    snprintf(file, sizeof file, "%s/log", folder->path);
    AUTO(text) char *log = file_text(file);
    if (status != 0)
        fail_msg("%s ended with %d: %s", browser, status, log);
    if (strstr(log, ":CONSOLE:"))
        fail_msg("the console says: %.2000s", strstr(log, ":CONSOLE:"));
    snprintf(file, sizeof file, "%s/dom", folder->path);
    char *dom = file_text(file), *start = strstr(dom, "<pre id=\"found\">");
    assert_non_null(start);
    start += strlen("<pre id=\"found\">");
    *strstr(start, "</pre>") = '\0';
    json_error_t fault;
    json_t *found = json_loads(start, 0, &fault);
    if (!found)
        fail_msg("%s in %.2000s", fault.text, start);
    free(dom);
    return found;
}

static const struct {
    const char *chart, *marks;
} drawn[] = {{"speedup", "bars"},      {"phases", "bars"},      {"iteration-time", "lines"},
             {"loss", "lines"},        {"predicted", "points"}, {"timeline", "spans"},
             {"scatter", "points"},    {"imbalance", "cells"},  {"experts", "cells"},
             {"speedup", "intervals"}, {"predicted", "gaps"}};
enum { DRAWN = sizeof drawn / sizeof *drawn };

/* Each chart, each time that it was shown. */
static void check_places(const json_t *found) {
    size_t i;
    json_t *chart;
    json_array_foreach(json_object_get(found, "charts"), i, chart) {
        const char *name = json_string_value(json_object_get(chart, "chart"));
        if (!json_is_true(json_object_get(chart, "fits")))
            fail_msg("%s does not fit its place", name);
        if (json_integer_value(json_object_get(chart, "overlaps")) != 0)
            fail_msg("%s: labels of an axis lie on each other", name);
        if (json_integer_value(json_object_get(chart, "cut")) != 0)
            fail_msg("%s: texts are cut off", name);
    }
}

/* All charts of a report are there. */
static void check_charts(const json_t *found) {
    int seen[DRAWN] = {0};
    size_t i;
    json_t *chart;
    json_array_foreach(json_object_get(found, "charts"), i, chart) {
        const char *name = json_string_value(json_object_get(chart, "chart"));
        for (int d = 0; d < DRAWN; d++) {
            json_t *marks = json_object_get(chart, "marks");
            if (strcmp(drawn[d].chart, name) != 0)
                continue;
            seen[d]++;
            if (json_integer_value(json_object_get(marks, drawn[d].marks)) < 1)
                fail_msg("%s: no %s are drawn", name, drawn[d].marks);
        }
    }
    for (int d = 0; d < DRAWN; d++)
        if (!seen[d])
            fail_msg("%s is not there", drawn[d].chart);
}

/* What the buttons under a chart save: SVG and PNG, named as files of `--figures` are. */
static void check_saved(const json_t *found) {
    const json_t *saved = json_object_get(found, "saved");
    const size_t charts = json_array_size(saved) / 2;
    const char *last = "";
    assert_int_equal(json_array_size(saved) % 2, 0);
    assert_true(charts > 0);
    for (size_t i = 0; i < 2 * charts; i++) {
        const json_t *item = json_array_get(saved, i);
        const char *name = json_string_value(json_array_get(item, 0));
        const char *start = json_string_value(json_array_get(item, 1));
        const char *ending = i % 2 ? ".png" : ".svg";
        if (strncmp(start,
                    i % 2 ? "data:image/png;base64,iVBORw0KGgo" : "data:image/svg+xml,%3Csvg",
                    25) != 0 ||
            strcmp(name + strlen(name) - 4, ending) != 0 || strcmp(name, last) == 0 ||
            strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != strlen(name))
            fail_msg("%s has %s", name, start);
        last = name;
    }
}

static void check_page(const json_t *found, int width) {
    assert_json(found, 0, "{'errors': '', 'scripts': 3, 'images': 0, 'injected': false}");
    assert_int_equal(json_integer_value(json_object_get(found, "width")), width);
    assert_int_equal(json_integer_value(json_object_get(found, "scrollWidth")), width);
    check_places(found);
    check_saved(found);
}

RUNS_TEST(every_chart_is_drawn) {
    static const int widths[] = {1280, 390};
    char path[128];
    need_browser(browser);
    add_runs(folder, NULL, false);
    write_report(folder, NULL, path);
    for (int w = 0; w < 2; w++) {
        AUTO(json) json_t *light = probe(folder, path, widths[w], false);
        AUTO(json) json_t *dark = probe(folder, path, widths[w], true);
        check_page(light, widths[w]);
        check_page(dark, widths[w]);
        check_charts(light);
        check_charts(dark);
        assert_json(light, 0, "{'background': 'rgb(255, 255, 255)'}");
        assert_json(dark, 0, "{'background': 'rgb(20, 23, 27)'}");
        assert_string_not_equal(json_string_value(json_object_get(
                                    json_array_get(json_object_get(light, "charts"), 0), "ink")),
                                json_string_value(json_object_get(
                                    json_array_get(json_object_get(dark, "charts"), 0), "ink")));
    }
}

RUNS_TEST(names_stay_names_in_a_browser) {
    char path[128];
    need_browser(browser);
    add_runs(folder, HOSTILE, false);
    write_report(folder, NULL, path);
    AUTO(json) json_t *found = probe(folder, path, 390, false);
    check_page(found, 390);
    check_charts(found);
}

/* ---- grids ---- */

/* Two systems at two times three points, one of which nobody can do and one not without memory. */
static const char *write_grids(const struct runs_folder *folder, char path[128]) {
    const struct mp_grid grid[] = {{"first",
                                    "batch",
                                    HOSTILE,
                                    2,
                                    3,
                                    {"8", "16"},
                                    {"1e9", "2e9", "3e9"},
                                    {{0.5, 1, 1.25}, {NAN, 0, 4}},
                                    NULL,
                                    true,
                                    {{0.25, NAN, 1}, {NAN, NAN, NAN}}},
                                   {HOSTILE,
                                    "batch",
                                    "bandwidth",
                                    2,
                                    3,
                                    {HOSTILE, "16"},
                                    {"1e9", "2e9", "3e9"},
                                    {{2, 2, 2}, {2, 2, 2}},
                                    NULL,
                                    false,
                                    {{0}}}};
    static const struct table_column columns[] = {{"two\nlines", .kind = TABLE_LEFT},
                                                  {"n", .kind = TABLE_RIGHT}};
    struct table table;
    const struct mp_grids page = {.grid = grid,
                                  .count = 2,
                                  .title = "When it pays",
                                  .about = "model: " HOSTILE "\nloads\n",
                                  .table = &table,
                                  .table_caption = "in all"};
    table = table_of(columns, 2);
    assert_works(table_add(&table, NULL, &error));
    table_set(&table, 0, "%s", HOSTILE);
    table_set_number(&table, 1, 7, 0);
    snprintf(path, 128, "%s/grid.html", folder->path);
    assert_works(mp_grid_html(&page, &(struct mp_page_output){path, NULL}, &error));
    table_free(&table);
    return path;
}

RUNS_TEST(a_grid_has_all_its_points) {
    char path[128];
    make_library(folder);
    AUTO(text) char *page = file_text(write_grids(folder, path));
    assert_contains(page, "<title>moeperf: When it pays</title>");
    assert_count(page, "<script", 3);
    assert_contains(page, "<p class=\"muted\">loads</p>"); /* a line of its own */
    AUTO(json) json_t *data = data_of(page);
    assert_json(rows_of(data, "grid", 0), 0,
                "[['8', '1e9', 0.5], ['8', '2e9', 1], ['8', '3e9', 1.25], ['16', '1e9', null],"
                " ['16', '2e9', 0], ['16', '3e9', 4]]");
    const json_t *shares = json_array_get(json_object_get(data, "figures"), 1);
    assert_int_equal(json_array_size(json_object_get(shares, "choices")), 1);
    assert_contains(page, "<th scope=\"col\">n</th>", "two lines</th>");
}

RUNS_TEST(a_grid_is_drawn) {
    char path[128];
    size_t i, points = 0;
    json_t *chart;
    need_browser(browser);
    AUTO(json) json_t *found = probe(folder, write_grids(folder, path), 390, true);
    check_page(found, 390);
    json_array_foreach(json_object_get(found, "charts"), i, chart) {
        const json_t *marks = json_object_get(chart, "marks");
        size_t cells = (size_t)json_integer_value(json_object_get(marks, "cells"));
        assert_int_equal(json_integer_value(json_object_get(marks, "numbers")), cells);
        points |= cells == 5 ? 1 : cells == 6 ? 2 : cells == 2 ? 4 : 8;
    }
    assert_int_equal(points, 1 | 2 | 4); /* of both systems, and of the first one's shares */
}

/* ---- intervals ---- */

/* A row inside, one outside with hostile words, one without a number; and an unknown. */
static const char *write_intervals(const struct runs_folder *folder, char path[128]) {
    const struct mp_interval row[] = {
        {"first", "published 2", "fitted", true, {-0.05, 0.05}, {-0.5, 0.5}, {-0.1, 0.1}, 0},
        {HOSTILE, HOSTILE, HOSTILE, false, {-0.05, 0.05}, {0.2, 0.5}, {0.3, 0.4}, 0.3},
        {"third", "none", "held out", false, {-0.05, 0.05}, {NAN, NAN}, {NAN, NAN}, NAN}};
    const struct mp_interval unknown[] = {
        {"loads.spread", "0.4", "unknown", true, {NAN, NAN}, {0, 1}, {0.2, 0.6}, 0.4}};
    const struct mp_intervals_page page = {.title = "paper " HOSTILE,
                                           .about = "one\ntwo " HOSTILE,
                                           .row = row,
                                           .rows = 3,
                                           .unknown = unknown,
                                           .unknowns = 1,
                                           .sentences = "never together " HOSTILE "\n"};
    snprintf(path, 128, "%s/intervals.html", folder->path);
    assert_works(mp_intervals_html(&page, &(struct mp_page_output){path, NULL}, &error));
    return path;
}

RUNS_TEST(intervals_have_all_their_numbers) {
    char path[128];
    make_library(folder);
    AUTO(text) char *page = file_text(write_intervals(folder, path));
    assert_count(page, "<script", 3);
    assert_contains(page, "<h2>What is outside, and why</h2>", "published 2");
    AUTO(json) json_t *data = data_of(page);
    const json_t *rows = rows_of(data, "intervals", 0);
    assert_int_equal(json_array_size(rows), 3);
    assert_json(json_array_get(rows, 0), 0,
                "['first', 'fitted', 'published 2', true, -0.05, 0.05, -0.5, 0.5, -0.1, 0.1, 0]");
    assert_true(json_is_null(json_array_get(json_array_get(rows, 2), 10)));
}

RUNS_TEST(intervals_are_drawn) {
    char path[128];
    size_t i, charts = 0;
    json_t *chart;
    need_browser(browser);
    AUTO(json) json_t *found = probe(folder, write_intervals(folder, path), 390, true);
    check_page(found, 390);
    json_array_foreach(json_object_get(found, "charts"), i, chart) {
        const json_t *marks = json_object_get(chart, "marks");
        size_t best = (size_t)json_integer_value(json_object_get(marks, "best"));
        assert_int_equal(json_integer_value(json_object_get(marks, "near")), best);
        assert_int_equal(json_integer_value(json_object_get(marks, "all")), best);
        charts |= best;
    }
    assert_int_equal(charts, 1 | 2);
}
