/* Every figure of the JSON reports against what it is by hand. */
#include "tests/results/json.h"
#include "tests/results/report/texts.h"

/* The second of three. */
static void add_run(struct runs_folder *folder) {
    struct runs_standard other = runs_ep;
    other.shares_cores = true;
    runs_add_usual(folder, "fssdp", &other);
    static const uint32_t dropped[] = {2, 0, 0, 0};
    struct mp_store_run run = runs_description("ep", "text");
    struct runs_rank ranks[2];
    for (int r = 0; r < 2; r++) {
        runs_uneven_rank(folder, r, dropped, &ranks[r]); /* and what lies beside its work: */
        runs_record_one(&ranks[r], 5, MP_PHASE_FETCH, MP_FORWARD, 50000, 900, 0, 0, -1, -1, true);
        mp_record_number(ranks[r].compute, -1, -1, "record-span-ns", 65);
    }
    runs_ingest(folder, &run, ranks, 2);
    runs_add_usual(folder, "fssdp", &other);
    runs_execute(folder->store,
                 "UPDATE run SET ranks = 3 WHERE run_id <> 2; INSERT INTO load SELECT run_id, "
                 "rank, iteration, -1, '[9]', NULL FROM load WHERE layer = 0");
}

/* Clocks are aligned to the nanosecond. */
static void compare(const json_t *is, const json_t *expected, const char *where, bool whole) {
    json_compare(is, expected, where, 1e-4, whole);
}

/* A token takes 4 / 60 ms, the lower of 4 / 60 and 2 / 20: 20 beyond the mean of 40 take 1.3333 ms;
 * evenly rank 0 takes 2.6667 and rank 1 3.3333 ms, which is 0.6667 less than 4. */
static const char findings[] =
    "[{'cause': 'routing', 'rank': 0, 'chronic': true, 'waiting_ms': 2, 'caused_ms': 2, "
    "'longer_ms': 1.333333, 'would_save_ms': 0.666667, 'share_of_iterations': 1, "
    "'most_waited_for': 1, 'tokens_over_mean': 1.5, 'on_core': null, 'phase': 'expert', 'layer': "
    "0, 'share_here': 1, 'victim': 1, 'worst_ms': 2}]";

/* Ideal: 2 of attention, the mean of 3 of experts, 0.5 of exchange.  Useful are 6 and 4 ms: their
 * mean of 5 over the most, 5 / 6; the most over 6.5; transfers in no time leave 6 of 6.5.  Of 1 ms
 * that is lost the slower rank makes all. */
static const char slowdowns[] =
    "{'slowdown': 1.181818, 'host': 1, 'worst_ranks': 1, 'recorded_ms': 6.5, 'replayed_ms': 6.5, "
    "'without_delay_ms': 6.5, 'ideal_ms': 5.5, 'load_balance': 0.833333, "
    "'communication_efficiency': 0.923077, 'parallel_efficiency': 0.769231, 'transfer_efficiency': "
    "0.923077, 'serialisation_efficiency': 1, 'stages': 1, 'last_stage': null}";

#define OTHER_CAUSES                                                                               \
    "'slow link': 0, 'pipeline stage': 0, 'data loading': 0, 'checkpointing': 0,"                  \
    "'garbage collection': 0, 'stolen processor': 0, 'host': 0, 'late from before': 0,"            \
    "'unknown': 0"

/* Rank 1 as it was beside an ideal rank 0 waits for nobody: 1. */
static const char ranks[] =
    "[{'rank': 0, 'own_ms': 6, 'waits_ms': 0, 'direct_ms': 2, 'propagated_ms': 0, "
    "'most_waited_for': 1, 'tokens': 60, 'on_core': null, 'slowdown': 1.181818, 'causes_ms': "
    "{'routing': 2, 'slow rank': 0, 'one-off': 0, 'communication': 0," OTHER_CAUSES
    "}}, {'rank': 1, 'own_ms': 4, 'waits_ms': 2, 'direct_ms': 0, 'propagated_ms': 0, "
    "'most_waited_for': 0, 'tokens': 20, 'on_core': null, 'slowdown': 1, 'causes_ms': {'routing': "
    "0, 'slow rank': 0, 'one-off': 0, 'communication': 0," OTHER_CAUSES "}}]";

static const char places[] =
    "[{'layer': 0, 'phase': 'attention', 'meets': false, 'waiting_ms': 0, 'caused_ms': 0, "
    "'arrival_skew_ms': 0, 'transfer_ms': 0, 'least_transfer_ms': 0, 'mean_ms': 2, 'largest_ms': "
    "2, 'tokens_over_mean': null}, {'layer': 0, 'phase': 'expert', 'meets': false, 'waiting_ms': "
    "0, 'caused_ms': 2, 'arrival_skew_ms': 0, 'transfer_ms': 0, 'least_transfer_ms': 0, "
    "'slowest_rank': 0, 'slowest_share': 1, 'mean_ms': 3, 'largest_ms': 4, 'tokens_over_mean': "
    "1.5}, {'layer': 0, 'phase': 'combine', 'meets': true, 'waiting_ms': 2, 'caused_ms': 0, "
    "'arrival_skew_ms': 2, 'transfer_ms': 0.5, 'least_transfer_ms': 0.5, 'mean_ms': 0, "
    "'tokens_over_mean': null}]";

