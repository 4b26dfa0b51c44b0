/* The analysis against what can be worked out by hand, and what must hold of every run. */
#include "tests/profiler/straggler/synthetic.h"

/* ---- by hand ---- */

/* Four ranks compute 10, 10, 10, 18, then an exchange of 2: the slowdowns. */
TEST(the_example_by_hand) {
    enum { RANKS = 4, ITERATIONS = 6 };
    struct mp_recorded_rank rank[ITERATIONS * RANKS];
    struct mp_recorded_span span[ITERATIONS * RANKS * 2];
    for (int i = 0; i < ITERATIONS * RANKS; i++) {
        double work = i % RANKS == 3 ? 18 : 10;
        rank[i] = (struct mp_recorded_rank){0, 20, (size_t)(2 * i), 2, 0};
        span[2 * i] = (struct mp_recorded_span){0, work, 0, 100, 0, MP_PHASE_EXPERT, MP_FORWARD};
        span[2 * i + 1] =
            (struct mp_recorded_span){work, 20, 20 - work, 100, 0, MP_PHASE_COMBINE, MP_FORWARD};
    }
    AUTO(straggler)
    struct mp_straggler found =
        analysed_times(RANKS, ITERATIONS, rank, span, ITERATIONS * RANKS * 2);
    const struct mp_slowdowns *slow = &found.slowdowns;
    for (int r = 0; r < RANKS; r++)
        assert_close(slow->rank[r], r < 3 ? 1 : 10 / 7.0, 1e-12);
    assert_all_close(1e-12, slow->load_balance, 2 / 3.0, slow->communication, 0.9);
    assert_all_close(1e-12, slow->parallel, 0.6, slow->transfer, 0.9, slow->serialisation, 1);
    assert_all_close(1e-12, slow->base, 20, slow->replayed, 20, slow->ideal, 14);
    assert_all_close(1e-12, slow->slowdown, 10 / 7.0, slow->worst_ranks, 1);
    assert_int_equal(slow->type[0].phase, MP_PHASE_EXPERT);
    assert_all_close(1e-12, slow->type[0].slowdown, 10 / 7.0, slow->type[1].slowdown, 1);

    assert_int_equal(found.findings, 1);
    assert_true(finding_of(&found, 0, 3, MP_CAUSE_SLOW)->chronic); /* at the same 100 tokens */
    assert_int_equal(found.abstentions, MP_ABSTAINS_NO_LOADS);
}

/* A table in microseconds: beginnings and waits are rounded, and added up they end a microsecond
 * before the last one comes.  Nobody waits less for that. */
TEST(rounded_times_lose_no_wait) {
    struct mp_recorded_rank rank[] = {{0, 20, 0, 2, 0}, {0, 20, 2, 2, 0}};
    struct mp_recorded_span span[] = {
        {0, 10, 0, 100, 0, MP_PHASE_EXPERT, MP_FORWARD},
        {10, 20, 8 - 1e-6, 100, 0, MP_PHASE_COMBINE, MP_FORWARD},
        {0, 18, 0, 100, 0, MP_PHASE_EXPERT, MP_FORWARD},
        {18, 20, 0, 100, 0, MP_PHASE_COMBINE, MP_FORWARD},
    };
    AUTO(straggler) struct mp_straggler found = analysed_times(2, 1, rank, span, 4);
    assert_all_close(1e-5, found.rank[0].suffered, 8, found.rank[1].direct, 8);
}

/* Rank 0 waits for rank 1, and is so late for rank 2, which never met rank 1: 3 of the 5 that rank
 * 2 waits began there. */
