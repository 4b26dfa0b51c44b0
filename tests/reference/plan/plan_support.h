/* Random loads and random legal plans, for tests of planners and of the law. */
#ifndef MOEPERF_TESTS_REFERENCE_PLAN_PLAN_SUPPORT_H
#define MOEPERF_TESTS_REFERENCE_PLAN_PLAN_SUPPORT_H

#include "reference/plan/plan_check.h"
#include "tests/support.h"

/* Calls a function that must succeed and shows its sentence if it does not. */
#define assert_ok(call, error)                                                                     \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != MP_OK)                                                                        \
            fail_msg("%s: %s: %s", #call, mp_code_name(code_), (error)->text);                     \
    } while (0)

/* Fills a load: most experts cold, some hot, some without routes, and not the same on all ranks. */
static inline void random_load(uint64_t *random, struct mp_load *load) {
    for (int expert = 0; expert < load->experts; expert++) {
        int heat = test_random_int(random, 0, 9);
        int most = heat == 0 ? 0 : heat < 7 ? 20 : heat < 9 ? 200 : 3000;
        for (int source = 0; source < load->ranks; source++)
            load->count[(long)source * load->experts + expert] =
                (uint32_t)test_random_int(random, 0, most);
    }
}

static inline struct mp_topology random_topology(uint64_t *random, int most_ranks) {
    struct mp_topology topology;
    topology.ranks = test_random_int(random, 1, most_ranks);
    topology.ranks_per_node = test_random_int(random, 1, topology.ranks + 1);
    return topology;
}

/* A plan and what it was made for. */
struct example {
    struct mp_plan plan;
    struct mp_load load;
    struct mp_plan_law law;
};

static inline void random_copies(uint64_t *random, struct mp_plan *plan) {
    struct mp_error error = {0};
    int copies = test_random_int(random, 0, 2 * plan->experts);

    for (; copies > 0; copies--) {
        int expert = test_random_int(random, 0, plan->experts - 1);
        int rank = test_random_int(random, 0, plan->topology.ranks - 1);
        if (mp_placement_holds(&plan->during, expert, rank))
            continue;
        if (test_random_int(random, 0, 3) == 0) {
            /* A holder that stays between iterations: nothing is fetched, gradients are summed. */
            struct mp_transfer reduce = {plan->layer,
                                         expert,
                                         rank,
                                         plan->during.owner[expert],
                                         plan->expert_bytes,
                                         MP_STAGE_BACKWARD_REDUCE};
            mp_placement_add(&plan->before, expert, rank);
            mp_placement_add(&plan->during, expert, rank);
            assert_ok(mp_transfers_add(&plan->reduce, reduce, &error), &error);
        } else {
            enum mp_stage stage =
                test_random_int(random, 0, 1) ? MP_STAGE_BEFORE_GATE : MP_STAGE_AFTER_GATE;
            assert_ok(mp_plan_add_copy(plan, expert, rank, stage, &error), &error);
        }
    }
}

/* Splits each (source, expert) at random over the holders; keeps at most plan.capacity routes of an
 * expert if there is one. */
static inline void random_dispatch(uint64_t *random, struct example *example) {
    struct mp_plan *plan = &example->plan;
    struct mp_error error = {0};
    int64_t *room = calloc((size_t)plan->experts, sizeof *room);

    for (int expert = 0; expert < plan->experts; expert++)
        room[expert] = plan->capacity > 0 ? plan->capacity : INT64_MAX;
    mp_plan_dispatch_begin(plan);
    for (int source = 0; source < plan->topology.ranks; source++) {
        for (int expert = 0; expert < plan->experts; expert++) {
            int64_t left = mp_load_at(&example->load, source, expert);
            if (left > room[expert])
                left = room[expert];
            room[expert] -= left;
            for (int holder = mp_placement_next(&plan->during, expert, 0); holder >= 0;) {
                int next = mp_placement_next(&plan->during, expert, holder + 1);
                int share = next < 0 ? (int)left : test_random_int(random, 0, (int)left);
                assert_ok(mp_plan_dispatch_part(plan, holder, (uint32_t)share, &error), &error);
                left -= share;
                holder = next;
            }
            mp_plan_dispatch_end_pair(plan);
        }
    }
    free(room);
}

/* A random legal plan; destroy with destroy_example. */
static inline void random_example(uint64_t *random, bool drops, struct example *example) {
    struct mp_topology topology = random_topology(random, 130);
    int experts = test_random_int(random, 1, 40);
    int32_t *owner = malloc((size_t)experts * sizeof *owner);
    struct mp_error error = {0};

    for (int expert = 0; expert < experts; expert++)
        owner[expert] = test_random_int(random, 0, topology.ranks - 1);
    *example = (struct example){.law = {.drops_routes = drops, .extra_copies_limit = -1}};
    assert_ok(mp_load_create(topology.ranks, experts, &example->load, &error), &error);
    random_load(random, &example->load);
    assert_ok(mp_plan_create(&topology, experts, test_random_int(random, 1, 1 << 20),
                             &example->plan, &error),
              &error);
    mp_plan_begin(&example->plan, test_random_int(random, 0, 1000), test_random_int(random, 0, 23),
                  owner);
    if (drops)
        example->plan.capacity = test_random_int(random, 1, 4000);
    random_copies(random, &example->plan);
    random_dispatch(random, example);
    free(owner);
}

static inline void destroy_example(struct example *example) {
    mp_plan_destroy(&example->plan);
    mp_load_destroy(&example->load);
}

/* The loads of V-FSSDP-6 (systems.md 5.4): 4 ranks, 8 experts. */
static const uint32_t GOLDEN_COUNT[4][8] = {{13, 1, 7, 0, 3, 1, 5, 2},
                                            {9, 2, 8, 1, 2, 1, 6, 2},
                                            {10, 1, 8, 1, 2, 1, 5, 2},
                                            {8, 2, 7, 0, 3, 1, 4, 2}};
static const int32_t GOLDEN_OWNER[8] = {0, 0, 1, 1, 2, 2, 3, 3};
static const struct mp_topology GOLDEN_TOPOLOGY = {4, 2};

static inline void golden_load(struct mp_load *load) {
    struct mp_error error = {0};
    assert_ok(mp_load_create(4, 8, load, &error), &error);
    for (int cell = 0; cell < 32; cell++)
        load->count[cell] = GOLDEN_COUNT[cell / 8][cell % 8];
}

#endif
