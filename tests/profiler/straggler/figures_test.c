/* Every figure of the analysis: of one run worked out by hand, and of runs drawn at random against
 * a plain count from the spans. */
#include "tests/profiler/straggler/synthetic.h"

/* ---- by hand ---- */

enum { RANKS = 4, ITERATIONS = 10, CELLS = RANKS * ITERATIONS };

/* Experts take 10 ms, and exchanging 2 ms once all have come.  Rank 3 takes 16 in iterations 0 to 5
 * (in number 4 20), rank 1 14 in 6 to 9, all of it for more tokens.  So iterations take 18 five
 * times, 22 and 16 four times: 17.6 on average, 18 their median. */
struct turns {
    struct mp_recorded_rank rank[CELLS];
    struct mp_recorded_span span[2 * CELLS];
    int64_t number[ITERATIONS];
};

static int turns_work(int iteration, int rank) {
    if (rank == 3 && iteration < 6)
        return iteration == 4 ? 20 : 16;
    return rank == 1 && iteration >= 6 ? 14 : 10;
}

static struct mp_straggler_input make_turns(struct turns *turns) {
    for (int i = 0; i < ITERATIONS; i++) {
        int most = turns_work(i, i < 6 ? 3 : 1);
        turns->number[i] = 100 + 2 * i;
        for (int r = 0; r < RANKS; r++) {
            int at = i * RANKS + r, work = turns_work(i, r);
            turns->rank[at] = (struct mp_recorded_rank){0, most + 2, (size_t)(2 * at), 2, work + 2};
            turns->span[2 * at] =
                (struct mp_recorded_span){0, work, 0, 100 * work, 0, MP_PHASE_EXPERT, MP_FORWARD};
            turns->span[2 * at + 1] = (struct mp_recorded_span){
                work, most + 2, most + 2 - work, -1, 0, MP_PHASE_COMBINE, MP_FORWARD};
        }
    }
    return (struct mp_straggler_input){
        .times = {RANKS, ITERATIONS, turns->rank, turns->span, 2 * CELLS},
        .number = turns->number,
        .common_clock = true};
}

static struct mp_straggler analysed_turns(void) {
    struct turns turns;
    const struct mp_straggler_input input = make_turns(&turns);
    return analysed(&input);
}

static void assert_rank(const struct mp_straggler_rank *rank, double suffered, double caused,
                        double own, double most_waited_for, double on_core) {
    assert_all_close(1e-12, rank->suffered, suffered, rank->direct, caused, rank->propagated, 0);
    assert_close(rank->cause[MP_CAUSE_ROUTING], caused, 1e-12);
    /* Three wait for what it has beyond the others; beyond the mean of four that is 3/4 of it. */
    assert_all_close(1e-12, rank->longer[MP_CAUSE_ROUTING], caused / 3 * 0.75, rank->own, own);
    assert_all_close(1e-12, rank->tokens, 100 * own, rank->most_waited_for, most_waited_for);
    assert_close(rank->on_core, on_core, 1e-12);
}

TEST(ranks_take_turns) {
    AUTO(straggler) struct mp_straggler found = analysed_turns();
    assert_int_equal(found.abstentions, MP_ABSTAINS_NO_LOADS);
    assert_all_close(1e-12, found.seconds, 18, found.waiting, 16.8);
    assert_numbers(found.finest, 0, found.culprit_changes, 1, found.most_waited_for, 3);
    /* Ranks 0 and 2 wait 6, 10 and 4 s; rank 1 the first two, rank 3 the last. */
    assert_rank(&found.rank[0], 5.6, 0, 10, 0, 12 / 18.0);
    assert_rank(&found.rank[1], 4, 4.8, 11.6, 0.4, 12 / 18.0);
    assert_rank(&found.rank[2], 5.6, 0, 10, 0, 12 / 18.0);
    assert_rank(&found.rank[3], 1.6, 12, 14, 0.6, 1);
}

