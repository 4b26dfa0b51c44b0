/* What a system can't do is said before any rank starts: which system and constraint, with the
 * numbers.  Alone it is exit status 2, nothing started, the database as it was; among others it is
 * a row. */
#include "tests/harness/cli/shell.h"

struct refusal {
    const char *name, *system;
    const char *settings; /* behind moeperf run */
    const char *words;    /* of the message, without the job's place */
};

/* Of all refusals, which tests of suites and baselines have, one of the job's, and one of a system
 * that looks at the gate. */
static const struct refusal cases[] = {
    {"experts per rank not whole", "ep", "--set experts=9",
     "experts: 9 experts can't be divided evenly over 2 ranks, which system ep needs"},
    {"topology gate with groups", "fastermoe", "--set gate=sam --set options.topology-gate=yes",
     "fastermoe with topology-gate limits the choices of a gate that takes its largest scores; "
     "this one has a rule of its own (hash, prototypes, groups or bias)"},
};

static const char head[] =
    "suite: bad\n"
    "common: {ranks: 2, layers: 2, width: 32, heads: 2, experts: 8, expert-width: 64,\n"
    "  sequence: 32, batch: 4, iterations: 2, text: default}\n"
    "jobs:\n";

static void assert_nothing_was_done(void) {
    assert_int_equal(access("out", F_OK), -1); /* no job's folder: no rank */
    assert_says("moeperf report --db kept.db --runs", 0, "  1  ");
    assert_says("moeperf report --db kept.db --run 2", 2, "no run 2");
    assert_runs("cmp kept.db before.db");
}

TEST_EACH(refused_alone, cases, c) {
    write_file("bad.yaml", formatted("%s  - {name: bad, system: %s}\n", head, c->system));
    assert_says(formatted("moeperf run bad.yaml --db kept.db %s", c->settings), 2,
                "moeperf run: bad.yaml:5: job bad: ", c->words);
    assert_nothing_was_done();
}

TEST(every_job_is_refused) {
    write_file("bad.yaml", formatted("%s  - {name: one, system: ep}\n"
                                     "  - {name: two, system: smartmoe}\n",
                                     head));
    assert_says("moeperf run bad.yaml --db kept.db --set experts=9", 2,
                "moeperf run: bad.yaml:5: job one: experts: 9 experts can't be divided evenly over "
                "2 ranks, which system ep needs; take a multiple of ranks; the other jobs (1) are "
                "refused, too");
    assert_nothing_was_done();
}

/* What is wrong by itself is no refusal, whatever stands beside it or in the same job. */
static const struct {
    const char *job, *says;
} slips[] = {
    {"{system: lleep}", "did you mean \"llep\"?"},
    {"{system: fssdp, options: {widow: 3}}", "did you mean \"window\"?"},
    {"{system: llep, batch: 5}", "job llep: batch: 5 sequences can't be divided evenly"},
    {"{system: skeleton, experts: 9, text: gone}", "job skeleton: text: gone: No such file"},
    {"{system: skeleton, experts: 9, routing: trace, trace: gone.mptrace}",
     "job skeleton: can't open gone.mptrace: No such file"},
    {"{system: skeleton, experts: 9, routing: load}", "job skeleton: load: not given"},
    {"{system: skeleton, executor: predicted, cluster: h100, loads: zpif, experts: 9, batch: 32}",
     "did you mean \"zipf\"?"},
};

TEST_ROWS(mistakes_beside_a_refusal_are_errors, slips, slip) {
    write_file("bad.yaml", formatted("%s  - {system: ep, experts: 9}\n  - %s\n", head, slip->job));
    assert_says("moeperf run bad.yaml --db kept.db", 2, slip->says);
    assert_nothing_was_done();
}

/* Others run, in all rounds; the refused one is there once, and decides nothing. */
TEST(among_others_it_is_a_row) {
    write_file("bad.yaml",
               formatted("%s  - {name: first, system: llep}\n"
                         "  - {name: bad, system: ep}\n"
                         "  - {name: last, system: fssdp, executor: predicted, cluster: h100,\n"
                         "     change: nodes=1, loads: zipf, batch: 16}\n",
                         head));
    assert_says(
        "moeperf run bad.yaml --db others.db --set experts=9 --set repeat=2", 0,
        "[2/5] bad: refused: experts: 9 experts can't be divided evenly over 2 ranks, which system "
        "ep needs; take a multiple of ranks\n",
        "[4/5] first, round 2 of 2: 2 iterations",
        "[5/5] last, round 2 of 2: 2 iterations predicted",
        "\nep      refused: experts: 9 experts can't be divided evenly over 2 ranks, which\n"
        "        system ep needs; take a multiple of ranks\n",
        "\n4 jobs complete, 0 failed, 1 refused; everything is in others.db\n",
        LACKS("2 of 2  ep")); /* nor anything that it did */
    json_t *object =
        json_of("moeperf run bad.yaml --db others.db --set experts=9 --quiet --json", 0);
    assert_has(object, "refused", "1", "failed", "0", "speedup/incomplete/0/status", "refused");
    assert_contains(text(object, "speedup/rows/1/refused"),
                    "experts: 9 experts can't be divided evenly over 2 ranks");
    json_decref(object);
    assert_runs("moeperf report --db others.db --html others.html");
    assert_says("grep -o '[a-z]*: refused, so it[a-z ]*' others.html", 0,
                "bad: refused, so it was never started");
}

/* A database with one run, to be lost. */
static int enter(void **state) {
    int failed = enter_shell(state);
    write_file("good.yaml",
               "{suite: good, common: {layers: 1, width: 16, heads: 2, experts: 2, "
               "expert-width: 16, sequence: 16, batch: 2, iterations: 2, text: default}, "
               "jobs: [{system: ep}]}\n");
    assert_runs("moeperf run good.yaml --quiet --db kept.db && cp kept.db before.db && rm -r out");
    return failed;
}

TEST_GROUP(enter, leave_folder);
