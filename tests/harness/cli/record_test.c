/* moeperf record: programs that annotate themselves, as people start them. */
#include "tests/harness/cli/annotated.h"

/* ---- the trainer: what it says by NVTX is what it writes down itself ---- */

/* The spans of both recordings, in the order of what they say, then of time. */
#define WHAT                                                                                       \
    "rank || ' ' || stream || ' iteration ' || iteration || ' ' || phase || ' layer ' || layer"    \
    " || ' ' || coalesce(direction, '-') || ' tokens ' || coalesce(tokens, -1) || ' bytes ' || "   \
    "coalesce(bytes, -1)"
#define SPANS(name, database)                                                                      \
    name " AS (SELECT *, row_number() OVER (ORDER BY what, start_ns) AS place FROM (SELECT "       \
         "start_ns, end_ns, " WHAT " AS what FROM " database ".v_span))"
#define BOTH "ATTACH 'own.db' AS own; WITH " SPANS("seen", "main") ", " SPANS("told", "own") " "

/* A job whose operations in flight are of all kinds that the system has: sums of gradients of
 * ranks, iterations and buckets.  How many spans differ by more than a millisecond in length or, on
 * rank 0, whose clock both recordings are told in, in when they begin: a clock read of each lies
 * between those of the other, and a rank that loses its core just there is rare, but not
 * impossible. */
static void compare_recordings(const char *job) {
    int spans, in_flight, far;
    write_file("two.yaml",
               formatted(SMALL_SUITE("two", "iterations: 4, validate-every: 2", "%s"), job));
    assert_runs("rm -f own.db* nvtx.db*; moeperf record -o nvtx.db -- moeperf run two.yaml --db "
                "own.db --quiet");
    assert_answer("nvtx.db",
                  BOTH
                  "SELECT ((SELECT count(*) FROM seen) - count(*)) || ' more, ' || "
                  "coalesce(min(CASE WHEN seen.what IS NOT told.what THEN seen.what || ' for ' "
                  "|| told.what END), 'all the same') FROM told LEFT JOIN seen USING (place)",
                  "0 more, all the same");
    AUTO(text)
    char *counted = query(
        "nvtx.db",
        BOTH "SELECT count(*) || ' spans, ' || sum(told.what LIKE '% comm %') || ' in flight, ' || "
             "sum(abs((seen.end_ns - seen.start_ns) - (told.end_ns - told.start_ns)) > 1000000 OR "
             "(told.what LIKE '0%' AND abs(seen.start_ns - told.start_ns) > 1000000)) || ' more "
             "than 1 ms apart' FROM seen JOIN told USING (place)");
    print_message("%s: %s\n", job, counted);
    assert_int_equal(sscanf(counted, "%d spans, %d in flight, %d", &spans, &in_flight, &far), 3);
    assert_true(in_flight >= 2 * 4 * 4);
    assert_true(far <= spans / 4);
}

TEST(the_trainer_says_what_it_records) {
    static const char *const jobs[] = {
        "{name: ep, system: ep}", "{name: fssdp, system: fssdp, gate: switch}",
        "{name: swiftmoe, system: swiftmoe}", "{name: fastermoe, system: fastermoe}"};
    need_collector();
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        compare_recordings(jobs[i]);
    assert_answer("nvtx.db", "SELECT count(*) FROM v_nvtx WHERE domain <> 'moeperf'", "0");
    assert_answer("nvtx.db",
                  "SELECT coalesce(sum(value), 0) FROM v_number WHERE name IN "
                  "('nvtx-left-open', 'nvtx-unmatched-ends', 'nvtx-lost')",
                  "0.0");
    assert_runs("moeperf report --db nvtx.db --run 1");
}

