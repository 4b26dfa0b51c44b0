/* The bound on what a run could have taken: with costs of uneven ranks no system is faster.
 * MOEPERF_CASES=2000 in the environment: as many cases of each system. */
#include "harness/predict/bound.h"
#include "tests/harness/predict/predictor_support.h"

TEST_END(bound, struct mp_bound *, mp_bound_destroy(*it))

enum { ITERATIONS = 3, SLOTS = MP_PHASES * 2 };

/* A recorded run's costs as a test makes them up. */
struct fitted_case {
    struct test_case test; /* sizes and loads; of its cluster only the ranks */
    struct mp_setting setting;
    struct mp_fitted fitted;
    struct mp_cluster cluster;
    struct mp_costs *costs;
};

static double between(uint64_t *random, double low, double high) {
    return low * pow(high / low, test_random_double(random));
}

/* Own work of a rank in a phase: little, but for now and then. */
static double own_work(uint64_t *random) {
    int kind = test_random_int(random, 0, 3);
    return kind == 0 ? 0 : between(random, 1e-6, kind == 1 ? 1e-3 : 3e-5);
}

static void make_up_ranks(uint64_t *random, struct mp_fitted *fitted) {
    int ranks = fitted->ranks, rows = fitted->iterations * (fitted->layers + 1) * SLOTS;
    double uneven = between(random, 1, 8);
    fitted->own = calloc((size_t)(rows * ranks), sizeof *fitted->own);
    fitted->none = calloc((size_t)ranks, sizeof *fitted->none);
    fitted->speed = calloc((size_t)(2 * ranks), sizeof *fitted->speed);
    for (int i = 0; i < rows * ranks; i++)
        fitted->own[i] = own_work(random);
    for (int i = 0; i < 2 * ranks; i++)
        fitted->speed[i] = between(random, 1 / uneven, uneven);
}

static void make_up_costs(uint64_t *random, struct mp_fitted *fitted) {
    for (int way = 0; way < 2; way++)
        for (int c = 0; c < MP_EXPERT_COLUMNS; c++)
            fitted->experts[way].weight[c] =
                test_random_int(random, 0, 2) ? between(random, 1e-8, 1e-6) : 0;
    for (int way = 0; way < 2; way++)
        fitted->experts[way].weight[MP_EXPERT_EACH] = between(random, 1e-7, 1e-4);
    for (int l = 0; l < MP_LINKS; l++)
        fitted->link[l] =
            (struct mp_fitted_link){between(random, 1e-7, 1e-5), between(random, 1e-9, 1e-6)};
    fitted->copies = between(random, 0.1, 10);
    fitted->sums = between(random, 0.01, 1);
    fitted->update = between(random, 1e-13, 1e-9);
    fitted->hides = test_random_int(random, 0, 1);
}

static void make_up(uint64_t *random, const char *system, struct fitted_case *made) {
    struct test_machine machine = test_random_machine(random);
    struct test_case *test = &made->test;
    int ranks = machine.nodes * machine.ranks_per_node;
    *test = test_make(&machine, system, test_random_int(random, 1, 4),
                      ranks * test_random_int(random, 1, 3), test_random_int(random, 0, 3) ? 1 : 3);
    if (test_random_int(random, 0, 4) == 0)
        test_set(test, "mode=prefill");
    test->job.job.shared_experts = test_random_int(random, 0, 1);
    test->job.job.sequence = 32 << test_random_int(random, 0, 5);
    test->job.job.expert_width = 64 << test_random_int(random, 0, 4);
    assert_works(
        mp_costs_create(test->cluster, &test->job.job, &test->options, &made->costs, &error));
    made->setting = made->costs->setting;
    mp_costs_destroy(made->costs);
    made->fitted = (struct mp_fitted){.setting = &made->setting,
                                      .iterations = ITERATIONS,
                                      .layers = test->job.job.layers,
                                      .ranks = ranks,
                                      .ranks_per_node = machine.ranks_per_node,
                                      .micro_batches = test->options.micro_batches,
                                      .far = test_random_int(random, MP_LINK_FAR, MP_LINK_SHARED),
                                      .probe = -1};
    make_up_ranks(random, &made->fitted);
    make_up_costs(random, &made->fitted);
    mp_fitted_cluster(&made->fitted, &made->cluster);
    assert_works(mp_costs_create_fitted(&made->fitted, &made->cluster, &test->job.job,
                                        &test->options, &made->setting, &made->costs, &error));
}

static void forget(struct fitted_case *made) {
    mp_costs_destroy(made->costs);
    free(made->fitted.own);
    free(made->fitted.none);
    free(made->fitted.speed);
    test_case_destroy(&made->test);
}

TEST_END(forget, struct fitted_case, forget(it))

static struct mp_bound *bound_of(const struct fitted_case *made, int rounds) {
    struct mp_bound *bound = NULL;
    assert_works(mp_bound_create(made->costs, &made->cluster, &made->test.job.job,
                                 &made->test.options, rounds, &bound, &error));
    return bound;
}

static double least_of(struct mp_bound *bound, const struct mp_load load[]) {
    double seconds;
    assert_works(mp_bound_seconds(bound, load, &seconds, &error));
    assert_true(seconds > 0);
    return seconds;
}

static struct mp_predictor *predictor_of(const struct fitted_case *made) {
    const struct mp_predictor_config config = {.cluster = &made->cluster,
                                               .job = &made->test.job,
                                               .options = &made->test.options,
                                               .costs = made->costs,
                                               .check_plans = true};
    struct mp_predictor *predictor = NULL;
    assert_works(mp_predictor_create(&config, &predictor, &error));
    return predictor;
}

