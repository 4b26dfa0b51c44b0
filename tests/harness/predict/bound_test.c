/* The bound: no system is faster, and brute force on small cases says how near it is.
 * MOEPERF_CASES=2000 in the environment: as many cases of each system. */
#include "harness/predict/bound.h"

#include "tests/harness/predict/predictor_support.h"

static double bound_of(const struct test_case *test, int rounds) {
    struct mp_bound *bound = NULL;
    double seconds;
    assert_works(mp_bound_create(NULL, test->cluster, &test->job.job, &test->options, rounds,
                                 &bound, &error));
    assert_works(mp_bound_seconds(bound, test->load, &seconds, &error));
    mp_bound_destroy(bound);
    assert_true(seconds > 0);
    return seconds;
}

/* Tokens choose so many experts. */
static void take_choices(struct test_case *test, int top_k) {
    test_set(test, formatted("gate=softmax top-k=%d", top_k));
    assert_int_equal(mp_job_top_k(&test->job.job), top_k);
}

static struct test_case random_case(uint64_t *random, const char *system) {
    struct test_case test = test_random_case(random, system);
    take_choices(&test, 1 << test_random_int(random, 0, test.job.job.experts < 4 ? 1 : 2));
    if (test_random_int(random, 0, 4) == 0)
        test_set(&test, "mode=prefill");
    test.options.vocabulary = test_random_int(random, 0, 1) ? 1000 : 0;
    test.options.recompute = test_random_int(random, 0, 1);
    test.job.job.sequence = 64 << test_random_int(random, 0, 4);
    test.job.job.expert_width = 64 << test_random_int(random, 0, 6);
    return test;
}

/* Homes and copies may come from the iteration before: sums over iterations are compared. */
TEST_RANDOM(no_system_is_below) {
    struct mp_systems systems = {0};
    double most = 0;
    assert_works(mp_systems_register_all(&systems, &error));
    while (systems.count < MP_SYSTEMS_LIMIT) /* the rest is anything that the law allows */
        systems.item[systems.count++] = &wanderer;
    for (int i = 0, count = test_cases(4); i < count; i++)
        for (int s = 0; s < systems.count; s++) {
            double least = 0, taken = 0;
            int64_t dropped = 0;
            uint64_t seed = test_random(random);
            AUTO(test) struct test_case test = random_case(&seed, systems.item[s]->name);
            const int flat = test.job.job.exchange;
            if (systems.item[s] == &wanderer)
                test_set(&test, draw_wanderer(&seed, (char[1024]){0}));
            test.job.job.exchange = (int)mp_system_exchange(systems.item[s], flat);
            AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, NULL);
            for (int step = 0; step < 3; step++) {
                test_fill_loads(&test, &seed, test_random_double(&seed));
                struct mp_prediction prediction = test_step(predictor, &test);
                least += bound_of(&test, 40);
                taken += prediction.seconds;
                dropped += prediction.dropped;
            }
            bool as_chosen = dropped == 0 && !mp_predictor_changes_loads(predictor);
            bool is_bounded = mp_bound_covers(systems.item[s], test.job.job.exchange, as_chosen, 1);
            bool fewer_rows = test.job.job.exchange == MP_EXCHANGE_DEDUPLICATED;
            assert_true(mp_bound_covers(systems.item[s], flat, as_chosen, 1) ==
                        (is_bounded && !fewer_rows));
            if (!is_bounded)
                continue;
            most = least / taken > most ? least / taken : most;
            if (least > taken)
                fail_msg("case %d: %s takes %.9g s, the bound is %.9g s", i, systems.item[s]->name,
                         taken, least);
        }
    print_message("largest bound over time: %.4f\n", most);
}

/* More bandwidth and less load never raise it, as far as rounds find the best weights. */
TEST_RANDOM_TURNS(more_is_never_worse, test_cases(4), i) {
    AUTO(test) struct test_case test = random_case(random, "ep");
    test_fill_loads(&test, random, 0.8);
    double before = bound_of(&test, 600);
    for (int l = 0; l < test.job.job.layers * test.options.micro_batches; l++)
        for (int j = 0; j < test.load[l].ranks * test.load[l].experts; j++)
            test.load[l].count[j] -= test.load[l].count[j] / 4;
    double fewer = bound_of(&test, 600);
    assert_true(fewer <= before * 1.005);
    const char *level =
        test.cluster->nodes.value > 1 ? "levels.cluster.bandwidth" : "levels.node.bandwidth";
    assert_works(mp_cluster_scale(test.cluster, level, 3, &error));
    assert_true(bound_of(&test, 600) <= fewer * 1.005);
}

