/* What the summaries of a run say where tests/results/runs.h's standard run says nothing: worked
 * out by hand. */
#include "tests/results/runs.h"

/* Iterations of `ms` each, one after the other, on both ranks, but that rank 1 begins with number
 * `first`. */
static void add_lengths(struct runs_folder *folder, const int ms[], int count, int64_t tokens,
                        int first) {
    const struct mp_store_run description = runs_description("ep", "drawn");
    struct runs_rank ranks[2];
    for (int r = 0; r < 2; r++) {
        int64_t at = 0;
        runs_rank_open(folder, r, 2, &ranks[r]);
        for (int i = 0; i < count; i++) {
            const struct runs_span whole = {MP_PHASE_ITERATION,
                                            MP_NO_DIRECTION,
                                            at,
                                            ms[i] * 1000,
                                            0,
                                            -1,
                                            tokens > 0 ? tokens + i : 0,
                                            -1,
                                            false};
            if (r == 0 || i >= first)
                runs_record(&ranks[r], i, &whole);
            at += ms[i] * 1000;
        }
        runs_clock_samples(&ranks[r]);
    }
    runs_ingest(folder, &description, ranks, 2);
}

/* Of 40, 10, 20, 12 and 14 ms the last four count: 13 in the middle; tokens 2 * (51 + 52 + 53 + 54)
 * in four iterations of 13 ms. */
RUNS_TEST(an_even_count_has_its_middle_between) {
    static const int ms[] = {40, 10, 20, 12, 14};
    add_lengths(folder, ms, 5, 50, 0);
    assert_rows(folder->store,
                "SELECT steady_iterations, round(ms_per_iteration, 6), round(tokens_per_s, 3) FROM "
                "v_speedup",
                "4|13.0|8076.923");
}

/* The first that both have is the one that does not count; no tokens are no speed. */
RUNS_TEST(what_one_rank_lacks_is_no_iteration) {
    static const int ms[] = {10, 20, 12, 16};
    add_lengths(folder, ms, 4, 0, 1);
    assert_rows(folder->store,
                "SELECT iterations, steady_iterations, tokens_per_s, tokens FROM run_summary JOIN "
                "iteration_summary USING (run_id) WHERE iteration = 2",
                "3|2|NULL|0");
}

/* ---- three ranks ---- */

/* One layer, backward only on rank 2; rank 1 computes most. */
static void record_three(struct runs_rank *own) {
    static const int64_t tokens[] = {30, 50, 10}, busy_us[] = {3000, 5000, 4000};
    int r = own->rank;
    const struct runs_span spans[] = {
        {MP_PHASE_ITERATION, MP_NO_DIRECTION, 0, 9000, 1000 * r, -1, 7, -1, false},
        {MP_PHASE_EXPERT, MP_FORWARD, 0, busy_us[r], 0, 0, tokens[r], 200 * (r + 1), false},
        {MP_PHASE_DISPATCH, MP_FORWARD, 6000, 2000, 3000, 0, -1, -1, false},
        {MP_PHASE_ALLREDUCE, MP_BACKWARD, 6000, 1500, 0, -1, -1, -1, true},
        /* no layer or phase that a summary knows, or no iteration */
        {MP_PHASE_EXPERT, MP_FORWARD, 0, 8000, 0, -2, 900, -1, false},
    };
    static const uint32_t routes[3][2] = {{20, 10}, {5, 0}, {0, 55}}, dropped[2] = {4, 1},
                          one[] = {3000000000};
    runs_record_all(own, 0, spans);
    runs_record(own, -1, &spans[1]);
    if (r == 2)
        runs_record_one(own, 0, MP_PHASE_ATTENTION, MP_BACKWARD, 8000, 500, 200, 0, 33, -1, false);
    mp_record_load(own->compute, 0, 0, 2, routes[r], r == 1 ? dropped : NULL);
    mp_record_load(own->compute, 0, 1, 1, one, NULL);
    mp_record_load(own->compute, -1, 0, 2, routes[r], NULL);
}

static void record_numbers(struct runs_rank *own) {
    int r = own->rank;
    if (r > 0) { /* the lowest rank that has one counts */
        mp_record_number(own->compute, 0, -1, "loss", 3 + r);
        mp_record_number(own->compute, 0, -1, "auxiliary-loss", 0.25 * r);
    }
    mp_record_number(own->compute, 0, -1, "validation-loss", 2.5 + r);
    mp_record_number(own->compute, 0, 0, "loss", 99); /* of a layer */
    mp_record_number(own->compute, -1, -1, "ranks-share-cores", r == 1);
}