TEST(waits_are_passed_on) {
    struct mp_recorded_rank rank[] = {{0, 9, 0, 3, 0}, {0, 9, 3, 2, 0}, {0, 9, 5, 2, 0}};
    struct mp_recorded_span span[] = {
        {0, 2, 0, -1, 0, MP_PHASE_ATTENTION, 0}, {2, 6, 4, -1, 0, MP_PHASE_FETCH, 0},
        {6, 9, 1, -1, 0, MP_PHASE_DISPATCH, 0},  {0, 5, 0, -1, 0, MP_PHASE_ATTENTION, 0},
        {5, 6, 1, -1, 0, MP_PHASE_FETCH, 0},     {0, 3, 0, -1, 0, MP_PHASE_ATTENTION, 0},
        {3, 9, 6, -1, 0, MP_PHASE_DISPATCH, 0},
    };
    struct mp_recorded_times times = {3, 1, rank, span, 7};
    AUTO(graph) struct mp_graph *graph = NULL;
    AUTO(waits) struct mp_waits waits;
    double direct = 0, passed = 0;
    assert_works(mp_graph_create(&times, 0, &graph, &error));
    assert_works(mp_waits_find(graph, NULL, &waits, &error));
    assert_all_close(1e-12, waits.wait[1], 3, waits.wait[6], 5);
    for (size_t c = waits.first[6]; c < waits.first[6] + (size_t)waits.count[6]; c++) {
        const struct mp_charge *charge = &waits.charge[c];
        if (charge->propagated) {
            assert_int_equal(charge->node, 3); /* the attention of rank 1 */
            passed += charge->seconds;
        } else {
            assert_int_equal(graph->node[charge->node].rank, 0);
            direct += charge->seconds;
        }
    }
    /* Rank 0 took 3 in waiting, 1 in transfer and 2 in dispatch's own work longer than rank 2, and
     * 1 less in attention. */
    assert_close(passed, 5 * 3 / 6.0, 1e-12);
    assert_close(direct, 5 * 3 / 6.0, 1e-12);
}

/* Both left the very first span together, which rank 0 had begun 2 later and come to after 1 more:
 * all that it is late by afterwards is its own work, though not what comes after waiting. */
TEST(the_first_span_is_a_meeting) {
    struct mp_recorded_rank rank[] = {{2, 16, 0, 3, 0}, {0, 12, 3, 3, 0}};
    struct mp_recorded_span span[] = {
        {3, 5, 1, 100, 0, MP_PHASE_COMBINE, 0},   {5, 10, 0, 100, 0, MP_PHASE_EXPERT, 0},
        {10, 16, 2, 100, 0, MP_PHASE_COMBINE, 0}, {0, 6, 4, 100, 0, MP_PHASE_COMBINE, 0},
        {6, 8, 0, 100, 0, MP_PHASE_EXPERT, 0},    {8, 12, 4, 100, 0, MP_PHASE_COMBINE, 0},
    };
    struct mp_recorded_times times = {2, 1, rank, span, 6};
    AUTO(graph) struct mp_graph *graph = NULL;
    AUTO(waits) struct mp_waits waits;
    AUTO(causes) struct mp_causes causes;
    assert_works(mp_graph_create(&times, 0, &graph, &error));
    assert_works(mp_waits_find(graph, NULL, &waits, &error));
    assert_all_close(1e-12, waits.wait[3], 3, waits.wait[5], 2);
    assert_numbers(waits.count[3], 2, waits.count[5], 1);
    const struct mp_charge *start = &waits.charge[waits.first[3]];
    for (int c = 0; c < 2; c++)
        assert_close(start[c].seconds, start[c].kind == MP_CHARGE_START ? 2 : 1, 1e-12);
    const struct mp_charge *charge = &waits.charge[waits.first[5]];
    assert_numbers(charge->node, 1, charge->kind, MP_CHARGE_WORK);
    assert_close(charge->seconds, 2, 1e-12);
    /* A rank that has a span is held against that, be it the first of all. */
    assert_works(mp_causes_find(graph, &causes, &error));
    assert_close(mp_causes_against(&causes, graph->node[0].group, 0).transfer,
                 graph->node[0].transfer, 0);
    assert_close(mp_causes_against(&causes, graph->node[1].group, 0).own, 5, 1e-12);
    assert_close(mp_causes_against(&causes, graph->node[1].group, 1).own, 2, 1e-12);
}

