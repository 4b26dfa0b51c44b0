/* Plans, placements and loads as data. */
#include "tests/reference/plan/plan_support.h"

static uint64_t random_state;

TEST(load_sums_agree_with_a_plain_count) {
    AUTO(load) struct mp_load load, copy;
    int64_t total[29], all = 0;

    assert_works(mp_load_create(17, 29, &load, &error));
    assert_works(mp_load_create(17, 29, &copy, &error));
    random_load(&random_state, &load);
    load.count[5] = UINT32_MAX; /* sums do not stay in 32 bits */
    load.count[5 + 29] = UINT32_MAX;
    mp_load_expert_totals(&load, total);
    for (int expert = 0; expert < 29; expert++) {
        int64_t sum = 0;
        for (int source = 0; source < 17; source++)
            sum += mp_load_at(&load, source, expert);
        assert_int_equal(total[expert], sum);
        all += sum;
    }
    assert_int_equal(mp_load_total(&load), all);
    int64_t most = 0;
    for (int cell = 0; cell < load.ranks * load.experts; cell++)
        most = load.count[cell] > most ? load.count[cell] : most;
    assert_int_equal(mp_load_largest(&load), most);
    mp_load_copy(&copy, &load);
    assert_memory_equal(copy.count, load.count, 17 * 29 * sizeof *load.count);
    mp_load_destroy(&load);
    mp_load_destroy(NULL);
}

/* The most and the fewest of a layer, or of all, that groups of neighbours own: one apart at most.
 */
static void assert_even(const int32_t owner[], int count, int ranks, int of_group) {
    int owned[200] = {0}, most = 0, fewest = count;
    for (int i = 0; i < count; i++) {
        assert_in_range(owner[i], 0, ranks - 1);
        owned[owner[i] / of_group]++;
    }
    for (int group = 0; group < ranks / of_group; group++) {
        most = owned[group] > most ? owned[group] : most;
        fewest = owned[group] < fewest ? owned[group] : fewest;
    }
    assert_true(most - fewest <= 1);
}

TEST(owners_are_even_in_layers_and_in_all) {
    static const int32_t expected[5][3] = {{0, 2, 5}, {1, 4, 7}, {0, 3, 6}, {2, 5, 7}, {1, 4, 6}};
    int32_t owner[20 * 90];
    mp_even_owners(5, 3, 8, owner);
    assert_memory_equal(owner, expected, sizeof expected);
    for (int round = 0; round < 300; round++) {
        int layers = test_random_int(&random_state, 1, 20);
        int experts = test_random_int(&random_state, 1, 90);
        int of_group = test_random_int(&random_state, 1, 4);
        int ranks = of_group * test_random_int(&random_state, 1, 10);
        mp_even_owners(layers, experts, ranks, owner);
        assert_even(owner, layers * experts, ranks, 1);
        for (int layer = 0; layer < layers; layer++) {
            assert_even(owner + layer * experts, experts, ranks, 1);
            assert_even(owner + layer * experts, experts, ranks, of_group);
            for (int expert = 1; expert < experts; expert++)
                assert_true(owner[layer * experts + expert] >= owner[layer * experts + expert - 1]);
        }
    }
}

TEST(hottest_is_ordered_by_load_then_id) {
    for (int round = 0; round < 300; round++) {
        int experts = test_random_int(&random_state, 1, 90);
        int wanted = test_random_int(&random_state, 0, experts);
        int64_t total[90];
        int32_t order[90];
        bool chosen[90] = {false};
        for (int expert = 0; expert < experts; expert++)
            total[expert] = test_random_int(&random_state, 0, 12);
        mp_load_hottest(total, experts, wanted, order);
        for (int index = 0; index < wanted; index++) {
            chosen[order[index]] = true;
            if (index > 0)
                assert_true(total[order[index - 1]] > total[order[index]] ||
                            (total[order[index - 1]] == total[order[index]] &&
                             order[index - 1] < order[index]));
        }
        for (int expert = 0; wanted > 0 && expert < experts; expert++) {
            int32_t last = order[wanted - 1];
            if (!chosen[expert])
                assert_true(total[expert] < total[last] ||
                            (total[expert] == total[last] && expert > last));
        }
    }
}

TEST(a_new_placement_is_contiguous_and_even) {
    for (int round = 0; round < 60; round++) {
        int ranks = test_random_int(&random_state, 1, 200);
        int experts = test_random_int(&random_state, 1, 300);
        struct mp_placement placement = placement_of(ranks, experts);
        for (int expert = 0; expert < experts; expert++) {
            int owner = placement.owner[expert];
            assert_in_range(owner, expert ? placement.owner[expert - 1] : 0, ranks - 1);
            assert_int_equal(mp_placement_copies(&placement, expert), 1);
            assert_int_equal(mp_placement_next(&placement, expert, 0), owner);
        }
        assert_even(placement.owner, experts, ranks, 1);
    }
}

