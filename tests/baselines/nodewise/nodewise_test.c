/* Nodewise: routes spread and evened out inside a node, and plans: legal, inside nodes where the
 * node holds the expert, late only where that pays. */
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/memory.h"

#include "baselines/nodewise/nodewise.h"
#include "reference/schedule/hops.h"

enum { MOST_RANKS = 24, MOST_EXPERTS = 40 };

/* ---- inside a node ---- */

static int64_t routes_of(const struct mp_nodewise_node *node, int rank, int expert) {
    int64_t routes = 0;
    for (int32_t at = node->first[rank]; at >= 0; at = node->share[at].next)
        routes += node->share[at].expert == expert ? node->share[at].routes : 0;
    return routes;
}

/* A rank's routes, and a product for each expert that has some. */
static int64_t load_of(const struct mp_nodewise_node *node, int rank) {
    int64_t load = 0;
    for (int expert = 0; expert < MOST_EXPERTS; expert++) {
        int64_t routes = routes_of(node, rank, expert);
        load += routes + (routes > 0 ? node->product : 0);
    }
    return load;
}

/* Ranks with random loads of an expert each, number `rank`. */
static void create_node(uint64_t *random, int copies, int64_t product,
                        struct mp_nodewise_node *node) {
    int ranks = test_random_int(random, 1, MOST_RANKS);
    mp_nodewise_node_create(&memory, MOST_RANKS, MOST_EXPERTS, copies, product, node);
    mp_nodewise_node_begin(node, ranks);
    for (int rank = 0; rank < ranks; rank++)
        if (test_random_int(random, 0, 3))
            mp_nodewise_node_add(node, rank, rank, test_random_int(random, 1, 1000), false);
}

/* Whoever gets routes ends no higher than anybody else would with one more. */
TEST_RANDOM(routes_fill_from_below) {
    for (int round = 0; round < 300; round++) {
        struct mp_nodewise_node node;
        int64_t before[MOST_RANKS], sum = 0, routes = test_random_int(random, 0, 5000);
        int64_t product = test_random_int(random, 0, 1) * test_random_int(random, 1, 500);
        int32_t holder[MOST_RANKS];
        int holders = 0;
        create_node(random, 1, product, &node);
        for (int rank = 0; rank < node.ranks; rank++) {
            before[rank] = node.load[rank];
            if (test_random_int(random, 0, 1) || (holders == 0 && rank + 1 == node.ranks))
                holder[holders++] = rank;
        }
        mp_nodewise_node_spread(&node, MOST_EXPERTS - 1, holder, holders, routes);
        for (int rank = 0; rank < node.ranks; rank++) {
            int64_t got = routes_of(&node, rank, MOST_EXPERTS - 1);
            assert_int_equal(node.load[rank], before[rank] + got + (got > 0 ? product : 0));
            sum += got;
            for (int i = 0; got > 0 && i < holders; i++)
                assert_true(node.load[rank] <= before[holder[i]] + product +
                                                   routes_of(&node, holder[i], MOST_EXPERTS - 1) +
                                                   1);
        }
        assert_int_equal(sum, routes);
    }
}

/* Nothing is lost, no gift takes less off its giver than asked for, nobody has too many copies, and
 * with the smallest gifts, no products and enough copies nobody has more than the mean. */
TEST_RANDOM(ranks_are_evened_out) {
    int even = 0, uneven = 0;
    for (int round = 0; round < 300; round++) {
        struct mp_nodewise_node node;
        bool freely = test_random_int(random, 0, 1);
        int64_t routes[MOST_EXPERTS], sum = 0, least = freely ? 1 : test_random_int(random, 1, 400);
        int64_t product = freely ? 0 : test_random_int(random, 0, 300);
        int limit = freely ? MOST_EXPERTS : test_random_int(random, 0, 2), owner[MOST_EXPERTS];
        bool fixed[MOST_EXPERTS];
        int ranks = test_random_int(random, 1, MOST_RANKS);
        mp_nodewise_node_create(&memory, MOST_RANKS, MOST_EXPERTS, limit, product, &node);
        mp_nodewise_node_begin(&node, ranks);
        for (int expert = 0; expert < MOST_EXPERTS; expert++) {
            owner[expert] = test_random_int(random, 0, ranks - 1);
            routes[expert] = test_random_int(random, 0, 3) ? test_random_int(random, 1, 1000) : 0;
            fixed[expert] = !freely && test_random_int(random, 0, 7) == 0;
            if (routes[expert] > 0)
                mp_nodewise_node_add(&node, owner[expert], expert, routes[expert], fixed[expert]);
            sum += routes[expert] + (routes[expert] > 0 ? product : 0);
        }
        int64_t fullest = mp_nodewise_node_fullest(&node);
        mp_nodewise_node_even(&node, least, limit);
        for (int expert = 0; expert < MOST_EXPERTS; expert++) {
            int64_t there = 0;
            for (int rank = 0; rank < ranks; rank++) {
                int64_t some = routes_of(&node, rank, expert);
                assert_true(rank == owner[expert] || some == 0 ||
                            (some + product >= least && !fixed[expert]));
                there += some;
            }
            assert_int_equal(there, routes[expert]);
        }
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(node.load[rank], load_of(&node, rank));
            assert_true(node.copies[rank] <= limit);
            if (freely)
                assert_true(node.load[rank] <= (sum + ranks - 1) / ranks);
        }
        assert_true(mp_nodewise_node_fullest(&node) <= fullest);
        even += freely;
        uneven += mp_nodewise_node_fullest(&node) * ranks > sum + ranks;
    }
    assert_true(even > 0 && uneven > 0);
}

