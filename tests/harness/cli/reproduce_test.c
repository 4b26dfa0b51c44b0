/* moeperf reproduce as people start it. */
#include "results/paper/paper.h"
#include "results/report/vega.h"
#include "tests/harness/cli/shell.h"

TEST(names_are_checked) {
    assert_says("moeperf reproduce hectate", 2, "did you mean \"hecate\"?");
    assert_says("moeperf reproduce no-such.yaml", 2, "no-such.yaml");
    assert_says("moeperf reproduce laer --iterations laer", 2, "JOB=N");
    assert_says("moeperf reproduce laer --iterations lear=10", 2, "has no such job");
    assert_says("moeperf reproduce laer --db-measured none.db", 2, "none.db");
    assert_says("moeperf reproduce laer --set layer=3", 2, "did you mean \"layers\"?");
    assert_says("moeperf reproduce laer --loads zipff", 2, "did you mean \"zipf\"?");
    assert_says("moeperf reproduce laer --seed 3", 2, "go with --infer");
    assert_says("moeperf reproduce laer --infer --budget 5", 2, "a budget of 5 predictions");
    assert_says("moeperf reproduce laer --infer --loads zipf", 2, "loads are an unknown");
    assert_says("moeperf reproduce laer --infer --write --set layers=2", 2, "goes without --set");
    assert_says("moeperf reproduce laer --set iterations=3", 2, "says what that is of every job");
    assert_says("moeperf reproduce tamoe --set batch=64", 2, "says what that is of every job");
    assert_says("moeperf reproduce laer --list --html x.html", 2, "--list predicts nothing");
    assert_says("moeperf reproduce laer --list --set layers=2", 2, "--list predicts nothing");
    assert_says("moeperf reproduce laer --infer --strict", 2, "--infer goes without");
    assert_says("moeperf reproduce laer --html gone/x.html", 2, "can't write gone/x.html",
                LACKS("predicted"));
}

TEST(published_rows_are_listed) {
    assert_says("moeperf reproduce hecate --list", 0, "a32-speed-up", "1.34 .. 1.78",
                "1.40 .. 1.58  yes\n", "  no\n");
}

static const json_t *line_of(const json_t *result, const char *row) {
    size_t i;
    const json_t *line;
    json_array_foreach(member(result, "lines"), i, line) {
        if (!strcmp(text(line, "row"), row))
            return line;
    }
    fail_msg("no row %s", row);
    return NULL;
}

static double ours(const json_t *result, const char *row) {
    return number(line_of(result, row), "ours");
}

/* Numbers follow from each other, table and JSON have the same, and --strict finds what is outside.
 */
TEST(numbers_hang_together) {
    AUTO(json) json_t *result = json_of("moeperf reproduce laer --json", 0);
    double fsdp = ours(result, "fsdp-wikitext-0"), laer = ours(result, "laer-wikitext-0");
    assert_true(laer > 0 && fsdp > laer);
    assert_true(ours(result, "fsdp-ratio") == fsdp / laer);
    assert_true(json_array_size(member(result, "assumptions")) > 0);
    assert_true(json_array_size(member(result, "left_out")) > 0);
    char shown[32], folder[MP_VEGA_FOLDER];
    snprintf(shown, sizeof shown, "%.2f s", laer);
    const bool draws = !mp_vega_find(folder, NULL);
    assert_says(draws ? "moeperf reproduce laer --details --html laer.html"
                      : "moeperf reproduce laer --details",
                0, shown, "assumed, the same for every row", "times in ms", "bound /\n",
                "loads.spread: ", "moeperf reproduce laer --infer", FITS);
    if (draws) { /* one chart, of the same numbers */
        assert_says("grep -c 'data-chart=\"intervals\"' laer.html", 0, "1\n");
        assert_says(
            formatted("grep -o 'published 26.33 s (d); predicted %s, [a-z]*' laer.html", shown), 0,
            shown);
        assert_runs("grep -q 'published up to 1.50; predicted [0-9.]* [*], ' laer.html");
        assert_says("grep -c '^(d): derived, not stated in the paper\\|>(d): derived' laer.html", 0,
                    "1\n");
    }
    assert_says("moeperf reproduce laer --set layers=2 --format latex", 0,
                "\\caption{laer; (d): derived, ", "  published row & published & ours");
    assert_says("moeperf reproduce laer --set layers=2 --format csv", 0, LACKS("(d): derived"));
}