/* Of 60, 0, 20 and 0 routes, mean 20: 60 / 20; exp of the entropy of 3/4 and 1/4; sqrt((1600 + 400
 * + 0 + 400) / 4) / 20; 2 (3 x 20 + 4 x 60) / (4 x 80) - 5 / 4; two of four; 35 of 80 above 25; 4
 * of 80 dropped; 1 / sqrt(20); 4 over 3 ms; 60 over 40 tokens. */
static const char balance[] =
    "{'max_over_mean': {'p50': 3, 'p90': 3, 'p99': 3, 'max': 3}, 'effective_experts': {'p50': "
    "1.754765, 'p90': 1.754765, 'p99': 1.754765, 'max': 1.754765}, 'variation': {'p50': 1.224745, "
    "'p90': 1.224745, 'p99': 1.224745, 'max': 1.224745}, 'gini': {'p50': 0.625, 'p90': 0.625, "
    "'p99': 0.625, 'max': 0.625}, 'dead_fraction': {'p50': 0.5, 'p90': 0.5, 'p99': 0.5, 'max': "
    "0.5}, 'overload_fraction': {'p50': 0.4375, 'p90': 0.4375, 'p99': 0.4375, 'max': 0.4375}, "
    "'dropped_fraction': {'p50': 0.05, 'p90': 0.05, 'p99': 0.05, 'max': 0.05}, 'chance_variation': "
    "0.223607, 'time_imbalance': 1.333333, 'token_imbalance': 1.5, 'hottest_layer': 0, "
    "'hottest_expert': 0, 'hottest_share': 0.75}";

static void compare_part(const json_t *object, const char *name, const char *expected, bool whole) {
    AUTO(json) json_t *by_hand = json_of_text(expected);
    assert_non_null(json_object_get(object, name));
    compare(json_object_get(object, name), by_hand, name, whole);
}

/* The row of the second run; to be freed. */
static json_t *second_row(const struct runs_folder *folder) {
    const struct mp_report_selection second = {.run_id = 2};
    AUTO(json) json_t *object = json_of(mp_report_stragglers_in_full, folder->store, &second);
    assert_int_equal(json_array_size(json_object_get(object, "rows")), 1);
    return json_incref(json_array_get(json_object_get(object, "rows"), 0));
}

RUNS_TEST(stragglers_by_hand) {
    add_run(folder);
    AUTO(json) json_t *row = second_row(folder);
    /* 82 spans, 4.1 of a rank in an iteration, at 65 ns: 266.5 ns of 6.5 ms. */
    compare_part(row, "recording_cost",
                 "{'spans': 82, 'spans_per_iteration': 4.1, 'span_ns': 65, 'share': 4.1e-5}", true);
    assert_close(json_real_value(json_object_get(json_object_get(row, "recording_cost"), "share")),
                 4.1e-5, 1e-9);
    assert_json(
        row, 0,
        "{'run_id': 2, 'job': 'ep', 'system': 'ep', 'unattainable': false, 'workload': 'text', "
        "'status': 'complete', 'ranks': 2, 'ranks_share_cores': false, 'processor_taken': null}");
    const json_t *analysis = json_object_get(row, "analysis");
    compare_part(row, "analysis",
                 "{'iterations': 9, 'iterations_analysed': 9, 'ms_per_iteration': 6.5, "
                 "'waiting_ms': 2, 'most_waited_for': 0, 'culprit_changes': 0, 'clock_error_us': "
                 "1.7, 'clocks_used': true, 'not_said': []}",
                 false);
    compare_part(analysis, "findings", findings, false);
    compare_part(analysis, "slowdowns", slowdowns, false);
    compare_part(json_object_get(analysis, "slowdowns"), "types",
                 "[{'phase': 'expert', 'direction': 'forward', 'transfers': false, 'slowdown': "
                 "1.181818}, {'slowdown': 1}, {'slowdown': 1}, {'slowdown': 1}]",
                 false);
    compare_part(analysis, "ranks", ranks, true);
    compare_part(analysis, "places", places, false);
    compare_part(analysis, "balance", balance, true);
    json_t *layers = json_object_get(analysis, "layers");
    assert_int_equal(json_array_size(layers), 1);
    AUTO(json) json_t *by_hand = json_of_text(balance);
    compare(json_array_get(layers, 0), by_hand, "layers[0]", true);
    /* Of what seems to be very long each second iteration is looked at. */
    runs_execute(folder->store,
                 "UPDATE load SET routes = '[0,1]', dropped = NULL WHERE iteration % 2 = 0; UPDATE "
                 "span SET wait_ns = 0 WHERE iteration % 2 = 0; UPDATE rank SET last_span = "
                 "last_span + 300000 WHERE run_id = 2 AND rank = 1");
    AUTO(json) json_t *less = second_row(folder);
    analysis = json_object_get(less, "analysis");
    assert_json(analysis, 0, "{'iterations': 9, 'iterations_analysed': 5}");
    compare_part(analysis, "balance", balance, true);
    compare_part(analysis, "findings", findings, false);
    /* A later layer of more experts, all of whose routes go to the last. */
    runs_execute(
        folder->store,
        "INSERT INTO imbalance_summary SELECT run_id, iteration, 2, 5, 1, 0, 5, 1, 1, 0.8, 0 FROM "
        "imbalance_summary WHERE run_id = 2; INSERT INTO load SELECT run_id, rank, iteration, 2, "
        "'[0,0,0,0,1]', NULL FROM load WHERE run_id = 2 AND layer = 0");
    AUTO(json) json_t *more = second_row(folder);
    assert_json(
        more, 0,
        "{'analysis': {'balance': {'hottest_layer': 2, 'hottest_expert': 4, 'hottest_share': 1}}}");
}

