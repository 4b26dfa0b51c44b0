/* Histories: rows of databases and of lines, series by series, and what changed with which
 * revision. */
#include "results/compare/history.h"

#include "tests/results/browser.h"
#include "tests/results/compare/gate_runs.h"

TEST_END(history, struct mp_history, mp_history_destroy(it))

/* A line of a history; times of a day each.  `revision` -1: not recorded. */
static void add_line(FILE *file, const char *key, const char *job, int revision, int day, double ms,
                     int bytes) {
    char name[16] = "";
    if (revision >= 0)
        snprintf(name, sizeof name, "r%02d", revision);
    fprintf(file,
            "{\"id\":\"%s/%s/%d/%d/%d\",\"key\":\"%s\",\"suite\":\"s\",\"job\":\"%s\",\"system\":"
            "\"ep\",\"ranks\":2,\"machine\":\"cpu %s\",\"revision\":\"%s\",\"started_at\":"
            "\"2026-01-%02dT00:00:00Z\",\"ms\":%.9f,\"counts\":{\"bytes\":[%d,\"%x\"],"
            "\"rows\":[7,\"7\"],\"parts\":[8,\"%x\"]}}\n",
            key, job, revision, day, (int)(1e6 * ms), key, job, key, name, day, ms, bytes, bytes,
            bytes / 11);
}