static void assert_finding(const struct mp_straggler *found, int at, int rank, double waiting,
                           double seen, double last, double worst, int64_t worst_iteration) {
    const struct mp_straggler_finding *finding = finding_of(found, at, rank, MP_CAUSE_ROUTING);
    assert_false(finding->chronic);
    assert_all_close(1e-12, finding->waiting, waiting, finding->caused, 3 * waiting);
    assert_close(finding->longer, 0.75 * waiting, 1e-12); /* than the mean of four */
    /* With even tokens iterations take 13.5 five times, 14.5 and 13 four times instead of 17.6. */
    assert_close(finding->saved, 4.2, 1e-12);
    assert_int_equal(finding->victim, 0);
    assert_all_close(1e-12, finding->victim_waiting, waiting, finding->seen, seen);
    assert_all_close(1e-12, finding->last, last, finding->worst, worst);
    assert_numbers(finding->worst_iteration, worst_iteration, finding->phase, MP_PHASE_EXPERT);
    assert_int_equal(finding->layer, 0);
    assert_close(finding->here, 1, 1e-12);
    assert_true(isnan(finding->on_core));
}

TEST(turns_are_two_findings) {
    AUTO(straggler) struct mp_straggler found = analysed_turns();
    /* An iteration weighs 0.9 of the next one: 0.9^9 .. 1, together (1 - 0.9^10) / 0.1. */
    double lately = (1 - pow(0.9, 4)) / (1 - pow(0.9, 10));
    assert_int_equal(found.findings, 2);
    assert_finding(&found, 0, 3, 4, 0.6, 1 - lately, 10, 108);
    assert_finding(&found, 1, 1, 1.6, 0.4, lately, 4, 112);
    assert_close(found.finding[0].tokens, 140 / 114.0, 1e-12);
    assert_close(found.finding[1].tokens, 116 / 114.0, 1e-12);
}

TEST(turns_by_place) {
    AUTO(straggler) struct mp_straggler found = analysed_turns();
    const struct mp_straggler_place *expert = &found.place[0], *combine = &found.place[1];
    assert_int_equal(found.places, 2);
    assert_int_equal(expert->phase, MP_PHASE_EXPERT);
    assert_false(expert->meets);
    assert_close(expert->caused, 16.8, 1e-12);
    assert_close(expert->waiting, 0, 0);
    assert_all_close(1e-12, expert->own_mean, 11.4, expert->own_most, 15.6);
    assert_int_equal(expert->slowest, 3);
    assert_all_close(1e-12, expert->slowest_share, 0.6, expert->tokens, 140 / 114.0);
    assert_true(combine->meets);
    assert_all_close(1e-12, combine->skew, 5.6, combine->transfer, 2, combine->transfer_least, 2);
    assert_close(combine->waiting, 16.8, 1e-12);
    assert_numbers(combine->caused, 0, combine->slowest, -1);
    assert_true(isnan(combine->tokens));
    assert_close(found.balance.time_imbalance, 15.6 / 11.4, 1e-12);
    assert_close(found.balance.token_imbalance, 140 / 114.0, 1e-12);
}

/* Ideally an iteration's work is its mean: 11.5 five times, 12.5 and 11 four times, and 2. */
TEST(turns_replayed) {
    AUTO(straggler) struct mp_straggler found = analysed_turns();
    const struct mp_slowdowns *slow = &found.slowdowns;
    assert_all_close(1e-12, slow->base, 17.6, slow->replayed, 17.6, slow->without_delay, 17.6);
    assert_all_close(1e-12, slow->host, 1, slow->ideal, 13.4, slow->slowdown, 17.6 / 13.4);
    assert_all_close(1e-12, slow->ideal_network, 15.6, slow->load_balance, 11.4 / 14);
    assert_all_close(1e-12, slow->communication, 14 / 17.6, slow->parallel, 11.4 / 17.6);
    assert_all_close(1e-12, slow->transfer, 15.6 / 17.6, slow->serialisation, 14 / 15.6);
    /* Rank 3 among ideal ones: 16, 20 and (they need longer) 11; rank 1: 11.5, 12.5 and 14. */
    assert_all_close(1e-12, slow->rank[0], 1, slow->rank[1], 14.6 / 13.4, slow->rank[2], 1);
    assert_close(slow->rank[3], 16.4 / 13.4, 1e-12);
    assert_close(slow->worst_ranks, (17.6 - 14.6) / (17.6 - 13.4), 1e-12);
    assert_int_equal(slow->types, 3); /* two phases' work, one's transfer */
    assert_int_equal(slow->type[0].phase, MP_PHASE_EXPERT);
    assert_false(slow->type[0].transfer);
    assert_all_close(1e-12, slow->type[0].slowdown, 17.6 / 13.4, slow->type[1].slowdown, 1);
    assert_close(slow->type[2].slowdown, 1, 1e-12);
}

