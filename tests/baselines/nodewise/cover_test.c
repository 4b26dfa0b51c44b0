/* Nodewise: what copies cost, and how many experts nodes have in common, worked out by hand. */
#include "tests/baselines/rehearsal.h"

#include "baselines/nodewise/nodewise.h"

TEST(costs_are_of_both_passes) {
    struct mp_setting setting = {.topology = {8, 4},
                                 .top_k = 2,
                                 .tokens_per_rank = 100,
                                 .expert_bytes = 4000,
                                 .gradient_bytes = 8000,
                                 .route_bytes = 10,
                                 .attention_bytes = 1000,
                                 .bandwidth = 100,
                                 .bandwidth_in_node = 1000,
                                 .seconds_per_route = 0.25,
                                 .seconds_per_expert = 2,
                                 .non_moe_seconds = 7,
                                 .ranks_per_gate = 2};
    struct mp_nodewise_costs costs;
    mp_nodewise_costs(&setting, false, &costs);
    const struct mp_nodewise_costs training = {.row_between = 0.4,
                                               .row_inside = 0.04,
                                               .fetch_between = 40,
                                               .reduce_between = 80,
                                               .fetch_inside = 4,
                                               .reduce_inside = 8,
                                               .route = 0.75,
                                               .product = 6,
                                               .product_routes = 5, /* 6 / (0.75 + 0.44) */
                                               .hidden_forward = 7,
                                               .hidden_backward = 2 * 7 - 10,
                                               .hidden_inside = 2 * 7 - 1.5,
                                               .way = 1,
                                               .gates = 2,
                                               .ranks_per_gate = 2};
    assert_memory_equal(&costs, &training, offsetof(struct mp_nodewise_costs, ranks_per_gate));
    assert_int_equal(costs.ranks_per_gate, 2);
    assert_true(costs.copies_each == 0);
    mp_nodewise_costs(&setting, true, &costs);
    assert_true(costs.fetch_between == 40 && costs.reduce_between == 80 + 40);
    assert_true(costs.fetch_inside == 4 && costs.reduce_inside == 8 + 4);
    setting.forward_only = true;
    mp_nodewise_costs(&setting, false, &costs);
    assert_true(costs.row_between == 0.2 && costs.row_inside == 0.02 && costs.reduce_between == 0);
    assert_true(costs.route == 0.25 && costs.product == 2);
    /* In one node no rows come from another: 2 / (0.25 + 0.2). */
    setting.topology.ranks_per_node = 8;
    mp_nodewise_costs(&setting, false, &costs);
    assert_int_equal(costs.product_routes, 4);
    setting.seconds_per_route = setting.bandwidth = 0;
    mp_nodewise_costs(&setting, false, &costs);
    assert_int_equal(costs.product_routes, 0);
}

/* Two nodes of one gate with two experts each, of 60, 20 and 30, 10 routes.  A route away from home
 * takes 1 s, an expert's way 20 s there and 20 s back, of which 25 s each are hidden. */
static int cover_late(const struct mp_nodewise_costs *costs, double hidden, const int64_t total[4],
                      int before, int limit, int32_t order[4]) {
    static const int32_t owner[] = {0, 0, 1, 1};
    const struct mp_topology topology = {2, 1};
    int64_t room[10];
    double seconds;
    return mp_nodewise_cover(costs, hidden,
                             &(struct mp_nodewise_experts){&topology, owner, total, 4, room},
                             before, limit, order, &seconds);
}

static int cover_example(const struct mp_nodewise_costs *costs, const int64_t total[4], int limit,
                         int32_t order[4]) {
    mp_load_hottest(total, 4, 4, order);
    return cover_late(costs, costs->hidden_forward, total, 0, limit, order);
}