static FILE *open_lines(const struct runs_folder *folder, char path[120], const char *mode) {
    snprintf(path, 120, "%s/h.jsonl", folder->path);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

static void read_lines(struct mp_history *history, const char *path, const char *job) {
    assert_works(mp_history_add_lines(history, path, &error));
    assert_works(mp_history_find(history, NULL, job, &error));
}

static const struct mp_history_series *series_of(const struct mp_history *history, const char *key,
                                                 const char *measure) {
    for (int i = 0; i < history->count; i++)
        if (!strcmp(history->series[i].key, key) && !strcmp(history->series[i].measure, measure))
            return &history->series[i];
    fail_msg("no series %s of %s", measure, key);
    return NULL;
}

/* 24 revisions of two runs each, told in no order; the second machine is 3 ms faster.  From r12 on
 * one of them takes 8 % longer, and from r05 on 10 bytes more are sent. */
static void read_changes(const struct runs_folder *folder, struct mp_history *history) {
    char path[120];
    FILE *file = open_lines(folder, path, "w");
    for (int i = 0; i < 48; i++) {
        int revision = i * 31 % 48 / 2;
        add_line(file, "a", "ep", revision, revision + 1,
                 10 * (revision >= 12 ? 1.08 : 1) + i % 2 * 1e-6, revision >= 5 ? 110 : 100);
        add_line(file, "b", "ep", revision, revision + 1, 7 + i % 2 * 1e-6, 100);
    }
    fclose(file);
    read_lines(history, path, NULL);
}

RUNS_TEST(the_first_revision_of_a_change_is_named) {
    AUTO(history) struct mp_history history = {0};
    read_changes(folder, &history);
    assert_int_equal(history.count, 8);
    const struct mp_history_series *slower = series_of(&history, "a", "ms per iteration");
    assert_numbers(slower->points, 24, slower->point[3].runs, 2);
    assert_string_equal(slower->point[3].revision, "r03");
    assert_int_equal(slower->changes, 1);
    assert_string_equal(slower->point[slower->change[0].index].revision, "r12");
    assert_true(fabs(slower->change[0].after / slower->change[0].before - 1.08) < .005);
    assert_int_equal(series_of(&history, "b", "ms per iteration")->changes, 0);
    const struct mp_history_series *bytes = series_of(&history, "a", "bytes");
    assert_int_equal(bytes->changes, 1);
    assert_string_equal(bytes->point[bytes->change[0].index].revision, "r05");
    assert_true(bytes->change[0].before == 100 &&
                bytes->change[0].after == 110); /* whole numbers */
    assert_int_equal(series_of(&history, "a", "rows")->changes, 0);
    assert_int_equal(series_of(&history, "a", "parts")->changes, 1); /* 100 / 11 and 110 / 11 */
}

/* Points with intervals, levels and what begins where; what changed has a chart in sight. */
RUNS_TEST(a_page_has_a_chart_of_each_series) {
    AUTO(history) struct mp_history history = {0};
    char path[120];
    need_vega();
    read_changes(folder, &history);
    snprintf(path, sizeof path, "%s/h.html", folder->path);
    assert_works(mp_history_html(&history, &(struct mp_page_output){path, NULL}, &error));
    AUTO(text) char *text = file_text(path);
    assert_count(text, "data-chart=\"history\"",
                 4 + 2); /* two times, bytes and parts; the rest of each */
    assert_count(text, "[\"r11\",10.0,10.0,10.0,10.0,2,\"2026-01-12T00:00:00Z\",null]", 1);
    assert_count(text, "[\"r12\",10.8,10.8,10.8,10.8,2,\"2026-01-13T00:00:00Z\",\"r12 +8 %\"]", 1);
    assert_count(text, "[\"r05\",110.0,110.0,110.0,110.0,2,\"2026-01-06T00:00:00Z\",\"r05 +10 %\"]",
                 1);
    assert_count(text, "[\"r04\",100.0,100.0,100.0,100.0,2,", 1);
    assert_count(text, "[\"r05\",8.0,8.0,8.0,8.0,2,\"2026-01-06T00:00:00Z\",\"r05 parts differ\"]",
                 1);
    assert_count(text, "[\"r12\",7.0,7.0,7.0,null,2,",
                 3); /* rows of both, and time of the second */
    assert_count(
        text,
        "<tr><th scope=\"row\" class=\"words\">s, ep, 2 ranks, cpu a</th><td class=\"words\">"
        "ms per iteration</td><td class=\"words\">r12</td><td class=\"words\">2026-01-13</td>"
        "<td>10</td><td>10.8</td><td>+8 %</td><td>0.001</td></tr>",
        1);
    assert_count(text, "<td>100</td><td>110</td><td>+10 %</td><td>–</td>", 1);
}

/* A revision that is run again later stands where it was first. */
RUNS_TEST(revisions_stand_where_they_were_first_run) {
    AUTO(history) struct mp_history history = {0};
    char path[120];
    FILE *file = open_lines(folder, path, "w");
    add_line(file, "a", "ep", 9, 1, 5, 1);
    add_line(file, "a", "ep", 2, 2, 6, 1);
    add_line(file, "a", "ep", 9, 3, 8, 2);
    add_line(file, "a", "ep", 9, 4, 9, 1);
    add_line(file, "a", "other", 1, 1, 9, 1);
    fclose(file);
    read_lines(&history, path, "ep");
    const struct mp_history_series *times = series_of(&history, "a", "ms per iteration");
    assert_int_equal(history.count, 4);
    assert_int_equal(times->points, 2);
    assert_string_equal(times->point[0].revision, "r09");
    assert_string_equal(times->point[1].revision, "r02");
    assert_true(times->point[0].value == 8 && times->point[0].low == 5 &&
                times->point[0].high == 9); /* of 5, 8 and 9 */
    assert_true(series_of(&history, "a", "bytes")->point[0].differs);
    assert_false(series_of(&history, "a", "rows")->point[0].differs);
}

/* What an option has whose build added it. */
static char *added(UNUSED const struct mp_systems *systems, UNUSED const char *system,
                   UNUSED const char *gate, UNUSED bool is_predicted) {
    return strdup("gather: trees\n");
}

RUNS_TEST(the_same_run_counts_once) {
    const struct mp_gate_defaults unknown = {0}, later = {.text = added};
    AUTO(history) struct mp_history history = {0};
    char path[120];
    gate_add_run(folder, &(struct gate_run){.suite_run = "a", .revision = "1111"});
    gate_add_run(folder, &(struct gate_run){.suite_run = "b", .revision = "2222", .ms = 12});
    gate_add_run(folder, &(struct gate_run){.suite_run = "c",
                                            .revision = "2222",
                                            .status = "failed",
                                            .reason = "it broke",
                                            .ms = 99});
    gate_add_run(folder,
                 &(struct gate_run){
                     .suite_run = "a", .revision = "3333", .copies_more = 2, .shares_cores = true});
    runs_execute(folder->store, "UPDATE run SET started_at = '2025-01-31T12:00:0' || (9 - run_id)");
    assert_works(mp_history_add_store(&history, folder->store, unknown, &error));
    assert_int_equal(json_array_size(history.rows), 3);
    for (size_t i = 0; i < 3; i++) /* as they were begun */
        assert_string_equal(
            json_string_value(json_object_get(json_array_get(history.rows, i), "revision")),
            ((const char *[]){"3333", "2222", "1111"})[i]);
    AUTO(history) struct mp_history by_later = {0};
    assert_works(mp_history_add_store(&by_later, folder->store, later, &error));
    assert_true(json_equal(history.rows, by_later.rows));
    FILE *file = open_lines(folder, path, "w");
    assert_works(mp_history_write_lines(&history, 1, file, &error));
    fclose(file);
    assert_works(mp_history_add_lines(&history, path, &error));
    assert_works(mp_history_add_store(&history, folder->store, unknown, &error));
    assert_int_equal(json_array_size(history.rows), 3);
    AUTO(history) struct mp_history again = {0};
    assert_works(mp_history_add_lines(&again, path, &error));
    assert_int_equal(json_array_size(again.rows), 2);
    assert_true(json_equal(json_array_get(again.rows, 0), json_array_get(history.rows, 1)));
    assert_works(mp_history_find(&history, "tiny", NULL, &error));
    int timed = 0;
    for (int i = 0; i < history.count; i++) {
        const struct mp_history_series *series = &history.series[i];
        timed += series->exact ? 0 : series->points;
        if (!strcmp(series->measure, "copies") && series->points == 2)
            assert_int_equal(series->changes, 0);
    }
    assert_int_equal(timed, 2); /* ranks that share cores have counts, and no time */
    AUTO(history) struct mp_history none = {.rows = json_incref(history.rows)};
    assert_fails(mp_history_find(&none, "tiny", "gone", &error), MP_ENOTFOUND,
                 "no complete run of suite tiny of job gone");
}

#define LINE(DAY, MS)                                                                              \
    "{\"id\":\"x\",\"key\":\"k\",\"suite\":\"s\",\"job\":\"j\",\"system\":\"ep\",\"ranks\":2,"     \
    "\"machine\":"                                                                                 \
    "\"m\",\"revision\":\"r\",\"started_at\":\"" DAY "\",\"ms\":" MS ",\"counts\":{}}\n"

RUNS_TEST(lines_that_are_none) {
    static const struct {
        const char *text, *says;
    } wrong[] = {{"{\"id\": \"x\"\n", "h.jsonl:1: "},
                 {"{\"id\": \"x\"}\n", "h.jsonl:1: no \"key\""},
                 {"[]\n", "h.jsonl:1: no \"id\""},
                 {LINE("2026-01-01T00:00:00Z", "-5"), "h.jsonl:1: \"ms\": should be"},
                 {LINE("2026-01-01T00:00:00Z", "1e300"), "h.jsonl:1: \"ms\": should be"},
                 {LINE("yesterday", "5"), "h.jsonl:1: \"started_at\": should be a date"}};
    char path[120];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        AUTO(history) struct mp_history history = {0};
        FILE *file = open_lines(folder, path, "w");
        fputs(wrong[i].text, file);
        fclose(file);
        assert_fails(mp_history_add_lines(&history, path, &error), MP_EFORMAT, wrong[i].says);
    }
    struct mp_history history = {0};
    assert_fails(mp_history_add_lines(&history, "gone.jsonl", &error), MP_ENOTFOUND, "");
}

