/* moeperf predict --run on real runs: the replay gives the run's own time back, and what can't be
 * answered is said. */
#include "tests/harness/cli/shell.h"

static const char suite[] =
    "suite: real\n"
    "common: {ranks: 2, layers: 3, width: 64, heads: 2, experts: 8, expert-width: 256,\n"
    "  sequence: 64, batch: 8, iterations: 20, text: default, routing: skewed, skew-experts: 2,\n"
    "  skew-share: 0.9}\n"
    "jobs:\n"
    "  - {name: ep, system: ep}\n"
    "  - {name: fssdp, system: fssdp}\n"
    "  - {name: steps, system: fastermoe, options: {group-size: 1}}\n"
    "  - {name: bare, system: ep, record: no}\n";

static const json_t *row(const json_t *answer, const char *what) {
    size_t i;
    json_t *item;
    json_array_foreach(member(answer, "rows"), i, item) {
        if (strstr(text(item, "what"), what))
            return item;
    }
    fail_msg("no row \"%s\"", what);
    return NULL;
}

TEST(a_replayed_run_takes_as_long_as_it_took) {
    for (int run = 1; run <= 3; run++) {
        AUTO(json)
        json_t *answer = json_of(
            formatted("moeperf predict --run %d --db r.db --json --without imbalance --without "
                      "slowest --without stragglers --system ep --system free-balance",
                      run),
            0);
        double replayed = number(answer, "replayed_ms"), measured = number(answer, "measured_ms");
        assert_close(replayed / measured, 1, 0.01);
        assert_close(number(answer, "replayed_over_measured"), replayed / measured, 1e-12);
        double again = number(row(answer, "planned again"), "ms_per_iteration");
        const json_t *share = member(answer, "of_bound");
        assert_true(json_is_null(member(row(answer, "planned again"), "of_bound")));
        assert_true(json_number_value(share) > 0 && json_number_value(share) <= 1);
        assert_true(number(answer, "bound_ms") > 0);
        assert_true(json_is_null(member(row(answer, "free-balance"), "of_bound")));
        assert_true(json_is_null(member(row(answer, "without imbalance"), "of_bound")));
        print_message("  run %d: replayed / measured %.6f, planned again / measured %.3f\n", run,
                      replayed / measured, again / measured);
        assert_true(again > 0);
        static const char *const less[] = {"without imbalance", "without slowest rank",
                                           "without stragglers"};
        for (int i = 0; i < 3; i++) {
            double seconds = number(row(answer, less[i]), "ms_per_iteration");
            assert_true(seconds > 0);
            /* Nine tenths of the routes are one rank's; what each takes is drowned by others' work
             * on a busy machine. */
            if (run == 1 && i > 1)
                assert_true(seconds < replayed);
        }
        const json_t *ranks = member(answer, "per_rank");
        assert_has(ranks, "#", "2"); /* what one did and was blocked is its iteration */
        assert_true(number(ranks, "0/own_ms") + number(ranks, "0/wait_ms") > 0.5 * measured);
        assert_true(number(ranks, "1/own_ms") + number(ranks, "1/wait_ms") > 0.5 * measured);
    }
}

TEST(the_table_says_what_costs) {
    assert_says("moeperf predict --run 1 --db r.db", 0,
                "run 1 of r.db: suite real, job ep, system ep, workload skewed 0.90 on 2, 2\n",
                "\nmeasured   ", "\nreplayed as it was   ", "\nwithout imbalance   ",
                "\nwithout slowest rank (", "\nwithout stragglers   ", "own work  ",
                "blocked\nrank  ", " ms\n   0  ");
    /* Systems alone, and all of them: what can't do such a job says why. */
    assert_says("moeperf predict --run 1 --db r.db --system all", 0, LACKS("without"),
                "\nwith ep, planned again  ", "\nwith fssdp  ", "\nCosts fitted to this run: ");
}

static const json_t *row_of(const json_t *answer, const char *what) {
    return strcmp(what, "measured") != 0 ? row(answer, what) : answer;
}

/* Blanks are single in the output. */
static void assert_row(const char *output, const char *name, double ms, double speedup,
                       double of_bound) {
    assert_contains(output, formatted("\n%s %.3f %.3f %.1f\n", name, ms, speedup, 100 * of_bound));
}

