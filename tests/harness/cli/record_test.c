/* moeperf record: programs that annotate themselves, as people start them. */
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/cli/shell.h"

/* The first column of the only row, from a database in this folder. */
static char *query(const char *database, const char *sql) {
    sqlite3 *connection = NULL;
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_open(database, &connection), SQLITE_OK);
    if (sqlite3_prepare_v2(connection, sql, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(connection));
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    const char *text = (const char *)sqlite3_column_text(statement, 0);
    char *copy = strdup(text ? text : "NULL");
    sqlite3_finalize(statement);
    sqlite3_close(connection);
    return copy;
}

static void assert_answer(const char *database, const char *sql, const char *expected) {
    char *answer = query(database, sql);
    if (strcmp(answer, expected) != 0)
        print_error("%s\n", sql);
    assert_string_equal(answer, expected);
    free(answer);
}

static bool has_collector(void) {
    if (!access(MOEPERF_FOLDER "/libmoeperf-nvtx.so", R_OK))
        return true;
    print_message("skipped: built without NVTX's headers, so there is no collector\n");
    return false;
}

/* Two programs of which one records the other: what the trainer says of itself by NVTX is what it
 * writes down itself. */
static void the_trainer_says_what_it_records(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    free(shell("moeperf record -o nvtx.db -- moeperf run ci --set ranks=1 --set iterations=3 "
               "--text words --db own.db --quiet",
               0));
    /* Jobs of one rank, one after the other: the first is both databases' first. */
    char *own = query(
        "own.db", "SELECT group_concat(line, char(10)) FROM (SELECT phase || ' ' || iteration || "
                  "' ' || layer || ' ' || coalesce(direction, '') || ' ' || coalesce(tokens, "
                  "-1) || ' ' || coalesce(bytes, -1) AS line FROM v_span WHERE run_id = 1 AND "
                  "stream = 'compute' ORDER BY iteration, phase, layer, direction, start_ns)");
    char *seen = query(
        "nvtx.db",
        "SELECT group_concat(line, char(10)) FROM (SELECT phase || ' ' || iteration || ' ' || "
        "layer "
        "|| ' ' || coalesce(direction, '') || ' ' || coalesce(tokens, -1) || ' ' || "
        "coalesce(bytes, -1) AS line FROM v_span WHERE run_id = 1 AND rank = 0 ORDER BY iteration, "
        "phase, layer, direction, start_ns)");
    assert_true(strlen(own) > 1000);
    assert_string_equal(seen, own);
    free(own);
    free(seen);
    assert_answer("nvtx.db", "SELECT count(*) FROM v_nvtx WHERE domain <> 'moeperf'", "0");
    free(shell("moeperf report --db nvtx.db --run 1", 0));
}

static void rules_make_spans_of_a_foreign_program(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    write_file("rules.yaml", "rules:\n"
                             "  - name: iteration\n"
                             "    domain: with payloads\n"
                             "    phase: iteration\n"
                             "  - name: exp*\n"
                             "    phase: expert\n"
                             "    layer: count\n"
                             "    tokens: payload.tokens\n"
                             "    bytes: payload.bytes\n");
    assert_says("moeperf record -o foreign.db --rules rules.yaml -- " ANNOTATED " payloads 4", 0,
                "12 ranges, 12 became spans");
    assert_answer("foreign.db",
                  "SELECT group_concat(iteration || ':' || layer || ':' || tokens || ':' || bytes, "
                  "' ') FROM v_span WHERE phase = 'expert'",
                  "0:0:100:4096 0:1:101:4096 1:0:100:4096 1:1:101:4096 2:0:100:4096 2:1:101:4096 "
                  "3:0:100:4096 3:1:101:4096");
    assert_answer("foreign.db", "SELECT iterations FROM v_run", "4");
    assert_answer("foreign.db", "SELECT payload FROM v_nvtx WHERE name = 'experts' LIMIT 1",
                  "[{\"iteration\":0,\"layer\":0,\"tokens\":100,\"bytes\":4096}]");
    /* Nsight's own words. */
    assert_answer("foreign.db",
                  "SELECT count(*) FROM NVTX_EVENTS JOIN StringIds ON StringIds.id = textId WHERE "
                  "eventType = 59 AND value = 'experts' AND \"end\" > start AND globalTid / "
                  "0x1000000 % 0x1000000 = (SELECT pid FROM v_rank)",
                  "8");
}

/* Rules for a range that ends iterations, for programs without one around them. */
static void iterations_may_be_known_by_their_end(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    write_file("ends.yaml", "rules:\n"
                            "  - name: experts\n"
                            "    phase: expert\n"
                            "    layer: count\n"
                            "iteration-ends:\n"
                            "  - name: iteration\n");
    free(shell("moeperf record -o ends.db --rules ends.yaml -- " ANNOTATED " payloads 3", 0));
    assert_answer("ends.db",
                  "SELECT group_concat(iteration || ':' || layer, ' ') FROM v_span WHERE phase = "
                  "'expert'",
                  "0:0 0:1 1:0 1:1 2:0 2:1");
    assert_answer("ends.db", "SELECT count(*) FROM v_span WHERE phase = 'iteration'", "3");
}

