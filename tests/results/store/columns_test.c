/* Columns that need more than the standard run to mean something, by hand: what counts as steady,
 * which run is the reference, and what lies in tables that no small run fills. */
#include "tests/results/runs.h"

/* A rank alone, of whose iterations the first takes 1 ms, the second 2 and so on. */
static void add_growing(struct runs_folder *folder, int iterations) {
    struct mp_store_run description = runs_description("ep", "text");
    struct runs_rank own;
    int64_t at = 0;
    description.ranks = 1;
    runs_rank_open(folder, 0, 1, &own);
    for (int i = 0; i < iterations; i++) {
        const struct runs_span whole = {
            MP_PHASE_ITERATION, MP_NO_DIRECTION, at, 1000 * (i + 1), 0, -1, 60, -1, false};
        runs_record(&own, i, &whole);
        at += 1000 * (i + 2);
    }
    runs_ingest(folder, &description, &own, 1);
}

/* A tenth, rounded up, and at least one: of 1 iteration 1, of 10 1, of 11 2, of 20 2, of 21 3.  The
 * median of what is left is (first left + last) / 2, and 60 tokens take so long; 99 of 100 do not
 * exceed the last but one. */
RUNS_TEST(the_first_tenth_does_not_count) {
    static const int counts[] = {1, 2, 10, 11, 20, 21, 112};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        add_growing(folder, counts[i]);
    assert_rows(folder->store,
                "SELECT v_run.iterations, steady_iterations, ms_per_iteration, round(tokens_per_s, "
                "3), ms_p99, (SELECT min(iteration) FROM v_iteration WHERE v_iteration.run_id = "
                "v_run.run_id AND v_iteration.steady) FROM v_run JOIN v_speedup USING (run_id)",
                "1|0|NULL|NULL|NULL|NULL\n"
                "2|1|2.0|30000.0|2.0|1\n"
                "10|9|6.0|10000.0|10.0|1\n"
                "11|9|7.0|8571.429|11.0|2\n"
                "20|18|11.5|5217.391|20.0|2\n"
                "21|18|12.5|4800.0|21.0|3\n"
                "112|100|62.5|960.0|111.0|12");
}

/* What a run may differ in from others of its system. */
enum difference {
    ROUND,
    INVOCATION,
    MODEL,
    NO_MODEL,
    GATE,
    NODES,
    WORKLOAD,
    EXECUTOR,
    DIFFERENCES,
    FAILED = DIFFERENCES,
    NOTHING
};

/* EP takes 24 ms, the others 12.  NULL: the run has no key. */
static void add(struct runs_folder *folder, const char *system, enum difference in,
                const char *key) {
    struct mp_store_run run = runs_description(system, in == WORKLOAD ? "skewed" : "balanced");
    run.setting_key = key;
    run.round = in == ROUND;
    run.suite_run = in == INVOCATION ? "tiny-2" : "tiny-1";
    run.model = in == MODEL ? "large" : in == NO_MODEL ? NULL : "small";
    run.gate = in == GATE ? "switch" : "gshard";
    run.nodes = in == NODES ? 2 : 1;
    run.ranks_per_node = in == NODES ? 1 : 2;
    run.executor = in == EXECUTOR ? "predicted" : "measured";
    run.status = in == FAILED ? "failed" : "complete";
    runs_add(folder, &run, strcmp(system, "ep") != 0 ? &runs_fssdp : &runs_ep);
}