/* What a node of three ranks computes of experts 0 to 2 at last, of which the first rank has so
 * many routes at first; the others have some of another one. */
static void check_evened(int64_t product, int64_t least, const int64_t routes[3],
                         const struct mp_nodewise_share other[2], const int64_t expected[3][3]) {
    struct mp_nodewise_node node;
    mp_nodewise_node_create(&memory, 3, MOST_EXPERTS, 3, product, &node);
    mp_nodewise_node_begin(&node, 3);
    for (int i = 0; i < 3; i++) {
        if (routes[i] > 0)
            mp_nodewise_node_add(&node, 0, i, routes[i], false);
        if (i > 0 && other[i - 1].routes > 0)
            mp_nodewise_node_add(&node, i, other[i - 1].expert, other[i - 1].routes, false);
    }
    mp_nodewise_node_even(&node, least, 3);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(node.load[rank], load_of(&node, rank));
        for (int expert = 0; expert < 3; expert++)
            assert_int_equal(routes_of(&node, rank, expert), expected[rank][expert]);
    }
}

/* A copy takes a product more, which the level that all give down to has to have room for; a whole
 * expert takes its product along. */
TEST(products_count_by_hand) {
    static const struct mp_nodewise_share nothing[2],
        apart[] = {{.routes = 40, .expert = 3}, {.routes = 40, .expert = 3}};
    static const struct mp_nodewise_share same[] = {{.routes = 100, .expert = 0},
                                                    {.routes = 100, .expert = 0}};
    /* 660 beside nothing twice: two copies more make it 780 for three. */
    check_evened(60, 1, (int64_t[3]){600, 0, 0}, nothing,
                 (const int64_t[3][3]){{200, 0, 0}, {200, 0, 0}, {200, 0, 0}});
    /* 310 beside 80 twice: not to 157, but to 184.  Of the 104 below it a part of expert 0 would
     * take 64 off the first one, expert 1 as a whole 70; then 56 are left. */
    check_evened(40, 1, (int64_t[3]){200, 30, 0}, apart,
                 (const int64_t[3][3]){{144, 0, 0}, {0, 30, 0}, {56, 0, 0}});
    /* Which is too little. */
    check_evened(40, 65, (int64_t[3]){200, 30, 0}, apart,
                 (const int64_t[3][3]){{200, 0, 0}, {0, 30, 0}, {0, 0, 0}});
    /* 540 beside 140 twice, who have the expert: to 300, as if they took copies, 120 at a time, and
     * to the same one again. */
    check_evened(40, 1, (int64_t[3]){500, 0, 0}, same,
                 (const int64_t[3][3]){{260, 0, 0}, {220, 0, 0}, {220, 0, 0}});
    /* 280 and 240 beside nothing, to 187: 93 and a product leave room for a product and 14. */
    static const struct mp_nodewise_share full[] = {{0}, {.routes = 200, .expert = 2}};
    check_evened(40, 1, (int64_t[3]){100, 100, 0}, full,
                 (const int64_t[3][3]){{7, 100, 0}, {93, 0, 14}, {0, 0, 186}});
    /* 580 and 540 beside 100, to 420: 160 without a product leave room for one and 120. */
    static const struct mp_nodewise_share fuller[] = {{.routes = 60, .expert = 0},
                                                      {.routes = 500, .expert = 2}};
    check_evened(40, 1, (int64_t[3]){300, 200, 0}, fuller,
                 (const int64_t[3][3]){{140, 200, 0}, {220, 0, 120}, {0, 0, 380}});
}

/* Three ranks, all routes on the first: of two experts, whose copies leave it one after the other,
 * or of one, whose second copy is passed on.  A copy's way that nothing hides is as long as 200
 * routes. */