static void exit_statuses_and_signals_pass_through(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    free(shell("moeperf record -o status.db -- " ANNOTATED " status 3", 3));
    free(shell("moeperf record -o status.db -- " ANNOTATED " killed 5", 137));
    assert_answer("status.db", "SELECT group_concat(status, ' ') FROM v_run", "failed failed");
    assert_answer("status.db", "SELECT status FROM v_rank WHERE run_id = 2", "cut");
    assert_answer("status.db", "SELECT count(*) FROM v_nvtx WHERE run_id = 2", "5");
    free(shell("moeperf record -o status.db -- /nonexistent/program", 127));
    free(shell("moeperf record -o status.db -- sh -c 'exit 9'", 9));
    assert_says("moeperf record -o status.db -- true", 2, "no process has made an NVTX range");
    free(shell("moeperf record -o status.db -- sleep 20 & sleep 0.5; kill -TERM $!; wait $!", 143));
    assert_answer("status.db", "SELECT count(*) FROM run", "2");
    free(shell("! ls -d status.db.spools*", 0)); /* nothing is left behind */
}

static void every_process_is_kept(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    write_file("parent.yaml", "rules:\n  - name: parent\n    phase: expert\n");
    assert_says("RANK=0 moeperf record -o forks.db --rules parent.yaml -- " ANNOTATED " forks 3", 0,
                "3 more processes");
    assert_answer("forks.db", "SELECT group_concat(ranks, ' ') FROM run", "1 3");
    assert_answer("forks.db", "SELECT count(*) FROM v_nvtx WHERE name = 'child'", "3");
    free(shell("MINE=4 moeperf record -o forks.db --ranks-from MINE --keep kept -- " ANNOTATED
               " plain",
               0));
    assert_answer("forks.db", "SELECT ranks FROM run WHERE run_id = 3", "5");
    free(shell("ls kept/*.spool", 0));
    /* What is left of a recording can be added at any time, and once. */
    free(shell("moeperf record -o forks.db --from kept", 0));
    assert_answer("forks.db", "SELECT count(*) FROM run", "3");
    free(shell("moeperf record -o later.db --from kept && moeperf record -o later.db --from kept",
               0));
    assert_answer("later.db", "SELECT count(*) FROM run", "1");
    assert_answer("later.db", "SELECT ranks FROM run", "5");
    free(shell("rm -r kept", 0));
}

static void names_of_any_bytes_arrive(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    free(shell("moeperf record -o bytes.db -- " ANNOTATED " bytes 3", 0));
    assert_answer("bytes.db",
                  "SELECT count(*) FROM v_nvtx WHERE name = '<script>alert(''\"'')</script>'", "1");
    assert_answer("bytes.db",
                  "SELECT count(*) FROM v_nvtx WHERE name LIKE '%~_\\x80\\x81%' ESCAPE "
                  "'~' OR name LIKE '%\\xfe\\xff'",
                  "1");
    assert_answer("bytes.db", "SELECT count(*) FROM v_nvtx", "6");
}

static void mistakes_are_refused(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    assert_says("moeperf record -o x.db", 2, "no command");
    assert_says("moeperf record -o x.db --rules nonesuch -- true", 2, "no ready-made rules file");
    assert_says("moeperf record -o x.db --rule my.yaml -- true", 2, "did you mean --rules");
    write_file("bad.yaml", "rules:\n  - name: x\n    phase: exprt\n");
    assert_says("moeperf record -o x.db --rules bad.yaml -- true", 2, "bad.yaml:3: phase");
    assert_says("moeperf list rules", 0, "megatron-lm");
}

/* A Python program with the annotations of PyPI's nvtx, unless it can't be had here. */
static void a_python_program_is_recorded(void **state) {
    (void)state;
    if (!has_collector())
        skip();
    char *installed =
        shell("python3 -c 'import nvtx' 2>/dev/null || python3 -m pip install --quiet "
              "--no-deps --disable-pip-version-check --target python nvtx >/dev/null "
              "2>&1; PYTHONPATH=python python3 -c 'import nvtx; print(\"works\")' || "
              "true",
              0);
    const bool works = strstr(installed, "works\n") != NULL;
    free(installed);
    if (!works || RUNS_SANITIZED) {
        print_message("skipped: %s\n", works ? "python3 can't load what the sanitizers watch"
                                             : "python3 has no nvtx, and pip can't get it");
        skip();
    }
    write_file("train.py", "import nvtx\n"
                           "for step in range(3):\n"
                           "    with nvtx.annotate(f'step {step}', domain='trainer'):\n"
                           "        for layer in range(2):\n"
                           "            with nvtx.annotate(f'layer {layer} experts', "
                           "domain='trainer', color='red', payload=layer * 10):\n"
                           "                sum(range(1000))\n"
                           "@nvtx.annotate()\n"
                           "def decorated():\n"
                           "    pass\n"
                           "decorated()\n");
    write_file("python.yaml",
               "rules:\n"
               "  - {name: \"step {iteration}\", domain: trainer, phase: iteration}\n"
               "  - {name: \"layer {layer} experts\", phase: expert, tokens: payload}"
               "\n");
    free(shell("PYTHONPATH=python moeperf record -o python.db --rules python.yaml -- python3 "
               "train.py",
               0));
    assert_answer(
        "python.db",
        "SELECT group_concat(iteration || ':' || layer || ':' || tokens, ' ') FROM v_span "
        "WHERE phase = 'expert'",
        "0:0:0 0:1:10 1:0:0 1:1:10 2:0:0 2:1:10");
    assert_answer("python.db", "SELECT count(*) FROM v_nvtx WHERE name = 'decorated'", "1");
    free(shell("rm -rf python", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_trainer_says_what_it_records),
        cmocka_unit_test(rules_make_spans_of_a_foreign_program),
        cmocka_unit_test(iterations_may_be_known_by_their_end),
        cmocka_unit_test(exit_statuses_and_signals_pass_through),
        cmocka_unit_test(every_process_is_kept),
        cmocka_unit_test(names_of_any_bytes_arrive),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(a_python_program_is_recorded),
    };
    return cmocka_run_group_tests_name("record", tests, enter_shell, leave_folder);
}