/* The reference has everything in common but the system: nobody else's time is a measure. */
RUNS_TEST(the_reference_is_what_was_run_beside_it) {
    for (int i = 0; i < DIFFERENCES; i++) /* 1 .. 8: EP, all different */
        add(folder, "ep", (enum difference)i, NULL);
    add(folder, "ep", FAILED, NULL);      /* 9: no measure either */
    add(folder, "fssdp", NOTHING, NULL);  /* 10: none so far */
    add(folder, "ep", NOTHING, NULL);     /* 11 */
    add(folder, "ep", NOTHING, NULL);     /* 12: not the first */
    add(folder, "fssdp", NOTHING, NULL);  /* 13 */
    add(folder, "fssdp", FAILED, NULL);   /* 14: has a reference and no ratio */
    for (int i = 0; i < DIFFERENCES; i++) /* 15 .. 22: each has its own */
        add(folder, "fssdp", (enum difference)i, NULL);
    assert_rows(folder->store,
                "SELECT group_concat(ep_run_id, ' '), group_concat(balanced_run_id, ' ') FROM "
                "(SELECT * FROM v_speedup ORDER BY run_id)",
                "1 2 3 4 5 6 7 8 11 11 11 11 11 11 1 2 3 4 5 6 7 8|"
                "1 2 3 4 5 6 11 8 11 11 11 11 11 11 1 2 3 4 5 6 11 8");
    assert_rows(folder->store,
                "SELECT run_id, speedup_vs_ep, speed_vs_balanced FROM v_speedup WHERE run_id IN "
                "(9, 10, 14, 15) ORDER BY run_id",
                "9|NULL|NULL\n10|2.0|2.0\n14|NULL|NULL\n15|2.0|2.0");
}

/* A key decides, whatever the words are; runs without one have what their columns say. */
RUNS_TEST(a_key_says_what_is_compared) {
    add(folder, "ep", NOTHING, NULL);     /* 1 */
    add(folder, "ep", NOTHING, "one");    /* 2 */
    add(folder, "ep", NOTHING, "two");    /* 3 */
    add(folder, "fssdp", NOTHING, NULL);  /* 4 */
    add(folder, "fssdp", MODEL, "one");   /* 5 */
    add(folder, "fssdp", NOTHING, "two"); /* 6 */
    add(folder, "fssdp", GATE, "one");    /* 7 */
    assert_rows(folder->store, "SELECT ep_run_id, balanced_run_id FROM v_speedup ORDER BY run_id",
                "1|1\n2|2\n3|3\n1|1\n2|2\n3|3\n2|2");
    assert_rows(folder->store, "SELECT setting_key FROM v_run WHERE run_id > 3 ORDER BY run_id",
                "gshard|small|2|2|measured\none\ntwo\none");
}

/* EP's losses are 5 4 3 2.  Within 1e-4 of EP's counts as agreeing: 5.0005 does, 5.0006 does not,
 * nor does what is no number, of which no difference is said. */
RUNS_TEST(curves_agree_until_they_part) {
    static const double losses[][4] = {{5.0005, 3.9996, 3, 2}, {5.0006, 4, 3, 2},
                                       {5, 4, 3, 2.1},         {5, 4.2, 3, 2.1},
                                       {5, NAN, 3, 2},         {NAN, NAN, NAN, NAN}};
    add(folder, "ep", NOTHING, NULL);
    for (int i = 0; i < 6; i++) {
        struct mp_store_run description = runs_description("fssdp", "balanced");
        struct runs_standard run = runs_fssdp;
        description.model = "small";
        memcpy(run.loss, losses[i], sizeof losses[i]);
        runs_add(folder, &description, &run);
    }
    runs_execute(folder->store, "UPDATE iteration_summary SET iteration = iteration + 7");
    assert_rows(folder->store,
                "SELECT iterations_agreed, round(max_loss_difference, 6), loss_final FROM "
                "v_speedup WHERE run_id > 1",
                "4|0.0001|2.0\n0|0.00012|2.0\n3|0.05|2.1\n1|0.05|2.1\n1|NULL|2.0\nNULL|NULL|NULL");
}

/* Iterations of 40, 20, 28 and 24 ms could have taken 1, 2, 4 and 8: 3 in the middle, 15 of 112; of
 * run 4 the first three 4, 8 and 16.  Said of predictions that drop nothing, by the first rank, for
 * an iteration and no layer. */