TEST(all_copies_together_have_to_pay) {
    struct mp_nodewise_costs costs = {.route = 0.75, .row_inside = 0.25, .fetch_inside = 200};
    for (int late = 0; late < 2; late++)
        for (int experts = 1; experts < 3; experts++) {
            const struct mp_nodewise_hidden hidden = {late ? 0 : 1e9, 0};
            struct mp_nodewise_node node;
            mp_nodewise_node_create(&memory, 3, 2, 2, 0, &node);
            mp_nodewise_node_begin(&node, 3);
            for (int expert = 0; expert < experts; expert++)
                mp_nodewise_node_add(&node, 0, expert, 600 / experts, false);
            const bool pays = !late || experts == 1;
            assert_int_equal(mp_nodewise_node_even_out(&node, &costs, hidden, 2), pays);
            for (int rank = 0; rank < 3; rank++) {
                assert_int_equal(node.load[rank], 200);
                assert_int_equal(node.copies[rank], rank > 0);
                int64_t there = 0;
                for (int expert = 0; expert < experts; expert++)
                    there += routes_of(&node, rank, expert);
                assert_int_equal(there, node.load[rank]);
            }
        }
    /* Two copies on their way there, or their gradients back, one after the other, save 400
     * routes. */
    for (int hidden = 0; hidden < 4; hidden++) {
        const bool back = hidden & 1, enough = hidden & 2;
        struct mp_nodewise_node node;
        costs.fetch_inside = back ? 0 : 250;
        costs.reduce_inside = back ? 250 : 0;
        mp_nodewise_node_create(&memory, 3, 2, 2, 0, &node);
        mp_nodewise_node_begin(&node, 3);
        mp_nodewise_node_add(&node, 0, 0, 300, false);
        mp_nodewise_node_add(&node, 0, 1, 300, false);
        double seconds = enough ? 101 : 99;
        assert_int_equal(mp_nodewise_node_even_out(
                             &node, &costs,
                             (struct mp_nodewise_hidden){back ? 1 : seconds, back ? seconds : 0},
                             2),
                         enough);
    }
}

/* ---- plans ---- */

/* Figures of a machine on which copies pay, or don't. */
static struct mp_setting random_setting(uint64_t *random, struct mp_topology topology) {
    struct mp_setting setting =
        small_setting(2, test_random_int(random, 1, MOST_EXPERTS), topology);
    setting.bandwidth = 1e3 * test_random_int(random, 1, 1000);
    setting.bandwidth_in_node = 4 * setting.bandwidth;
    setting.seconds_per_route = 1e-3 * test_random_double(random);
    setting.seconds_per_expert = 1e-3 * test_random_double(random);
    setting.non_moe_seconds = test_random_double(random);
    setting.ranks_per_gate = test_random_int(random, 0, topology.ranks_per_node);
    return setting;
}

/* Of a source and an expert that its node holds no route leaves the node. */
static void check_inside(const struct mp_plan *plan, const struct mp_load *load) {
    for (int source = 0; source < load->ranks; source++) {
        int node = mp_topology_node(&plan->topology, source);
        int begin = mp_topology_node_begin(&plan->topology, node);
        int end = mp_topology_node_end(&plan->topology, node);
        for (int expert = 0; expert < plan->experts; expert++) {
            int holder = mp_placement_next(&plan->during, expert, begin);
            int64_t inside = 0;
            for (int rank = begin; rank < end; rank++)
                inside += mp_plan_routes_to(plan, source, expert, rank);
            if (holder >= 0 && holder < end)
                assert_int_equal(inside, mp_load_at(load, source, expert));
            else
                assert_int_equal(inside, 0);
        }
    }
}

static int fetched(const struct mp_plan *plan, enum mp_stage stage) {
    int count = 0;
    for (int i = 0; i < plan->fetch.count; i++)
        count += plan->fetch.item[i].stage == stage;
    return count;
}

/* At the costs of cover_by_hand: what the last iteration wanted is there before the gate, and what
 * that did not foresee comes behind it.  Of 150, 30 and 300 routes more than expected, 165 s at the
 * fullest gate, these are worth 20 s each and 20 s for gradients, of which 25 are hidden. */
static const struct {
    uint32_t last[4], comes[4];
    const char *options;
    int before, behind;
} surprises[] = {{{60, 20, 30, 10}, {60, 20, 30, 10}, "", 1, 0},
                 {{68, 10, 100, 10}, {68, 10, 100, 10}, "", 2, 0},
                 {{52, 46, 30, 68}, {52, 46, 30, 68}, "", 0, 0},
                 {{52, 46, 30, 68}, {52, 46, 30, 68}, "window=2", 0, 0},
                 {{60, 20, 30, 10}, {20, 150, 30, 300}, "", 1, 2},
                 {{60, 20, 30, 10}, {20, 150, 30, 300}, "correct=no", 1, 0},
                 {{60, 20, 30, 10}, {20, 150, 30, 300}, "cover=1", 1, 0},
                 {{60, 20, 30, 10}, {20, 150, 30, 300}, "memory=1", 1, 1}};

static struct mp_setting setting_by_hand(void) {
    struct mp_setting setting = small_setting(1, 4, (struct mp_topology){4, 2});
    setting.expert_bytes = 160;
    setting.gradient_bytes = 160;
    setting.route_bytes = 1;
    setting.attention_bytes = 100;
    setting.bandwidth = 4;
    setting.bandwidth_in_node = 0;
    setting.seconds_per_route = setting.seconds_per_expert = 0;
    setting.non_moe_seconds = 25;
    setting.ranks_per_gate = 2;
    return setting;
}

