/* The gate on databases with known differences: what is found, where, and what is refused. */
#include "tests/results/compare/gate_runs.h"

#define TIME "ms per iteration"

static const struct gate_run usual = {0};

RUNS_TEST(unchanged_passes) {
    gate_add_pairs(folder, GATE_PAIRS, &usual, &usual);
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    assert_int_equal(mp_gate_outcome(gate), MP_OUTCOME_PASS);
    assert_int_equal(gate->outcomes[MP_OUTCOME_PASS], gate->metrics);
    assert_true(gate->metrics > 8);
    const struct mp_gate_metric *time = gate_metric(gate, TIME);
    assert_true(time->evidence.samples.paired && time->evidence.samples.bases == GATE_PAIRS &&
                isnan(time->floor));
    assert_true(gate->same_program);
    assert_close(time->base, 10, .01);
}

/* A/A measurements leave a floor behind that the next comparison shows and obeys. */
RUNS_TEST(floors_are_kept) {
    int kept;
    gate_add_pairs(folder, GATE_PAIRS, &usual, &usual);
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    double half =
        (gate_metric(gate, TIME)->evidence.high - gate_metric(gate, TIME)->evidence.low) / 2;
    assert_works(mp_gate_keep_floors(gate, folder->store, "b", &kept, &error));
    assert_works(
        mp_gate_keep_floors(gate, folder->store, "b", &kept, &error)); /* again: nothing new */
    assert_int_equal(kept, 1);
    mp_gate_destroy(gate);
    gate = gate_of(folder, NULL);
    assert_close(gate_metric(gate, TIME)->floor, half, 0);
    gate_expect(gate, TIME, MP_OUTCOME_PASS, "below");
    gate_expect_once(gate_of(folder, &(struct mp_gate_options){.minimum_effect = half / 2}), TIME,
                     MP_OUTCOME_INCONCLUSIVE, "noise floor");
    mp_gate_destroy(gate);
    const struct gate_run other = {.cpu = "cpu B", .suite_run = "b", .ms = 10};
    gate_add_run(folder, &other); /* another machine has no floor yet */
    const struct mp_gate_side base = {folder->store, NULL, (int64_t[]){21}, 1},
                              head = {folder->store, "a", NULL, 0};
    assert_works(mp_gate_compare(&base, &head, &(struct mp_gate_options){0}, &gate, &error));
    assert_true(isnan(gate_metric(gate, TIME)->floor));
    assert_fails(mp_gate_keep_floors(gate, folder->store, "b", &kept, &error), MP_EINVAL, "");
}

/* The largest of a machine's last five; what it was before is forgotten. */
RUNS_TEST(five_floors_are_remembered) {
    int kept;
    gate_add_pairs(folder, GATE_PAIRS, &usual, &usual);
    struct mp_gate *gate = gate_of(folder, NULL);
    assert_works(mp_gate_keep_floors(gate, folder->store, "b", &kept, &error));
    mp_gate_destroy(gate);
    for (int later = 1; later <= 5; later++) {
        char sql[300];
        snprintf(sql, sizeof sql,
                 "INSERT INTO fact (run_id, rank, name, value) SELECT run_id + %d, rank, name, "
                 "CASE name WHEN 'noise-floor' THEN '0.0001' ELSE value END FROM fact WHERE run_id "
                 "= 2 AND name LIKE 'noise-floor%%'",
                 later);
        runs_query(folder->store, sql);
        gate = gate_of(folder, NULL);
        assert_int_equal(gate_metric(gate, TIME)->floor > .0001, later < 5);
        mp_gate_destroy(gate);
    }
}

