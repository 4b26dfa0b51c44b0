/* Both policies: by hand, and by brute force. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "baselines/flexmoe/flexmoe.h"

enum { SLOTS = 6 };
/* Divisible by every number of slots here, so that shares are whole. */
enum { WHOLE = 27720 };

struct layer {
    struct mp_flex flex;
    struct mp_load load;
};

static void create_layer(struct layer *layer, int ranks, int experts, int per_rank) {
    mp_flex_create(&memory, ranks, experts, per_rank, &layer->flex);
    assert_works(mp_load_create(ranks, experts, &layer->load, &error));
}

static void destroy_layer(struct layer *layer) {
    mp_load_destroy(&layer->load);
}

TEST_END(destroy_layer, struct layer, destroy_layer(it))

static void set_routes(struct layer *layer, const uint32_t routes[]) {
    for (int expert = 0; expert < layer->load.experts; expert++)
        layer->load.count[expert] = routes[expert];
}

TEST(a_slot_goes_from_the_coldest_to_the_hottest) {
    static const int32_t before[4] = {0, 1, 2, 2}, after[4] = {0, 1, 0, 2};
    static const uint32_t routes[3] = {60, 20, 10};
    const struct mp_flex_costs costs = {.route = 1e-6};
    AUTO(destroy_layer) struct layer layer;
    create_layer(&layer, 2, 3, 2);
    set_routes(&layer, routes);
    mp_flex_begin(&layer.flex, before, &layer.load);
    assert_int_equal(mp_flex_cost_policy(&layer.flex, &costs, 1.78, 10), 0); /* 80 of 45 */
    assert_int_equal(mp_flex_cost_policy(&layer.flex, &costs, 1.77, 10), 1);
    assert_memory_equal(layer.flex.expert, after, sizeof after);
    assert_int_equal(layer.flex.load[0], 50 * 65536); /* 30 + 20 */
    assert_int_equal(layer.flex.load[1], 40 * 65536); /* 30 + 10 */
}

TEST(replicas_come_together_if_that_is_free) {
    static const int32_t before[6] = {0, 1, 0, 2, 1, 2}, after[6] = {2, 2, 0, 0, 1, 1};
    static const uint32_t routes[3] = {20, 20, 20};
    const struct mp_flex_costs costs = {.route = 1e-6, .replica = 1e-6};
    const struct mp_flex_costs dear = {.route = 1e-6, .replica = 0};
    AUTO(destroy_layer) struct layer layer;
    create_layer(&layer, 3, 3, 2);
    set_routes(&layer, routes);
    mp_flex_begin(&layer.flex, before, &layer.load);
    assert_false(mp_flex_cost_round(&layer.flex, &dear)); /* nothing to gain */
    assert_int_equal(layer.flex.replicas, 3);
    assert_true(mp_flex_cost_round(&layer.flex, &costs));
    assert_memory_equal(layer.flex.expert, after, sizeof after);
    assert_int_equal(layer.flex.replicas, 0);
}

/* Ranks 0 and 1 are as busy as each other, so no one step lets T fall: 40 on both, 20 on the rest.
 * A slot of expert 4 for expert 0 relieves rank 0 (26.7 and 10), and then rank 1 gets as much. */
TEST(ranks_that_tie_are_relieved_one_after_the_other) {
    static const int32_t before[8] = {0, 2, 1, 3, 4, 5, 4, 5};
    static const uint32_t routes[6] = {30, 30, 10, 10, 20, 20};
    const struct mp_flex_costs costs = {.route = 1e-6};
    AUTO(destroy_layer) struct layer layer;
    create_layer(&layer, 4, 6, 2);
    set_routes(&layer, routes);
    mp_flex_begin(&layer.flex, before, &layer.load);
    assert_numbers(layer.flex.load[0], 40 * 65536, layer.flex.load[1], 40 * 65536);
    assert_true(mp_flex_cost_round(&layer.flex, &costs));
    for (int rank = 0; rank < 4; rank++) /* of 30 on average */
        assert_true(layer.flex.load[rank] < 36 * 65536);
}