/* A half of so many routes from either node. */
static void load_by_hand(struct mp_load *load, const uint32_t total[4]) {
    for (int expert = 0; expert < 4; expert++)
        load->count[expert] = load->count[12 + expert] = total[expert] / 2;
}

TEST_ROWS(what_was_not_foreseen_comes_late, surprises, c) {
    const struct mp_setting setting = setting_by_hand();
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, c->options);
    struct mp_load *load = rehearsal.load;
    load_by_hand(load, c->last);
    rehearsal_step(&rehearsal, load);
    rehearsal_step(&rehearsal, load);
    load_by_hand(load, c->comes);
    rehearsal_plan(&rehearsal, 0, load);
    const struct mp_plan *plan = rehearsal.planner.plan;
    assert_int_equal(fetched(plan, MP_STAGE_BEFORE_GATE), c->before);
    assert_int_equal(fetched(plan, MP_STAGE_AFTER_GATE), c->behind);
}

/* The same in the first of several micro-batches; the next one has those copies, and before its
 * gate what the first has shown.  Of two experts 30 s are not hidden, which in the first count
 * 34.5, more than the 34 that the second expert saves; then its gradient's 15 s alone, and a third
 * of them where three micro-batches are left. */
static const struct {
    uint32_t last[4], comes[4];
    const char *options;
    int count, before[2], behind[2];
    bool serves;
} stays[] = {{{60, 20, 30, 10}, {20, 150, 30, 300}, "", 2, {1, 0}, {2, 0}, false},
             {{60, 20, 30, 10}, {20, 150, 30, 300}, "correct=no", 2, {1, 2}, {0, 0}, false},
             {{68, 10, 100, 10}, {68, 10, 100, 10}, "correct=no", 2, {1, 1}, {0, 0}, false},
             {{60, 20, 30, 10}, {60, 20, 30, 10}, "", 2, {1, 0}, {0, 0}, false},
             {{60, 20, 30, 10}, {60, 20, 30, 10}, "", 4, {1, 1}, {0, 0}, false},
             {{60, 20, 30, 10}, {20, 150, 30, 300}, "correct=no", 2, {1, 1}, {0, 0}, true},
             {{60, 20, 30, 10}, {20, 150, 30, 300}, "rematerialise=yes", 2, {1, 1}, {1, 1}, false}};

TEST_ROWS(copies_stay_for_the_next_micro_batch, stays, c) {
    struct mp_setting setting = setting_by_hand();
    setting.micro_batches = c->count;
    setting.forward_only = c->serves;
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, c->options);
    load_by_hand(rehearsal.load, c->last);
    rehearsal_step(&rehearsal, rehearsal.load);
    load_by_hand(rehearsal.load, c->comes);
    for (int m = 0, there = 0; m < 2; m++) {
        const struct mp_plan *plan = rehearsal.planner.plan;
        mp_planner_begin_micro_batch(&rehearsal.planner, m);
        rehearsal_plan(&rehearsal, 0, rehearsal.load);
        assert_int_equal(fetched(plan, MP_STAGE_BACKWARD_PREFETCH),
                         plan->policy->copies_stay ? there : 0);
        assert_int_equal(fetched(plan, MP_STAGE_BEFORE_GATE), c->before[m]);
        assert_int_equal(fetched(plan, MP_STAGE_AFTER_GATE), c->behind[m]);
        there = plan->fetch.count;
    }
}

/* Where plans are not kept, backward makes that of its micro-batch once more. */
TEST(a_micro_batch_is_planned_alike_again) {
    static const uint32_t comes[2][4] = {{20, 150, 30, 300}, {300, 20, 150, 10}};
    struct mp_setting setting = setting_by_hand();
    setting.micro_batches = 3;
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, "correct=no");
    for (int m = 0; m < 2; m++) {
        load_by_hand(rehearsal.load, comes[m]);
        mp_planner_begin_micro_batch(&rehearsal.planner, m);
        rehearsal_plan(&rehearsal, 0, rehearsal.load);
        uint64_t digest = mp_plan_digest(rehearsal.planner.plan);
        rehearsal_plan(&rehearsal, 0, rehearsal.load);
        assert_true(mp_plan_digest(rehearsal.planner.plan) == digest);
    }
}

/* A rank of a node of four has no room for a copy more. */
static bool is_full(const struct mp_plan *plan, int node, int limit) {
    int most = 0;
    for (int rank = 4 * node; rank < 4 * node + 4; rank++) {
        int copies = 0;
        for (int expert = 0; expert < plan->experts; expert++)
            copies += plan->during.owner[expert] != rank &&
                      mp_placement_holds(&plan->during, expert, rank);
        most = copies > most ? copies : most;
    }
    return most == limit;
}

/* With every expert in every node rows stay inside, and as copies cost nothing, the fullest rank
 * has no more than its share. */