/* ---- against a plain count ---- */

static struct synthetic_run drawn_run(uint64_t *random) {
    struct synthetic plan = {.ranks = test_random_int(random, 2, 7),
                             .layers = test_random_int(random, 1, 3),
                             .iterations = test_random_int(random, 5, 9),
                             .noise = 0.05,
                             .jitter = 0.2,
                             .rank = 1,
                             .cause =
                                 test_random_int(random, 0, 1) ? MP_CAUSE_SLOW : MP_CAUSE_ROUTING,
                             .strength = 1.4,
                             .phase = -1};
    struct synthetic_run run;
    synthetic_make(&plan, random, &run);
    for (int i = 0; i < plan.iterations * plan.ranks; i++)
        run.rank[i].cpu =
            (run.rank[i].end - run.rank[i].start) * (0.9 + 0.2 * test_random_double(random));
    return run;
}

/* The s-th span of a rank: all ranks do the same. */
static const struct mp_recorded_span *span_at(const struct mp_straggler_input *input, int iteration,
                                              int rank, int s) {
    return &input->times
                .span[mp_recorded_rank_at(&input->times, iteration, rank)->first + (size_t)s];
}

/* Work behind the exchange only where experts' results come back. */
static double arrival(const struct mp_recorded_span *span) {
    bool after = span->phase == MP_PHASE_COMBINE && span->direction == MP_FORWARD;
    return after ? span->start : span->end - span->wait;
}

static double work_of(const struct mp_recorded_span *span) {
    return span->end - span->start - span->wait;
}

static double last_arrival(const struct mp_straggler_input *input, int iteration, int s) {
    double last = 0;
    for (int r = 0; r < input->times.ranks; r++)
        last = fmax(last, arrival(span_at(input, iteration, r, s)));
    return last;
}

static void add_meeting(const struct mp_straggler_input *input, int iteration, int s,
                        struct mp_straggler_place *place) {
    int ranks = input->times.ranks;
    double last = last_arrival(input, iteration, s), first = last, least = 1;
    for (int r = 0; r < ranks; r++) {
        const struct mp_recorded_span *span = span_at(input, iteration, r, s);
        first = fmin(first, arrival(span));
        least = fmin(least, span->wait);
        place->transfer += (arrival(span) + span->wait - last) / ranks;
        place->waiting += last - arrival(span);
    }
    place->skew += last - first;
    place->transfer_least += least;
    place->meets = true;
}

/* Sums over the iterations, and in how many a rank was slowest. */
static struct mp_straggler_place counted_place(const struct mp_straggler_input *input, int phase,
                                               int layer, int slowest[]) {
    struct mp_straggler_place place = {.phase = phase, .layer = layer};
    int ranks = input->times.ranks;
    for (int i = 0; i < input->times.iterations; i++) {
        double own[64] = {0}, most = 0;
        int equals = 0;
        for (int s = 0; s < input->times.rank[0].count; s++) {
            if (span_at(input, i, 0, s)->phase != phase || span_at(input, i, 0, s)->layer != layer)
                continue;
            for (int r = 0; r < ranks; r++)
                own[r] += work_of(span_at(input, i, r, s));
            if (span_at(input, i, 0, s)->wait > 0)
                add_meeting(input, i, s, &place);
        }
        for (int r = 0; r < ranks; r++) {
            place.own_mean += own[r] / ranks;
            most = fmax(most, own[r]);
        }
        place.own_most += most;
        for (int r = 0; r < ranks; r++)
            equals += own[r] == most;
        for (int r = 0; r < ranks; r++)
            slowest[r] += own[r] == most && equals == 1;
    }
    return place;
}

static void assert_place(const struct mp_straggler_input *input,
                         const struct mp_straggler_place *place) {
    int slowest[64] = {0}, most = 0, iterations = input->times.iterations;
    struct mp_straggler_place counted = counted_place(input, place->phase, place->layer, slowest);
    assert_int_equal(place->meets, counted.meets);
    assert_close(place->skew, counted.skew / iterations, 1e-12);
    assert_close(place->transfer, counted.transfer / iterations, 1e-12);
    assert_close(place->transfer_least, counted.transfer_least / iterations, 1e-12);
    assert_close(place->waiting, counted.waiting / iterations, 1e-12);
    assert_close(place->own_mean, counted.own_mean / iterations, 1e-12);
    assert_close(place->own_most, counted.own_most / iterations, 1e-12);
    for (int r = 0; r < input->times.ranks; r++)
        most = slowest[r] > most ? slowest[r] : most;
    assert_int_equal(place->slowest < 0 ? 0 : slowest[place->slowest], most);
    assert_close(place->slowest_share, (double)most / iterations, 1e-12);
}