RUNS_TEST(bounds_are_of_predictions_that_drop_nothing) {
    for (int i = 0; i < 4; i++) {
        struct mp_store_run description = runs_description("ep", "text");
        struct runs_standard run = runs_ep;
        description.executor = i == 1 ? "measured" : "predicted";
        run.drops_nothing = i != 2;
        run.count = i < 3 ? 4 : 3;
        runs_add(folder, &description, &run);
    }
    runs_execute(folder->store,
                 "INSERT INTO StringIds (value) VALUES ('bound-seconds'); INSERT INTO number "
                 "SELECT run_id, column1, iteration, column2, id, iif(column1 OR column2 = 0, 9, "
                 "0.001 * run_id * (1 << iteration)) FROM (SELECT run_id, iteration FROM "
                 "iteration_summary UNION SELECT run_id, 7 FROM run), StringIds, (VALUES (0, -1), "
                 "(0, 0), (1, -1)) WHERE value = 'bound-seconds'; INSERT INTO fact VALUES (1, 0, "
                 "'mode', 'decode'), (2, 0, 'system.unattainable', ''), (3, 0, 'mode', 'prefill')");
    assert_rows(
        folder->store, "SELECT bound_ms, round(of_bound, 6), unattainable, mode FROM v_speedup",
        "3.0|0.133929|0|decode\nNULL|NULL|1|NULL\nNULL|NULL|0|prefill\n8.0|0.318182|0|NULL");
    assert_rows(
        folder->store,
        "SELECT run_id, executor FROM v_iteration UNION SELECT run_id, executor FROM v_straggler "
        "UNION SELECT run_id, executor FROM v_imbalance UNION SELECT run_id, executor FROM v_phase",
        "1|predicted\n2|measured\n3|predicted\n4|predicted");
}

/* Runs that had a target, and no others: of the first it is not reached.  It drops 5 of 100 routes
 * of every iteration; 40 + 20 ms, unless slices interrupted that run. */
RUNS_TEST(targets_have_a_view) {
    struct runs_standard never = runs_ep;
    const struct runs_standard three = {.count = 3,
                                        .ms = {40, 20, 28},
                                        .loss = {5, 3, 2},
                                        .drops_nothing = true,
                                        .has_target = true,
                                        .reached = 2};
    never.has_target = true;
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add_usual(folder, "ep", &never);
    runs_add_usual(folder, "fssdp", &three);
    runs_execute(folder->store, "INSERT INTO fact VALUES (1, -1, 'pairs.slice', '1')");
    assert_rows(
        folder->store,
        "SELECT run_id, suite, job, round, system, workload, gate, executor, ranks, status, "
        "target_loss, target_window, iterations_to_target, round(seconds_to_target, 6), "
        "iterations, loss_final, routes, dropped, dropped_fraction FROM v_convergence",
        "2|tiny|ep|0|ep|text|gshard|measured|2|complete|2.5|2|NULL|NULL|4|2.0|400|20|0.05\n"
        "3|tiny|fssdp|0|fssdp|text|gshard|measured|2|complete|2.5|2|2|0.06|3|2.0|300|0|0.0");
    runs_execute(folder->store, "UPDATE fact SET run_id = 3 WHERE name = 'pairs.slice'");
    assert_rows(folder->store, "SELECT seconds_to_target FROM v_convergence WHERE run_id = 3",
                "NULL");
}

static void record_losses(struct runs_rank *own, bool rank_0_too) {
    static const char *const names[] = {"loss", "auxiliary-loss", "validation-loss"};
    const struct runs_span spans[] = {
        /* It says 1 ms of waiting, its phases 2 and 1: the more of both counts. */
        {MP_PHASE_ITERATION, MP_NO_DIRECTION, 0, 10000, 1000, -1, 50, -1, false},
        {MP_PHASE_DISPATCH, MP_FORWARD, 0, 3000, 2000, 0, -1, -1, false},
        {MP_PHASE_COMBINE, MP_FORWARD, 3000, 3000, 1000, 0, -1, -1, false},
        /* Between iterations: not its waiting. */
        {MP_PHASE_VALIDATE, MP_NO_DIRECTION, 10000, 3000, 3000, -1, -1, -1, false},
        /* Only the way back says tokens. */
        {MP_PHASE_EXPERT, MP_BACKWARD, 6000, 2000, 0, 0, own->rank ? 30 : 10, -1, false},
    };
    runs_record_all(own, 0, spans);
    for (int n = 0; n < 3 && (own->rank || rank_0_too); n++)
        mp_record_number(own->compute, 0, -1, names[n], own->rank ? 10 + n : 1 + n);
    mp_record_number(own->compute, 0, 3, "loss", 99); /* a layer's, not the iteration's */
    mp_record_text(own->compute, "environment.cpu", own->rank ? "other" : "one");
    mp_record_text(own->compute, "environment.kernel", "same");
    runs_clock_samples(own);
}