TEST_RANDOM(nodes_keep_to_themselves) {
    int full = 0, nodes = 0;
    for (int round = 0; round < 30; round++) {
        const struct mp_topology topology = {4 * test_random_int(random, 2, 5), 4};
        struct mp_setting setting = random_setting(random, topology);
        AUTO(rehearsal) struct rehearsal rehearsal;
        int64_t computed[MOST_RANKS];
        setting.seconds_per_expert = 0;
        setting.seconds_per_route = 1;
        setting.bandwidth = setting.bandwidth_in_node = 1e12;
        rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, "cover=all memory=all");
        struct mp_load *load = rehearsal.load;
        random_load(random, load);
        rehearsal_plan(&rehearsal, 0, load);
        const struct mp_plan *plan = rehearsal.planner.plan;
        int limit = mp_system_nodewise.copies_limit(rehearsal.planner.self);
        check_inside(plan, load);
        rank_routes(plan, computed, NULL, NULL);
        for (int node = 0; node < mp_topology_nodes(&topology); node++) {
            int64_t sum = 0, most = 0;
            nodes++;
            for (int rank = 4 * node; rank < 4 * node + 4; rank++) {
                sum += computed[rank];
                most = computed[rank] > most ? computed[rank] : most;
            }
            for (int expert = 0; expert < setting.experts; expert++)
                assert_in_range(mp_placement_next(&plan->during, expert, 4 * node), 4 * node,
                                4 * node + 3);
            assert_true(most <= (sum + 3) / 4 || is_full(plan, node, limit));
            full += is_full(plan, node, limit);
        }
    }
    assert_true(2 * full < nodes);
}

/* What the gates of all nodes carry of a plan's copies: in, and out. */
static void count_ways(const struct mp_plan *plan, int ranks_per_gate, int way[2][MOST_RANKS]) {
    for (int expert = 0; expert < plan->experts; expert++) {
        struct mp_hop hop[MOST_RANKS];
        struct mp_receiver receiver[MOST_RANKS];
        bool enters[MOST_RANKS] = {false};
        int count = 0, owner = plan->during.owner[expert];
        for (int i = 0; i < plan->fetch.count; i++)
            if (plan->fetch.item[i].expert == expert)
                enters[plan->fetch.item[i].to] = plan->fetch.item[i].enters;
        for (int rank = 0; rank < plan->topology.ranks; rank++)
            if (rank != owner && mp_placement_holds(&plan->during, expert, rank))
                receiver[count++] = (struct mp_receiver){rank, enters[rank]};
        mp_hops(&plan->topology, expert, owner, receiver, count, hop);
        for (int i = 0; i < count; i++)
            if (hop[i].from / 4 != hop[i].to / 4) {
                way[0][hop[i].to / ranks_per_gate]++;
                way[1][hop[i].from / ranks_per_gate]++;
            }
    }
}

/* Nodes of four ranks that have 1, 2 or 4 to a gate: in each node no gate carries much more than
 * its part of the copies, before the gate or, where none were expected, behind it, and hardly ever
 * more than one beyond it. */
TEST_RANDOM(gates_share_the_ways_of_copies) {
    int beyond = 0, gates = 0, stages[2] = {0};
    for (int round = 0; round < 60; round++) {
        const struct mp_topology topology = {4 * test_random_int(random, 2, 6), 4};
        struct mp_setting setting = small_setting(1, test_random_int(random, 20, 40), topology);
        const int each = 1 << test_random_int(random, 0, 2);
        int way[2][MOST_RANKS] = {0};
        AUTO(rehearsal) struct rehearsal rehearsal;
        setting.ranks_per_gate = each;
        const bool late = round % 2;
        if (late) {
            setting.bandwidth = 1;
            setting.route_bytes = 1 << 20;
        }
        rehearsal_open(&rehearsal, &mp_system_nodewise, &setting,
                       late ? "memory=all" : "cover=all memory=all correct=no");
        struct mp_load *load = rehearsal.load;
        if (late)
            rehearsal_step(&rehearsal, load);
        random_load(random, load);
        if (!late)
            rehearsal_step(&rehearsal, load);
        rehearsal_plan(&rehearsal, 0, load);
        count_ways(rehearsal.planner.plan, each, way);
        stages[late] +=
            fetched(rehearsal.planner.plan, late ? MP_STAGE_AFTER_GATE : MP_STAGE_BEFORE_GATE) > 0;
        for (int node = 0; node < mp_topology_nodes(&topology); node++) {
            int sum[2] = {0}, first = 4 * node / each;
            for (int i = 0; i < 8 / each; i++)
                sum[i % 2] += way[i % 2][first + i / 2];
            int most = (sum[0] > sum[1] ? sum[0] : sum[1]) * each, part = (most + 3) / 4;
            for (int i = 0; i < 8 / each; i++, gates++) {
                assert_in_range(way[i % 2][first + i / 2], 0, part + 2);
                beyond += way[i % 2][first + i / 2] > part;
            }
        }
    }
    assert_true(10 * beyond < gates && stages[0] == 30 && stages[1] == 30);
}

