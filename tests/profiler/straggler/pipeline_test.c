/* Pipelines: their stages, what a slowdown is by a known analysis, and causes that come back. */
#include "tests/profiler/straggler/pipeline.h"

#include "profiler/straggler/graph.h"

enum { EACH = TEST_ROUNDS(20), RUNS = TEST_ROUNDS(100) };

static struct pipeline random_plan(uint64_t *random) {
    struct pipeline plan = {.stages = test_random_int(random, 2, PIPELINE_STAGES),
                            .replicas = test_random_int(random, 1, 4),
                            .batches = test_random_int(random, 4, PIPELINE_BATCHES),
                            .iterations = test_random_int(random, 6, 9),
                            .noise = 0.01 + 0.02 * test_random_double(random),
                            .rank = -1};
    int layers = test_random_int(random, 2, 4);
    for (int s = 0; s < plan.stages; s++)
        plan.layers[s] = layers;
    return plan;
}

/* ---- by the formulas of the known analysis (straggler.h names it) ---- */

/* What each pass and message takes, [ranks][batches][direction]. */
struct passes {
    double work[PIPELINE_RANKS][PIPELINE_BATCHES][2], message[PIPELINE_RANKS][PIPELINE_BATCHES][2];
};

/* Seconds of an iteration, from the order of passes alone. */
static double seconds_of(const struct pipeline *plan, const struct passes *passes) {
    struct pipeline_state state = {.plan = plan};
    const int ranks = plan->stages * plan->replicas;
    double end = 0;
    for (int r = 0; r < ranks; r++)
        state.now[r] = 2e-4;
    for (int left = ranks * 2 * plan->batches; left > 0;)
        for (int r = 0; r < ranks; r++) {
            int batch;
            bool back;
            pipeline_which(plan, r, state.next[r], &batch, &back);
            if (state.next[r] == 2 * plan->batches || !pipeline_ready(&state, r, batch, back))
                continue;
            int from = r + (back ? plan->replicas : -plan->replicas);
            if (from >= 0 && from < ranks)
                state.now[r] = fmax(state.now[r], state.message[from][batch][back]) +
                               passes->message[r][batch][back];
            state.now[r] += passes->work[r][batch][back];
            state.message[r][batch][back] = state.now[r];
            state.next[r]++;
            left--;
        }
    for (int r = 0; r < ranks; r++)
        end = fmax(end, state.now[r]);
    return end + 1e-3 + (plan->replicas > 1 ? 1e-3 : 0); /* optimizer, gradients */
}

struct known {
    double recorded, ideal, rank[PIPELINE_RANKS], without_rank[PIPELINE_RANKS], without_stage;
};

static void make_ideal(const struct pipeline *plan, const struct passes *passes,
                       struct passes *ideal) {
    const int ranks = plan->stages * plan->replicas;
    for (int back = 0; back < 2; back++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++)
            for (int b = 0; b < plan->batches; b++)
                sum += passes->work[r][b][back];
        for (int r = 0; r < ranks; r++)
            for (int b = 0; b < plan->batches; b++) {
                ideal->work[r][b][back] = sum / ranks / plan->batches;
                ideal->message[r][b][back] = 2e-4; /* their median, nearly */
            }
    }
}

/* `chosen` ranks as in one, all others as in the other. */
static double mixed(const struct pipeline *plan, const struct passes *one,
                    const struct passes *other, int first, int count) {
    struct passes now = *other;
    for (int r = first; r < first + count; r++) {
        memcpy(now.work[r], one->work[r], sizeof now.work[r]);
        memcpy(now.message[r], one->message[r], sizeof now.message[r]);
    }
    return seconds_of(plan, &now);
}