TEST(balance_by_hand) {
    static const uint32_t routes[] = {60, 20, 20, 0}, upwards[] = {0, 20, 20, 60}, none[4] = {0};
    int64_t sorted[4];
    struct mp_balance balance = mp_balance_of(routes, 4, sorted);
    assert_close(balance.imbalance.max_over_mean, 2.4, 1e-12);
    assert_all_close(1e-5, balance.variation, 0.87178, balance.imbalance.effective, 2.58641);
    assert_close(balance.imbalance.dead_fraction, 0.25, 1e-12);
    assert_all_close(1e-12, balance.overload_fraction, 0.2875, balance.gini, 0.45);
    assert_close(mp_balance_of(upwards, 4, sorted).gini, 0.45, 1e-12);
    assert_close(balance.chance_variation, 0.2, 1e-12);
    assert_true(isnan(mp_balance_of(none, 4, sorted).imbalance.max_over_mean));
    assert_true(isnan(mp_balance_of(none, 4, sorted).gini));

    double value[100];
    for (int i = 0; i < 100; i++)
        value[i] = (i * 37) % 100 + 1;
    struct mp_percentiles percentiles = mp_percentiles_of(value, 100);
    assert_numbers(percentiles.p50, 50, percentiles.p90, 90, percentiles.p99, 99);
    assert_close(percentiles.largest, 100, 0);
    double missing[] = {NAN, 3, NAN};
    assert_close(mp_percentiles_of(missing, 3).p99, 3, 0);
    assert_true(isnan(mp_percentiles_of(value, 0).p50));
}

/* ---- what must always hold ---- */

static struct synthetic some_plan(uint64_t *random) {
    return (struct synthetic){.ranks = test_random_int(random, 2, 9),
                              .layers = test_random_int(random, 1, 3),
                              .iterations = test_random_int(random, 5, 12),
                              .noise = 0.05 * test_random_double(random),
                              .jitter = 0.2 * test_random_double(random),
                              .rank = -1,
                              .phase = -1};
}

/* Spans at random: some ranks leave out some, some wait and some don't. */
static void tear_holes(struct synthetic_run *run, uint64_t *random) {
    for (size_t s = 0; s < run->input.times.spans; s++) {
        struct mp_recorded_span *span = &run->span[s];
        int what = test_random_int(random, 0, 9);
        if (what == 0)
            span->wait = 0;
        if (what == 1)
            span->layer = test_random_int(random, 0, 9) ? test_random_int(random, -1, 2) : 999;
        if (what == 2)
            span->phase = (uint8_t)test_random_int(random, 1, MP_PHASES);
        if (what == 3)
            span->wait *= test_random_double(random);
    }
}

TEST_RANDOM(waits_equal_charges) {
    for (int round = 0; round < 40; round++) {
        struct synthetic plan = some_plan(random);
        AUTO(synthetic) struct synthetic_run run;
        AUTO(graph) struct mp_graph *graph = NULL;
        AUTO(waits) struct mp_waits waits;
        double waited = 0, charged = 0;
        synthetic_make(&plan, random, &run);
        if (round % 2)
            tear_holes(&run, random);
        assert_works(mp_graph_create(&run.input.times, 0, &graph, &error));
        assert_works(mp_waits_find(graph, NULL, &waits, &error));
        for (size_t n = 0; n < run.input.times.spans; n++) {
            double own = 0;
            for (size_t c = waits.first[n]; c < waits.first[n] + (size_t)waits.count[n]; c++) {
                assert_true(waits.charge[c].seconds >= 0);
                assert_int_equal(waits.charge[c].victim, (int)n);
                /* Made late by somebody whom one made late oneself: that comes back. */
                if (!waits.charge[c].propagated)
                    assert_int_not_equal(graph->node[waits.charge[c].node].rank,
                                         graph->node[n].rank);
                own += waits.charge[c].seconds;
            }
            assert_close(own, waits.wait[n], 1e-12);
            waited += waits.wait[n];
        }
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        for (int r = 0; r < plan.ranks && found.rank; r++) {
            double by_cause = 0;
            for (int c = 0; c < MP_CAUSES; c++)
                by_cause += found.rank[r].cause[c];
            assert_close(by_cause, found.rank[r].direct + found.rank[r].propagated, 1e-9);
            charged += by_cause;
        }
        assert_close(charged, found.waiting, 1e-9);
        if (found.rank && !found.clock_free) /* torn ones look like bad clocks */
            assert_close(charged, waited / plan.iterations, 1e-9);
    }
}