static void add_three(struct runs_folder *folder) {
    struct mp_store_run description = runs_description("ep", "drawn");
    struct runs_rank ranks[3];
    description.ranks = description.ranks_per_node = 3;
    for (int r = 0; r < 3; r++) {
        runs_rank_open(folder, r, 3, &ranks[r]);
        record_three(&ranks[r]);
        record_numbers(&ranks[r]);
        runs_clock_samples(&ranks[r]);
    }
    runs_ingest(folder, &description, ranks, 3);
}

static const struct {
    const char *name, *sql, *expected;
} cases[] = {
    /* Waiting is the longer of the iteration's, 0, 1 and 2 ms, and the dispatch's: 2 ms of the 3
     * that it claims; and on rank 2 of the attention's 0.2.  Busy: 7, 7, 6.8. */
    {"iteration",
     "SELECT round(ms, 3), tokens, loss, auxiliary_loss, validation_loss, slowest_rank, "
     "round(straggler_ms, 6), round(imbalance, 6), ranks, round(wait_ms, 3) FROM v_iteration",
     "9.0|21|4.0|0.25|2.5|0|0.066667|1.666667|3|6.2"},
    {"stragglers",
     "SELECT layer, phase, round(max_ms, 3), round(mean_ms, 3), round(min_ms, 3), round(wait_ms, "
     "3), slowest_rank, slowest_tokens, round(mean_tokens, 3), ranks, round(straggler_ms, 3), "
     "round(lost_ms, 3) FROM v_straggler ORDER BY phase",
     "0|attention|0.3|0.3|0.3|0.2|2|33|33.0|1|0.0|0.0\n"
     "0|dispatch|0.0|0.0|0.0|6.0|0|NULL|NULL|3|0.0|0.0\n"
     "0|expert|5.0|4.0|3.0|0.0|1|50|30.0|3|1.0|3.0"},
    /* Routes 25 and 65 of 90; ranks 30, 50 and 10. */
    {"imbalance",
     "SELECT layer, experts, routes, dropped, round(expert_max_over_mean, 6), "
     "round(rank_max_over_mean, 6), dead_fraction, round(dropped_fraction, 6) FROM v_imbalance",
     "0|2|90|5|1.444444|1.666667|0.0|0.055556\n1|1|9000000000|0|1.0|NULL|0.0|0.0"},
    /* Experts 3, 5 and 4 ms; in flight beyond the rank's own time 1.5. */
    {"phases",
     "SELECT phase, round(total_ms, 3), round(overlapped_ms, 3), round(exposed_ms, 3), "
     "round(wait_ms, 3), round(iteration_ms, 3), flops FROM v_phase ORDER BY phase",
     "allreduce|1.5|1.5|0.0|0.0|9.0|0.0\n"
     "attention|0.167|0.0|0.167|0.067|9.0|0.0\n"
     "dispatch|2.0|0.0|2.0|2.0|9.0|0.0\n"
     "expert|4.0|0.0|4.0|0.0|9.0|1200.0"},
    {"any rank that shared its core", "SELECT ranks_share_cores, ranks_recorded FROM v_run", "1|3"},
    {"loss",
     "SELECT loss_final, steady_iterations, ms_per_iteration, ranks_share_cores FROM v_speedup",
     "4.0|0|NULL|1"},
};

RUNS_TEST(three_ranks_by_hand) {
    add_three(folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = runs_query(folder->store, cases[i].sql);
        if (strcmp(found, cases[i].expected))
            fail_msg("%s: '%s', expected '%s'", cases[i].name, found, cases[i].expected);
    }
}

/* A rank that knows of fewer experts than the next: 5 and 1 of the first, 4 of the second. */
RUNS_TEST(ranks_may_count_different_experts) {
    static const uint32_t routes[2][2] = {{5, 0}, {1, 4}};
    const struct mp_store_run description = runs_description("ep", "drawn");
    struct runs_rank ranks[2];
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        mp_record_load(ranks[r].compute, 0, 0, r + 1, routes[r], NULL);
    }
    runs_ingest(folder, &description, ranks, 2);
    assert_rows(folder->store,
                "SELECT experts, routes, round(expert_max_over_mean, 6), dead_fraction FROM "
                "v_imbalance",
                "2|10|1.2|0.0");
}