/* Each job's share of the bound, in words as for programs; none of one that drops or changes what
 * the gate chose. */
TEST(details_say_how_near_the_bound_is) {
    const char *details_of_few = "moeperf reproduce tamoe --set layers=2 --details";
    AUTO(text) char *details = shell(details_of_few, 0);
    AUTO(json) json_t *result = json_of(formatted("%s --json", details_of_few), 0);
    size_t i, known = 0, cells = json_array_size(member(result, "jobs"));
    const json_t *cell;
    json_array_foreach(member(result, "jobs"), i, cell) {
        const json_t *of_bound = member(cell, "of_bound");
        bool is_covered = strstr("fastmoe fastermoe", text(cell, "job"));
        assert_int_equal(json_is_null(of_bound), !is_covered);
        if (!json_is_null(of_bound))
            assert_contains(details, formatted(" %.1f\n", 100 * json_number_value(of_bound)));
        known += !json_is_null(of_bound);
    }
    assert_true(known > 1 && known < cells);
}

static size_t outside_of(const json_t *result) {
    size_t i, outside = 0;
    const json_t *line;
    json_array_foreach(member(result, "lines"), i, line) {
        outside += json_is_false(member(line, "inside")) && !json_is_null(member(line, "ours"));
    }
    return outside;
}

/* What a paper's file and the page say is inside is so; without loads as they were inferred it is
 * said what is not. */
TEST(what_is_inside_stays_inside) {
    AUTO(text) char *page = shell("moeperf help papers", 0);
    for (const struct mp_paper *paper = mp_papers; paper->name; paper++) {
        AUTO(json)
        json_t *result = json_of(formatted("moeperf reproduce %s --strict --json", paper->name), 0);
        const size_t outside = outside_of(result);
        size_t i, all = 0, kept[4];
        const json_t *line;
        json_array_foreach(member(result, "lines"), i, line) {
            all += !json_is_null(member(line, "ours"));
        }
        const char *row = strstr(page, formatted("\n    %s ", paper->name));
        assert_non_null(row);
        assert_int_equal(
            sscanf(row, " %*s %zu of %zu %zu of %zu", kept, kept + 1, kept + 2, kept + 3), 4);
        assert_numbers(kept[0] + kept[2], all - outside, kept[1] + kept[3], all);
    }
    assert_says("moeperf reproduce laer --strict --loads \"zipf exponent=0\"", 1,
                "is outside with");
}

/* Where a set explains nothing, that is what the file says, and it can be read again. */
TEST(a_file_with_nothing_inside_can_be_read) {
    assert_runs(formatted("cp %s/harness/suites/paper/tamoe.yaml nothing.yaml", MOEPERF_SOURCE));
    assert_says("moeperf reproduce nothing.yaml --infer --budget 80 --seed 5 --write", 0,
                "\n(2): second-hand, ", LACKS("what no set explains"));
    assert_runs("moeperf reproduce nothing.yaml --strict >/dev/null");
}

/* The same seed gives the same words, every row outside has its reason, and what is written is
 * what is told. */
TEST(inferring_is_kept_in_the_file) {
    assert_runs(
        formatted("sed 's/layers: [0-9]*/layers: 2/' %s/harness/suites/paper/laer.yaml > copy.yaml",
                  MOEPERF_SOURCE));
    const char *infer = "moeperf reproduce copy.yaml --infer --budget 56 --seed 5 --set layers=2 "
                        "--json";
    json_t *first = json_of(infer, 0), *second = json_of(infer, 0);
    assert_true(json_equal(first, second));
    assert_has(first, "sets", "4");
    assert_int_equal(json_array_size(member(first, "outside")), outside_of(first));
    assert_true(number(first, "lines/0/all_sets_low") <=
                number(first, "lines/0/nearly_as_good_low"));
    assert_says("moeperf reproduce copy.yaml --infer --budget 56 --seed 5 --set layers=2 "
                "--format csv | grep -c '^\\(laer,\\|unknowns,\\)'",
                0, "30\n");
    json_decref(second);
    json_decref(first);
    first = json_of("moeperf reproduce copy.yaml --infer --budget 56 --seed 5 --write --json", 0);
    second = json_of("moeperf reproduce copy.yaml --strict --json", 0);
    size_t i;
    const json_t *told, *again = member(second, "lines");
    json_array_foreach(member(first, "lines"), i, told) {
        assert_true(json_equal(member(told, "inside"), member(json_array_get(again, i), "inside")));
        assert_true(json_equal(member(told, "ours"), member(json_array_get(again, i), "ours")));
    }
    json_decref(second);
    json_decref(first);
    assert_says("cat copy.yaml", 0,
                "  command: \"moeperf reproduce laer --infer --budget 56 --seed 5 --write\"");
}