static void assert_drawn_rank(const struct mp_straggler_input *input,
                              const struct mp_straggler *found, int rank) {
    double own = 0, suffered = 0, tokens = 0, core[16];
    int iterations = input->times.iterations;
    for (int i = 0; i < iterations; i++) {
        const struct mp_recorded_rank *recorded = mp_recorded_rank_at(&input->times, i, rank);
        core[i] = fmin(1, recorded->cpu / (recorded->end - recorded->start));
        for (int s = 0; s < recorded->count; s++) {
            const struct mp_recorded_span *span = span_at(input, i, rank, s);
            own += work_of(span);
            if (span->wait > 0)
                suffered += last_arrival(input, i, s) - arrival(span);
            if (span->phase == MP_PHASE_EXPERT && span->direction == MP_FORWARD)
                tokens += (double)span->tokens;
        }
    }
    qsort(core, (size_t)iterations, sizeof *core, test_compare_doubles);
    assert_close(found->rank[rank].own, own / iterations, 1e-12);
    assert_close(found->rank[rank].suffered, suffered / iterations, 1e-12);
    assert_close(found->rank[rank].tokens / (tokens / iterations), 1, 1e-12);
    assert_close(found->rank[rank].on_core, core[(iterations - 1) / 2], 1e-12);
}

TEST_RANDOM(places_and_ranks_are_counted) {
    for (int round = 0; round < 20; round++) {
        AUTO(synthetic) struct synthetic_run run = drawn_run(random);
        AUTO(straggler) struct mp_straggler found = analysed(&run.input);
        for (int p = 0; p < found.places; p++)
            assert_place(&run.input, &found.place[p]);
        for (int r = 0; r < run.input.times.ranks; r++)
            assert_drawn_rank(&run.input, &found, r);
    }
}

/* ---- loads ---- */

enum { LAYERS = 3, EXPERTS = 5 };

struct loads {
    uint32_t routes[ITERATIONS][LAYERS][EXPERTS], dropped[ITERATIONS][LAYERS];
};

/* Some layers without a route. */
static struct mp_straggler_input drawn_loads(uint64_t *random, struct loads *loads,
                                             struct turns *turns) {
    struct mp_straggler_input input = make_turns(turns);
    for (int i = 0; i < ITERATIONS; i++)
        for (int l = 0; l < LAYERS; l++) {
            int most = test_random_int(random, 0, 5) ? 1000 : 0;
            loads->dropped[i][l] = (uint32_t)test_random_int(random, 0, most / 10);
            for (int e = 0; e < EXPERTS; e++)
                loads->routes[i][l][e] = (uint32_t)test_random_int(random, 0, most);
        }
    input.routes = &loads->routes[0][0][0];
    input.dropped = &loads->dropped[0][0];
    input.layers = LAYERS;
    input.experts = EXPERTS;
    return input;
}

/* As the header says, one after the other. */
static void measure(const struct loads *loads, int i, int l, double value[MP_MEASURES]) {
    int64_t sorted[EXPERTS];
    uint64_t total = 0;
    struct mp_balance balance = mp_balance_of(loads->routes[i][l], EXPERTS, sorted);
    for (int e = 0; e < EXPERTS; e++)
        total += loads->routes[i][l][e];
    const double all[MP_MEASURES] = {balance.imbalance.max_over_mean,
                                     balance.imbalance.effective,
                                     balance.variation,
                                     balance.gini,
                                     balance.imbalance.dead_fraction,
                                     balance.overload_fraction,
                                     total ? loads->dropped[i][l] / (double)total : NAN,
                                     balance.chance_variation};
    memcpy(value, all, sizeof all);
}

static void assert_percentiles(const struct mp_percentiles *found, double value[], int count) {
    static const int percent[] = {50, 90, 99, 100};
    const double of[] = {found->p50, found->p90, found->p99, found->largest};
    int known = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(value[i]))
            value[known++] = value[i];
    qsort(value, (size_t)known, sizeof *value, test_compare_doubles);
    for (int p = 0; p < 4; p++) /* the smallest that so many are not above */
        for (int i = 0; i < known; i++)
            if (100 * (i + 1) >= percent[p] * known) {
                assert_close(of[p], value[i], 0);
                break;
            }
}