/* Twenty times the usual rounds find hardly more, with many nodes and gates as busy as ranks. */
TEST_RANDOM(usual_rounds_are_enough) {
    double worst = 1, sum = 0;
    const int count = test_cases(6);
    for (int i = 0; i < count; i++) {
        struct test_machine machine = test_machine_of(16, 1);
        machine.latency = machine.launch = 1e-6;
        machine.far_bandwidth = 1e9 * pow(10, 2 * test_random_double(random));
        AUTO(test) struct test_case test = test_make(&machine, "ep", 3, 16, 1);
        test.job.job.sequence = 4096;
        test.job.job.expert_width = 256;
        test_fill_loads(&test, random, 1.2 * test_random_double(random));
        double ratio = bound_of(&test, 0) / bound_of(&test, 3000);
        worst = fmin(worst, ratio);
        sum += ratio / count;
    }
    print_message("usual rounds over many: %.4f in the mean, %.4f at least\n", sum, worst);
    assert_true(worst > 0.95 && sum > 0.99);
}

/* One hot expert on one node: it has to be computed there or to travel.  A deduplicating exchange
 * may send a token's row once for all of its routes. */
TEST_TURNS(it_knows_what_travels, 2, deduplicates) {
    struct test_machine machine = GOOD_MACHINE;
    machine.far_bandwidth = 1e6;
    AUTO(test) struct test_case test = test_make(&machine, "ep", 1, 8, 1);
    test.job.job.exchange = deduplicates ? MP_EXCHANGE_DEDUPLICATED : MP_EXCHANGE_FLAT;
    test.job.job.expert_width *= 16; /* so that rows travel */
    for (int r = 0; r < 8; r++)
        test.load[0].count[r * 8] = (uint32_t)test_routes(&test);
    /* Once forward and once backward out of each gate, of four ranks' routes. */
    double rows = 2 * 4.0 * test_routes(&test) * 512 / 1e6;
    rows /= deduplicates ? mp_job_top_k(&test.job.job) : 1;
    double seconds = bound_of(&test, 400);
    assert_true(seconds > rows && seconds < 1.5 * rows);
}

/* Ranks that have all that their tokens choose, and all equally much: nothing is left to plan, and
 * plain expert parallelism takes as long as the bound, but for what could be spared: half of what
 * is read and written to put rows in order, exchanges of rows that a rank keeps where no shared
 * expert hides them, and a launch of the update. */
static const struct {
    const char *name;
    int nodes, ranks_per_node;
    const char *system;
    int64_t vocabulary;
    int recompute;
    double planning;
    int orders, exchanges; /* of three layers */
} at_home[] = {{"a node", 1, 4, "ep", 0, 0, 0, 12, 12},
               {"nodes of one rank", 4, 1, "ep", 0, 0, 0, 12, 12},
               {"nodes of several ranks", 2, 2, "ep", 1000, 0, 0, 12, 12},
               {"recomputing", 1, 4, "ep", 1000, 1, 0, 12, 12},
               {"planning", 1, 4, "ep", 0, 0, 1e-3, 12, 12},
               {"a shared expert", 4, 1, "ep shared-experts=1", 0, 0, 0, 12, 6},
               {"serving", 4, 1, "ep mode=prefill", 1000, 0, 0, 6, 6}};
TEST_EACH(even_loads_at_home_take_the_bound, at_home, row) {
    struct test_machine machine = test_machine_of(row->nodes, row->ranks_per_node);
    machine.bandwidth = machine.far_bandwidth = 1e15; /* sums take nothing */
    machine.latency = 1e-12;
    AUTO(test) struct test_case test = test_make(&machine, row->system, 3, 8, 1);
    test.options.vocabulary = row->vocabulary;
    test.options.recompute = row->recompute;
    test.options.planning = row->planning;
    test.job.job.sequence = 4096;
    double launch = machine.launch, routes = test_routes(&test);
    for (int l = 0; l < 3; l++)
        for (int e = 0; e < 8; e++)
            test.load[l].count[e / 2 * 8 + e] = (uint32_t)routes / 2;
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(&test, NULL);
    double order = (mp_costs_permute(predictor->costs, (int64_t)routes) - launch) / 2;
    double exchange = launch + routes * 256 * 2 / (machine.memory_bandwidth / 2);
    double spared = row->orders * order + row->exchanges * exchange +
                    (mp_job_serves(&test.job.job) ? 0 : launch);
    assert_close(bound_of(&test, 40), test_step(predictor, &test).seconds - spared, 1e-6);
}

/* ---- all placements and splits of a small case, from what bound.h says ---- */

enum { PLACES = 3, EXPERTS = 3, SPLITS = PLACES << PLACES };

/* What a split makes of the three maxima, with an expert's own cost in the place of a line. */
struct sums {
    double work[2][PLACES], rows[PLACES];
    int holders[EXPERTS]; /* a bit for each place, if there are several; else 0 */
};

/* Split number `split` of an expert: a hub, and who else holds it and computes its own routes. */
static void add_split(const struct test_case *test, struct mp_costs *costs, int expert, int split,
                      struct sums *sums) {
    int hub = split / (1 << PLACES), others = split & ((1 << PLACES) - 1) & ~(1 << hub);
    int64_t here = 0;
    for (int n = 0; n < PLACES; n++) {
        int64_t routes = test->load[0].count[n * EXPERTS + expert];
        if (others >> n & 1) {
            for (int way = 0; way < 2; way++)
                sums->work[way][n] += mp_costs_expert(costs, routes, way);
        } else {
            here += routes;
            sums->rows[n] += n == hub ? 0 : (double)routes;
            sums->rows[hub] += n == hub ? 0 : (double)routes;
        }
    }
    sums->holders[expert] = others ? others | 1 << hub : 0;
    for (int way = 0; way < 2; way++)
        sums->work[way][hub] += mp_costs_expert(costs, here, way);
}