RUNS_TEST(slowdown_is_found_and_placed) {
    const struct gate_run slower = {.expert_ms = .5, .is_other_program = true};
    gate_add_pairs(folder, GATE_PAIRS, &usual, &slower);
    /* Neither the first iteration of head nor what is in flight is work that counts. */
    runs_execute(folder->store, "UPDATE span SET end_ns = end_ns + iif(run_id % 2, 0, 90000000), "
                                "stream_id = iif(iteration, phase_id, stream_id) WHERE phase_id = "
                                "(SELECT id FROM StringIds WHERE value = 'gate')");
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    assert_int_equal(mp_gate_outcome(gate), MP_OUTCOME_FAIL);
    gate_expect(gate, TIME, MP_OUTCOME_FAIL, "slower", "phase expert, layer 1, rank 1: +0.500 ms");
    const struct mp_gate_metric *time = gate_metric(gate, TIME);
    assert_within(time->evidence.effect, .05, .005);
    assert_true(time->evidence.low > .03 && time->evidence.high < .07);
    assert_int_equal(gate->outcomes[MP_OUTCOME_FAIL], 1);
    /* So it is where no other rank has the phase. */
    runs_execute(folder->store, "DELETE FROM span WHERE rank = 0 AND phase_id = (SELECT id FROM "
                                "StringIds WHERE value = 'expert')");
    gate_expect_once(gate_of(folder, NULL), TIME, MP_OUTCOME_FAIL,
                     "phase expert, layer 1, rank 1: +0.500 ms");
}

/* Waiting is named only where no work explains it, and work also where many phases share it. */
RUNS_TEST(waiting_and_spread_work) {
    const struct gate_run waits = {.wait_ms = .6}, spread = {.spread_ms = 1};
    gate_add_pairs(folder, GATE_PAIRS, &usual, &waits);
    gate_expect_once(gate_of(folder, NULL), TIME, MP_OUTCOME_FAIL, "slower",
                     "phase combine, layer 0, all ranks alike, most on rank",
                     "+0.600 ms of waiting");
    runs_destroy(folder);
    runs_create(folder);
    gate_add_pairs(folder, GATE_PAIRS, &usual, &spread);
    gate_expect_once(gate_of(folder, NULL), TIME, MP_OUTCOME_FAIL, "slower", "spread over phases",
                     "+0.200 ms of work");
}

RUNS_TEST(speedup_mirrors_it) {
    const struct gate_run slower = {.expert_ms = .5};
    gate_add_pairs(folder, GATE_PAIRS, &slower, &usual);
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    assert_int_equal(mp_gate_outcome(gate), MP_OUTCOME_PASS);
    gate_expect(gate, TIME, MP_OUTCOME_IMPROVED, "faster", "phase expert, layer 1, rank 1: -0.500");
    double effect = gate_metric(gate, TIME)->evidence.effect,
           p = gate_metric(gate, TIME)->evidence.p;
    mp_gate_destroy(gate);
    /* Exchanged sides are no longer a pair's, so they are compared as groups. */
    gate = gate_of_sides(folder, "b", "a");
    gate_expect(gate, TIME, MP_OUTCOME_FAIL, "slower");
    assert_close((1 + gate_metric(gate, TIME)->evidence.effect) * (1 + effect), 1, .002);
    assert_true(!gate_metric(gate, TIME)->evidence.samples.paired && p < .05);
}

RUNS_TEST(one_copy_more_is_a_finding) {
    const struct gate_run more = {.copies_more = 1, .is_other_program = true};
    gate_add_pairs(folder, 2, &usual, &more);
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    gate_expect(gate, "copies", MP_OUTCOME_FAIL, "differs");
    assert_string_equal(gate_metric(gate, "copies")->where, "iteration 3, layer 0, rank 0: 3 -> 4");
    assert_close(gate_metric(gate, "copies")->head - gate_metric(gate, "copies")->base, 1, 0);
    assert_int_equal(gate->outcomes[MP_OUTCOME_FAIL], 1);
    mp_gate_destroy(gate);
    const char *const accept[] = {"copies"}, *const unknown[] = {"copiess"};
    struct mp_gate *none;
    gate = gate_of(folder, &(struct mp_gate_options){.accept = accept, .accepts = 1});
    gate_expect(gate, "copies", MP_OUTCOME_ACCEPTED, "accepted");
    assert_int_equal(gate->outcomes[MP_OUTCOME_FAIL], 0);
    assert_fails(
        gate_try(folder, &(struct mp_gate_options){.accept = unknown, .accepts = 1}, &none, &error),
        MP_EINVAL, "copiess");
    /* Fewer is a finding as well. */
    gate_expect_once(gate_of_sides(folder, "b", "a"), "copies", MP_OUTCOME_FAIL, "differs");
}