TEST(holders_are_a_set) {
    for (int round = 0; round < 60; round++) {
        int ranks = test_random_int(&random_state, 1, 200), copies = 1;
        bool held[200] = {false};
        struct mp_placement placement = placement_of(ranks, 3);
        struct mp_placement other = placement_of(ranks, 3);
        held[placement.owner[1]] = true;
        for (int step = 0; step < 50; step++) {
            int rank = test_random_int(&random_state, 0, ranks - 1);
            bool add = test_random_int(&random_state, 0, 2);
            copies += add - held[rank];
            held[rank] = add;
            if (add)
                mp_placement_add(&placement, 1, rank);
            else
                mp_placement_remove(&placement, 1, rank);
        }
        assert_int_equal(mp_placement_copies(&placement, 1), copies);
        mp_placement_copy(&other, &placement);
        int next = mp_placement_next(&other, 1, 0);
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(mp_placement_holds(&other, 1, rank), held[rank]);
            if (held[rank]) {
                assert_int_equal(next, rank);
                next = mp_placement_next(&other, 1, rank + 1);
            }
        }
        assert_int_equal(next, -1);
    }
}

TEST(a_copy_is_fetched_and_summed_back) {
    AUTO(plan) struct mp_plan plan;

    assert_works(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 1000, &plan, &error));
    plan.gradient_bytes = 2000;
    begin_owned(&plan, 7, 2, GOLDEN_OWNER);
    assert_works(mp_plan_add_copy(&plan, 5, 0, MP_STAGE_AFTER_GATE, &error));
    struct mp_transfer fetch = plan.fetch.item[0], reduce = plan.reduce.item[0];
    assert_true(fetch.layer == 2 && fetch.expert == 5 && fetch.from == 2 && fetch.to == 0 &&
                fetch.bytes == 1000 && fetch.stage == MP_STAGE_AFTER_GATE);
    assert_true(reduce.layer == 2 && reduce.expert == 5 && reduce.from == 0 && reduce.to == 2 &&
                reduce.bytes == 2000 && reduce.stage == MP_STAGE_BACKWARD_REDUCE);
    assert_false(fetch.enters || reduce.enters);
    struct mp_plan_facts facts;
    mp_plan_facts(&plan, NULL, &facts);
    assert_true(facts.copies == 1 && facts.largest_rank_copies == 1);
    assert_int_equal(facts.bytes[MP_STAGE_AFTER_GATE], 1000);
    assert_int_equal(facts.bytes[MP_STAGE_BACKWARD_REDUCE], 2000);
    assert_fails(mp_plan_add_copy(&plan, 5, 0, MP_STAGE_AFTER_GATE, &error), MP_EINVAL,
                 "rank 0 already holds expert 5");
    assert_int_equal(plan.fetch.count, 1);
    assert_works(mp_plan_add_entry(&plan, 5, 3, MP_STAGE_AFTER_GATE, &error));
    assert_true(plan.fetch.item[1].to == 3 && plan.fetch.item[1].enters);
    assert_true(plan.reduce.item[1].from == 3 && plan.reduce.item[1].enters);
    begin_owned(&plan, 8, 2, GOLDEN_OWNER);
    assert_int_equal(plan.fetch.count + plan.reduce.count, 0);
    assert_false(mp_placement_holds(&plan.during, 5, 0));
    mp_plan_destroy(&plan);
    mp_plan_destroy(NULL);
}

