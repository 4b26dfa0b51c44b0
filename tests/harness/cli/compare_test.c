/* moeperf compare and moeperf run --pairs as people start them. */
#include "tests/harness/cli/shell.h"

#define RUN "moeperf run tiny.yaml --quiet "

static const char suite[] =
    "suite: tiny\n"
    "timeout: 60\n"
    "common: {ranks: 1, layers: 1, width: 16, heads: 1, experts: 4, expert-width: 16,\n"
    "  sequence: 16, batch: 2, iterations: 26, routing: skewed, skew-experts: 2, text: default,\n"
    "  bandwidth: 1e9, expert-rate: 1e9, non-moe-seconds: 1e-3}\n"
    "jobs:\n"
    "  - {name: ep, system: ep}\n";

/* Two invocations, two pairs of the same program, and two pairs with another one. */
static int measure(void **state) {
    int failed = enter_shell(state);
    write_file("tiny.yaml", suite);
    write_script("other-trainer", "exec moeperf-train \"$@\"\n");
    assert_runs(RUN "--db base.db");
    assert_runs(RUN "--db head.db");
    assert_runs(RUN "--db other.db --set batch=4");
    return failed;
}

TEST(counts_of_two_databases) {
    assert_says("moeperf compare base.db head.db", 0, " 0 are not, 0 cannot be told");
    assert_says("moeperf compare base.db head.db --strict", 1, "inconclusive: 0 failed");
    assert_says("moeperf compare base.db:1 head.db:1-1", 0, "not measured in turns");
    assert_says("cp base.db six.db && for i in 1 2; do " RUN "--db six.db >/dev/null; done; "
                "moeperf compare six.db head.db",
                0, " six.db:1-3 and");
    assert_says("moeperf compare six.db:1 six.db:2", 0,
                "six.db has complete runs 1-3 of this suite");
    assert_runs("cp head.db more-than-before-in-one-measure.db");
    execute("more-than-before-in-one-measure.db",
            "UPDATE number SET value = value + 1 WHERE iteration = 4 AND name_id = "
            "(SELECT id FROM StringIds WHERE value = 'routes-local')");
    assert_says("moeperf compare base.db more-*.db", 1, "fail (ep routes-local): differs",
                "rank 0: 64 -> 65", FITS);
    assert_says("moeperf compare base.db more-*.db --accept routes-local", 0, "1 accepted");
    assert_says("moeperf compare base.db more-*.db --format markdown", 1,
                "\n| ep | routes-local | ");
    assert_json("moeperf compare base.db more-*.db --json", 1, "outcome", "fail");
}

/* An option that only one of the builds had is at its default in the other. */
TEST(options_may_have_been_added) {
    assert_runs("cp base.db old.db");
    execute("old.db", "UPDATE run SET job_text = replace(replace(job_text, 'gather: trees', ''), "
                      "'  expert-parallel: auto', '')");
    assert_says("moeperf compare old.db head.db", 0, " 0 are not, 0 cannot be told");
    assert_runs(
        "moeperf history base.db head.db > new; moeperf history old.db head.db | cmp - new");
    execute("old.db", "UPDATE run SET job_text = replace(job_text, 'record: yes', 'gather: "
                      "broadcasts') || 'options:' || char(10) || '  expert-parallel: 1'");
    assert_says("moeperf compare old.db head.db", 2,
                "gather (broadcasts, trees), options.expert-parallel (1, auto)\n");
}

TEST(files_are_written) {
    assert_says("moeperf compare base.db head.db --junit j.xml --benchmark-action a.json "
                "--bencher b.json --benchstat s.txt && cat j.xml s.txt",
                0, "<testcase classname=\"gate.ep\" name=\"ep: routes ranks=1\"/>");
    assert_says("cat s.txt", 0, "side: head\nUnit ms/iteration better=lower\nBenchmarkIteration/");
    json_decref(json_of("cat a.json", 0));
    json_decref(json_of("cat b.json", 0));
    assert_says("moeperf compare base.db head.db --junit nowhere/j.xml", 2, "nowhere/j.xml");
}

TEST(pairs) {
    /* Long enough to be stopped before the end. */
    assert_says(RUN "--db pairs.db --pairs 2 --set iterations=300", 0,
                "Both sides are the same program: ");
    assert_answer("pairs.db", /* in the order in which they were measured */
                  "SELECT group_concat(value, ' ') FROM (SELECT value FROM v_fact WHERE name = "
                  "'pairs.side' ORDER BY run_id)",
                  "base head head base");
    assert_says("moeperf compare pairs.db", 0, "-head (revision",
                "at once, in time slices of 0.15 s");
    assert_says("moeperf compare --db pairs.db", 0, "1 inconclusive");
    assert_runs(RUN "--db whole.db --pairs 2 --slice 0");
    assert_says("moeperf compare whole.db | grep -c slices", 1, "0\n");
    assert_json(RUN "--db against.db --pairs 1 --against ./other-trainer --json", 0, "same_program",
                "false", "metrics/0/paired", "true", "metrics/0/noise_floor", "null");
    assert_says("moeperf compare against.db base.db", 0, "not measured in turns");
}