RUNS_TEST(routes_are_compared_expert_by_expert) {
    const struct gate_run other = {.has_other_routes = true}; /* their sum is the same */
    gate_add_pairs(folder, 1, &usual, &other);
    gate_expect_once(gate_of(folder, NULL), "routes", MP_OUTCOME_FAIL, "differs",
                     "iteration 5, layer 0, rank 0");
}

/* Plans that rest on measured speeds differ by themselves. */
RUNS_TEST(told_speeds_explain_differences) {
    const struct gate_run more = {.copies_more = 1, .bandwidth = 2e9};
    gate_add_pairs(folder, 4, &usual, &more);
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    gate_expect(gate, "copies", MP_OUTCOME_INCONCLUSIVE, "--set bandwidth");
    gate_expect(gate, "routes", MP_OUTCOME_PASS, "equal");
}

RUNS_TEST(many_runs_outvote_told_speeds) {
    for (int i = 0; i < 5; i++) {
        gate_add_side(folder, (struct gate_run){.bandwidth = 1e9 + i}, i, 0);
        gate_add_side(folder, (struct gate_run){.bandwidth = 2e9 + i, .copies_more = 1}, i, 1);
    }
    gate_expect_once(gate_of(folder, NULL), "copies", MP_OUTCOME_FAIL, "differs");
}

RUNS_TEST(base_that_varies_decides_nothing) {
    for (int i = 0; i < 4; i++)
        gate_add_side(folder, (struct gate_run){.copies_more = i == 1}, i % 2, i / 2);
    gate_expect_once(gate_of(folder, NULL), "copies", MP_OUTCOME_INCONCLUSIVE, "base's own runs");
}

RUNS_TEST(losses) {
    const struct {
        struct gate_run head;
        enum mp_outcome outcome;
    } cases[] = {
        {{.loss_factor = 1 + 1e-9}, MP_OUTCOME_FAIL}, /* one build: bit for bit */
        {{.loss_factor = 1 + 1e-9, .revision = "2222"}, MP_OUTCOME_PASS},
        {{.loss_factor = 1 + 1e-9, .revision = "1111-dirty"}, MP_OUTCOME_PASS},
        {{.loss_factor = 1 + .99e-4, .revision = "2222"}, MP_OUTCOME_PASS},
        {{.loss_factor = 1 + 1.01e-4, .revision = "2222"}, MP_OUTCOME_FAIL},
        {{.loss_is_nan = true, .revision = "2222"}, MP_OUTCOME_FAIL},
    };
    gate_add_run(folder, &usual);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(gate) struct mp_gate *gate = NULL;
        int64_t head_run = gate_add_run(folder, &cases[i].head);
        const struct mp_gate_side base = {folder->store, NULL, (int64_t[]){1}, 1},
                                  head = {folder->store, NULL, &head_run, 1};
        assert_works(mp_gate_compare(&base, &head, &(struct mp_gate_options){0}, &gate, &error));
        gate_expect(gate, "loss", cases[i].outcome, cases[i].head.loss_is_nan ? "iteration 7" : "");
    }
}

