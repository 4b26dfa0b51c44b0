/* A moeperf run that is killed while a job trains: moeperf run --from adds what the job recorded,
 * once. */
#include <signal.h>

#include "harness/suite/keep.h"
#include "tests/harness/cli/shell.h"

/* The second job lasts until it is killed. */
static const char suite_format[] =
    SMALL_SUITE("killed\nrepeat: 2", "iterations: %d, seed: %d",
                "{name: short, system: ep}, {name: long, system: fssdp, iterations: 1000000}");

/* Starts the suite; its process once both ranks of the long job have recorded so much that it
 * trains. */
static pid_t start_training(void) {
    const char *const words[] = {"moeperf", "run", "k.yaml", "--quiet", "--db", "k.db", NULL};
    pid_t child = start(words);
    while (system("test $(find out/runs/*/002-long/spools -size +256k 2>/dev/null | wc -l) = 2")) {
        if (waitpid(child, NULL, WNOHANG) != 0) {
            char *said = read_file("said");
            fail_msg("moeperf run ended: %s", said);
        }
        usleep(5000);
    }
    return child;
}

TEST_RANDOM(what_a_killed_run_recorded_is_added_once) {
    static const char line[] = "moeperf run --from out/runs/* --db k.db";
    write_file("k.yaml", formatted(suite_format, test_random_int(random, 1, 5),
                                   test_random_int(random, 1, 1000)));
    pid_t child = start_training();
    AUTO(text) char *job = shell("printf %s out/runs/*/002-long", 0);
    assert_says(line, 2, "/002-long: still runs; ");
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    while (mp_note_is_held(job))
        usleep(5000);
    assert_answer("k.db", "SELECT count(*) FROM v_run", "1");
    assert_says(line, 0, "/002-long: job long: added as run 2 of k.db\n");
    assert_says(line, 0, "/002-long: job long: is already run 2 of k.db\n");
    assert_says("moeperf run --from out/runs/*/002-long --db k.db", 0,
                "/002-long: job long: is already run 2 of k.db\n");
    assert_answer("k.db", "SELECT count(*) FROM v_run", "2");
    assert_answer(
        "k.db",
        "SELECT count(*) FROM v_run WHERE run_id = 2 AND status = 'interrupted' AND reason = "
        "'moeperf was killed' AND system = 'fssdp' AND suite = 'killed' AND job = 'long' AND "
        "ranks = 2 AND round = 0 AND iterations >= 1 AND iterations_wanted = 1000000 AND "
        "executor = 'measured'",
        "1");
    /* In all that is known of a job before it ends the runs differ as their jobs do. */
    assert_answer("k.db",
                  "SELECT count(*) FROM run a JOIN run b USING (suite_run, suite_text, model, "
                  "workload, gate, nodes, ranks_per_node) WHERE a.run_id = 1 AND b.run_id = 2 AND "
                  "b.command LIKE '%/002-long/job.yaml%' AND b.job_text LIKE '%1000000%'",
                  "1");
    assert_answer("k.db", "SELECT count(*) FROM rank WHERE run_id = 2 AND status <> 'missing'",
                  "2");
}

/* ---- what is refused ---- */

static const struct refused_line bad_inputs[] = {
    {"moeperf run --db k.db", "moeperf run: an argument is missing: which suite to run"},
    {"moeperf run --from gone --db k.db", "moeperf run: gone: No such file or directory\n"},
    {"mkdir -p none/001-job && touch none/001-job/job.yaml && moeperf run --from none --db k.db",
     "moeperf run: none: no job to add: neither it nor a folder in it has a run.yaml"},
    {"moeperf run quickstart --from none",
     "moeperf run: --from takes one folder and no suite: \"quickstart\""},
    {"moeperf run --from none --set seed=2", "moeperf run: --from runs nothing"},
    {"mkdir -p cut && echo '{\"suite\": ' > cut/run.yaml && moeperf run --from cut --db k.db",
     "moeperf run: cut/run.yaml:"},
    {"mkdir -p empty && echo '{}' > empty/run.yaml && moeperf run --from empty --db k.db",
     "moeperf run: empty/run.yaml:1: suite: not given; a note needs a text"},
    {"mkdir -p odd && sed 's/^ranks: 2/ranks: 0/' out/runs/*/002-long/run.yaml > "
     "odd/run.yaml && moeperf run --from odd --db k.db",
     ": ranks: 0 is outside 1 .. 2147483647\n"},
};

/* After the test above, whose note is changed. */
TEST(other_folders_are_refused) {
    AUTO(text) char *runs = query("k.db", "SELECT count(*) FROM run");
    assert_refused(bad_inputs);
    assert_runs("mkdir -p bare/spools && cp out/runs/*/002-long/run.yaml bare && "
                "touch bare/spools/rank-0");
    assert_says("moeperf run --from bare --db k.db", 0, "bare: job long: nothing was recorded\n");
    assert_answer("k.db", "SELECT count(*) FROM run", runs);
}

/* A folder without anything to add makes no database, nor a folder for one; they are
 * the test's above. */
TEST(refused_folders_make_no_database) {
    static const char *const folders[] = {"gone", "none", "cut", "empty"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        free(shell(formatted("moeperf run --from %s --db new/new.db", folders[i]), 2));
        assert_int_equal(access("new", F_OK), -1);
        free(shell(formatted("moeperf run --from %s --db new.db", folders[i]), 2));
        assert_int_equal(access("new.db", F_OK), -1);
    }
}

/* As from a terminal that is closed, which sends it more than once. */
TEST(a_hangup_ends_a_run_cleanly) {
    int status;
    assert_runs("rm -rf out k.db*");
    pid_t child = start_training();
    assert_int_equal(kill(child, SIGHUP), 0);
    assert_int_equal(kill(child, SIGHUP), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_answer("k.db",
                  "SELECT count(*) FROM v_run WHERE (run_id = 1 AND status = 'complete') OR "
                  "(run_id = 2 AND status = 'interrupted' AND "
                  "reason LIKE 'stopped by the user after iteration %' AND iterations > 0)",
                  "2");
    assert_answer("k.db", "SELECT count(*) FROM rank WHERE run_id = 2 AND status = 'interrupted'",
                  "2");
}

TEST_GROUP(enter_shell, leave_folder);