TEST_RANDOM(replays_give_the_recording_back) {
    for (int round = 0; round < 20; round++) {
        struct synthetic plan = some_plan(random);
        AUTO(synthetic) struct synthetic_run run;
        synthetic_make(&plan, random, &run);
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        const struct mp_slowdowns *slow = &found.slowdowns;
        assert_close(slow->replayed / slow->base, 1, 1e-9);
        assert_true(slow->slowdown > 1 - 1e-9);
        assert_close(slow->parallel, slow->load_balance * slow->communication, 1e-9);
        assert_close(slow->communication, slow->serialisation * slow->transfer, 1e-9);
        for (int r = 0; r < plan.ranks; r++)
            assert_true(slow->rank[r] > 0.5 && slow->rank[r] < slow->slowdown + 0.5);
    }
}

TEST_RANDOM(balanced_runs_have_nothing) {
    struct synthetic plan = {.ranks = 8, .layers = 2, .iterations = 10, .rank = -1, .phase = -1};
    AUTO(synthetic) struct synthetic_run run;
    synthetic_make(&plan, random, &run);
    AUTO(straggler) struct mp_straggler found = analysed(&run.input);
    assert_int_equal(found.findings, 0);
    assert_close(found.waiting, 0, 1e-12);
    assert_all_close(1e-9, found.slowdowns.slowdown, 1, found.slowdowns.load_balance, 1);
    assert_all_close(1e-9, found.balance.max_over_mean.largest, 1, found.balance.effective.p50, 8);
    assert_numbers(found.most_waited_for, -1, found.violations, 0);
}

/* The same run with its ranks renamed. */
TEST_RANDOM(names_of_ranks_do_not_matter) {
    for (int round = 0; round < 10; round++) {
        struct synthetic plan = some_plan(random);
        AUTO(synthetic) struct synthetic_run run;
        plan.rank = 0;
        plan.cause = round % 2 ? MP_CAUSE_SLOW : MP_CAUSE_ROUTING;
        plan.strength = 1.5;
        synthetic_make(&plan, random, &run);
        AUTO(straggler) struct mp_straggler before = analysed(&run.input);
        for (int i = 0; i < plan.iterations; i++) { /* everyone one further */
            struct mp_recorded_rank *rank = &run.rank[i * plan.ranks];
            struct mp_recorded_rank last = rank[plan.ranks - 1];
            memmove(rank + 1, rank, (size_t)(plan.ranks - 1) * sizeof *rank);
            rank[0] = last;
        }
        AUTO(straggler) struct mp_straggler after = analysed(&run.input);
        assert_true(before.findings >= 1);
        assert_int_equal(after.findings, before.findings);
        assert_int_equal(before.finding[0].rank, 0);
        assert_int_equal(after.finding[0].rank, 1 % plan.ranks);
        for (int f = 0; f < before.findings; f++) {
            assert_int_equal(after.finding[f].cause, before.finding[f].cause);
            assert_close(after.finding[f].waiting, before.finding[f].waiting, 1e-9);
            assert_close(after.finding[f].saved, before.finding[f].saved, 1e-9);
        }
        assert_close(after.slowdowns.slowdown, before.slowdowns.slowdown, 1e-9);
    }
}

/* ---- what it does not say ---- */

