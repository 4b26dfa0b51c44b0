/* Stragglers put into real runs of two ranks are in what was recorded of them, as long as they are
 * and where they are, whatever else the machine does: who is made to be late is late by at least
 * that much, and tokens are counted.  That they come back from the analysis, and nothing else does,
 * is shown where times are known: profiler/straggler, and predictions with the same delays. */
#include "tests/harness/cli/annotated.h"

#define SUITE                                                                                      \
    "suite: stragglers\n"                                                                          \
    "common: {ranks: 2, layers: 2, width: 128, heads: 4, experts: 8, sequence: 64, batch: 8,\n"    \
    "  iterations: 6, text: default, system: ep, routing: balanced}\n"                             \
    "jobs:\n"                                                                                      \
    "  - {name: busy, inject: rank=1 phase=expert seconds=0.02}\n"                                 \
    "  - {name: routed, routing: skewed, skew-share: 0.95, skew-experts: 2}\n"                     \
    "  - {name: delayed, inject: rank=1 phase=dispatch seconds=0.01 layer=1}\n"                    \
    "  - {name: data, inject: rank=0 phase=data seconds=0.03 every=2}\n"

static int make_runs(void **state) {
    if (enter_shell(state))
        return 1;
    write_file("suite.yaml", SUITE);
    assert_runs("moeperf run suite.yaml --db run.db --quiet");
    return 0;
}

/* Spans of a phase on one rank that last at least so long, and all of them. */
static void assert_delays(int run, const char *phase, int rank, const char *seconds_of,
                          double least_ms, const char *expected) {
    assert_run(
        formatted("SELECT sum(%s >= %.0f) || ' of ' || count(*) FROM v_span WHERE run_id = %d AND "
                  "phase = '%s' AND rank = %d AND stream = 'compute' AND iteration BETWEEN 0 AND 5",
                  seconds_of, 1e6 * least_ms, run, phase, rank),
        expected);
}

/* Two layers of six iterations, both ways. */
TEST(a_busy_loop_is_in_every_span) {
    assert_delays(1, "expert", 1, "end_ns - start_ns", 20, "24 of 24");
    assert_delays(1, "expert", 1, "end_ns - start_ns - wait_ns", 20, "24 of 24");
}

/* 95 % of the routes go to experts 0 and 1, which are rank 0's, the rest to all others evenly: it
 * computes at least that. */
TEST(more_tokens_are_counted) {
    assert_run("SELECT count(*) || ' ' || min(rank_max_over_mean >= 1.9) FROM v_imbalance WHERE "
               "run_id = 2",
               "12 1");
    assert_run("SELECT min(a.tokens >= 19 * b.tokens) FROM v_span AS a JOIN v_span AS b USING "
               "(run_id, iteration, layer, phase, direction) WHERE run_id = 2 AND phase = "
               "'expert' AND a.rank = 0 AND b.rank = 1",
               "1");
}

/* One layer of six iterations, both ways; it counts as waiting. */
TEST(a_late_transfer_is_waiting) {
    assert_delays(3, "dispatch", 1, "(wait_ns) * (layer = 1)", 10, "12 of 24");
}

/* Every other iteration of six, outside layers. */
TEST(late_data_is_the_ranks_own) {
    assert_delays(4, "data", 0, "(end_ns - start_ns - wait_ns) * (layer = -1)", 30, "3 of 6");
}

/* Nobody else leaves a meeting that the late one has not come to: an iteration lasts as long as the
 * delays in it. */
TEST(iterations_last_as_long_as_their_delays) {
    assert_run("SELECT group_concat(run_id || ': ' || least, ', ') FROM (SELECT run_id, "
               "min(ms >= CASE run_id WHEN 1 THEN 80 WHEN 3 THEN 20 WHEN 4 THEN 30 * "
               "(iteration % 2 = 0) ELSE 0 END) AS least FROM v_iteration GROUP BY run_id)",
               "1: 1, 2: 1, 3: 1, 4: 1");
}

/* How long ranks had a core is recorded, and goes through the analysis. */
TEST(cores_are_accounted_for) {
    size_t i, r;
    json_t *row, *rank;
    AUTO(json) json_t *object = json_of("moeperf report --db run.db --stragglers --json", 0);
    assert_has(object, "rows/#", "4");
    json_array_foreach(member(object, "rows"), i, row) {
        assert_has(row, "analysis/ranks/#", "2");
        json_array_foreach(member(row, "analysis/ranks"), r, rank) {
            assert_true(number(rank, "on_core") > 0 && number(rank, "on_core") <= 1);
        }
    }
}

TEST_GROUP(make_runs, leave_folder);
