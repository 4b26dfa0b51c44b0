/* Whoever runs or reports may be killed at any moment: the database opens with every run that was
 * added, whole, and the next run adds to it. */
#include <signal.h>

#include "tests/harness/cli/shell.h"

enum { ROUNDS = 6, REPORTS = 10, JOBS = 3 };

static const char suite[] =
    "suite: killed\n"
    "common: {ranks: 2, layers: 2, width: 16, heads: 2, experts: 4, expert-width: 16,\n"
    "  sequence: 16, batch: 4, iterations: 5, text: default}\n"
    "jobs:\n"
    "  - {name: a, system: ep}\n"
    "  - {name: b, system: fssdp}\n"
    "  - {name: c, system: deepspeed}\n";

static void kill_after(const char *const words[], int us) {
    pid_t child = start(words);
    usleep((useconds_t)us);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* How many runs there are, each with both ranks, all spans and its summary.  None yet is none. */
static int whole_runs(void) {
    if (access("k.db", F_OK) || query_number("k.db", "SELECT count(*) FROM sqlite_schema") == 0)
        return 0;
    assert_answer("k.db",
                  "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'", "0");
    int runs = (int)query_number("k.db", "SELECT count(*) FROM run");
    assert_answer("k.db", "SELECT count(*) FROM run WHERE status <> 'complete'", "0");
    assert_answer(
        "k.db",
        "SELECT (SELECT count(*) FROM run_summary WHERE iterations = 5) = count(*) AND "
        "(SELECT count(*) FROM rank WHERE status = 'complete') = 2 * count(*) AND (SELECT "
        "count(*) FROM span) = (SELECT coalesce(sum(spans), 0) FROM v_rank) FROM run",
        "1");
    return runs;
}

TEST_RANDOM(a_killed_run_leaves_what_was_added) {
    const char *const words[] = {"moeperf", "run", "k.yaml", "--quiet", "--db", "k.db", NULL};
    int runs = 0;
    write_file("k.yaml", suite);
    for (int round = 0; round < ROUNDS; round++) {
        kill_after(words, test_random_int(random, 0, 1500000));
        int now = whole_runs();
        assert_in_range(now, runs, runs + JOBS);
        print_message("killed with %d of %d jobs added\n", now - runs, JOBS);
        runs = now;
    }
    assert_runs("moeperf run k.yaml --quiet --db k.db");
    assert_int_equal(whole_runs(), runs + JOBS);
}

TEST_RANDOM(a_killed_report_changes_nothing) {
    const char *const words[] = {"moeperf", "report", "--db", "k.db", NULL};
    int runs = whole_runs();
    AUTO(text) char *before = shell("moeperf report --db k.db --json", 0);
    for (int i = 0; i < REPORTS; i++) {
        kill_after(words, test_random_int(random, 0, 30000));
        assert_int_equal(whole_runs(), runs);
    }
    AUTO(text) char *after = shell("moeperf report --db k.db --json", 0);
    assert_string_equal(after, before);
}

TEST_GROUP(enter_shell, leave_folder);