/* The table has the numbers that programs get, of the run, of systems and of the bound itself. */
TEST(the_table_says_what_is_possible) {
    static const char *const lines[] = {"measured", "with fssdp"};
    AUTO(text)
    char *output = shell("moeperf predict --run 1 --db r.db --system fssdp | tr -s ' '", 0);
    char line[160];
    AUTO(json)
    json_t *answer = json_of("moeperf predict --run 1 --db r.db --system fssdp --json", 0);
    double bound = number(answer, "bound_ms"), measured = number(answer, "measured_ms");
    assert_contains(output, "speed-up time %\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const json_t *own = row_of(answer, lines[i]);
        double ms = number(own, i ? "ms_per_iteration" : "measured_ms");
        assert_row(output, lines[i], ms, measured / ms, number(own, "of_bound"));
    }
    assert_row(output, "bound", bound, measured / bound, 1);
    for (char *c = output; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    assert_contains(
        output, formatted("the best any placement could do with these costs is %.3f ms", bound));
    double own = number(answer, "of_bound"), best = number(row(answer, "fssdp"), "of_bound");
    int length = snprintf(line, sizeof line, "ep gets %.1f %% of it", 100 * own);
    if (best > own)
        snprintf(line + length, sizeof line - (size_t)length, "; with fssdp it would be %.1f %%",
                 100 * best);
    assert_contains(output, line);
    /* Without systems where it is asked for, and nothing of it where it is not. */
    assert_says("moeperf predict --run 1 --db r.db --bound", 0, "\nbound                  ",
                "\nwithout imbalance   ");
    assert_says("moeperf predict --run 1 --db r.db", 0, LACKS("bound"));
}

/* Other programs had the processors for this share of its time. */
static void make_busy(double share) {
    execute("busy.db",
            formatted(
                "UPDATE run_summary SET ranks_share_cores = 0;"
                "INSERT OR IGNORE INTO StringIds (value) VALUES ('processor-wait-seconds');"
                "INSERT OR REPLACE INTO number SELECT run_id, rank, iteration, layer, (SELECT "
                "id FROM StringIds WHERE value = 'processor-wait-seconds'), %g * number.value FROM "
                "number JOIN StringIds ON name_id = id AND StringIds.value = "
                "'training-seconds'",
                share));
}

TEST(a_busy_machine_comes_first) {
    assert_runs("cp r.db busy.db");
    make_busy(0.3);
    assert_says("moeperf predict --run 1 --db busy.db | head -1", 0,
                "The machine was busy: for up to 30 % of the time");
    make_busy(0.01);
    assert_says("moeperf predict --run 1 --db busy.db", 0, LACKS("busy:"));
}

TEST(systems_take_options) {
    AUTO(json)
    json_t *answer = json_of("moeperf predict --run 2 --db r.db --json --system fssdp --system "
                             "fssdp:memory=1 --system swiftmoe --set options.slots=4",
                             0);
    assert_has(answer, "rows/#", "3");
    assert_contains(text(row(answer, "with fssdp, planned again"), "options"), "memory=auto");
    assert_contains(text(row(answer, "with fssdp:memory=1"), "options"), "memory=1");
    assert_contains(text(row(answer, "with swiftmoe:slots=4"), "options"), "slots=4");
    assert_says("moeperf predict --run 1 --db r.db --system swiftmoe:slots=4", 0,
                "\nwith swiftmoe:slots=4   ",
                "\nwith swiftmoe:slots=4: slots=4 capacity-factor=1 offload-optimizer=no\n");
}

TEST(predicted_runs_are_replayed_too) {
    assert_runs("moeperf predict --cluster fastermoe-johnny --quiet --iterations 6 --set layers=2 "
                "--set width=128 --set heads=4 --set experts=32 --set expert-width=256 --set "
                "sequence=64 --loads 'w6 heat=0.4 period=2 seed=9' --system fssdp --db p.db");
    for (int run = 1; run <= 2; run++) {
        AUTO(json)
        json_t *answer =
            json_of(formatted("moeperf predict --run %d --db p.db --json --system ep", run), 0);
        assert_has(answer, "executor", "predicted");
        assert_close(number(answer, "replayed_over_measured"), 1, 0.01);
        print_message("  run %d: replayed / predicted %.6f, planned again / predicted %.3f\n", run,
                      number(answer, "replayed_over_measured"),
                      number(row(answer, "planned again"), "ms_per_iteration") /
                          number(answer, "measured_ms"));
    }
    /* Where all devices are one model's, no rank is slow. */
    assert_says("moeperf predict --run 1 --db p.db", 0,
                "\nno rank is slower than others: as fast as they are, none would save anything\n");
}

#define ASK "moeperf predict --run 1 --db r.db "

TEST(what_cant_be_answered_is_said) {
    static const struct refused_line cases[] = {
        {"moeperf predict --run x --db r.db",
         "moeperf predict: --run x: should be the number of a run"},
        {"moeperf predict --run 9 --db r.db",
         "r.db: there is no run 9; moeperf report --db r.db --runs"},
        {"moeperf predict --run 4 --db r.db", "run 4 of r.db has no"},
        {"moeperf predict --run 1 --db gone.db", "gone.db: no such database"},
        {ASK "--without imbalanc", "--without imbalanc: should be imbalance, slowest or "
                                   "stragglers; did you mean \"imbalance\"?"},
        {ASK "--system fsdp", "unknown system \"fsdp\""},
        {"moeperf predict --run 1 --cluster x", "--cluster"},
        {ASK "--system fssdp:memry=1",
         "--system: unknown option \"memry\" for system fssdp; did you mean \"memory\"?"},
        {ASK "--system fssdp:memory=some", "--system: memory: "},
        {ASK "--system fssdp:memory", "should be option=value"},
        {ASK "--system llep --set options.slots=4",
         "--set options.slots=4: no system that is asked for has this option"},
        {ASK "--system llep --set layers=4", "--set layers=4: the run's job stays as it was"},
        {ASK "--system llep --set options.alpha", "should be options.KEY=VALUE"},
    };
    assert_refused(cases);
    assert_says("moeperf predict --run 1 --help", 0, "usage: moeperf predict --run ID");
}

/* How long ranks had a core is recorded, and goes through the analysis. */
TEST(cores_are_accounted_for) {
    size_t i, r;
    json_t *item, *rank;
    AUTO(json) json_t *report = json_of("moeperf report --db r.db --stragglers --json", 0);
    assert_has(report, "rows/#", "4");
    json_array_foreach(member(report, "rows"), i, item) {
        json_array_foreach(member(item, "analysis/ranks"), r, rank) {
            assert_true(number(rank, "on_core") > 0 && number(rank, "on_core") <= 1);
        }
        assert_int_equal(r, i < 3 ? 2 : 0); /* of one nothing was recorded */
    }
}

static int record_runs(void **state) {
    int failed = enter_shell(state);
    write_file("real.yaml", suite);
    assert_runs("moeperf run real.yaml --quiet --db r.db");
    return failed;
}

TEST_GROUP(record_runs, leave_folder);