/* Whatever nodes have in common, and whoever takes what they lack. */
TEST_RANDOM(what_a_node_holds_it_computes) {
    int away = 0;
    for (int round = 0; round < 30; round++) {
        const struct mp_topology topology = {2 * test_random_int(random, 2, 10), 2};
        const struct mp_setting setting = random_setting(random, topology);
        struct mp_nodewise_options options;
        AUTO(rehearsal) struct rehearsal rehearsal;
        parse_options(&mp_system_nodewise, &options, NULL);
        options.cover = test_random_int(random, 0, setting.experts);
        rehearsal_create(&rehearsal, &mp_system_nodewise, &setting, &options);
        struct mp_load *load = rehearsal.load;
        random_load(random, load);
        rehearsal_plan(&rehearsal, 0, load);
        check_inside(rehearsal.planner.plan, load);
        struct mp_plan_facts facts;
        mp_plan_facts(rehearsal.planner.plan, load, &facts);
        away += facts.routes_between_nodes > 0;
    }
    assert_true(away > 0);
}

/* Four ranks to a node, two behind a gate, and two owners of equal load behind the same: of experts
 * that no copy between nodes pays for there is one behind either gate of their node, on a rank that
 * has no other, and half of other nodes' routes come in there. */
static const struct {
    const char *options;
    int memory; /* copies of each layer that there is room for */
    bool pools;
} pools[] = {{"", 9, true},
             {"even=no pool=no", 9, false},
             {"even=no cover=0", 9, false},
             {"even=no", 1, false}};

TEST_ROWS(gates_are_pooled_where_that_pays, pools, c) {
    struct mp_setting setting = small_setting(1, 6, (struct mp_topology){12, 4});
    setting.expert_bytes = 1000000;
    setting.gradient_bytes = 0;
    setting.copies_memory = c->memory * 1000000;
    setting.route_bytes = 1;
    setting.bandwidth = 10;
    setting.bandwidth_in_node = 1e12;
    setting.seconds_per_route = setting.seconds_per_expert = 0;
    setting.ranks_per_gate = 2;
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, c->options);
    mp_placement_set_owners(rehearsal.planner.home, (const int32_t[]){0, 1, 4, 5, 8, 9});
    struct mp_load *load = rehearsal.load;
    for (int cell = 0; cell < 72; cell++)
        load->count[cell] = (uint32_t)(10 + 8 * (cell % 6 / 2));
    rehearsal_step(&rehearsal, load);
    rehearsal_plan(&rehearsal, 0, load);
    const struct mp_plan *plan = rehearsal.planner.plan;
    assert_int_equal(fetched(plan, MP_STAGE_BEFORE_GATE), c->pools ? 6 : 0);
    assert_int_equal(fetched(plan, MP_STAGE_AFTER_GATE), 0);
    for (int rank = 0; rank < 12 && c->pools; rank++) {
        const int expert = rank / 4 * 2 + rank % 2;
        int64_t in = 0;
        for (int source = 0; source < 12; source++)
            in += source / 4 == rank / 4 ? 0 : mp_plan_routes_to(plan, source, expert, rank);
        assert_int_equal(in, 4 * load->count[expert]);
    }
}

/* Three nodes of two ranks, of which two hold the expert: the one with less to do gets the third's
 * routes. */
TEST(the_node_with_less_to_do_takes) {
    const struct mp_setting setting = setting_of("experts=3 ranks=6 ranks-per-node=2");
    for (int busy = 0; busy < 2; busy++) {
        AUTO(rehearsal) struct rehearsal rehearsal;
        rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, "cover=0 correct=no");
        struct mp_planner *planner = &rehearsal.planner;
        uint32_t *count = rehearsal.load->count;
        mp_placement_set_owners(planner->home, (const int32_t[]){0, 0, 2});
        assert_works(mp_planner_begin_layer(planner, 0, 0, &error));
        assert_works(mp_plan_add_copy(planner->plan, 0, 2, MP_STAGE_BEFORE_GATE, &error));
        count[4 * 3] = 10;                         /* node 2, expert 0 */
        count[2 * busy * 3 + (busy ? 2 : 1)] = 50; /* what node 0, or 1, has of its own */
        assert_works(mp_planner_end_layer(planner, 0, rehearsal.load, &error));
        assert_int_equal(mp_plan_routes_to(planner->plan, 4, 0, busy ? 0 : 2), 10);
    }
}