TEST(cover_by_hand) {
    static const int64_t total[] = {60, 20, 30, 10}, even[] = {40, 20, 40, 20};
    struct mp_nodewise_costs costs = {.row_between = 1,
                                      .fetch_between = 40,
                                      .reduce_between = 40,
                                      .hidden_forward = 25,
                                      .way = 1,
                                      .hidden_backward = 25,
                                      .gates = 1,
                                      .ranks_per_gate = 1};
    int32_t order[4];
    /* Half of the fullest gate's routes, in or out: 40; 20 with expert 0; then expert 2, as its
     * gate is fuller: 10 and 2 * 15 exposed. */
    assert_int_equal(cover_example(&costs, total, 4, order), 1);
    assert_memory_equal(order, ((const int32_t[]){0, 2, 1, 3}), sizeof order);
    /* With nothing for a row and 1 s for computing one: 80, 70, 65 + 30. */
    costs.row_between = 0;
    costs.route = 1;
    assert_int_equal(cover_example(&costs, total, 4, order), 1);
    costs.row_between = 1;
    costs.route = 0;
    /* Three and a half times as long for a row: 140, 70, 35 + 30, 17.5 + 70. */
    costs.row_between = 3.5;
    assert_int_equal(cover_example(&costs, total, 4, order), 2);
    assert_int_equal(cover_example(&costs, total, 1, order), 1);
    /* Of even gates with nothing hidden: 30 * 3.5 goes in and out, then 20 in and 30 out, then 10:
     * 105, 30 * 3.5 + 40, 35 + 80.  With a row of 5 s: 150, 190, 50 + 80. */
    costs.hidden_forward = costs.hidden_backward = 0;
    assert_int_equal(cover_example(&costs, even, 4, order), 0);
    costs.row_between = 5;
    assert_int_equal(cover_example(&costs, even, 4, order), 2);
    /* And 11 s a product, of which each node has half of those more: 150, ..., 130 + 11. */
    costs.product = 11;
    assert_int_equal(cover_example(&costs, even, 4, order), 0);
    /* A single one more takes some rank a product, not half of one: 40, 20 + 15, or 20 + 17, which
     * is not worth it. */
    costs.hidden_forward = costs.hidden_backward = 1e9;
    costs.row_between = 1;
    costs.product = 15;
    assert_int_equal(cover_example(&costs, total, 1, order), 1);
    costs.product = 17;
    assert_int_equal(cover_example(&costs, total, 1, order), 0);
    /* With nothing to pay all are everywhere, and with no gain none. */
    costs.hidden_forward = costs.hidden_backward = 1e9;
    costs.product = 0;
    assert_int_equal(cover_example(&costs, even, 4, order), 4);
    costs.row_between = 0;
    assert_int_equal(cover_example(&costs, even, 4, order), 0);
}

/* The fullest gate's hottest expert comes next, whatever is hotter elsewhere. */
TEST(the_busiest_gate_comes_first) {
    static const int32_t owner[] = {0, 1, 1, 1, 0};
    static const int64_t total[] = {50, 40, 35, 30, 1};
    const struct mp_topology topology = {2, 1};
    const struct mp_nodewise_costs costs = {
        .row_between = 1, .way = 1, .gates = 1, .ranks_per_gate = 1};
    int64_t room[11];
    double seconds;
    int32_t order[] = {0, 1, 2, 3, 4};
    const struct mp_nodewise_experts all = {&topology, owner, total, 5, room};
    assert_int_equal(mp_nodewise_cover(&costs, 0, &all, 0, 5, order, &seconds), 5);
    /* 51 and 105: expert 1; 51 and 65: expert 2; 51 and 30: expert 0; 1 and 30: expert 3. */
    assert_memory_equal(order, ((const int32_t[]){1, 2, 0, 3, 4}), sizeof order);
}

/* Gates whose experts are all covered, or that have none, are not asked for more. */
TEST(experts_without_routes_are_covered_last) {
    static const int32_t owner[] = {1, 1, 2};
    static const int64_t total[] = {5, 0, 0};
    const struct mp_topology topology = {3, 1};
    const struct mp_nodewise_costs costs = {
        .row_between = 1, .way = 1, .gates = 1, .ranks_per_gate = 1};
    int64_t room[12];
    double seconds;
    int32_t order[] = {0, 1, 2};
    const struct mp_nodewise_experts all = {&topology, owner, total, 3, room};
    assert_int_equal(mp_nodewise_cover(&costs, 0, &all, 0, 3, order, &seconds), 1);
    assert_memory_equal(order, ((const int32_t[]){0, 1, 2}), sizeof order);
}