static struct known known_analysis(const struct pipeline *plan, const struct pipeline_run *run) {
    const int ranks = plan->stages * plan->replicas;
    struct known known = {0};
    for (int i = 0; i < plan->iterations; i++) {
        struct passes passes = {0}, ideal = {0};
        for (int r = 0; r < ranks; r++)
            for (int b = 0; b < plan->batches; b++)
                for (int back = 0; back < 2; back++) {
                    size_t at = (size_t)(((i * ranks + r) * plan->batches + b) * 2 + back);
                    passes.work[r][b][back] = run->work[at];
                    passes.message[r][b][back] = run->message[at];
                }
        make_ideal(plan, &passes, &ideal);
        known.recorded += seconds_of(plan, &passes) / plan->iterations;
        known.ideal += seconds_of(plan, &ideal) / plan->iterations;
        for (int r = 0; r < ranks; r++) {
            known.rank[r] += mixed(plan, &passes, &ideal, r, 1) / plan->iterations;
            known.without_rank[r] += mixed(plan, &ideal, &passes, r, 1) / plan->iterations;
        }
        known.without_stage +=
            mixed(plan, &ideal, &passes, ranks - plan->replicas, plan->replicas) / plan->iterations;
    }
    return known;
}

/* S, M_W and M_S of a slow rank, a large last stage, both or neither: within what the replay of
 * public traces was off (1.3 to 2.6 % of S). */
TEST_RANDOM(slowdowns_are_those_of_the_known_analysis) {
    double worst = 0;
    for (int i = 0; i < 16; i++) {
        double parts = 0;
        struct pipeline plan = random_plan(random);
        AUTO(pipeline) struct pipeline_run run;
        plan.one_span = true;
        plan.cause = MP_CAUSE_SLOW;
        plan.strength = 1.2 + test_random_double(random);
        plan.rank = i % 2 ? test_random_int(random, 0, plan.stages * plan.replicas - 1) : -1;
        plan.layers[plan.stages - 1] += i / 2 % 2;
        pipeline_make(&plan, random, &run);
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        struct known known = known_analysis(&plan, &run);
        const struct mp_slowdowns *slow = &found.slowdowns;
        const int ranks = plan.stages * plan.replicas;
        int slowest = 0;
        for (int r = 1; r < ranks; r++)
            slowest = slow->rank[r] > slow->rank[slowest] ? r : slowest;
        assert_int_equal(slow->pipelines, plan.stages);
        worst = fmax(worst, fabs(slow->slowdown / (known.recorded / known.ideal) - 1));
        for (int r = 0; r < ranks; r++)
            worst = fmax(worst, fabs(slow->rank[r] / (known.rank[r] / known.ideal) - 1));
        const double lost = slow->without_delay - slow->ideal;
        parts = fmax(
            parts, fabs(slow->worst_ranks * lost - (known.recorded - known.without_rank[slowest])));
        parts = fmax(parts, fabs(slow->last_stage * lost - (known.recorded - known.without_stage)));
        worst = fmax(worst, parts / known.ideal);
        if (i % 4 == 2) /* a large stage is not a slow rank */
            assert_true(slow->last_stage > 0.7 && (plan.replicas == 1 || slow->worst_ranks < 0.5));
    }
    print_message("slowdowns, and what M_W and M_S take off them, within %.2f %%\n", 100 * worst);
    assert_true(worst < 0.013);
}

/* ---- what makes up a pipeline ---- */

TEST_RANDOM(stages_are_seen_by_who_feeds_whom) {
    double worst = 0;
    for (int i = 0; i < 10; i++) {
        struct pipeline plan = random_plan(random);
        AUTO(pipeline) struct pipeline_run run;
        AUTO(graph) struct mp_graph *graph = NULL;
        plan.noise = 0;
        plan.replicas += plan.replicas == 1; /* one link of four or more is slow, rank 0's */
        plan.rank = 0;
        plan.cause = MP_CAUSE_LINK;
        plan.strength = 5e-3;
        pipeline_make(&plan, random, &run);
        assert_works(mp_graph_create(&run.input.times, 0, &graph, &error));
        assert_int_equal(graph->pipelines, plan.stages);
        assert_false(graph->unmatched);
        for (int r = 0; r < plan.stages * plan.replicas; r++)
            assert_int_equal(graph->pipeline[r], r / plan.replicas);
        for (int g = 0; g < graph->groups; g++)
            if (graph->kind[graph->group[g].kind].channel >= 0)
                assert_int_equal(graph->group[g].count, 2);
        for (size_t n = 0; n < run.input.times.spans; n++)
            if (run.span[n].phase == MP_PHASE_RECV)
                assert_close(graph->ideal[n].transfer, 2e-4, 1e-6);
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        double charged = 0;
        for (int r = 0; r < plan.stages * plan.replicas; r++)
            for (int c = 0; c < MP_CAUSES; c++)
                charged += found.rank[r].cause[c];
        worst = fmax(worst, 1 - found.rank[0].cause[MP_CAUSE_LINK] / charged);
    }
    print_message("worst %f\n", worst);
}

