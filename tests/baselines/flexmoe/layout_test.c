/* Slots while a layer is planned: each primitive does what it says, and counts stay true. */
#include "tests/reference/plan/plan_support.h"

#include "baselines/flexmoe/flexmoe.h"

static struct mp_arena memory;

enum { RANKS = 9, EXPERTS = 8, PER_RANK = 4 };

struct layout {
    struct mp_flex flex;
    struct mp_load load;
    int all;
};

static void random_layout(uint64_t *random, struct layout *layout) {
    struct mp_error error = {0};
    int ranks = test_random_int(random, 1, RANKS), experts = test_random_int(random, 1, EXPERTS);
    int per_rank = test_random_int(random, 1, PER_RANK);
    int32_t expert[RANKS * PER_RANK];
    layout->all = ranks * per_rank;
    for (int slot = 0; slot < layout->all; slot++)
        expert[slot] = test_random_int(random, -1, experts - 1);
    assert_ok(mp_flex_create(&memory, ranks, experts, per_rank, &layout->flex, &error), &error);
    assert_ok(mp_load_create(ranks, experts, &layout->load, &error), &error);
    random_load(random, &layout->load);
    mp_flex_begin(&layout->flex, expert, &layout->load);
    assert_memory_equal(layout->flex.expert, expert, (size_t)layout->all * sizeof *expert);
}

static void destroy_layout(struct layout *layout) {
    mp_arena_release(&memory);
    mp_load_destroy(&layout->load);
}

/* All counts by looking at every slot. */
static void assert_counts(const struct layout *layout) {
    const struct mp_flex *flex = &layout->flex;
    int64_t replicas = 0;
    for (int expert = 0; expert < flex->experts; expert++) {
        int slots = 0, holders = 0;
        int64_t routes = 0;
        for (int rank = 0; rank < flex->ranks; rank++) {
            int here = 0;
            for (int slot = 0; slot < flex->per_rank; slot++)
                here += flex->expert[rank * flex->per_rank + slot] == expert;
            assert_int_equal(mp_flex_here(flex, rank, expert), here);
            slots += here;
            holders += here > 0;
            routes += mp_load_at(&layout->load, rank, expert);
        }
        assert_int_equal(flex->slots[expert], slots);
        assert_int_equal(flex->holders[expert], holders);
        assert_int_equal(flex->share[expert], slots ? routes * 65536 / slots : 0);
        replicas += holders > 1 ? holders - 1 : 0;
    }
    assert_int_equal(flex->replicas, replicas);
}

TEST_RANDOM(primitives_do_what_they_say) {
    int done[3] = {0};
    for (int round = 0; round < 200; round++) {
        struct layout layout;
        random_layout(random, &layout);
        struct mp_flex *flex = &layout.flex;
        assert_counts(&layout);
        for (int turn = 0; turn < 30; turn++) {
            int32_t wanted[RANKS * PER_RANK];
            int slot = test_random_int(random, 0, layout.all - 1);
            int other = test_random_int(random, 0, layout.all - 1);
            int expert = test_random_int(random, 0, flex->experts - 1);
            memcpy(wanted, flex->expert, (size_t)layout.all * sizeof *wanted);
            int primitive = test_random_int(random, 0, 1) ? 2 : wanted[slot] < 0 ? 0 : 1;
            if (primitive == 0) {
                mp_flex_expand(flex, expert, slot);
                wanted[slot] = expert;
            } else if (primitive == 1) {
                mp_flex_shrink(flex, slot);
                wanted[slot] = -1;
            } else {
                mp_flex_migrate(flex, slot, other);
                int32_t kept = wanted[slot];
                wanted[slot] = wanted[other];
                wanted[other] = kept;
            }
            done[primitive]++;
            assert_memory_equal(flex->expert, wanted, (size_t)layout.all * sizeof *wanted);
            assert_counts(&layout);
        }
        destroy_layout(&layout);
    }
    assert_true(done[0] > 0 && done[1] > 0 && done[2] > 0);
}

TEST_RANDOM(lists_hold_the_slots_of_each_expert) {
    for (int round = 0; round < 100; round++) {
        struct layout layout;
        int at = 0;
        random_layout(random, &layout);
        mp_flex_index(&layout.flex);
        for (int list = 0; list <= layout.flex.experts; list++) {
            assert_int_equal(layout.flex.begin[list], at);
            for (int slot = 0; slot < layout.all; slot++)
                if (layout.flex.expert[slot] == (list < layout.flex.experts ? list : -1))
                    assert_int_equal(layout.flex.listed[at++], slot);
        }
        assert_int_equal(at, layout.all);
        destroy_layout(&layout);
    }
}

/* Loads in routes: an expert's are shared by its slots, a rank's own stay at home. */
TEST_RANDOM(costs_are_those_of_the_spread) {
    for (int round = 0; round < 200; round++) {
        struct layout layout;
        random_layout(random, &layout);
        const struct mp_flex *flex = &layout.flex;
        struct mp_flex_costs costs = {3e-7 * test_random_double(random),
                                      1e-7 * test_random_double(random),
                                      1e-5 * test_random_double(random)};
        double most = 0, crossing = 0;
        for (int rank = 0; rank < flex->ranks; rank++) {
            double load = 0, own = 0, sent = 0;
            for (int slot = 0; slot < flex->per_rank; slot++) {
                int expert = flex->expert[rank * flex->per_rank + slot];
                if (expert < 0)
                    continue;
                load += (double)flex->routes[expert] / flex->slots[expert];
                own += (double)mp_load_at(&layout.load, rank, expert) / flex->slots[expert];
            }
            for (int expert = 0; expert < flex->experts; expert++)
                sent += mp_load_at(&layout.load, rank, expert);
            most = fmax(most, load);
            crossing = fmax(crossing, fmax(load, sent) - own);
            assert_close((double)flex->load[rank] / 65536, load, 1e-4);
        }
        double expected =
            costs.route * most + costs.row * crossing + costs.replica * (double)flex->replicas;
        assert_true(fabs(mp_flex_cost(flex, &costs) - expected) <=
                    1e-3 * costs.route + 1e-3 * costs.row + 1e-9 * expected);
        destroy_layout(&layout);
    }
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