RUNS_TEST(it_is_told_in_words) {
    AUTO(history) struct mp_history history = {0};
    char path[120], *text = NULL;
    size_t size;
    FILE *file = open_lines(folder, path, "w");
    for (int revision = 0; revision < 12; revision++)
        add_line(file, "a", "ep", revision, revision + 1, revision < 6 ? 10 : 11,
                 109 + revision / 6);
    add_line(file, "b (R) of a name as long as processors have", "ep", 1, 1, 3, 5);
    for (int day = 1; day < 4; day++) /* each may be of another revision */
        add_line(file, "c", "ep", -1, day, 2 + day % 2, day);
    fclose(file);
    read_lines(&history, path, NULL);
    file = open_memstream(&text, &size);
    assert_works(mp_history_print(&history, file, &error));
    fclose(file);
    assert_string_equal(
        text, "s, ep, 2 ranks, cpu a: 12 revisions, 2026-01-01 to 2026-01-12\n"
              "  ▁▁▁▁▁▁██████ 10 .. 11 ms\n"
              "  +10.0 % (10 to 11) from r06, 2026-01-07 on (p 0.003)\n"
              "  bytes 109 to 110 from r06, 2026-01-07 on\n"
              "  parts the same in sum, and not in its parts, from r06, 2026-01-07 on\n"
              "  2 of 3 exact measures changed\n"
              "s, ep, 2 ranks, cpu b (R) of a name as long as processors have: 1 revision,\n"
              "2026-01-01\n"
              "  ▁ 3 ms, nothing to compare it with\n"
              "s, ep, 2 ranks, cpu c: 3 runs, 2026-01-01 to 2026-01-03\n"
              "  █▁█ 2 .. 3 ms, no change found\n");
    free(text);
    file = open_memstream(&text, &size);
    assert_works(mp_history_print_json(&history, file, &error));
    fclose(file);
    AUTO(json) json_t *object = json_loads(text, 0, NULL);
    const json_t *first = json_array_get(json_object_get(object, "series"), 0);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(first, "changes"), 0), "revision")),
                        "r06");
    assert_int_equal(json_array_size(json_object_get(first, "points")), 12);
    free(text);
}