static struct synthetic_run slow_run(double strength) {
    struct synthetic plan = {.ranks = 4,
                             .layers = 2,
                             .iterations = 10,
                             .noise = 0.01,
                             .rank = 2,
                             .cause = MP_CAUSE_SLOW,
                             .strength = strength,
                             .phase = MP_PHASE_EXPERT};
    struct synthetic_run run;
    uint64_t random = test_seed();
    synthetic_make(&plan, &random, &run);
    return run;
}

TEST(what_is_missing_is_said) {
    struct synthetic_run run = slow_run(5e-3);
    struct mp_straggler_input input = run.input;

    input.ranks_missing = 1;
    struct mp_straggler found = analysed(&input);
    assert_numbers(found.abstentions, MP_ABSTAINS_MISSING, found.findings, 0);
    assert_close(found.balance.effective.p50, 4, 1e-2); /* loads need no ranks */
    mp_straggler_destroy(&found);

    input = run.input;
    input.routes = NULL;
    input.ranks_cut = 1;
    found = analysed(&input);
    assert_int_equal(found.abstentions, MP_ABSTAINS_NO_LOADS | MP_ABSTAINS_CUT);
    assert_int_equal(found.finding[0].rank, 2);
    assert_true(isnan(found.balance.gini.p50));
    mp_straggler_destroy(&found);

    input = run.input;
    input.times.iterations = 3;
    input.times.spans = run.rank[12].first;
    found = analysed(&input);
    assert_int_equal(found.abstentions, MP_ABSTAINS_FEW_ITERATIONS);
    finding_of(&found, 0, 2, MP_CAUSE_UNKNOWN);
    mp_straggler_destroy(&found);

    input.times.iterations = 0;
    input.ranks_missing = 1; /* each is said */
    found = analysed(&input);
    assert_int_equal(found.abstentions, MP_ABSTAINS_NO_SPANS | MP_ABSTAINS_MISSING);
    mp_straggler_destroy(&found);

    for (size_t s = 0; s < run.input.times.spans; s++)
        run.span[s].tokens = -1;
    found = analysed(&run.input);
    assert_int_equal(found.abstentions, MP_ABSTAINS_NO_TOKENS);
    finding_of(&found, 0, 2, MP_CAUSE_UNKNOWN);
    assert_true(isnan(found.finding[0].tokens));
    mp_straggler_destroy(&found);

    for (size_t s = 0; s < run.input.times.spans; s++)
        run.span[s].wait = 0;
    found = analysed(&run.input);
    assert_true(found.abstentions & MP_ABSTAINS_NO_MEETINGS);
    mp_straggler_destroy(&found);
    synthetic_destroy(&run);
    for (unsigned bit = 1; bit <= MP_ABSTAINS_CUT; bit *= 2)
        assert_true(strlen(mp_abstention_text((enum mp_abstention)bit)) > 10);
}

TEST(one_rank_waits_for_nobody) {
    struct mp_recorded_rank rank = {0, 1, 0, 1, 0};
    struct mp_recorded_span span = {0, 1, 0, 5, 0, MP_PHASE_EXPERT, MP_FORWARD};
    AUTO(straggler) struct mp_straggler found = analysed_times(1, 1, &rank, &span, 1);
    assert_int_equal(found.abstentions, MP_ABSTAINS_ONE_RANK | MP_ABSTAINS_NO_LOADS);
}

static void shift_clocks(struct synthetic_run *run, uint64_t *random, double most) {
    double shift[64];
    for (int r = 0; r < run->input.times.ranks; r++)
        shift[r] = most * test_random_double(random);
    for (int i = 0; i < run->input.times.iterations * run->input.times.ranks; i++) {
        struct mp_recorded_rank *rank = &run->rank[i];
        double by = shift[i % run->input.times.ranks];
        rank->start += by;
        rank->end += by;
        for (int s = 0; s < rank->count; s++) {
            run->span[rank->first + (size_t)s].start += by;
            run->span[rank->first + (size_t)s].end += by;
        }
    }
}

