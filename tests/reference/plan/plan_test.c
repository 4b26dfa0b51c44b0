/* Plans, placements and loads as data. */
#include "tests/reference/plan/plan_support.h"

#include <string.h>

static uint64_t random_state;

static void load_sums_agree_with_a_plain_count(void **state) {
    (void)state;
    struct mp_load load, copy;
    struct mp_error error = {0};
    int64_t total[29], all = 0;

    assert_ok(mp_load_create(17, 29, &load, &error), &error);
    assert_ok(mp_load_create(17, 29, &copy, &error), &error);
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
    mp_load_copy(&copy, &load);
    assert_memory_equal(copy.count, load.count, 17 * 29 * sizeof *load.count);
    mp_load_destroy(&load);
    mp_load_destroy(&load);
    mp_load_destroy(&copy);
    mp_load_destroy(NULL);
}

static void hottest_is_ordered_by_load_then_id(void **state) {
    (void)state;
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

static void a_new_placement_is_contiguous_and_even(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        int ranks = test_random_int(&random_state, 1, 200);
        int experts = test_random_int(&random_state, 1, 300);
        int owned[200] = {0}, least = INT32_MAX, most = 0;
        struct mp_placement placement;
        struct mp_error error = {0};
        assert_ok(mp_placement_create(ranks, experts, &placement, &error), &error);
        for (int expert = 0; expert < experts; expert++) {
            int owner = placement.owner[expert];
            assert_in_range(owner, expert ? placement.owner[expert - 1] : 0, ranks - 1);
            assert_int_equal(mp_placement_copies(&placement, expert), 1);
            assert_int_equal(mp_placement_next(&placement, expert, 0), owner);
            owned[owner]++;
        }
        for (int rank = 0; rank < ranks; rank++) {
            least = owned[rank] < least ? owned[rank] : least;
            most = owned[rank] > most ? owned[rank] : most;
        }
        assert_true(most - least <= 1);
        mp_placement_destroy(&placement);
        mp_placement_destroy(&placement);
    }
    mp_placement_destroy(NULL);
}

static void holders_are_a_set(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        int ranks = test_random_int(&random_state, 1, 200), copies = 1;
        bool held[200] = {false};
        struct mp_placement placement, other;
        struct mp_error error = {0};
        assert_ok(mp_placement_create(ranks, 3, &placement, &error), &error);
        assert_ok(mp_placement_create(ranks, 3, &other, &error), &error);
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
        mp_placement_destroy(&placement);
        mp_placement_destroy(&other);
    }
}

static void a_copy_is_fetched_and_summed_back(void **state) {
    (void)state;
    struct mp_plan plan;
    struct mp_error error = {0};

    assert_ok(mp_plan_create(&GOLDEN_TOPOLOGY, 8, 1000, &plan, &error), &error);
    mp_plan_begin(&plan, 7, 2, GOLDEN_OWNER);
    assert_ok(mp_plan_add_copy(&plan, 5, 0, MP_STAGE_AFTER_GATE, &error), &error);
    struct mp_transfer fetch = plan.fetch.item[0], reduce = plan.reduce.item[0];
    assert_true(fetch.layer == 2 && fetch.expert == 5 && fetch.from == 2 && fetch.to == 0 &&
                fetch.bytes == 1000 && fetch.stage == MP_STAGE_AFTER_GATE);
    assert_true(reduce.layer == 2 && reduce.expert == 5 && reduce.from == 0 && reduce.to == 2 &&
                reduce.bytes == 1000 && reduce.stage == MP_STAGE_BACKWARD_REDUCE);
    assert_int_equal(mp_plan_add_copy(&plan, 5, 0, MP_STAGE_AFTER_GATE, &error), MP_EINVAL);
    assert_non_null(strstr(error.text, "rank 0 already holds expert 5"));
    assert_int_equal(plan.fetch.count, 1);
    mp_plan_begin(&plan, 8, 2, GOLDEN_OWNER);
    assert_int_equal(plan.fetch.count + plan.reduce.count, 0);
    assert_false(mp_placement_holds(&plan.during, 5, 0));
    mp_plan_destroy(&plan);
    mp_plan_destroy(&plan);
    mp_plan_destroy(NULL);
}