TEST(rules_make_spans_of_a_foreign_program) {
    need_collector();
    write_file("rules.yaml",
               "rules:\n  - {name: iteration, domain: with payloads, phase: iteration}\n"
               "  - {name: exp*, phase: expert, layer: count, tokens: payload.tokens, bytes: "
               "payload.bytes}\n");
    assert_says("moeperf record -o foreign.db --rules rules.yaml -- " ANNOTATED " payloads 4", 0,
                "12 ranges, 12 became spans");
    assert_spans("foreign.db", "iteration || ':' || layer || ':' || tokens || ':' || bytes",
                 "phase = 'expert'",
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

/* Fields of schemas inside schemas and elements of arrays, in rules and in the database. */
TEST(rules_look_into_nested_payloads) {
    need_collector();
    write_file("nested.yaml",
               "rules:\n  - {name: transfer, phase: fetch, iteration: payload.from.node, layer: "
               "\"payload.to[1].node\", tokens: \"payload.sizes[2]\", bytes: payload.last}\n");
    assert_runs("moeperf record -o nested.db --rules nested.yaml -- " ANNOTATED " nested 3");
    assert_spans("nested.db", "iteration || ':' || layer || ':' || tokens || ':' || bytes",
                 "phase = 'fetch'", "0:5:30:100 1:5:30:101 2:5:30:102");
    assert_answer("nested.db", "SELECT payload FROM v_nvtx WHERE name = 'transfer' LIMIT 1",
                  "[{\"kind\":1,\"from\":{\"node\":0,\"share\":0.5},\"sizes\":[10,20,30],\"to\":"
                  "[{\"node\":4,\"share\":1},{\"node\":5,\"share\":2}],\"last\":100}]");
    assert_answer("nested.db",
                  "SELECT group_concat(name || ' ' || value) FROM v_number WHERE name LIKE "
                  "'nvtx-fields-%'",
                  "nvtx-fields-left-out-pointer 3.0");
}

/* Rules for a range that ends iterations, for programs without one around them. */
TEST(iterations_may_be_known_by_their_end) {
    need_collector();
    write_file("ends.yaml", "rules:\n  - {name: experts, phase: expert, layer: count}\n"
                            "iteration-ends:\n  - {name: iteration}\n");
    assert_runs("moeperf record -o ends.db --rules ends.yaml -- " ANNOTATED " payloads 3");
    assert_spans("ends.db", "iteration || ':' || layer", "phase = 'expert'",
                 "0:0 0:1 1:0 1:1 2:0 2:1");
    assert_answer("ends.db", "SELECT count(*) FROM v_span WHERE phase = 'iteration'", "3");
}

TEST(exit_statuses_and_signals_pass_through) {
    need_collector();
    write_file("status.yaml", "rules:\n  - {name: \"*\", phase: expert}\n");
    free(shell("moeperf record -o status.db --rules status.yaml -- " ANNOTATED " status 3", 3));
    free(shell("moeperf record -o status.db --rules status.yaml -- " ANNOTATED " killed 5", 137));
    assert_answer("status.db", "SELECT group_concat(status, ' ') FROM v_run", "failed failed");
    assert_answer("status.db", "SELECT status FROM v_rank WHERE run_id = 2", "cut");
    assert_answer("status.db", "SELECT count(*) FROM v_nvtx WHERE run_id = 2", "5");
    assert_says("moeperf record -o status.db -- /nonexistent/program", 127,
                "moeperf record: /nonexistent/program: No such file or directory\n",
                LACKS("NVTX range"));
    assert_says("moeperf record -o status.db -- sh -c /", 126, LACKS("NVTX range"));
    assert_says("moeperf record -o new/x.db -- no-such", 127, "record: no-such: No such file");
    assert_says("moeperf record --part new -- /etc/passwd", 126, "passwd: Permission denied");
    assert_runs("! ls -d new");
    assert_says("moeperf record -o status.db -- sh -c 'exit 9'", 9, "no process has made");
    assert_says("moeperf record -o status.db -- true", 2, "true: no process has made an NVTX range",
                "there is no run", "moeperf show moeperf_experts.py");
    assert_says("moeperf record -o status.db --keep empty -- true", 2, LACKS("are still in"));
    assert_runs("! ls -d empty"); /* it may be asked for again */
    free(shell("moeperf record -o status.db -- sleep 20 & sleep 0.5; kill -TERM $!; wait $!", 143));
    assert_answer("status.db", "SELECT count(*) FROM run", "2");
    assert_runs("! moeperf record -o none.db -- true; ! moeperf record -o none.db -- false; "
                "! moeperf record -o none.db --from gone; ! ls none.db");
    assert_runs("! ls -d status.db.spools*"); /* nothing is left behind */
}

TEST(every_process_is_kept) {
    need_collector();
    write_file("parent.yaml", "rules:\n  - name: parent\n    phase: expert\n");
    assert_says("RANK=0 moeperf record -o forks.db --rules parent.yaml -- " ANNOTATED " forks 3", 0,
                "3 more processes");
    assert_answer("forks.db", "SELECT group_concat(ranks, ' ') FROM run", "1 3");
    assert_answer("forks.db", "SELECT count(*) FROM v_nvtx WHERE name = 'child'", "3");
    assert_runs("MINE=4 moeperf record -o forks.db --ranks-from MINE --keep kept -- " ANNOTATED
                " plain");
    assert_answer("forks.db", "SELECT ranks FROM run WHERE run_id = 3", "5");
    assert_runs("ls kept/*.spool");
    /* What is left of a recording can be added at any time, and once. */
    assert_runs("moeperf record -o forks.db --from kept");
    assert_answer("forks.db", "SELECT count(*) FROM run", "3");
    assert_runs("moeperf record -o later.db --from kept && moeperf record -o later.db --from kept");
    assert_answer("later.db", "SELECT count(*) FROM run", "1");
    assert_answer("later.db", "SELECT ranks FROM run", "5");
    assert_runs("rm -r kept");
}

static const char step[] = "+train step 0\n+block 0\n+exchange\n=50\n-\n+experts\n=200\n-\n-\n"
                           "+block 1\n+exchange\n=50\n-\n+experts\n=200\n-\n-\n-\n";

/* A newcomer's first recording: no rules, and the answer in two more commands. */
TEST(rules_suggest_themselves) {
    need_collector();
    write_file("script", step);
    AUTO(text)
    char *output = shell("moeperf record -o 'my run.db' -- " ANNOTATED " told <script", 0);
    assert_contains(output, "expert     experts\n");
    assert_answer("my run.db", "SELECT count(*) FROM v_span", "0");
    AUTO(text) char *command = command_in(output, "\n  moeperf record ");
    /* As it is, and once more. */
    for (int again = 0; again < 2; again++)
        assert_runs(command);
    assert_answer("my run.db", "SELECT count(*) || min(system) || max(system) FROM v_run",
                  "2nvtx_annotatednvtx_annotated");
    assert_spans("my run.db", "iteration || phase || layer", "true",
                 "0iteration-1 0dispatch0 0expert0 0dispatch1 0expert1");
    assert_runs("rm -r 'my run.db.spools'*");
    /* A file that somebody may have edited stays; with rules that match, nothing is left. */
    assert_says("moeperf record -o 'my run.db' -- " ANNOTATED " told <script", 0,
                "'my run.db.rules-");
    assert_runs("rm -r 'my run.db.spools'*");
    assert_says("moeperf record -o 'my run.db' --rules 'my run.db.rules.yaml' -- " ANNOTATED
                " told <script",
                0, LACKS("moeperf record --"),
                "no rule matches \"block 0\" (1 time), the most frequent of "
                "such ranges; --suggest FILE.yaml proposes rules\n");
    assert_runs("! ls -d 'my run.db.spools'*");
    assert_says("moeperf record -o 'my run.db' --rules 'my run.db.rules.yaml' --suggest more.yaml "
                "-- " ANNOTATED " told <script",
                0, "--rules more.yaml");
    assert_runs("grep -q 'name: \"experts\"' more.yaml && rm -r 'my run.db.spools'*");
    assert_says("moeperf record --suggest more.yaml -- true", 2, "more.yaml: this file is there");
    assert_says("moeperf record --suggest more.txt -- true", 2, "has to end in .yaml");
}

/* An all-to-all for both ways, which the rules call dispatch. */
TEST(the_way_back_is_told_by_its_order) {
    need_collector();
    write_file("script", "+step\n+a2a\n=50\n-\n+experts\n=50\n-\n+a2a\n=50\n-\n"
                         "+a2a\n=50\n-\n+experts\n=50\n-\n+a2a\n=50\n-\n-\n");
    write_file("a2a.yaml", "rules:\n  - {name: step, phase: iteration}\n"
                           "  - {name: a2a, phase: dispatch, layer: count, waits: all}\n"
                           "  - {name: experts, phase: expert, layer: count}\n");
    assert_says("moeperf record -o a2a.db --rules a2a.yaml -- " ANNOTATED " told <script", 0,
                "exchanges: no range is a combine by its name; 2 behind experts are called "
                "combine and those before dispatch, by their order\n");
    assert_spans("a2a.db", "phase || layer", "phase <> 'iteration'",
                 "dispatch0 expert0 combine0 dispatch1 expert1 combine1");
    assert_answer("a2a.db",
                  "SELECT value || ' ' || rank FROM v_fact WHERE name = 'record.combines-by-order'",
                  "2 -1");
}

TEST(names_of_any_bytes_arrive) {
    need_collector();
    assert_runs("moeperf record -o bytes.db -- " ANNOTATED " bytes 3");
    assert_answer("bytes.db",
                  "SELECT count(*) FROM v_nvtx WHERE name = '<script>alert(''\"'')</script>'", "1");
    assert_answer("bytes.db",
                  "SELECT count(*) FROM v_nvtx WHERE name LIKE '%~_\\x80\\x81%' ESCAPE "
                  "'~' OR name LIKE '%\\xfe\\xff'",
                  "1");
    assert_answer("bytes.db", "SELECT count(*) FROM v_nvtx", "6");
}

TEST(mistakes_are_refused) {
    need_collector();
    assert_says("moeperf record -o x.db", 2, "no command");
    assert_says("moeperf record -o x.db --rules nonesuch -- true", 2, "no ready-made rules file");
    write_file("bad.yaml", "rules:\n  - name: x\n    phase: exprt\n");
    assert_says("moeperf record -o x.db --rules bad.yaml -- true", 2, "bad.yaml:3: phase");
    assert_says("moeperf list rules", 0, "megatron-lm");
}

/* A Python program with the annotations of PyPI's nvtx. */
TEST(a_python_program_is_recorded) {
    need_collector();
    need_python_nvtx();
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
               "  - {name: \"layer {layer} experts\", phase: expert, tokens: payload}\n");
    assert_runs("moeperf record -o python.db --rules python.yaml -- env " PYTHON " train.py");
    assert_spans("python.db", "iteration || ':' || layer || ':' || tokens", "phase = 'expert'",
                 "0:0:0 0:1:10 1:0:0 1:1:10 2:0:0 2:1:10");
    assert_answer("python.db", "SELECT count(*) FROM v_nvtx WHERE name = 'decorated'", "1");
}

TEST_GROUP(enter_shell, leave_folder);