/* Of causes that no phase shows, those whose evidence is there can be told, and no others. */
static void assert_causes(const struct mp_straggler *found, uint32_t evidence) {
    for (int c = 0; c < MP_CAUSES; c++) {
        uint32_t needs = mp_cause_kind((enum mp_cause)c)->needs;
        if (needs >= MP_EVIDENCE_TOKENS && !(needs & (MP_EVIDENCE_TOKENS - 1)))
            assert_int_equal(!(found->untold & 1u << c), !(needs & ~evidence));
    }
}

/* Clocks that disagree by more than anything takes, once known and once only seen in meetings that
 * were left too early: the analysis puts the times together again. */
TEST_RANDOM(bad_clocks_are_done_without) {
    for (int known = 0; known < 2; known++) {
        AUTO(synthetic) struct synthetic_run run = slow_run(5e-3);
        AUTO(straggler) struct mp_straggler right = analysed(&run.input);
        shift_clocks(&run, random, 0.3);
        run.input.common_clock = !known;
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        assert_true(found.abstentions & MP_ABSTAINS_CLOCKS);
        assert_true(found.clock_free);
        assert_true(found.violations > 0);
        finding_of(&found, 0, 2, MP_CAUSE_SLOW);
        assert_close(found.finding[0].longer, 4 * 5e-3, 0.01);
        assert_close(found.slowdowns.replayed / found.slowdowns.base, 1, 1e-2);
        assert_close(found.seconds / right.seconds, 1, 1e-2);
        assert_causes(&found, MP_EVIDENCE_TOKENS | MP_EVIDENCE_ITERATIONS);
        mp_straggler_destroy(&found);
        for (size_t s = 0; s < run.input.times.spans; s++)
            run.span[s].tokens = -1;
        found = analysed(&run.input);
        assert_int_equal(found.abstentions, MP_ABSTAINS_CLOCKS | MP_ABSTAINS_NO_TOKENS);
        assert_causes(&found, MP_EVIDENCE_ITERATIONS);
    }
}

/* Rank 1 begins each iteration but the first 20 s late: since the ranks summed gradients in the one
 * before, its optimizer took `work` longer and nothing was recorded for `gap` s.  `step`: from the
 * number of an iteration to the next one's. */
static struct mp_straggler late_by_its_end(double work, double gap, int step) {
    enum { RANKS = 2, ITERATIONS = 40 };
    struct mp_recorded_rank rank[ITERATIONS * RANKS];
    struct mp_recorded_span span[ITERATIONS * RANKS * 3];
    int64_t number[ITERATIONS];
    for (int i = 0; i < ITERATIONS * RANKS; i++) {
        const bool late = i % RANKS == 1;
        const double begin = late && i >= RANKS ? 20 : 0, summed = i >= RANKS ? 41 : 21;
        const double after = summed + (late ? gap : 0), end = after + 5 + (late ? work : 0);
        number[i / RANKS] = i / RANKS * step;
        rank[i] = (struct mp_recorded_rank){begin, end, (size_t)(3 * i), 3, 0};
        span[3 * i] =
            (struct mp_recorded_span){begin, begin + 20, 0, 100, 0, MP_PHASE_EXPERT, MP_FORWARD};
        span[3 * i + 1] = (struct mp_recorded_span){
            begin + 20, summed, summed - begin - 20, -1, -1, MP_PHASE_ALLREDUCE, MP_NO_DIRECTION};
        span[3 * i + 2] =
            (struct mp_recorded_span){after, end, 0, -1, -1, MP_PHASE_OPTIMIZER, MP_NO_DIRECTION};
    }
    const struct mp_straggler_input input = {
        .times = {RANKS, ITERATIONS, rank, span, MP_LENGTH(span)},
        .number = number,
        .common_clock = true};
    return analysed(&input);
}