RUNS_TEST(machines) {
    const struct gate_run elsewhere = {.cpu = "cpu B", .expert_ms = 1, .copies_more = 1};
    gate_add_pairs(folder, GATE_PAIRS, &usual, &elsewhere);
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    gate_expect(gate, TIME, MP_OUTCOME_INCONCLUSIVE, "machines differ");
    gate_expect(gate, "copies", MP_OUTCOME_FAIL, "differs"); /* counts all the same */
    assert_contains(gate->note[0], "environment.cpu (cpu A, cpu B)");
    gate_expect_once(gate_of(folder, &(struct mp_gate_options){.any_machine = true}), TIME,
                     MP_OUTCOME_FAIL, "slower");
    runs_execute(folder->store, "UPDATE run_summary SET ranks_share_cores = run_id % 2 = 0");
    mp_gate_destroy(gate);
    gate = NULL;
    assert_fails(gate_try(folder, &(struct mp_gate_options){0}, &gate, &error), MP_EINVAL,
                 "ranks share cores (no, yes)");
}

/* Runs of both sides alike, but for head's expert phase; six a side. */
static struct mp_gate *gate_of_doubtful(struct runs_folder *folder, const struct gate_run *run,
                                        double expert_ms) {
    static int measurements; /* of this folder and earlier ones */
    struct gate_run base_run = *run, head_run = *run;
    char names[2][16];
    snprintf(names[0], sizeof names[0], "x%d", measurements);
    snprintf(names[1], sizeof names[1], "y%d", measurements++);
    base_run.suite_run = names[0];
    head_run.suite_run = names[1];
    head_run.expert_ms = expert_ms;
    for (int k = 0; k < 6; k++) {
        base_run.ms = 10 * gate_noise(k, 0);
        head_run.ms = 10 * gate_noise(k, 1);
        gate_add_run(folder, &base_run);
        gate_add_run(folder, &head_run);
    }
    return gate_of_sides(folder, names[0], names[1]);
}

/* Too short or not steady: no pass, and no fail of what noise may be; but what is beyond the
 * minimum effect by more than any noise fails, with phase, layer and rank. */
RUNS_TEST(doubtful_times) {
    const struct {
        struct gate_run run;
        const char *reason;
    } cases[] = {{{.iterations = 12},
                  "of 12 iterations of run 1 10 count, without the first tenth, and 20 are needed "
                  "(--set iterations=30)"},
                 {{.drift = .05},
                  "not steady: in 12 of 12 runs no 20 of the iterations that count (23 at least)"}};
    for (int i = 0; i < 2; i++) {
        const struct gate_run *run = &cases[i].run;
        const char *doubt = i ? "not steady" : "too short";
        gate_expect_once(gate_of_doubtful(folder, run, 0), TIME, MP_OUTCOME_INCONCLUSIVE,
                         cases[i].reason);
        gate_expect_once(gate_of_doubtful(folder, run, .25), TIME, MP_OUTCOME_INCONCLUSIVE, doubt);
        gate_expect_once(gate_of_doubtful(folder, run, 14), TIME, MP_OUTCOME_FAIL,
                         "slower by more than 2.00 %, which the noise of 6 and 6 runs can't "
                         "explain, whatever else is to be said of them: ",
                         doubt, "phase expert, layer 1, rank 1");
    }
}

/* An iteration that takes 0.12 % more than the one before is no steady one; of 20 runs 5 may have
 * such, 6 not. */
RUNS_TEST(a_quarter_of_the_runs_may_be_unsteady) {
    for (int unsteady = 5; unsteady <= 6; unsteady++) {
        for (int i = 0; i < 2 * GATE_PAIRS; i++)
            gate_add_side(folder, (struct gate_run){.drift = i < unsteady ? .0125 : .008}, i / 2,
                          i % 2);
        gate_expect_once(gate_of(folder, NULL), TIME,
                         unsteady == 5 ? MP_OUTCOME_PASS : MP_OUTCOME_INCONCLUSIVE,
                         unsteady == 5 ? "" : "not steady: in 6 of 20 runs");
        runs_destroy(folder);
        runs_create(folder);
    }
}