/* Losses are the lowest rank's that recorded any; of equals the lowest rank is the slowest. */
RUNS_TEST(ranks_are_put_together) {
    struct mp_store_run description = runs_description("ep", "text");
    for (int run = 0; run < 2; run++) {
        struct runs_rank ranks[2];
        for (int r = 0; r < 2; r++) {
            runs_rank_open(folder, r, 2, &ranks[r]);
            record_losses(&ranks[r], run == 1);
        }
        runs_ingest(folder, &description, ranks, 2);
    }
    assert_rows(
        folder->store,
        "SELECT loss, auxiliary_loss, validation_loss, wait_ms, slowest_rank FROM v_iteration",
        "10.0|11.0|12.0|6.0|0\n1.0|2.0|3.0|6.0|0");
    assert_rows(folder->store,
                "SELECT slowest_rank, slowest_tokens, mean_tokens FROM v_straggler WHERE run_id = "
                "1 AND phase = 'expert'",
                "0|10|20.0");
    assert_rows(folder->store,
                "SELECT value, rank, ranks FROM v_fact WHERE run_id = 1 AND rank >= 0",
                "one|0|1\nother|1|1\nsame|0|2");
    assert_rows(folder->store,
                "SELECT rank, status, reason, node, clock, clock_error_us, spans, unread_bytes, "
                "host IS NOT NULL, pid > 0 FROM v_rank WHERE run_id = 1",
                "0|complete|NULL|0|reference|0.0|5|0|1|1\n"
                "1|complete|NULL|0|samples|1.7|5|0|1|1");
    assert_rows(folder->store,
                "SELECT layer, value FROM v_number WHERE name = 'loss' AND run_id = 1",
                "3|99.0\n-1|10.0\n3|99.0");
}

/* Rank 0 lost 1 of 8 s to other programs, rank 1 3 of 8; a rank that trained for no time says
 * nothing. */
RUNS_TEST(runs_say_where_they_were_run) {
    struct mp_store_run description = runs_description("ep", "text");
    struct runs_standard run = runs_ep;
    description.round = 2;
    description.job = "a job";
    description.model = "a model";
    description.command = "moeperf run it";
    run.taken = 0.375; /* half of it on rank 0 */
    runs_add(folder, &description, &run);
    description.suite_run = "tiny-2";
    run.taken = 0;
    runs_add(folder, &description, &run);
    runs_execute(folder->store, "UPDATE rank SET host = 'h' || rank WHERE run_id = 1;UPDATE rank "
                                "SET host = NULL WHERE run_id = 2");
    /* Not the run's as a whole. */
    runs_execute(
        folder->store,
        "INSERT INTO number SELECT run_id, rank, column1, column2, name_id, value * iif(value = 3, "
        "9, 1) FROM number JOIN (VALUES (0, -1), (-1, 0)) WHERE iteration = -1");
    assert_rows(folder->store,
                "SELECT suite_run, job, round, model, ranks_per_node, iterations_wanted, command, "
                "hosts, processor_taken FROM v_run",
                "tiny-1|a job|2|a model|2|4|moeperf run it|2|0.375\n"
                "tiny-2|a job|2|a model|2|4|moeperf run it|NULL|NULL");
    runs_execute(folder->store,
                 "UPDATE rank SET host = 'h' WHERE run_id = 1;UPDATE number SET value = 0 WHERE "
                 "rank = 1 AND name_id = (SELECT id FROM StringIds WHERE value = "
                 "'training-seconds');UPDATE rank SET status = iif(rank, 'missing', 'cut')");
    assert_rows(folder->store,
                "SELECT hosts, processor_taken, ranks_recorded FROM v_run WHERE run_id = 1",
                "1|0.1875|1");
}

/* Process 7 and thread 9: globalTid = 7 * 0x1000000 + 9 = 117440521; with thread 65545 and a bit of
 * Nsight Systems' above the process 281475094216713. */
