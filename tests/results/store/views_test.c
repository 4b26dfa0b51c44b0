/* Every promised view's every column against values worked out by hand from tests/results/runs.h.
 */
#include "tests/results/runs.h"

static struct runs_folder folder;

/* Runs 1, 2, 3: the same routes under EP and FSSDP, and EP with balanced routes.  Run 4: a
 * yardstick that failed before any rank recorded. */
TEST_STEP(add_runs) {
    runs_create(&folder);
    struct mp_store_run ep = runs_description("ep", "skewed");
    struct mp_store_run fssdp = runs_description("fssdp", "skewed");
    struct mp_store_run balanced = runs_description("ep", "balanced");
    runs_add(&folder, &ep, &runs_ep);
    runs_add(&folder, &fssdp, &runs_fssdp);
    runs_add(&folder, &balanced, &runs_balanced);
    struct mp_store_run yardstick = runs_description("free-balance", "text");
    yardstick.status = "failed";
    yardstick.unattainable = true;
    assert_works(mp_store_ingest(folder.store, &yardstick, NULL, 0, NULL, &error));
    return 0;
}

TEST_STEP(remove_runs) {
    runs_destroy(&folder);
    return 0;
}

static const struct view_case {
    const char *name, *sql, *expected;
} cases[] = {
    {"v_run",
     "SELECT run_id, suite, system, executor, workload, gate, ranks, nodes, iterations, status, "
     "started_at, reason, ranks_recorded, ranks_share_cores, clock_error_us FROM v_run WHERE "
     "run_id < 3",
     "1|tiny|ep|measured|skewed|gshard|2|1|4|complete|2025-01-31T12:00:00Z|NULL|2|0|1.7\n"
     "2|tiny|fssdp|measured|skewed|gshard|2|1|4|complete|2025-01-31T12:00:00Z|NULL|2|0|1.7"},
    /* Steady are the last three of four iterations: 20 28 24, 10 14 12 and 9 10 8. */
    {"v_speedup",
     "SELECT run_id, suite, workload, executor, ranks, system, round(ms_per_iteration, 6), "
     "round(tokens_per_s, 3), round(speedup_vs_ep, 6), round(speed_vs_balanced, 6), loss_final, "
     "round(max_loss_difference, 9), iterations_agreed, steady_iterations, ep_run_id, "
     "balanced_run_id FROM v_speedup WHERE run_id < 4",
     "1|tiny|skewed|measured|2|ep|24.0|4166.667|1.0|0.375|2.0|0.0|4|3|1|3\n"
     "2|tiny|skewed|measured|2|fssdp|12.0|8333.333|2.0|0.75|2.1|0.1|1|3|1|3\n"
     "3|tiny|balanced|measured|2|ep|9.0|11111.111|1.0|1.0|2.5|0.0|4|3|3|3"},
    /* Busy: rank 0 duration - 0.25, rank 1 duration - 2. */
    {"v_iteration",
     "SELECT iteration, round(ms, 5), loss, slowest_rank, round(straggler_ms, 5), imbalance, "
     "ranks, steady, round(start_ms, 5), tokens, round(wait_ms, 5) FROM v_iteration WHERE run_id = "
     "1",
     "0|40.0|5.0|0|0.875|1.5|2|0|0.0|100|2.25\n"
     "1|20.0|4.0|0|0.875|1.5|2|1|40.5|100|2.25\n"
     "2|28.0|3.0|0|0.875|1.5|2|1|61.0|100|2.25\n"
     "3|24.0|2.0|0|0.875|1.5|2|1|89.5|100|2.25"},
    {"v_straggler",
     "SELECT layer, phase, round(max_ms, 4), round(mean_ms, 4), round(min_ms, 4), round(wait_ms, "
     "4), slowest_rank, slowest_tokens, mean_tokens, ranks, round(straggler_ms, 4), round(lost_ms, "
     "4) FROM v_straggler WHERE run_id = 1 AND iteration = 2 ORDER BY phase",
     "0|attention|2.0|2.0|2.0|0.0|0|100|100.0|2|0.0|0.0\n"
     "0|combine|1.0|1.0|1.0|2.0|0|NULL|NULL|2|0.0|0.0\n"
     "0|expert|8.0|6.0|4.0|0.0|0|60|40.0|2|2.0|4.0\n"
     "0|fetch|0.5|0.375|0.25|0.25|1|NULL|NULL|2|0.125|0.25"},
    {"v_imbalance",
     "SELECT layer, round(expert_max_over_mean, 9), round(rank_max_over_mean, 9), "
     "round(effective_experts, 5), dead_fraction, dropped_fraction, experts, routes, dropped FROM "
     "v_imbalance WHERE run_id = 1 AND iteration = 3",
     "0|2.4|1.5|2.58641|0.25|0.05|4|100|5\n"
     "1|NULL|NULL|NULL|NULL|NULL|4|0|0"},
    /* Per iteration and rank: expert (8 + 4) / 2, combine (1 + 3) / 2, fetch 0.5, in flight beyond
     * that 1 and 0; iterations 39 + 19 + 27 + 23. */
    {"v_phase",
     "SELECT phase, round(total_ms, 3), round(share, 4), round(overlapped_ms, 3), "
     "round(exposed_ms, 3), round(wait_ms, 3), round(iteration_ms, 3), flops FROM v_phase WHERE "
     "run_id = 1 ORDER BY phase",
     "attention|8.0|0.0741|0.0|8.0|0.0|108.0|0.0\n"
     "combine|8.0|0.0741|0.0|8.0|4.0|108.0|0.0\n"
     "expert|24.0|0.2222|0.0|24.0|0.0|108.0|6000.0\n"
     "fetch|4.0|0.0185|2.0|2.0|0.5|108.0|0.0\n"
     "validate|8.0|NULL|0.0|8.0|3.0|NULL|0.0"},
    {"v_span of one rank",
     "SELECT rank, stream, layer, phase, direction, start_ns, end_ns, wait_ns, cpu_ns, tokens, "
     "bytes, flops FROM v_span WHERE run_id = 1 AND rank = 1 AND iteration = 0 AND phase IN "
     "('expert', 'iteration') ORDER BY start_ns",
     "1|compute|-1|iteration|NULL|1000000|40000000|0|NULL|50|NULL|NULL\n"
     "1|compute|0|expert|forward|3500000|5500000|0|NULL|20|NULL|500\n"
     "1|compute|0|expert|backward|8500000|10500000|0|NULL|20|NULL|NULL"},
    {"v_load",
     "SELECT rank, expert, routes, dropped FROM v_load WHERE run_id = 2 AND iteration = 1 AND "
     "layer = 0",
     "0|0|30|0\n0|1|10|0\n0|2|10|0\n0|3|0|0\n1|0|30|5\n1|1|10|0\n1|2|10|0\n1|3|0|0"},
    {"v_number", "SELECT iteration, layer, name, value, rank FROM v_number WHERE run_id = 2",
     "-1|-1|ranks-share-cores|0.0|0\n0|-1|loss|5.0|0\n1|-1|loss|4.4|0\n2|-1|loss|3.0|0\n"
     "3|-1|loss|2.1|0\n-1|-1|ranks-share-cores|0.0|1"},
    {"clock samples", "SELECT rank, offset_ns, error_ns FROM clock WHERE run_id = 1 AND rank = 1",
     "1|5000000|700\n1|6000000|1700"},
    {"ranks",
     "SELECT rank, status, reason, unread_bytes, clock, clock_error_ns FROM rank WHERE run_id = 1",
     "0|complete|NULL|0|reference|0\n1|complete|NULL|0|samples|1700"},
};

TEST_EACH(view_shows_known_values, cases, c) {
    assert_rows(folder.store, c->sql, c->expected);
}

TEST_GROUP(add_runs, remove_runs);