/* What is everywhere costs its way back and products, and stays first: the same two nodes. */
TEST(further_ones_are_covered_by_hand) {
    static const int64_t total[] = {60, 20, 30, 10};
    struct mp_nodewise_costs costs = {.row_between = 1,
                                      .fetch_between = 6,
                                      .reduce_between = 40,
                                      .hidden_forward = 1e9,
                                      .hidden_backward = 1e9,
                                      .way = 1,
                                      .gates = 1,
                                      .ranks_per_gate = 1};
    int32_t order[] = {3, 0, 2, 1};
    /* Without expert 3: 40; then 15 + 3, as 30 routes are left there, 10 + 6 and 0 + 9 s. */
    assert_int_equal(cover_late(&costs, 0, total, 1, 4, order), 4);
    assert_memory_equal(order, ((const int32_t[]){3, 0, 2, 1}), sizeof order);
    /* 40, 15 + 9.5, 10 + 19, 0 + 28.5. */
    costs.fetch_between = 19;
    assert_int_equal(cover_late(&costs, 0, total, 1, 4, order), 2);
    assert_int_equal(cover_late(&costs, 20, total, 1, 4, order), 4);
    costs.way = 0.5; /* 15 + 4.75, 10 + 9.5, 0 + 14.25 */
    assert_int_equal(cover_late(&costs, 0, total, 1, 4, order), 4);
    costs.way = 1;
    assert_int_equal(cover_late(&costs, 0, total, 1, 1, order), 1);
    /* 15, 10 + 7 and 14: not a tenth; 13 is more; but all gradients count, of 20 s each. */
    order[1] = 0, order[2] = 2;
    costs.fetch_between = 14;
    assert_int_equal(cover_late(&costs, 0, total, 2, 4, order), 2);
    costs.fetch_between = 13;
    assert_int_equal(cover_late(&costs, 0, total, 2, 4, order), 4);
    costs.hidden_backward = 79;
    assert_int_equal(cover_late(&costs, 0, total, 2, 4, order), 2);
}

/* Two nodes of two gates with an expert each: the first one's 60 routes, or what a node has of 80
 * and 40; and of experts that are in one node alone a copy more on every rank. */
TEST(gates_are_pooled_by_hand) {
    static const int32_t owner[] = {0, 1, 2, 3};
    static const int64_t total[] = {60, 20, 30, 10};
    const struct mp_topology topology = {4, 2};
    int64_t room[14];
    const struct mp_nodewise_experts all = {&topology, owner, total, 4, room};
    const struct mp_nodewise_costs apart = {.row_between = 1,
                                            .fetch_between = 60,
                                            .fetch_inside = 3,
                                            .reduce_inside = 5,
                                            .hidden_backward = 1,
                                            .product = 7,
                                            .way = 1,
                                            .gates = 2,
                                            .ranks_per_gate = 1};
    const struct mp_nodewise_costs pooled = mp_nodewise_pooled(&apart, 2);
    int32_t order[] = {0, 2, 1, 3};
    double seconds;
    assert_int_equal(mp_nodewise_cover(&apart, 0, &all, 0, 4, order, &seconds), 0);
    assert_true(seconds == 60);
    assert_int_equal(mp_nodewise_cover(&pooled, 0, &all, 0, 4, order, &seconds), 0);
    assert_true(seconds == 40 + 7 + 3 + 4);
    /* The hottest of the fuller node first, then of the other; half as many copies are left. */
    assert_int_equal(mp_nodewise_cover(&pooled, 60, &all, 0, 2, order, &seconds), 2);
    assert_memory_equal(order, ((const int32_t[]){0, 2, 1, 3}), sizeof order);
    assert_true(seconds == 10 + 7 + 1.5 + 1.5);
}