/* ... which is why it is late, unless the iteration before was not recorded. */
TEST(late_beginnings_come_from_the_iteration_before) {
    static const struct {
        double work, gap;
        int step;
        enum mp_cause cause;
    } cases[] = {{20, 0, 1, MP_CAUSE_SLOW}, {0, 20, 1, MP_CAUSE_HOST}, {20, 0, 2, MP_CAUSE_BEFORE}};
    for (size_t i = 0; i < MP_LENGTH(cases); i++) {
        AUTO(straggler)
        struct mp_straggler found = late_by_its_end(cases[i].work, cases[i].gap, cases[i].step);
        assert_int_equal(found.findings, 1);
        const struct mp_straggler_finding *finding = finding_of(&found, 0, 1, cases[i].cause);
        assert_true(finding->chronic);
        assert_close(finding->waiting, 20 * 39 / 40.0, 1e-9);
        assert_all_close(1e-9, found.rank[0].gaps, 0, found.rank[1].gaps, cases[i].gap);
        if (cases[i].step == 1) {
            assert_int_equal(finding->phase, MP_PHASE_OPTIMIZER);
            assert_all_close(1e-9, finding->longer, 20, finding->saved, 20);
        }
    }
}

/* Rank 1 begins each of ten iterations but the first `late` s after rank 0, for `saved` s of which
 * it wrote a checkpoint, and gets its data in 1 + `data` s, rank 0 in 1. */
static struct mp_straggler late_for_data(double late, double saved, double data) {
    enum { RANKS = 2, ITERATIONS = 10 };
    struct mp_recorded_rank rank[ITERATIONS * RANKS];
    struct mp_recorded_between between[ITERATIONS * RANKS];
    struct mp_recorded_span span[ITERATIONS * RANKS * 2];
    for (int i = 0; i < ITERATIONS * RANKS; i++) {
        const double summed = (i < RANKS ? 0 : late) + data + 2;
        const double begin = i % RANKS && i >= RANKS ? late : 0,
                     got = begin + 1 + (i % RANKS ? data : 0);
        rank[i] = (struct mp_recorded_rank){begin, summed, (size_t)(2 * i), 2, 0};
        between[i] = begin > 0 ? (struct mp_recorded_between){saved, saved > 0 ? MP_PHASE_CHECKPOINT
                                                                               : MP_PHASE_DATA}
                               : (struct mp_recorded_between){1, MP_PHASE_DATA};
        span[2 * i] =
            (struct mp_recorded_span){begin, got, 0, -1, -1, MP_PHASE_DATA, MP_NO_DIRECTION};
        span[2 * i + 1] = (struct mp_recorded_span){
            got, summed, summed - got, -1, -1, MP_PHASE_ALLREDUCE, MP_NO_DIRECTION};
    }
    const struct mp_straggler_input input = {
        .times = {RANKS, ITERATIONS, rank, span, MP_LENGTH(span)},
        .between = between,
        .common_clock = true};
    return analysed(&input);
}

/* A cause saves the late beginnings that are its own, and no others. */
TEST(late_beginnings_are_saved_with_their_cause) {
    AUTO(straggler) struct mp_straggler found = late_for_data(5, 0, 20);
    assert_close(finding_of(&found, 0, 1, MP_CAUSE_DATA)->saved, 20, 1e-9);
    assert_close(finding_of(&found, 1, 1, MP_CAUSE_BEFORE)->saved, 4.5, 1e-9);
    mp_straggler_destroy(&found);
    found = late_for_data(20, 20, 0);
    assert_close(finding_of(&found, 0, 1, MP_CAUSE_CHECKPOINT)->saved, 18, 1e-9);
    assert_false(found.untold & 1u << MP_CAUSE_CHECKPOINT);
}

/* In every iteration one transfer takes 10 s longer than the 1 s of the others, always another: of
 * rank 1 or, with `turns`, of each rank in turn. */