/* A copy that was sent ahead costs nothing where it is used, and its bytes where it sets out. */
TEST(what_was_sent_ahead_is_not_fetched) {
    AUTO(plan) struct mp_plan plan;
    AUTO(plan) struct mp_plan last;
    struct mp_policy policy = mp_policy_plain;
    struct mp_plan_facts facts;
    policy.updates_early = true;
    assert_works(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 1000, &plan, &error));
    assert_works(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 1000, &last, &error));
    plan.policy = &policy;
    begin_owned(&plan, 7, 2, GOLDEN_OWNER);
    begin_owned(&last, 6, 2, GOLDEN_OWNER);
    mp_placement_add(&last.before, 5, 0);
    assert_false(mp_plan_keeps(&plan, 5, 0));
    plan.kept = &last.before;
    assert_true(mp_plan_keeps(&plan, 5, 0));
    assert_false(mp_plan_keeps(&plan, 5, 2) || mp_plan_keeps(&plan, 5, 1)); /* 2 owns it */
    assert_works(mp_plan_add_entry(&plan, 5, 0, MP_STAGE_BEFORE_GATE, &error));
    assert_works(mp_plan_add_copy(&plan, 5, 1, MP_STAGE_BEFORE_GATE, &error));
    assert_int_equal(plan.fetch.item[0].stage, MP_STAGE_BACKWARD_PREFETCH);
    assert_int_equal(plan.fetch.item[1].stage, MP_STAGE_BEFORE_GATE);
    assert_int_equal(plan.reduce.item[0].stage, MP_STAGE_BACKWARD_REDUCE);
    assert_works(mp_plan_send_ahead(&plan, 6, 1, &error));
    struct mp_transfer sent = plan.ahead.item[0];
    assert_true(sent.layer == 2 && sent.expert == 6 && sent.from == GOLDEN_OWNER[6] &&
                sent.to == 1 && sent.bytes == 1000 && sent.enters &&
                sent.stage == MP_STAGE_BACKWARD_PREFETCH);
    mp_plan_facts(&plan, NULL, &facts);
    assert_int_equal(facts.copies, 2);
    assert_int_equal(facts.bytes[MP_STAGE_BEFORE_GATE], 1000);
    assert_int_equal(facts.bytes[MP_STAGE_BACKWARD_PREFETCH], 1000);
    begin_owned(&plan, 8, 2, GOLDEN_OWNER);
    assert_int_equal(plan.ahead.count, 0);
    assert_true(mp_plan_keeps(&plan, 5, 0));
    assert_works(mp_plan_add_copy(&plan, 5, 0, MP_STAGE_AFTER_GATE, &error)); /* fetched again */
    assert_int_equal(plan.fetch.item[0].stage, MP_STAGE_AFTER_GATE);
}

/* Replicas are tied to their owner from the start, where their optimizer wants it; how is the
 * law's.
 */
TEST(tied_holders_sum_and_share) {
    for (int round = 0; round < 40; round++) {
        AUTO(example) struct example example;
        random_kind_of_example(&random_state, false, &example);
        struct mp_plan *plan = &example.plan;
        int replicas = 0;
        struct mp_placement home = placement_of(plan->topology.ranks, plan->experts);
        random_homes(&random_state, true, &home);
        for (int expert = 0; expert < plan->experts; expert++)
            replicas += mp_placement_copies(&home, expert) - 1;
        for (int split = 0; split < MP_OPTIMIZER_SPLITS; split++) {
            bool tied = split == MP_OPTIMIZER_REPLICATED || split == MP_OPTIMIZER_SLICES_OF_SUM ||
                        split == MP_OPTIMIZER_REPLICA_SLICES_OF_SUM;
            example.policy.optimizer = (enum mp_optimizer_split)split;
            assert_works(mp_plan_begin(plan, 4, 2, &home, &error));
            assert_int_equal(plan->fetch.count, 0);
            assert_int_equal(plan->reduce.count, tied ? replicas : 0);
            assert_int_equal(plan->share.count, tied ? replicas : 0);
        }
    }
}

/* Whatever a plan was used for, it starts as the header says. */
TEST(a_plan_starts_anew) {
    AUTO(example) struct example example;
    random_kind_of_example(&random_state, true, &example);
    struct mp_plan *plan = &example.plan;
    example.policy.optimizer = MP_OPTIMIZER_OWNER;
    plan->outside_capacity = 3;
    AUTO(allocated) int32_t *owner = calloc((size_t)plan->experts, sizeof *owner);
    begin_owned(plan, 11, 3, owner);
    assert_true(plan->iteration == 11 && plan->layer == 3);
    assert_int_equal(plan->fetch.count + plan->reduce.count + plan->share.count, 0);
    assert_numbers(plan->outside_capacity, -1, plan->source_capacity, -1);
    for (int expert = 0; expert < plan->experts; expert++)
        assert_int_equal(plan->capacity[expert], -1);
    assert_true(plan->padding == 0 && plan->exchange == MP_EXCHANGE_FLAT && plan->group_size == 0);
    for (int64_t pair = 0; pair <= (int64_t)plan->topology.ranks * plan->experts; pair++)
        assert_int_equal(plan->part_begin[pair], 0);
}

TEST(slices_are_not_copied) {
    AUTO(plan) struct mp_plan plan;
    struct mp_placement home = placement_of(4, 8);
    assert_works(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 1000, &plan, &error));
    plan.policy = policy_with(MP_OPTIMIZER_SLICES);
    assert_works(mp_plan_begin(&plan, 7, 2, &home, &error));
    assert_sentence(mp_plan_add_copy(&plan, 5, 0, MP_STAGE_AFTER_GATE, &error), MP_EINVAL,
                    "iteration 7, layer 2: no rank has expert 5 whole, to copy it from");
    assert_false(mp_placement_holds(&plan.during, 5, 0));
}