/* Drawn by a browser: levels, what begins where, and nothing out of place. */
RUNS_TEST(its_figures_name_what_changed) {
    AUTO(history) struct mp_history history = {0};
    char path[160], browser[MP_BROWSER_PATH];
    need_browser(browser);
    read_changes(folder, &history);
    snprintf(path, sizeof path, "%s/f", folder->path);
    assert_works(mp_history_html(&history, &(struct mp_page_output){NULL, path}, &error));
    snprintf(path, sizeof path, "%s/f/01-ms-per-iteration.svg", folder->path);
    AUTO(text) char *text = file_text(path);
    assert_count(text, ">r12 +8 %</text>", 1);
    const char *height = strstr(text, "height=\"");
    assert_true(strtod(height + strlen("height=\""), NULL) < 3); /* inches */
    assert_count(text, "NaN", 0);
    snprintf(path, sizeof path, "%s/f/figures.txt", folder->path);
    AUTO(text) char *names = file_text(path);
    assert_count(names, "\n", 4);
    assert_count(names, "did not change", 0);
    for (int i = 1; i <= 4; i++)
        assert_count(names, formatted("%s%02d-", i > 1 ? "\n" : "", i), 1); /* no gap for those */
}

/* The only label of a flat line has all of its digits. */
RUNS_TEST(a_figure_of_one_revision_has_its_value) {
    AUTO(history) struct mp_history history = {0};
    char path[160], browser[MP_BROWSER_PATH];
    need_browser(browser);
    FILE *file = open_lines(folder, path, "w");
    add_line(file, "a", "ep", 1, 1, .65, 100);
    fclose(file);
    read_lines(&history, path, NULL);
    assert_works(mp_history_html(&history, &(struct mp_page_output){NULL, folder->path}, &error));
    snprintf(path, sizeof path, "%s/01-ms-per-iteration.svg", folder->path);
    AUTO(text) char *text = file_text(path);
    assert_count(text, ">0.65</text>", 1);
}