/* Nothing but a link is slow: next to all that is waited is charged to it, and not to other links,
 * which take what they take ideally. */
TEST(links_are_charged_beyond_the_ideal) {
    const struct pipeline plan = {.stages = 4,
                                  .replicas = 4,
                                  .batches = 8,
                                  .iterations = 6,
                                  .layers = {2, 2, 2, 2},
                                  .cause = MP_CAUSE_LINK,
                                  .strength = 5e-3};
    AUTO(pipeline) struct pipeline_run run;
    double charged = 0;
    pipeline_make(&plan, &(uint64_t){1}, &run);
    AUTO(straggler) struct mp_straggler found = analysed(&run.input);
    for (int r = 0; r < found.ranks; r++)
        for (int c = 0; c < MP_CAUSES; c++)
            charged += found.rank[r].cause[c];
    assert_true(found.rank[0].cause[MP_CAUSE_LINK] > 0.9 * charged); /* 0.94 of it */
}

/* Rank 0 sends at 1 and goes on; rank 1 waits from 0 to 3 for it: the message takes 2.  Were the
 * work before it 2 longer, both ends would move by that. */
TEST(a_recv_waits_for_its_send) {
    struct mp_recorded_rank rank[] = {{0, 9, 0, 3, 0}, {0, 9, 3, 2, 0}};
    struct mp_recorded_span span[] = {{0, 1, 0, -1, 0, MP_PHASE_ATTENTION, 0},
                                      {1, 2, 0, -1, 1, MP_PHASE_SEND, 0},
                                      {2, 9, 0, -1, 0, MP_PHASE_EXPERT, 0},
                                      {0, 3, 3, -1, 0, MP_PHASE_RECV, 0},
                                      {3, 9, 0, -1, 1, MP_PHASE_EXPERT, 0}};
    struct mp_recorded_times times = {2, 1, rank, span, 5};
    struct mp_graph_seconds now[5];
    AUTO(graph) struct mp_graph *graph = NULL;
    assert_works(mp_graph_create(&times, 0, &graph, &error));
    assert_int_equal(graph->node[3].last, 1);
    assert_close(graph->node[3].transfer, 2, 1e-12);
    assert_int_equal(graph->node[1].last, -1); /* waits for nobody */
    /* Rank 0, which sends to rank 1, has no part in layer 1. */
    assert_int_equal(graph->group[graph->node[4].group].absent, 0);
    mp_graph_recorded(graph, now);
    assert_close(mp_graph_replay(graph, 0, now, false), 9, 1e-12);
    now[0].own += 2;
    assert_close(mp_graph_replay(graph, 0, now, false), 11, 1e-12);
    assert_close(graph->waited[3], 3, 1e-12);
    now[3].gap = 5; /* who comes late to a message waits for the rest of its way only */
    assert_close(mp_graph_replay(graph, 0, now, false), 13, 1e-12);
}

/* Everybody to the next and from the one before: nobody feeds anybody.  Nor do those of a circle in
 * which each first receives, and then answers. */