/* EP's iterations take 20 28 24 ms and the other's 10 14 12, then 15; 100 tokens each; 5 of 100
 * routes are dropped; losses 5 4 3 2 and 5 4.4 3 2.1. */
RUNS_TEST(speedups_by_hand) {
    struct mp_store_run ep = runs_description("ep", "text");
    struct mp_store_run fssdp = runs_description("fssdp", "text");
    struct runs_standard other = runs_fssdp;
    other.taken = 0.25;
    runs_add(folder, &ep, &runs_ep);
    runs_add(folder, &fssdp, &other);
    fssdp.round = ep.round = 1;
    runs_add(folder, &ep, &runs_ep);
    other.ms[1] = other.ms[2] = other.ms[3] = 15;
    runs_add(folder, &fssdp, &other);
    fssdp.round = 2;
    fssdp.status = "failed";
    fssdp.reason = "of a reason";
    runs_add(folder, &fssdp, &other);
    AUTO(json) json_t *object = json_of(mp_report_speedup, folder->store, NULL);
    compare_part(
        object, "rows",
        "[{'suite_run': 'tiny-1', 'job': 'ep', 'system': 'ep', 'workload': 'text', 'gate': "
        "'gshard', 'model': '', 'executor': 'measured', 'refused': null, 'ranks': 2, 'rounds': 2, "
        "'rounds_complete': 2, 'ranks_share_cores': false, 'unattainable': false, "
        "'ms_per_iteration': 24, 'ms_per_iteration_min': 24, 'ms_per_iteration_max': 24, "
        "'tokens_per_s': 4166.6667, 'speedup_vs_ep': 1, 'speedup_vs_ep_min': 1, "
        "'speedup_vs_ep_max': 1, 'speed_vs_balanced': null, 'loss_final': 2, "
        "'max_loss_difference': 0, 'iterations_agreed': 4, 'dropped_fraction': 0.05, "
        "'processor_taken': null, 'ms_per_iteration_p99': 28, 'serves': false, 'bound_ms': null, "
        "'of_bound': null}, {'suite_run': 'tiny-1', 'job': 'fssdp', 'system': 'fssdp', 'workload': "
        "'text', 'gate': 'gshard', 'model': '', 'executor': 'measured', 'refused': null, 'ranks': "
        "2, 'rounds': 3, 'rounds_complete': 2, 'ranks_share_cores': false, 'unattainable': false, "
        "'ms_per_iteration': 13.5, 'ms_per_iteration_min': 12, 'ms_per_iteration_max': 15, "
        "'tokens_per_s': 7500, 'speedup_vs_ep': 1.8, 'speedup_vs_ep_min': 1.6, "
        "'speedup_vs_ep_max': 2, 'speed_vs_balanced': null, 'loss_final': 2.1, "
        "'max_loss_difference': 0.1, 'iterations_agreed': 1, 'dropped_fraction': 0.05, "
        "'processor_taken': 0.25, 'ms_per_iteration_p99': 14.5, 'serves': false, 'bound_ms': null, "
        "'of_bound': null}]",
        true);
    compare_part(
        object, "incomplete",
        "[{'run_id': 5, 'job': 'fssdp', 'system': 'fssdp', 'unattainable': false, 'round': 2, "
        "'status': 'failed', 'reason': 'of a reason', 'iterations': 4, 'iterations_wanted': 4}]",
        true);
}