static double most_of(const double values[]) {
    return fmax(values[0], fmax(values[1], values[2]));
}

/* The least that the fullest gate carries of rows and experts, in seconds.  Of each expert all
 * holders but one carry a gradient, and as many times one is added to another at any place; any
 * shares of several count as that one.  By duality that is the most of any set of places, on
 * average. */
static double gates_of(const struct sums *sums, double row, double gradient, double merged) {
    double most = 0;
    for (int set = 1; set < 1 << PLACES; set++) {
        double sum = 0;
        for (int n = 0; n < PLACES; n++)
            sum += set >> n & 1 ? row * sums->rows[n] : 0;
        for (int e = 0; e < EXPERTS; e++) {
            int among = __builtin_popcount((unsigned)(sums->holders[e] & set));
            sum += among > 1 ? gradient * (among - 1) : 0;
            if (set + 1 == 1 << PLACES && sums->holders[e])
                sum += merged * (__builtin_popcount((unsigned)sums->holders[e]) - 1);
        }
        most = fmax(most, sum / __builtin_popcount((unsigned)set));
    }
    return most;
}

/* Seconds of such sums; ranks have equally many rows to put in order. */
static double time_of(struct mp_costs *costs, struct mp_network *network, const struct sums *sums,
                      double launch, double bandwidth, int64_t routes) {
    double order = mp_costs_permute(costs, routes) + launch;
    double row = costs->sizes.row / bandwidth;
    double counts = mp_network_all_gather(network, 8 * EXPERTS);
    double agree = mp_network_all_reduce(network, 24);
    double dense = mp_network_all_reduce(network, mp_costs_block_gradient_bytes(costs));
    double gradient = costs->sizes.expert_gradient / bandwidth;
    double merged = fmin(costs->sizes.expert / bandwidth, gradient);
    double element = costs->sizes.expert / costs->sizes.expert_parameters;
    double update = mp_costs_optimizer(costs, EXPERTS * costs->sizes.expert / PLACES);
    double travel = 2 * row * most_of(sums->rows), work[PLACES], even = 0;
    for (int n = 0; n < PLACES; n++) {
        work[n] = sums->work[MP_FORWARD][n] + sums->work[MP_BACKWARD][n];
        even += work[n] / PLACES;
    }
    double chain = counts + agree + 2 * order +
                   mp_costs_optimizer(costs, mp_costs_block_parameters(costs) * element) +
                   fmax(travel, fmax(most_of(work), even + update));
    for (int way = 0; way < 2; way++)
        chain +=
            mp_costs_own(costs, MP_PHASE_ATTENTION, way) + mp_costs_own(costs, MP_PHASE_GATE, way);
    return fmax(chain, counts + agree + dense + gates_of(sums, 2 * row, gradient, merged));
}

static double best_of_all(const struct test_case *test, double launch, double bandwidth) {
    AUTO(costs) struct mp_costs *costs = NULL;
    AUTO(network) struct mp_network *network = NULL;
    double best = INFINITY;
    assert_works(mp_costs_create(test->cluster, &test->job.job, &test->options, &costs, &error));
    assert_works(mp_network_create(test->cluster, &network, &error));
    for (int all = 0; all < SPLITS * SPLITS * SPLITS; all++) {
        struct sums sums = {0};
        for (int expert = 0, rest = all; expert < EXPERTS; expert++, rest /= SPLITS)
            add_split(test, costs, expert, rest % SPLITS, &sums);
        best = fmin(best, time_of(costs, network, &sums, launch, bandwidth, test_routes(test)));
    }
    return best;
}

TEST_RANDOM(it_is_below_all_splits_and_near) {
    double sum = 0, worst = 1, most = 0;
    int count = test_cases(20) < 200 ? test_cases(20) : 200;
    for (int i = 0; i < count; i++) {
        struct test_machine machine = test_machine_of(PLACES, 1);
        machine.launch = machine.latency = 1e-9;
        machine.far_bandwidth *= pow(10, 4 * test_random_double(random) - 2.5);
        AUTO(test) struct test_case test = test_make(&machine, "ep", 1, EXPERTS, 1);
        take_choices(&test, test_random_int(random, 1, 2));
        test.job.job.sequence = 2048;
        test.job.job.expert_width = 64 << test_random_int(random, 0, 5);
        test_fill_loads(&test, random, test_random_double(random));
        double ratio =
            bound_of(&test, 600) / best_of_all(&test, machine.launch, machine.far_bandwidth);
        most = fmax(most, ratio);
        worst = fmin(worst, ratio);
        sum += ratio / count;
        assert_true(ratio <= 1);
    }
    print_message("bound over the least of all splits: mean %.4f, least %.4f, most %.6f\n", sum,
                  worst, most);
    assert_true(sum > 0.93);
}