static struct mp_straggler changing_transfers(bool turns) {
    enum { RANKS = 2, ITERATIONS = 15, LAYERS = 8 };
    struct mp_recorded_rank rank[ITERATIONS * RANKS];
    struct mp_recorded_span span[ITERATIONS * RANKS * LAYERS * 2];
    for (int i = 0; i < ITERATIONS; i++) {
        double left[RANKS] = {0};
        for (int l = 0; l < LAYERS; l++) {
            const double last = fmax(left[0], left[1]) + 10;
            for (int r = 0; r < RANKS; r++) {
                const size_t at = (size_t)(((i * RANKS + r) * LAYERS + l) * 2);
                const double arrived = left[r] + 10;
                left[r] = last + 1 + (l == i % LAYERS && r == (turns ? i % RANKS : 1) ? 10 : 0);
                span[at] = (struct mp_recorded_span){arrived - 10, arrived,         0,         100,
                                                     (int16_t)l,   MP_PHASE_EXPERT, MP_FORWARD};
                span[at + 1] =
                    (struct mp_recorded_span){arrived,    left[r],           left[r] - arrived, 100,
                                              (int16_t)l, MP_PHASE_DISPATCH, MP_FORWARD};
            }
        }
        for (int r = 0; r < RANKS; r++)
            rank[i * RANKS + r] = (struct mp_recorded_rank){
                0, left[r], (size_t)((i * RANKS + r) * LAYERS * 2), LAYERS * 2, 0};
    }
    return analysed_times(RANKS, ITERATIONS, rank, span, MP_LENGTH(span));
}

/* What comes now here and now there is no link's; of several ranks a mean is said, as of what each
 * waits. */
TEST(changing_transfers_are_no_slow_link) {
    AUTO(straggler) struct mp_straggler found = changing_transfers(false);
    assert_true(finding_of(&found, 0, 1, MP_CAUSE_COMMUNICATION)->chronic);
    assert_close(found.finding[0].longer, 10, 1e-9);
    mp_straggler_destroy(&found);
    found = changing_transfers(true);
    assert_close(finding_of(&found, 0, -1, MP_CAUSE_COMMUNICATION)->longer, 5, 1e-9);
}

/* Transfers of a rank take 2 ms longer each, for `off_core` of which its thread had no core: on its
 * core it is the network's doing, off it the rank had no turn to look for what came. */
static struct mp_straggler late_transfers(double off_core) {
    struct synthetic plan = {.ranks = 4,
                             .layers = 2,
                             .iterations = 10,
                             .rank = 2,
                             .cause = MP_CAUSE_LINK,
                             .strength = 2e-3,
                             .phase = -1,
                             .cpu = true};
    AUTO(synthetic) struct synthetic_run run;
    uint64_t random = test_seed();
    synthetic_make(&plan, &random, &run);
    for (int i = 0; i < plan.iterations; i++) /* forward and backward of two layers */
        run.rank[i * plan.ranks + plan.rank].cpu -= off_core * 4 * plan.strength;
    return analysed(&run.input);
}

TEST(a_rank_without_a_core_is_told_so) {
    AUTO(straggler) struct mp_straggler found = late_transfers(0);
    finding_of(&found, 0, 2, MP_CAUSE_LINK);
    assert_true(isnan(found.finding[0].on_core));
    mp_straggler_destroy(&found);
    found = late_transfers(1);
    finding_of(&found, 0, 2, MP_CAUSE_STOLEN);
    assert_close(found.finding[0].on_core, found.rank[2].on_core, 0);
    assert_true(found.finding[0].on_core > 0.5 && found.finding[0].on_core < 1);
}

/* Of an error that hides a twentieth of an iteration, a twentieth is not concluded. */
TEST(nothing_finer_than_the_clocks) {
    AUTO(synthetic) struct synthetic_run run = slow_run(1e-3); /* 4 ms of 40 */
    AUTO(straggler) struct mp_straggler found = analysed(&run.input);
    assert_int_equal(found.findings, 1);
    double seconds = found.seconds, waiting = found.finding[0].waiting;
    mp_straggler_destroy(&found);
    run.input.clock_error = MP_STRAGGLER_LEAST * seconds / 12 * 0.99; /* meetings: 12 */
    found = analysed(&run.input);
    assert_false(found.clock_free);
    assert_true(found.finest < waiting && found.finest > 0.02 * seconds);
    assert_int_equal(found.findings, 1);
}