/* One hot expert on four ranks of one node; a copy's way takes as long as so many routes. */
static int late_copies(int64_t routes_of_a_copy, const char *chunks) {
    struct mp_setting setting = small_setting(1, 4, (struct mp_topology){4, 4});
    AUTO(rehearsal) struct rehearsal rehearsal;
    setting.expert_bytes = 1000;
    setting.route_bytes = 0;
    setting.bandwidth = 1000;
    setting.seconds_per_route = 1.0 / 3 / (double)routes_of_a_copy;
    setting.non_moe_seconds = 1;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, formatted("chunks=%s", chunks));
    struct mp_load *load = rehearsal.load;
    for (int source = 0; source < 4; source++)
        load->count[source * 4] = 100;
    rehearsal_plan(&rehearsal, 0, load);
    int copies = rehearsal.planner.plan->fetch.count;
    for (int i = 0; i < copies; i++)
        assert_int_equal(rehearsal.planner.plan->fetch.item[i].stage, MP_STAGE_AFTER_GATE);
    rehearsal_step(&rehearsal, load);
    rehearsal_plan(&rehearsal, 0, load); /* expected now, and hidden */
    assert_int_equal(rehearsal.planner.plan->fetch.count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rehearsal.planner.plan->fetch.item[i].stage, MP_STAGE_BEFORE_GATE);
    return copies;
}

TEST(late_copies_pay_for_their_way) {
    assert_int_equal(late_copies(99, "1"), 3);
    assert_int_equal(late_copies(101, "1"), 0);
    /* Three quarters of the products of 100 routes hide their way, a third of what these take; or
     * half of them. */
    assert_int_equal(late_copies(124, "3"), 3);
    assert_int_equal(late_copies(126, "3"), 0);
    assert_int_equal(late_copies(116, "2"), 3);
    assert_int_equal(late_copies(117, "2"), 0);
}

static const struct {
    const char *setting;
    int limit; /* of copies beside a rank's own experts, whatever memory it has */
} memories[] = {{"experts=8 ranks-per-node=4", 6},
                {"experts=8 ranks-per-node=2", 8},
                {"experts=64 ranks=32 ranks-per-node=8", 14},
                {"experts=8 ranks=1", 0}};

TEST_ROWS(memory_limits_copies, memories, c) {
    for (int limited = 0; limited < 2; limited++) {
        struct mp_setting setting =
            setting_of(formatted("layers=2 expert-bytes=10 gradient-bytes=30 copies-memory=%d %s",
                                 limited * (2 * 40 * 3 + 1), c->setting));
        AUTO(rehearsal) struct rehearsal rehearsal;
        rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, NULL);
        assert_int_equal(rehearsal.planner.law.extra_copies_limit,
                         limited && c->limit > 3 ? 3 : c->limit);
    }
}

/* A copy that stays takes 4 x 40 bytes, one that is freed half of that: where ranks own an expert
 * or more, one copy that stays is enough, elsewhere two. */
static const struct {
    const char *setting, *options;
    bool serves, again;
    int limit;
} lives[] = {{"experts=64 copies-memory=159", NULL, false, true, 1},
             {"experts=64 copies-memory=160", NULL, false, false, 1},
             {"experts=16 copies-memory=319", NULL, false, true, 3},
             {"experts=16 copies-memory=320", NULL, false, false, 2},
             {"experts=16 copies-memory=320", "rematerialise=yes", false, true, 4},
             {"experts=16 copies-memory=159", "rematerialise=no", false, false, 0},
             {"experts=16 copies-memory=319", "rematerialise=yes", true, false, 3},
             {"experts=16", NULL, false, false, 6}};

TEST_ROWS(copies_are_fetched_again_where_few_can_stay, lives, c) {
    struct mp_setting setting = setting_of(formatted(
        "layers=4 ranks=32 ranks-per-node=8 expert-bytes=10 gradient-bytes=30 %s", c->setting));
    setting.forward_only = c->serves;
    AUTO(rehearsal) struct rehearsal rehearsal;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting, c->options);
    assert_int_equal(rehearsal.planner.policy.rematerialise, c->again);
    assert_int_equal(rehearsal.planner.policy.updates_early, !c->again && !c->serves);
    assert_int_equal(rehearsal.planner.law.extra_copies_limit, c->limit);
}

/* Five chunks, unless eight messages take half as long as products; where not all experts are
 * covered three, unless gradients take nine tenths of what hides them, or four messages half as
 * long as products.  7 covered experts take half as many gradients through a gate, of 1 s each; a
 * rank has 16 routes and 2 experts. */
static const struct {
    const char *cover;
    double hides, route, expert, latency, inside;
    int parts;
} chunks[] = {
    {"8", 0, 0, 0, 0, 0, 5},       {"8", 9, 1, 4, 99, 1.45, 5},  {"8", 9, 1, 4, 99, 1.55, 1},
    {"7", 3.9, 20, 0, 0, 0, 3},    {"7", 3.8, 20, 0, 0, 0, 1},   {"0", 0, 1, 0, 0, 0, 3},
    {"7", 9, 20, 40, 49.9, 99, 3}, {"7", 9, 20, 40, 50.1, 0, 1},
};