static void assert_balance(const struct loads *loads, int first, int last,
                           const struct mp_straggler_balance *found) {
    double hottest = 0;
    for (int m = 0; m < MP_MEASURES; m++) {
        double value[ITERATIONS * LAYERS], all[MP_MEASURES];
        int count = 0;
        for (int l = first; l <= last; l++)
            for (int i = 0; i < ITERATIONS; i++) {
                measure(loads, i, l, all);
                value[count++] = all[m];
            }
        assert_percentiles(&found->of[m], value, count);
    }
    for (int l = first; l <= last; l++) {
        double sum[EXPERTS] = {0}, total = 0;
        for (int i = 0; i < ITERATIONS; i++)
            for (int e = 0; e < EXPERTS; e++) {
                sum[e] += loads->routes[i][l][e];
                total += loads->routes[i][l][e];
            }
        for (int e = 0; e < EXPERTS; e++)
            hottest = fmax(hottest, sum[e] / total);
        if (l == found->hottest_layer)
            assert_close(found->hottest_share, sum[found->hottest_expert] / total, 1e-12);
    }
    assert_in_range(found->hottest_layer, first, last);
    assert_close(found->hottest_share, hottest, 1e-12);
}

TEST_RANDOM(loads_are_counted) {
    for (int round = 0; round < 20; round++) {
        struct turns turns;
        struct loads loads;
        struct mp_straggler_input input = drawn_loads(random, &loads, &turns);
        AUTO(straggler) struct mp_straggler found = analysed(&input);
        assert_int_equal(found.layers, LAYERS);
        assert_balance(&loads, 0, LAYERS - 1, &found.balance);
        for (int l = 0; l < LAYERS; l++)
            assert_balance(&loads, l, l, &found.layer[l]);
        /* Experts' work was recorded of layer 0 only. */
        assert_close(found.layer[0].time_imbalance, 15.6 / 11.4, 1e-12);
        assert_close(found.layer[0].token_imbalance, 140 / 114.0, 1e-12);
        assert_true(isnan(found.layer[1].time_imbalance));
        assert_true(isnan(found.layer[2].token_imbalance));
    }
}

/* A load without a route has no balance, and no hottest expert. */
TEST(no_routes_have_no_balance) {
    struct turns turns;
    struct loads loads = {{{{0}}}, {{0}}};
    struct mp_straggler_input input = make_turns(&turns);
    input.routes = &loads.routes[0][0][0];
    input.layers = LAYERS;
    input.experts = EXPERTS;
    AUTO(straggler) struct mp_straggler found = analysed(&input);
    assert_numbers(found.abstentions, 0, found.balance.hottest_layer, -1);
    assert_int_equal(found.balance.hottest_expert, -1);
    assert_true(isnan(found.balance.hottest_share));
    assert_true(isnan(found.balance.max_over_mean.p50));
    assert_true(isnan(found.balance.dropped.largest));
    assert_true(isnan(found.balance.chance_variation.p50));
}

TEST(the_hot_expert_is_that_of_the_finding) {
    struct mp_straggler_balance layer[3] = {{.hottest_layer = 0, .hottest_expert = 5},
                                            {.hottest_layer = 1, .hottest_expert = 2},
                                            {.hottest_layer = -1, .hottest_expert = -1}};
    const struct mp_straggler found = {.balance = layer[0], .layer = layer, .layers = 3};
    struct mp_straggler_finding finding = {.cause = MP_CAUSE_ROUTING, .layer = 1};
    assert_ptr_equal(mp_straggler_hot_expert(&found, &finding), &layer[1]);
    finding.layer = 2;
    assert_null(mp_straggler_hot_expert(&found, &finding));
    finding.layer = 3; /* of a model whose routes nobody counted */
    assert_ptr_equal(mp_straggler_hot_expert(&found, &finding), &found.balance);
    finding.layer = -1;
    assert_ptr_equal(mp_straggler_hot_expert(&found, &finding), &found.balance);
    finding.cause = MP_CAUSE_SLOW;
    assert_null(mp_straggler_hot_expert(&found, &finding));
}
