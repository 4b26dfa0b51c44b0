/* Whoever runs or reports may be killed at any moment: the database opens with every run that was
 * added, whole, and the next run adds to it. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>

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

/* Starts moeperf with these words and kills it after `us`; what it said is left in the file said.
 */
static void kill_after(const char *const words[], int us) {
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int said = open("said", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(said, STDOUT_FILENO);
        dup2(said, STDERR_FILENO);
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    usleep((useconds_t)us);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static int64_t ask(sqlite3 *database, const char *sql) {
    sqlite3_stmt *row = NULL;
    if (sqlite3_prepare_v2(database, sql, -1, &row, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(database));
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    return value;
}

/* How many runs there are, each with both ranks, all spans and its summary.  None yet is none. */
static int64_t whole_runs(void) {
    sqlite3 *database = NULL;
    if (access("k.db", F_OK) != 0)
        return 0;
    assert_int_equal(sqlite3_open_v2("k.db", &database, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (ask(database, "SELECT count(*) FROM sqlite_schema") == 0) {
        sqlite3_close(database);
        return 0;
    }
    assert_int_equal(ask(database, "SELECT count(*) FROM pragma_integrity_check "
                                   "WHERE integrity_check <> 'ok'"),
                     0);
    int64_t runs = ask(database, "SELECT count(*) FROM run");
    assert_int_equal(ask(database, "SELECT count(*) FROM run WHERE status <> 'complete'"), 0);
    assert_int_equal(ask(database, "SELECT count(*) FROM run_summary WHERE iterations = 5"), runs);
    assert_int_equal(ask(database, "SELECT count(*) FROM rank WHERE status = 'complete'"),
                     2 * runs);
    assert_int_equal(ask(database, "SELECT count(*) FROM span"),
                     ask(database, "SELECT coalesce(sum(spans), 0) FROM v_rank"));
    sqlite3_close(database);
    return runs;
}

TEST_RANDOM(a_killed_run_leaves_what_was_added) {
    const char *const words[] = {"moeperf", "run", "k.yaml", "--quiet", "--db", "k.db", NULL};
    int64_t runs = 0;
    write_file("k.yaml", suite);
    for (int round = 0; round < ROUNDS; round++) {
        kill_after(words, test_random_int(random, 0, 1500000));
        int64_t now = whole_runs();
        assert_in_range(now, runs, runs + JOBS);
        print_message("killed with %d of %d jobs added\n", (int)(now - runs), JOBS);
        runs = now;
    }
    free(shell("moeperf run k.yaml --quiet --db k.db", 0));
    assert_int_equal(whole_runs(), runs + JOBS);
}

TEST_RANDOM(a_killed_report_changes_nothing) {
    const char *const words[] = {"moeperf", "report", "--db", "k.db", NULL};
    int64_t runs = whole_runs();
    char *before = shell("moeperf report --db k.db --json", 0);
    for (int i = 0; i < REPORTS; i++) {
        kill_after(words, test_random_int(random, 0, 30000));
        assert_int_equal(whole_runs(), runs);
    }
    char *after = shell("moeperf report --db k.db --json", 0);
    assert_string_equal(after, before);
    free(before);
    free(after);
}

TEST_GROUP(enter_shell, leave_folder);