TEST(impossible_sizes_are_refused) {
    static const int size[][2] = {{0, 4}, {4, 0}, {-1, 4}};
    for (size_t index = 0; index < sizeof size / sizeof size[0]; index++) {
        struct mp_topology topology = {size[index][0], 1};
        struct mp_load load;
        struct mp_plan plan;
        assert_fails(mp_load_create(size[index][0], size[index][1], &load, &error), MP_EINVAL,
                     "at least one rank and one expert");
        assert_int_equal(mp_plan_create(&topology, size[index][1], 1, &plan, NULL), MP_EINVAL);
    }
}

TEST(nodes_and_names_cover_everything) {
    struct mp_topology uneven = {7, 3}, one = {5, INT32_MAX};
    assert_int_equal(mp_topology_nodes(&uneven), 3);
    assert_int_equal(mp_topology_node_end(&uneven, 2), 7);
    assert_int_equal(mp_topology_node(&uneven, 6), 2);
    assert_int_equal(mp_topology_nodes(&one), 1);
    assert_int_equal(mp_topology_node_end(&one, 0), 5);
    assert_string_equal(mp_stage_name(MP_STAGE_BEFORE_GATE), "before-gate");
    assert_string_equal(mp_stage_name(MP_STAGE_AFTER_STEP), "after-step");
    assert_string_equal(mp_stage_name(MP_STAGES), "no-stage");
    assert_string_equal(mp_exchange_name(MP_EXCHANGE_PIPELINED), "pipelined");
    assert_string_equal(mp_exchange_name(MP_EXCHANGE_KINDS), "no-exchange");
    assert_string_equal(mp_optimizer_name(MP_OPTIMIZER_SLICES_OF_SUM), "slices-of-sum");
    assert_string_equal(mp_optimizer_name(MP_OPTIMIZER_REPLICA_SLICES), "replica-slices");
    assert_string_equal(mp_optimizer_name(MP_OPTIMIZER_REPLICA_SLICES_OF_SUM),
                        "replica-slices-of-sum");
    assert_string_equal(mp_optimizer_name(MP_OPTIMIZER_SPLITS), "no-split");
    assert_string_equal(mp_route_order_name(MP_ROUTES_AT_RANDOM), "at-random");
    assert_string_equal(mp_route_order_name(MP_ROUTE_ORDERS), "no-order");
}

/* Every expert everywhere, every route split over all holders: nothing moves in memory. */
TEST(what_is_reserved_does_not_grow) {
    enum { RANKS = 9, EXPERTS = 21 };
    const struct mp_topology topology = {RANKS, 4};
    AUTO(plan) struct mp_plan plan;
    AUTO(load) struct mp_load load;
    int32_t owner[EXPERTS];
    assert_works(mp_plan_create(&topology, EXPERTS, 64, &plan, &error));
    assert_works(mp_load_create(RANKS, EXPERTS, &load, &error));
    random_load(&random_state, &load);
    for (int e = 0; e < EXPERTS; e++)
        owner[e] = test_random_int(&random_state, 0, RANKS - 1);
    assert_works(mp_plan_reserve(&plan, EXPERTS * (RANKS - 1), &error));
    const struct mp_plan reserved = plan;
    begin_owned(&plan, 1, 0, owner);
    for (int e = 0; e < EXPERTS; e++)
        for (int r = 0; r < RANKS; r++)
            if (r != owner[e])
                assert_works(mp_plan_add_copy(&plan, e, r, MP_STAGE_AFTER_GATE, &error));
    assert_works(mp_plan_dispatch_nearest(&plan, &load, &error));
    assert_ptr_equal(plan.fetch.item, reserved.fetch.item);
    assert_ptr_equal(plan.reduce.item, reserved.reduce.item);
    assert_ptr_equal(plan.share.item, reserved.share.item);
    assert_ptr_equal(plan.holder, reserved.holder);
    assert_ptr_equal(plan.part, reserved.part);
}

/* What is lacking makes all shares as even as can be, and the fullest have what is left over. */
TEST(lacks_even_shares_out) {
    uint64_t *random = &random_state;
    for (int round = 0; round < 100; round++) {
        int64_t load[20], lack[20], routes = 0;
        int32_t order[20];
        int ranks = test_random_int(random, 1, 20);
        for (int r = 0; r < ranks; r++)
            routes += load[r] = test_random_int(random, 0, 9);
        mp_load_lacks(load, ranks, routes, order, lack);
        int64_t least = routes / ranks, more = 0;
        for (int r = 0; r < ranks; r++) {
            int64_t share = load[r] + lack[r];
            assert_true(share == least || share == least + 1);
            more += share - least;
            for (int other = 0; other < ranks; other++)
                if (share > load[other] + lack[other])
                    assert_true(load[r] > load[other] || (load[r] == load[other] && r < other));
        }
        assert_int_equal(more, routes % ranks);
    }
}

TEST_SEED(random_state);