/* Other programs had the processors for more than a quarter of the time in 5 of 20 runs, or 6: what
 * is a little slower then may be they; not what is beyond all noise, and no slower is no slower. */
RUNS_TEST(a_quarter_of_the_runs_may_be_on_a_busy_machine) {
    for (int busy = 5; busy <= 6; busy++) {
        for (int i = 0; i < 2 * GATE_PAIRS; i++)
            gate_add_side(folder,
                          (struct gate_run){.taken = i < busy ? 0.26 : 0.04,
                                            .expert_ms = i % 2 ? 0.22 + 0.01 * (i / 2 % 3) : 0},
                          i / 2, i % 2);
        AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
        gate_expect(gate, TIME, busy == 5 ? MP_OUTCOME_FAIL : MP_OUTCOME_INCONCLUSIVE,
                    busy == 5 ? "p says so" : "the machine was busy: in 6 of 20 runs");
        assert_contains(gate->note[0], "For up to 26 % of the time (run 1) other programs");
        runs_destroy(folder);
        runs_create(folder);
    }
    const struct gate_run busy = {.taken = 0.3}, quiet = {.taken = 0.05};
    gate_expect_once(gate_of_doubtful(folder, &busy, 14), TIME, MP_OUTCOME_FAIL,
                     "whatever else is to be said of them: the machine was busy");
    gate_expect_once(gate_of_doubtful(folder, &busy, 0), TIME, MP_OUTCOME_PASS, "");
    AUTO(gate) struct mp_gate *gate = gate_of_doubtful(folder, &quiet, 0);
    for (int i = 0; i < gate->notes; i++)
        assert_null(strstr(gate->note[i], "other programs"));
}

RUNS_TEST(shared_cores_say_nothing) {
    const struct gate_run shared = {.shares_cores = true};
    gate_expect_once(gate_of_doubtful(folder, &shared, 14), TIME, MP_OUTCOME_INCONCLUSIVE,
                     "shared cores");
}

/* Of too few for an interval, too, and of none of which the noise is unknown. */
RUNS_TEST(few_pairs_that_differ_much) {
    const struct gate_run slower = {.expert_ms = 14};
    gate_add_pairs(folder, 2, &usual, &slower);
    gate_expect_once(gate_of(folder, NULL), TIME, MP_OUTCOME_INCONCLUSIVE,
                     "an interval takes at least 6 pairs, not 2");
    for (int side = 0; side < 2; side++)
        gate_add_side(folder, side ? slower : usual, 2, side);
    gate_expect_once(gate_of(folder, NULL), TIME, MP_OUTCOME_FAIL,
                     "slower by more than 2.00 %, which the noise of 3 pairs can't explain");
}

/* moeperf can't run what others recorded: no advice to do so.  They are as long as they are. */
RUNS_TEST(recordings_of_others) {
    for (int side = 0; side < 2; side++)
        gate_add_run(folder, &(struct gate_run){.suite_run = side ? "b" : "a",
                                                .iterations = side ? 13 : 12});
    runs_execute(folder->store, "UPDATE run SET suite = 'import'");
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    gate_expect(gate, TIME, MP_OUTCOME_INCONCLUSIVE, "and 20 are needed (record 30)");
    gate_expect(gate, "copies", MP_OUTCOME_INCONCLUSIVE,
                "run 1 with 12 iterations and of run 2 with 13");
    assert_contains(gate->note[0], "take base and head in turns");
    for (int i = 0; i < gate->notes; i++)
        assert_null(strstr(gate->note[i], "moeperf run"));
}