/* Lines are added once, and say the same as the database. */
TEST(a_history_outlives_its_databases) {
    assert_says("moeperf history base.db head.db --append h.jsonl", 0,
                "moeperf history: 2 runs added to h.jsonl\n");
    assert_says("moeperf history head.db --append h.jsonl", 0, "0 runs added");
    assert_runs(
        "moeperf history base.db head.db > of-databases; moeperf history h.jsonl > of-lines; "
        "cmp of-databases of-lines");
    assert_says("moeperf history h.jsonl --suite tiny --job ep", 0, "tiny, ep, 1 rank, ");
    AUTO(json) json_t *object = json_of("moeperf history base.db --json", 0);
    assert_true(json_array_size(member(object, "series")) > 10);
    assert_says("moeperf history base.db --job fssdp", 2, "base.db: no complete run of job fssdp");
    assert_says("touch e.jsonl; moeperf history e.jsonl --append new.jsonl", 2,
                "e.jsonl: no complete run");
    assert_says("moeperf history base.db head.db --suite x", 2, "base.db, ...: no complete run");
    assert_runs("! ls new.jsonl");
    assert_says("moeperf history base.db --append h.csv", 2, "its name has to end in .jsonl");
    assert_says("moeperf history base.db --html h.html --json", 2, "--json does not go with them");
    assert_says("MOEPERF_VEGA=/nowhere moeperf history base.db --html h.html", 2,
                "install libjs-vega");
    assert_says("MOEPERF_BROWSER=/nowhere moeperf report --db base.db --figures f", 2,
                "MOEPERF_BROWSER=/nowhere: No such file or directory");
    assert_says("moeperf history gone.db", 2, "gone.db: no such database");
    assert_runs("echo '{' >> h.jsonl");
    assert_says("moeperf history h.jsonl", 2, "h.jsonl:3: ");
}

TEST(refusals) {
    write_file("text.db", "this is no database, but long enough to be taken for one by its size\n");
    execute("foreign.db", "CREATE TABLE theirs (x)");
    assert_says("moeperf compare base.db other.db", 2, "batch (2, 4)");
    assert_says("moeperf compare base.db base.db", 2, "measured in turns");
    assert_runs("! ls base.db-*"); /* nothing is left beside it */
    assert_says("moeperf compare base.db:1 base.db:1", 2, "on both sides");
    assert_says("moeperf compare base.db nothing.db", 2, "nothing.db: no such database");
    assert_says("moeperf compare base.db text.db", 2, "text.db");
    assert_says("moeperf compare base.db foreign.db", 2, "another program");
    assert_says("moeperf compare base.db:7 head.db", 2, "no run 7");
    assert_says("moeperf compare base.db:tiny head.db", 2, "no suite run \"tiny\"");
    assert_says("moeperf compare base.db:1,x head.db", 2, "no suite run \"1,x\"");
    assert_says("moeperf compare base.db:1- head.db", 2, "like 1,3-5");
    assert_says("moeperf compare base.db:3-1 head.db", 2, "like 1,3-5");
    assert_says("moeperf compare base.db:1", 2, "is one side");
    assert_says("moeperf compare base.db base.db", 2, "as base.db:1-6 base.db:7-12");
    assert_says("moeperf compare base.db head.db --minimum-effect 0", 2, "--minimum-effect 0");
    assert_says("moeperf compare base.db head.db --minimum-effect nan", 2, "--minimum-effect");
    assert_says("moeperf compare base.db head.db --accept copeis", 2, "copeis");
    assert_says(RUN "--against ./other-trainer", 2, "--pairs");
    assert_says(RUN "--pairs 0 --db x.db", 2, "--pairs 0");
    assert_says(
        RUN "--pairs 12 --set iterations=22 --db y.db", 2,
        "job ep of suite tiny has 22 iterations, of which 19 count without the first tenth");
    free(shell("test -e y.db", 1));
    assert_says("moeperf show ci | grep iterations", 0, "100");
    assert_says(RUN "--slice 1 --db x.db", 2, "--pairs");
    assert_says(RUN "--pairs 1 --slice 0.001 --db x.db", 2, "--slice 0.001");
    assert_says(RUN "--pairs 1 --slice no --db x.db", 2, "--slice no");
    assert_says(RUN "--pairs 1 --against ./absent --db x.db", 2, "./absent");
    assert_says("moeperf run predicted --pairs 1 --db x.db", 2, "job ep is predicted");
    free(shell("test -e x.db", 1));
}

TEST_GROUP(measure, leave_folder);