/* T of the best of all layouts of a small layer. */
static double least_time(struct mp_flex *flex, const struct mp_flex_costs *costs) {
    int all = flex->ranks * flex->per_rank;
    double least = HUGE_VAL;
    int32_t expert[SLOTS] = {0};
    for (;;) {
        int slot = 0, seen = 0;
        for (int at = 0; at < all; at++)
            seen |= 1 << expert[at];
        if (seen == (1 << flex->experts) - 1) {
            mp_flex_begin(flex, expert, flex->source);
            least = fmin(least, mp_flex_cost(flex, costs));
        }
        while (slot < all && ++expert[slot] == flex->experts)
            expert[slot++] = 0;
        if (slot == all)
            return least;
    }
}

TEST_RANDOM(small_layers_come_near_the_best_of_all_layouts) {
    double sum = 0, worst = 0;
    enum { TRIALS = 200 };
    for (int trial = 0; trial < TRIALS; trial++) {
        struct mp_flex_costs costs = {1.0 / WHOLE, test_random_double(random) / WHOLE,
                                      test_random_double(random)};
        int32_t expert[6];
        AUTO(destroy_layer) struct layer layer;
        create_layer(&layer, 3, 4, 2);
        for (int slot = 0; slot < 6; slot++)
            expert[slot] = slot % 4;
        for (int cell = 0; cell < 12; cell++)
            layer.load.count[cell] =
                (uint32_t)(WHOLE * test_random_int(random, 0, 1 << test_random_int(random, 0, 5)));
        mp_flex_begin(&layer.flex, expert, &layer.load);
        mp_flex_cost_policy(&layer.flex, &costs, 1, 10);
        double found = mp_flex_cost(&layer.flex, &costs);
        double ratio = found > 0 ? found / least_time(&layer.flex, &costs) : 1;
        assert_true(ratio > 1 - 1e-9);
        sum += ratio;
        worst = fmax(worst, ratio);
    }
    print_message("  T over the least of all layouts: mean %.4f, worst %.3f\n", sum / TRIALS,
                  worst);
    assert_true(sum / TRIALS < 1.04);
}

/* Two nodes of one rank.  Expert 1 gives up a slot on each.  On the first, the rank has expert 0
 * already and is the one with the slot; on the second no rank has it. */
TEST(the_variant_by_hand) {
    static const int32_t before[6] = {0, 1, 1, 1, 1, 2}, after[6] = {0, 0, 1, 0, 1, 2};
    static const uint32_t routes[3] = {90, 40, 20};
    AUTO(destroy_layer) struct layer layer;
    create_layer(&layer, 2, 3, 3);
    set_routes(&layer, routes);
    mp_flex_begin(&layer.flex, before, &layer.load); /* 110 and 40 */
    assert_int_equal(mp_flex_laer_policy(&layer.flex, 1, 1), 1);
    assert_memory_equal(layer.flex.expert, after, sizeof after);
    assert_int_equal(layer.flex.load[0], (60 + 20) * 65536);
    assert_int_equal(layer.flex.load[1], (30 + 20 + 20) * 65536);
}

TEST(factors_come_from_the_setting) {
    struct mp_setting setting = {.topology = {8, 4},
                                 .expert_bytes = 500000,
                                 .gradient_bytes = 1000000,
                                 .route_bytes = 2000,
                                 .bandwidth = 1e9,
                                 .seconds_per_route = 1e-6};
    struct mp_flex_costs costs = mp_flex_costs(&setting);
    assert_true(fabs(costs.route - 3e-6) < 1e-15);
    assert_true(fabs(costs.row - 8e-6) < 1e-15);
    assert_true(fabs(costs.replica - 2.5e-4) < 1e-13);
    setting.forward_only = true;
    setting.gradient_bytes = 0;
    costs = mp_flex_costs(&setting);
    assert_true(fabs(costs.route - 1e-6) < 1e-15);
    assert_true(fabs(costs.row - 4e-6) < 1e-15);
    assert_true(costs.replica == 0);
}