/* Complete ones of the suite that were measured: neither 4, nor 5, nor 6. */
RUNS_TEST(more_runs_are_named) {
    for (int i = 0; i < 7; i++)
        gate_add_run(folder, &(struct gate_run){.suite_run = (const char *[]){"a", "b", "c"}[i % 3],
                                                .status = i == 3 ? "failed" : NULL,
                                                .is_predicted = i == 4});
    runs_execute(folder->store, "UPDATE run SET suite = 'other' WHERE run_id = 6;UPDATE run SET "
                                "suite_run = 'd' WHERE run_id > 3");
    AUTO(gate) struct mp_gate *gate = gate_of_sides(folder, "a", "b");
    assert_contains(gate->note[2], "has complete runs 1-3,7 of this suite");
}

RUNS_TEST(few_and_missing_runs) {
    const struct gate_run slower = {.expert_ms = 2};
    gate_add_pairs(folder, 1, &usual, &slower);
    gate_expect_once(gate_of(folder, NULL), TIME, MP_OUTCOME_INCONCLUSIVE, "at least 6");
    /* A pair without its other half is left out and mentioned. */
    gate_add_run(folder, &(struct gate_run){.side = "base", .round = 1});
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    assert_int_equal(gate_metric(gate, TIME)->evidence.samples.bases, 1);
    assert_contains(gate->note[0], "1 pair without a usable time was left out");
    gate_add_run(
        folder, &(struct gate_run){
                    .side = "head", .round = 1, .status = "failed", .reason = "rank 1 was killed"});
    gate_expect_once(gate_of(folder, NULL), "complete runs", MP_OUTCOME_FAIL, "rank 1 was killed");
}

/* What either side's recording costs is no measure, and stands beside the outcome. */
RUNS_TEST(recording_costs_are_noted) {
    gate_add_pairs(folder, GATE_PAIRS, &usual, &usual);
    runs_execute(folder->store,
                 "INSERT OR IGNORE INTO StringIds (value) VALUES ('record-span-ns'); INSERT INTO "
                 "number SELECT run.run_id, 0, -1, -1, StringIds.id, 100 FROM run JOIN fact ON "
                 "fact.run_id = run.run_id AND fact.name = 'pairs.side' AND fact.value = 'head', "
                 "StringIds WHERE StringIds.value = 'record-span-ns'");
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    bool noted = false;
    for (int i = 0; i < gate->notes; i++)
        noted = noted || strstr(gate->note[i], "Recording cost: base not measured, head at most ");
    assert_true(noted);
    for (int i = 0; i < gate->metrics; i++)
        assert_string_not_equal(gate->metric[i].name, "record-span-ns");
}

/* What neither did, neither did differently. */
RUNS_TEST(runs_that_both_sides_miss) {
    const struct gate_run missing = {
        .job = "other", .status = "interrupted", .reason = "it was stopped"};
    int found = 0;
    gate_add_pairs(folder, 1, &usual, &usual);
    gate_add_pairs(folder, 1, &missing, &missing);
    AUTO(gate) struct mp_gate *gate = gate_of(folder, NULL);
    for (int i = 0; i < gate->metrics; i++) {
        if (strcmp(gate->metric[i].job, "other") != 0)
            continue;
        assert_int_equal(gate->metric[i].outcome, MP_OUTCOME_INCONCLUSIVE);
        found += strstr(gate->metric[i].reason, "neither side") != NULL;
    }
    assert_int_equal(found, 1);
}

RUNS_TEST(predicted_times_are_exact) {
    const struct gate_run base = {.is_predicted = true, .suite_run = "a"},
                          same = {.is_predicted = true, .suite_run = "b"},
                          other = {.is_predicted = true, .suite_run = "c", .ms = 10.001};
    gate_add_run(folder, &base);
    gate_add_run(folder, &same);
    gate_add_run(folder, &other);
    gate_expect_once(gate_of_sides(folder, "a", "b"), "predicted ms", MP_OUTCOME_PASS, "equal");
    gate_expect_once(gate_of_sides(folder, "a", "c"), "predicted ms", MP_OUTCOME_FAIL, "differs",
                     "iteration 0: 10 -> 10.001");
}

/* ---- refusals ---- */