/* Nor is a number of the best set without its mark. */
TEST(what_does_not_fit_is_said_of_the_best_set) {
    assert_runs(formatted("cp %s/harness/suites/paper/hetumoe.yaml h.yaml", MOEPERF_SOURCE));
    AUTO(json)
    json_t *told = json_of("moeperf reproduce h.yaml --infer --budget 64 --write "
                           "--json",
                           0);
    AUTO(json) json_t *again = json_of("moeperf reproduce h.yaml --json", 0);
    assert_says("moeperf reproduce h.yaml --infer --budget 64 --format markdown", 0,
                "; \\*: by prediction one of the jobs does not fit into memory**\n");
    assert_has(told, "lines/0/out_of_memory", "true", "lines/1/out_of_memory", "false");
    assert_has(again, "lines/0/out_of_memory", "true", "lines/1/out_of_memory", "false");
}

/* Under the set that is kept, of which DeepSpeed drops what is published: sign and order of
 * SwiftMoE's times, which both systems' costs of weights and gradients are needed for. */
TEST(swiftmoe_is_faster_as_published) {
    AUTO(json) json_t *result = json_of("moeperf reproduce swiftmoe --json", 0);
    assert_true(ours(result, "time-s") < 0 && ours(result, "time-m") < 0);
    assert_true(ours(result, "time-l") < ours(result, "time-s"));
}

/* From flags, and as medians from a database. */
TEST(measured_iterations_give_times_to_a_loss) {
    static const char *const said[] = {"--iterations swiftmoe=800 --iterations deepspeed=1000",
                                       "--db-measured measured.db"};
    assert_runs("moeperf predict --cluster b200 --nodes 1 --loads balanced --set layers=1 --system "
                "ep --iterations 1 --quiet --vary batch=8,16,24,32,40,48,56,64 --db measured.db");
    execute(
        "measured.db",
        "INSERT OR IGNORE INTO StringIds (value) VALUES ('target-loss'), "
        "('iterations-to-target');UPDATE run SET job = iif(run_id <= 3, 'swiftmoe', "
        "'deepspeed');WITH took (run, iterations) AS (VALUES (1, 9000), (2, 800), (3, 1), (4, 1), "
        "(5, 1100), (6, 9000), (7, 900), (8, NULL)) INSERT INTO number SELECT run, 0, -1, -1, id, "
        "iterations FROM took, StringIds WHERE value = 'iterations-to-target' UNION ALL SELECT "
        "run, 0, -1, -1, id, 3 FROM took, StringIds WHERE value = 'target-loss'");
    const char *few = "moeperf reproduce swiftmoe --json --set layers=2";
    json_t *result = json_of(few, 0);
    assert_has(line_of(result, "minutes"), "ours", "null");
    assert_contains(text(line_of(result, "minutes"), "missing"), "swiftmoe");
    double time = ours(result, "time-s");
    json_decref(result);
    for (int i = 0; i < 2; i++) {
        result = json_of(formatted("%s %s", few, said[i]), 0);
        assert_within(ours(result, "iterations"), -0.2, 1e-12);
        assert_within(ours(result, "minutes"), 0.8 * (1 + time) - 1, 1e-9);
        json_decref(result);
    }
    execute("measured.db", "DELETE FROM number");
    assert_says("moeperf reproduce swiftmoe --db-measured measured.db", 2,
                "measured.db: no run there reached a target loss");
}

TEST_GROUP(enter_shell, leave_folder);