TEST_ROWS(chunks_where_gates_have_time, chunks, c) {
    struct mp_setting setting = small_setting(1, 8, (struct mp_topology){4, 2});
    AUTO(rehearsal) struct rehearsal rehearsal;
    setting.bandwidth = 1;
    setting.bandwidth_in_node = 1e9;
    setting.gradient_bytes = 1;
    setting.attention_bytes = 0;
    setting.route_bytes = 8;
    setting.non_moe_seconds = c->hides / 2;
    setting.seconds_per_route = c->route;
    setting.seconds_per_expert = c->expert;
    setting.latency = c->latency;
    setting.latency_in_node = c->inside;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting,
                   formatted("cover=%s memory=all", c->cover));
    struct mp_load *load = rehearsal.load;
    for (int cell = 0; cell < 32; cell++)
        load->count[cell] = 2;
    rehearsal_step(&rehearsal, load);
    rehearsal_plan(&rehearsal, 0, load);
    assert_int_equal(rehearsal.planner.plan->degree, c->parts);
    assert_true(!rehearsal.planner.plan->place_chunk == (c->parts == 1));
}

/* 8 covered experts are four ways into each of two nodes, of 10 s: so many behind each gate go
 * ahead as take what is longer than forward, and less than twice that has left beside gradients and
 * sums; with an option as many as it says. */
static const struct {
    const char *options;
    int layer, gates;
    double non_moe, route, expert; /* seconds; a rank has 6 routes and 2 experts */
    int reduce, attention;         /* seconds */
    int each;
} ahead[] = {
    {"", 2, 1, 15, 0, 0, 1, 0, 2},        {"", 2, 1, 5, 1, 2, 1, 0, 2},
    {"", 3, 1, 15, 0, 0, 5, 0, 1},        {"", 2, 1, 15, 0, 0, 4, 3, 0},
    {"", 2, 1, 19.9, 0, 0, 1, 0, 2},      {"", 2, 1, 20.1, 0, 0, 1, 0, 1},
    {"", 2, 1, 30.1, 0, 0, 1, 0, 0},      {"", 1, 1, 15, 0, 0, 1, 0, 0},
    {"", 2, 2, 15, 0, 0, 1, 0, 1},        {"ahead=3", 0, 1, 99, 0, 0, 9, 9, 3},
    {"ahead=0", 2, 1, 15, 0, 0, 1, 0, 0}, {"ahead=all", 2, 1, 15, 0, 0, 1, 0, 4},
};

TEST_ROWS(what_is_late_goes_ahead, ahead, c) {
    static const uint32_t heat[] = {1, 5, 3, 2, 2, 3, 5, 1};
    struct mp_setting setting = small_setting(4, 8, (struct mp_topology){4, 2});
    AUTO(rehearsal) struct rehearsal rehearsal;
    setting.tokens_per_rank = 3;
    setting.top_k = 2;
    setting.bandwidth = 1;
    setting.bandwidth_in_node = 1e9;
    setting.expert_bytes = 10;
    setting.gradient_bytes = c->reduce;
    setting.attention_bytes = c->attention;
    setting.non_moe_seconds = c->non_moe;
    setting.seconds_per_route = c->route;
    setting.seconds_per_expert = c->expert;
    setting.ranks_per_gate = 2 / c->gates;
    rehearsal_open(&rehearsal, &mp_system_nodewise, &setting,
                   formatted("cover=all memory=all even=no correct=no %s", c->options));
    const struct mp_plan *plan = rehearsal.planner.plan;
    for (int layer = 0; layer < 4; layer++)
        for (int cell = 0; cell < 32; cell++)
            rehearsal.load[layer].count[cell] = heat[cell % 8];
    for (int iteration = 0; iteration < 3; iteration++) {
        int kept = 0;
        bool sent[8] = {false};
        rehearsal_step(&rehearsal, rehearsal.load);
        rehearsal_plan(&rehearsal, c->layer, rehearsal.load);
        for (int i = 0; i < plan->fetch.count; i++)
            kept += plan->fetch.item[i].stage == MP_STAGE_BACKWARD_PREFETCH;
        assert_int_equal(plan->ahead.count, 2 * c->gates * c->each);
        assert_int_equal(kept, iteration > 0 ? plan->ahead.count : kept);
        for (int i = 0; i < plan->ahead.count; i++) {
            const struct mp_transfer *one = &plan->ahead.item[i];
            assert_int_equal(one->to, (one->from + 2) % 4); /* at its owner's place */
            sent[one->expert] = true;
        }
        for (int e = 0; e < 8; e++) /* the hottest behind each gate */
            for (int cold = e / (4 / c->gates) * (4 / c->gates), n = 0; sent[e] && n < 4 / c->gates;
                 n++)
                assert_true(sent[cold + n] || heat[cold + n] <= heat[e]);
    }
}

static const struct refusal refusals[] = {
    {"ranks-per-node=2", "chunks=0", "nodewise's chunks are 1 to 8, or auto"},
    {"ranks-per-node=2 exchange-degree=4", "chunks=2",
     "nodewise's 2 chunks of experts take a flat exchange without an exchange-degree, not flat "
     "with 4"},
};

TEST_ROWS(what_cannot_be_is_refused, refusals, c) {
    assert_refusal(&mp_system_nodewise, c);
}