TEST(a_ring_is_no_pipeline) {
    enum { RANKS = 4, NEXT, ODD_FIRST, ANSWERS };
    struct mp_recorded_rank rank[RANKS];
    struct mp_recorded_span span[2 * RANKS];
    struct mp_graph *graph;
    for (int how = NEXT; how <= ANSWERS; how++) {
        for (int r = 0; r < RANKS; r++) {
            const bool receives = how == ANSWERS || (how == ODD_FIRST && r % 2);
            const int before = (r + RANKS - 1) % RANKS, next = (r + 1) % RANKS;
            rank[r] = (struct mp_recorded_rank){0, 2, (size_t)(2 * r), 2, 0};
            span[2 * r + receives] = (struct mp_recorded_span){
                receives, 1 + receives, 0, -1, how == ANSWERS ? before : next, MP_PHASE_SEND, 0};
            span[2 * r + !receives] = (struct mp_recorded_span){!receives, 1 + !receives, 1, -1,
                                                                before,    MP_PHASE_RECV, 0};
        }
        struct mp_recorded_times times = {RANKS, 1, rank, span, 2 * RANKS};
        assert_works(mp_graph_create(&times, 0, &graph, &error));
        assert_numbers(graph->pipelines, 1, graph->pipeline[RANKS - 1], 0);
        assert_int_equal(graph->unmatched, how == ANSWERS);
        mp_graph_destroy(graph);
    }
}

TEST_RANDOM(what_cannot_be_told_is_said) {
    struct pipeline plan = random_plan(random);
    AUTO(pipeline) struct pipeline_run run;
    plan.replicas = 1;
    plan.stages = 3;
    plan.layers[2] = plan.layers[1];
    plan.one_span = true;
    plan.rank = 1;
    plan.cause = MP_CAUSE_SLOW;
    plan.strength = 1.5;
    pipeline_make(&plan, random, &run); /* a slow rank, or a stage of more layers */
    AUTO(straggler) struct mp_straggler found = analysed(&run.input);
    finding_of(&found, 0, 1, MP_CAUSE_UNKNOWN);
    assert_true(found.untold & 1u << MP_CAUSE_CHECKPOINT);
    assert_true(found.untold & 1u << MP_CAUSE_COLLECT);
    assert_true(found.untold & 1u << MP_CAUSE_STOLEN);
    assert_false(found.untold & 1u << MP_CAUSE_DATA);
    assert_false(found.untold & 1u << MP_CAUSE_STAGE);
    assert_false(found.abstentions & MP_ABSTAINS_UNMATCHED);
    mp_straggler_destroy(&found);
    for (size_t s = 0; s < run.input.times.spans; s++)
        if (run.span[s].phase == MP_PHASE_SEND)
            run.span[s].layer = 99; /* no rank of the run */
    found = analysed(&run.input);
    assert_true(found.abstentions & MP_ABSTAINS_UNMATCHED);
}

/* ---- causes ---- */

static void describe(const struct pipeline *plan, const struct mp_straggler *found) {
    print_message("%d stages of %d ranks, %d batches, %d iterations, noise %.3f", plan->stages,
                  plan->replicas, plan->batches, plan->iterations, plan->noise);
    for (const struct pipeline *put = plan; put; put = put->also)
        print_message(", rank %d %s strength %g", put->rank, mp_cause_name(put->cause),
                      put->strength);
    print_message("; iteration %.4f s, bubble %.4f\n", found->seconds, found->bubble);
    for (int f = 0; f < found->findings; f++)
        print_message("  found rank %d stage %d %s: waiting %.5f, longer %.5f, saved %.5f, last "
                      "%.2f, from %d\n",
                      found->finding[f].rank, found->finding[f].stage,
                      mp_cause_name(found->finding[f].cause), found->finding[f].waiting,
                      found->finding[f].longer, found->finding[f].saved, found->finding[f].last,
                      found->finding[f].from);
}

static const enum mp_cause causes[] = {MP_CAUSE_STAGE, MP_CAUSE_SLOW, MP_CAUSE_LINK, MP_CAUSE_DATA,
                                       MP_CAUSE_COLLECT};
enum { CAUSES = sizeof causes / sizeof *causes };

/* 15 to 50 % of an iteration, or of a pass. */
static void inject(struct pipeline *plan, enum mp_cause cause, uint64_t *random) {
    double part = 0.15 + 0.35 * test_random_double(random);
    double pass = plan->layers[0] * 2.5e-3, iteration = 3 * pass * (plan->batches + plan->stages);
    plan->rank = test_random_int(random, 0, plan->stages * plan->replicas - 1);
    plan->cause = cause;
    plan->strength = cause == MP_CAUSE_SLOW   ? 1 + part
                     : cause == MP_CAUSE_LINK ? part * 3 * pass
                                              : part * iteration;
    if (cause == MP_CAUSE_STAGE)
        plan->layers[plan->rank / plan->replicas] += test_random_int(random, 1, 2);
}