/* The bound over the time of three iterations; 0 of a system that it does not cover. */
static double share_of(uint64_t seed, const struct mp_system *system) {
    AUTO(forget) struct fitted_case made = {0};
    double least = 0, taken = 0;
    int64_t dropped = 0;
    make_up(&seed, system->name, &made);
    AUTO(predictor) struct mp_predictor *predictor = predictor_of(&made);
    AUTO(bound) struct mp_bound *bound = bound_of(&made, 30);
    for (int step = 0; step < ITERATIONS; step++) {
        made.costs->iteration = step;
        test_fill_loads(&made.test, &seed, test_random_double(&seed));
        struct mp_prediction prediction = test_step(predictor, &made.test);
        least += least_of(bound, made.test.load);
        taken += prediction.seconds;
        dropped += prediction.dropped;
    }
    bool as_chosen = dropped == 0 && !mp_predictor_changes_loads(predictor);
    return mp_bound_covers(system, MP_EXCHANGE_FLAT, as_chosen, 1) ? least / taken : 0;
}

TEST_RANDOM(no_system_is_below) {
    struct mp_systems systems = {0};
    double most = 0, sum = 0;
    int covered = 0;
    assert_works(mp_systems_register_all(&systems, &error));
    for (int i = 0, count = test_cases(10); i < count; i++)
        for (int s = 0; s < systems.count; s++) {
            double share = share_of(test_random(random), systems.item[s]);
            most = fmax(most, share);
            sum += share;
            covered += share > 0;
            if (share > 1)
                fail_msg("case %d: the bound is %.9f of what %s takes", i, share,
                         systems.item[s]->name);
        }
    print_message("bound over time: largest %.4f, mean %.4f of %d\n", most, sum / covered, covered);
}

/* Routes of each rank to its own experts only. */
static void stay_at_home(uint64_t *random, struct test_case *test) {
    int ranks = test->job.job.ranks, experts = test->job.job.experts, own = experts / ranks;
    for (int l = 0; l < test->job.job.layers * test->options.micro_batches; l++)
        for (int r = 0; r < ranks; r++) {
            uint32_t *row = test->load[l].count + (long)r * experts;
            memset(row, 0, (size_t)experts * sizeof *row);
            for (int left = test_routes(test); left > 0;) {
                int some = test_random_int(random, 1, left);
                row[r * own + test_random_int(random, 0, own - 1)] += (uint32_t)some;
                left -= some;
            }
        }
}

/* Links on which nothing travels, and experts in proportion to rows.  ALIKE: the ranks of one node.
 * NODES: of several, at experts that take next to no time. */
enum still { UNEVEN, ALIKE, NODES, STILLS };

static bool is_still(const struct mp_fitted *fitted, enum still still) {
    return still == NODES ? fitted->ranks_per_node > 1 && fitted->ranks_per_node < fitted->ranks
                          : fitted->ranks_per_node == fitted->ranks;
}

static void make_up_still(uint64_t *random, enum still still, struct fitted_case *made) {
    do {
        if (made->costs)
            forget(made);
        make_up(random, "ep", made);
    } while (!is_still(&made->fitted, still));
    struct mp_fitted *fitted = &made->fitted;
    int rows = ITERATIONS * (fitted->layers + 1) * SLOTS, ranks = fitted->ranks;
    for (int r = 0; r < rows * ranks && still != UNEVEN; r++)
        fitted->own[r] = fitted->own[r / ranks * ranks];
    for (int r = 0; r < 2 * ranks && still == ALIKE; r++)
        fitted->speed[r] = 1;
    for (int way = 0; way < 2; way++)
        for (int bend = MP_EXPERT_BEND; bend <= MP_EXPERT_EACH; bend++)
            fitted->experts[way].weight[bend] = 0;
    for (int way = 0; way < 2 && still == NODES; way++)
        fitted->experts[way].weight[MP_EXPERT_ROW] = 1e-12;
    fitted->sums = 0;
    fitted->update *= still == ALIKE;
    for (int l = 0; l < MP_LINKS; l++)
        fitted->link[l] = (struct mp_fitted_link){1e-9, 1e-2};
    mp_fitted_cluster(fitted, &made->cluster);
    made->cluster.overlap.value = 1;
}

/* EP can't be beaten there, and takes what the bound says: of the slowest rank in each pass.  Ranks
 * that are alike share the update, too. */
TEST_RANDOM(where_nothing_moves_it_is_the_time) {
    double worst = 1, sum = 0;
    int count = test_cases(30);
    for (int i = 0; i < count; i++) {
        AUTO(forget) struct fitted_case made = {0};
        make_up_still(random, (enum still)(i % STILLS), &made);
        stay_at_home(random, &made.test);
        AUTO(predictor) struct mp_predictor *predictor = predictor_of(&made);
        AUTO(bound) struct mp_bound *bound = bound_of(&made, 600);
        double taken = test_step(predictor, &made.test).seconds;
        double share = least_of(bound, made.test.load) / taken;
        worst = fmin(worst, share);
        sum += share / count;
        if (share > 1 + 1e-12 || share < 0.8)
            fail_msg("case %d: the bound is %.9f of what it takes", i, share);
    }
    print_message("bound over time: mean %.6f, least %.6f\n", sum, worst);
    assert_true(sum > 0.99);
}