static void refuse(UNUSED struct runs_folder *folder, const struct mp_gate_side *base,
                   const struct mp_gate_side *head, int code, const char *words) {
    struct mp_gate *gate = NULL;
    assert_fails(mp_gate_compare(base, head, &(struct mp_gate_options){0}, &gate, &error), code,
                 words);
    assert_null(gate);
}

RUNS_TEST(refusals) {
    gate_add_run(folder, &usual);
    gate_add_run(folder, &(struct gate_run){.suite_run = "b", .job_text = "name: y\nbatch: 16\n"});
    gate_add_run(folder, &(struct gate_run){.suite_run = "c", .job = "ep"});
    gate_add_run(folder, &(struct gate_run){.suite_run = "d", .status = "failed", .reason = "oh"});
    struct mp_gate_side a = {folder->store, "a", NULL, 0}, b = {folder->store, "b", NULL, 0},
                        c = {folder->store, "c", NULL, 0}, d = {folder->store, "d", NULL, 0},
                        none = {folder->store, "e", NULL, 0},
                        mixed = {folder->store, NULL, (int64_t[]){1, 2}, 2},
                        missing = {folder->store, NULL, (int64_t[]){99}, 1};
    refuse(folder, &a, &b, MP_EINVAL, "batch (8, 16)");
    refuse(folder, &a, &c, MP_ENOTFOUND, "no job in common");
    refuse(folder, &d, &a, MP_ENOTFOUND, "no complete run");
    refuse(folder, &a, &none, MP_ENOTFOUND, "head: ");
    refuse(folder, &none, &a, MP_ENOTFOUND, "base: ");
    refuse(folder, &missing, &a, MP_ENOTFOUND, "run 99");
    refuse(folder, &a, &a, MP_EINVAL, "on both sides");
    refuse(folder, &mixed, &c, MP_EINVAL, "not of one kind");
    struct mp_gate *gate = NULL;
    assert_fails(
        mp_gate_compare(&a, &b, &(struct mp_gate_options){.minimum_effect = NAN}, &gate, &error),
        MP_EINVAL, "");
    char *base, *head;
    assert_fails(mp_gate_find_pairs(folder->store, &base, &head, &error), MP_ENOTFOUND, "");
    /* An empty database of ours has nothing to compare either. */
    struct runs_folder empty;
    runs_create(&empty);
    refuse(folder, &a, &(struct mp_gate_side){empty.store, NULL, NULL, 0}, MP_ENOTFOUND, "head: ");
    runs_destroy(&empty);
}

/* The latest ones. */
RUNS_TEST(finds_pairs) {
    const struct mp_gate_side latest = {folder->store, NULL, NULL, 0};
    char *base, *head;
    gate_add_pairs(folder, 2, &usual, &usual);
    runs_execute(folder->store, "UPDATE fact SET value = 'none' WHERE name = 'pairs' AND run_id < "
                                "3;UPDATE run SET suite_run = 'c' WHERE run_id < 3");
    refuse(folder, &latest, &(struct mp_gate_side){folder->store, "b", NULL, 0}, MP_EINVAL,
           "on both sides");
    assert_works(mp_gate_find_pairs(folder->store, &base, &head, &error));
    assert_string_equal(base, "a");
    assert_string_equal(head, "b");
    free(base);
    free(head);
}

RUNS_TEST(facts_of_runs) {
    const struct mp_store_fact fact = {"pairs", "other"};
    gate_add_run(folder, &(struct gate_run){.side = "head"});
    assert_works(mp_store_add_fact(folder->store, 1, &fact, &error));
    assert_rows(folder->store,
                "SELECT name, value, rank FROM v_fact WHERE name LIKE 'pairs%' ORDER BY name",
                "pairs|one|-1\npairs.same|yes|-1\npairs.side|head|-1");
    assert_fails(mp_store_add_fact(folder->store, 2, &fact, &error), MP_ENOTFOUND, "");
}