static bool is_found(const struct mp_straggler *found, const struct pipeline *plan,
                     const struct pipeline *put) {
    const int stage = put->rank / plan->replicas;
    const int from = put->rank + (stage == 0 ? 1 : -1) * plan->replicas;
    for (int f = 0; f < found->findings; f++) {
        const struct mp_straggler_finding *finding = &found->finding[f];
        const bool there =
            put->cause == MP_CAUSE_STAGE ? finding->stage == stage : finding->rank == put->rank;
        double caused = 0; /* ranks of other stages wait for these */
        for (int r = 0; r < put->replicas && finding->stage >= 0; r++)
            caused += found->rank[finding->stage * put->replicas + r].cause[MP_CAUSE_STAGE];
        if (finding->stage >= 0)
            assert_close(finding->waiting * (found->ranks - put->replicas), caused, 1e-9);
        if (finding->cause == put->cause && there &&
            (put->cause != MP_CAUSE_LINK || finding->from == from))
            return true;
    }
    return false;
}

TEST_RANDOM(injected_causes_are_named) {
    int all = 0, all_named = 0;
    for (int c = 0; c < CAUSES; c++) {
        int right = 0, named = 0;
        for (int i = 0; i < EACH; i++) {
            struct pipeline plan = random_plan(random);
            AUTO(pipeline) struct pipeline_run run;
            inject(&plan, causes[c], random);
            pipeline_make(&plan, random, &run);
            AUTO(straggler) struct mp_straggler found = analysed(&run.input);
            bool is_right = is_found(&found, &plan, &plan);
            if (!is_right || found.findings != 1)
                describe(&plan, &found);
            right += is_right;
            named += found.findings == 1;
        }
        print_message("%s: right in %d of %d runs, nothing else said in %d\n",
                      mp_cause_name(causes[c]), right, EACH, named);
        all += right;
        all_named += named;
    }
    print_message("of all, %d of %d, nothing else in %d\n", all, CAUSES * EACH, all_named);
    assert_most(all, 0.95, CAUSES * EACH);
    assert_most(all_named, 0.9, CAUSES * EACH);
}

/* Of one rank (and its stage): of two that are late at once only the later one is waited for. */
TEST_RANDOM(pairs_of_causes_are_named) {
    int right = 0;
    for (int i = 0; i < RUNS; i++) {
        struct pipeline plan = random_plan(random), also = plan;
        AUTO(pipeline) struct pipeline_run run;
        int first = test_random_int(random, 0, CAUSES - 2),
            second = test_random_int(random, first + 1, CAUSES - 1);
        inject(&plan, causes[first], random);
        inject(&also, causes[second], random);
        also.rank = plan.rank;
        if (plan.cause == MP_CAUSE_STAGE)
            for (int s = 0; s < plan.stages; s++)
                plan.layers[s] = also.layers[0] + (s == plan.rank / plan.replicas);
        plan.also = &also;
        pipeline_make(&plan, random, &run);
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        bool is_right = is_found(&found, &plan, &plan) && is_found(&found, &plan, &also);
        if (!is_right)
            describe(&plan, &found);
        right += is_right;
    }
    print_message("both right in %d of %d runs\n", right, RUNS);
    assert_most(right, 0.95, RUNS);
}

TEST_RANDOM(clean_pipelines_have_no_finding) {
    int alarms = 0;
    for (int i = 0; i < RUNS; i++) {
        struct pipeline plan = random_plan(random);
        AUTO(pipeline) struct pipeline_run run;
        pipeline_make(&plan, random, &run);
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        assert_true(found.bubble > 0);
        if (found.findings)
            describe(&plan, &found);
        alarms += found.findings > 0;
    }
    print_message("false alarms in %d of %d clean runs\n", alarms, RUNS);
    assert_int_equal(alarms, 0);
}