static void facts_agree_with_a_plain_count(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct example example;
        struct mp_plan_facts facts;
        int64_t sent[130], received[130], computed[130], all = 0, out = 0, in = 0, kept = 0;
        int copies = 0, largest = 0;
        random_example(&random_state, round % 2, &example);
        struct mp_plan *plan = &example.plan;
        plan->rematerialise = round % 3 == 0;
        mp_plan_facts(plan, &example.load, &facts);
        mp_plan_rank_routes(plan, computed, sent, received);
        for (int rank = 0; rank < plan->topology.ranks; rank++) {
            int extra = 0;
            for (int expert = 0; expert < plan->experts; expert++)
                extra += plan->during.owner[expert] != rank &&
                         mp_placement_holds(&plan->during, expert, rank);
            copies += extra;
            largest = extra > largest ? extra : largest;
            kept += computed[rank];
            out += sent[rank];
            in += received[rank];
        }
        for (int stage = 0; stage < MP_STAGES; stage++)
            all += facts.bytes[stage];
        assert_int_equal(facts.copies, copies);
        assert_int_equal(facts.largest_rank_copies, largest);
        assert_int_equal(out, in);
        assert_int_equal(facts.routes_in_node + facts.routes_between_nodes, out);
        assert_int_equal(facts.routes_local, kept - out);
        assert_int_equal(facts.routes_dropped, mp_load_total(&example.load) - kept);
        int fetched = plan->fetch.count * (plan->rematerialise ? 2 : 1);
        assert_int_equal(all, plan->expert_bytes * (fetched + plan->reduce.count));
        assert_int_equal(facts.bytes[MP_STAGE_BACKWARD_REDUCE],
                         plan->expert_bytes * plan->reduce.count);
        destroy_example(&example);
    }
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    static const int size[][2] = {{0, 4}, {4, 0}, {-1, 4}};
    for (size_t index = 0; index < sizeof size / sizeof size[0]; index++) {
        struct mp_topology topology = {size[index][0], 1};
        struct mp_load load;
        struct mp_placement placement;
        struct mp_plan plan;
        struct mp_error error = {0};
        assert_int_equal(mp_load_create(size[index][0], size[index][1], &load, &error), MP_EINVAL);
        assert_int_equal(mp_placement_create(size[index][0], size[index][1], &placement, NULL),
                         MP_EINVAL);
        assert_int_equal(mp_plan_create(&topology, size[index][1], 1, &plan, NULL), MP_EINVAL);
        assert_non_null(strstr(error.text, "at least one rank and one expert"));
    }
}

static void nodes_cover_all_ranks(void **state) {
    (void)state;
    struct mp_topology uneven = {7, 3}, one = {5, INT32_MAX};
    assert_int_equal(mp_topology_nodes(&uneven), 3);
    assert_int_equal(mp_topology_node_end(&uneven, 2), 7);
    assert_int_equal(mp_topology_node(&uneven, 6), 2);
    assert_int_equal(mp_topology_nodes(&one), 1);
    assert_int_equal(mp_topology_node_end(&one, 0), 5);
    assert_string_equal(mp_stage_name(MP_STAGE_BEFORE_GATE), "before-gate");
    assert_string_equal(mp_stage_name(MP_STAGE_AFTER_STEP), "after-step");
    assert_string_equal(mp_stage_name(MP_STAGES), "no-stage");
}

int main(void) {
    random_state = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_sums_agree_with_a_plain_count),
        cmocka_unit_test(hottest_is_ordered_by_load_then_id),
        cmocka_unit_test(a_new_placement_is_contiguous_and_even),
        cmocka_unit_test(holders_are_a_set),
        cmocka_unit_test(a_copy_is_fetched_and_summed_back),
        cmocka_unit_test(facts_agree_with_a_plain_count),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(nodes_cover_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
