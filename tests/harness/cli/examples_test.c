/* Examples that a command's help ends with work, and what can be asked of what they leave. */
#include "tests/harness/cli/shell.h"

/* Runs every line under "examples:" of a command's help, all `count`, with `more` behind them, but
 * for figures where there is no browser to draw them. */
static void run_examples(const char *command, const char *more, int count) {
    AUTO(text) char *help = shell(formatted("moeperf %s --help", command), 0);
    char *rest = strstr(help, "\nexamples:\n");
    assert_non_null(rest);
    for (char *at = rest; (at = strstr(at, "\\\n"));)
        memcpy(at, "  ", 2); /* a line that goes on */
    rest += strlen("\nexamples:\n");
    for (char *example; *rest && (example = strsep(&rest, "\n")); count--) {
        assert_int_equal(strncmp(example, "  moeperf ", 10), 0);
        if (strstr(example, " --figures ") &&
            system("command -v chromium >/dev/null || command -v google-chrome >/dev/null"))
            continue;
        /* Pairs take iterations that can be judged; of so few in time slices none may be whole. */
        const bool pairs = strstr(example, " --pairs ");
        assert_runs(formatted("%s%s%s", example, more,
                              pairs ? " --pairs 1 --slice 0 --set iterations=23" : ""));
    }
    assert_int_equal(count, 0);
}

TEST(examples_work) {
    run_examples("list", "", 2);
    run_examples("show", "", 7);
    run_examples("doctor", "", 2);
    run_examples("generate", "", 2);
    run_examples("reshape", "", 3);
    run_examples("predict", "", 6);
    assert_runs("test -s moving.mptrace && test -s small.mptrace");
    assert_runs("mkdir -p before/bin && ln -s $(command -v moeperf-train) before/bin/");
    run_examples("run", TINY, 4);
    assert_runs("mkdir -p out/quickstart && cp out/results.db out/quickstart/results.db");
    run_examples("report", "", 7);
}

/* After examples_work, which has left a database. */
TEST(a_page_says_what_it_lacks) {
    assert_says("MOEPERF_VEGA=/nowhere moeperf report --html page.html", 2,
                "/nowhere/vega-util.min.js: No such file or directory; the HTML report draws with "
                "Vega: install libjs-vega");
    assert_runs("test ! -e page.html");
    assert_says("MOEPERF_VEGA=/nowhere moeperf doctor", 0, "moeperf report --html is off");
    assert_says("moeperf report --html page.html --json", 2, "--json does not go with it");
    assert_says("moeperf report --html page.html --stragglers", 2,
                "--stragglers does not go with it");
}

/* What `moeperf run quickstart` has left: after examples_work. */
TEST(quickstart_names_its_yardstick_and_shows_drops) {
    assert_says("moeperf report --suite quickstart", 0, "\n(unattainable)\n", "  dropped\n",
                "\nfree-balance (unattainable) is a yardstick and no system: ");
    json_t *object = json_of("moeperf report --suite quickstart --json", 0), *row;
    size_t at;
    assert_has(object, "speedup/rows/#", "6");
    json_array_foreach(member(object, "speedup/rows"), at, row) {
        const char *system = text(row, "system");
        assert_int_equal(json_is_true(member(row, "unattainable")),
                         !strcmp(system, "free-balance"));
        assert_int_equal(number(row, "dropped_fraction") > 0, !strcmp(system, "swiftmoe"));
        if (strcmp(system, "swiftmoe") != 0) /* nothing else changes what is learnt */
            assert_true(number(row, "max_loss_difference") < 1e-4);
    }
    json_decref(object);
}

TEST_GROUP(enter_shell, leave_folder);