RUNS_TEST(ranges_have_names_kinds_and_payloads) {
    add_growing(folder, 2);
    add_growing(folder, 3);
    runs_execute(
        folder->store,
        "INSERT INTO StringIds VALUES (100, 'long name'), (101, 'domain of mine');INSERT INTO "
        "NVTX_EVENTS (run_id, rank, start, eventType, domainId, textId) VALUES (1, 0, 0, 75, 1, "
        "101), (1, 0, 0, 33, 1, 100), (2, 0, 0, 75, 1, 100);INSERT INTO NVTX_EVENTS (run_id, rank, "
        "start, \"end\", eventType, domainId, text, textId, globalTid, level, category, jsonText, "
        "uint64Value, int64Value, doubleValue, uint32Value, int32Value, floatValue) VALUES (1, 0, "
        "1000000, 3500000, 59, 1, 'short', NULL, 281475094216713, 2, 5, '[{}]', 1, NULL, NULL, "
        "NULL, NULL, NULL), (1, 0, 2000000, NULL, 60, 0, NULL, 100, 117440521, NULL, NULL, NULL, "
        "NULL, -2, NULL, NULL, NULL, NULL), (1, 0, 3000000, NULL, 34, 1, 'mark', NULL, 117440521, "
        "0, 0, NULL, NULL, NULL, 2.5, NULL, NULL, NULL), (1, 1, 4000000, 4000000, 59, 1, 'u32', "
        "NULL, 1, 0, 0, NULL, NULL, NULL, NULL, 4, NULL, NULL), (1, 1, 5000000, 5000001, 59, 1, "
        "'i32', NULL, 1, 0, 0, NULL, NULL, NULL, NULL, NULL, -5, NULL), (1, 1, 6000000, 6500000, "
        "59, 1, 'f32', NULL, 1, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0.5)");
    /* Domains are numbered in each process: rank 1 has named none, and run 2 another. */
    assert_rows(folder->store,
                "SELECT rank, domain, name, kind, start_ns, end_ns, ms, pid, tid, level, category, "
                "payload, value FROM v_nvtx ORDER BY start_ns",
                "0|domain of mine|short|pushed|1000000|3500000|2.5|7|65545|2|5|[{}]|1\n"
                "0|NULL|long name|started|2000000|NULL|NULL|7|9|NULL|NULL|NULL|-2\n"
                "0|domain of mine|mark|mark|3000000|NULL|NULL|7|9|0|0|NULL|2.5\n"
                "1|NULL|u32|pushed|4000000|4000000|0.0|0|1|0|0|NULL|4\n"
                "1|NULL|i32|pushed|5000000|5000001|1.0e-06|0|1|0|0|NULL|-5\n"
                "1|NULL|f32|pushed|6000000|6500000|0.5|0|1|0|0|NULL|0.5");
}

/* Kernels -1 .. 2, 0 .. 0.5 and 1 .. 3 ms, a copy 5 .. 6 and a set 5.5 .. 7, two copies without
 * times: some of it ran for 4 + 2 ms; another rank's kernel 2 .. 4, another run's 2 .. 5. */
RUNS_TEST(gpu_work_is_a_union_of_times) {
    add_growing(folder, 2);
    runs_execute(
        folder->store,
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (run_id, rank, deviceId, contextId, streamId, "
        "start, \"end\") VALUES (1, 0, 0, 0, 1, -1000000, 2000000), (1, 0, 0, 0, 3, 0, 500000), "
        "(1, 0, 0, 0, 2, 1000000, 3000000), (1, 1, 0, 0, 2, 2000000, 4000000), (2, 0, 0, 0, 2, "
        "2000000, 5000000); INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (run_id, rank, deviceId, "
        "contextId, streamId, start, \"end\", bytes, copyKind) VALUES (1, 0, 0, 0, 1, 5000000, "
        "6000000, 100, 1), (1, 0, 0, 0, 1, NULL, NULL, 20, 2), (1, 0, 0, 0, 1, NULL, NULL, 20, "
        "2);INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (run_id, rank, deviceId, contextId, streamId, "
        "start, \"end\", value, bytes) VALUES (1, 0, 0, 0, 1, 5500000, 7000000, 0, 7)");
    assert_rows(
        folder->store,
        "SELECT gpu_ms, kernel_ms, copy_ms, set_ms, kernels, copies, sets, copied_bytes, untimed "
        "FROM v_gpu ORDER BY run_id, rank",
        "6.0|5.5|1.0|1.5|3|3|1|140|2\n2.0|2.0|0.0|0.0|1|0|0|0|0\n3.0|3.0|0.0|0.0|1|0|0|0|0");
}
