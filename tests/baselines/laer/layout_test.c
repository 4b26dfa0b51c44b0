/* LAER's layouts and their cost: golden vectors. */
#include "tests/baselines/rehearsal.h"
#include "tests/reference/base/memory.h"

#include "baselines/laer/laer.h"

enum { GOLDEN_RANKS = 4, MOST_SLOTS = 3, MOST_EXPERTS = 6 };
static const struct mp_topology TWO_NODES = {4, 2};

/* V-LAER-1. */
struct golden_case {
    const char *name;
    int experts, per_rank;
    bool even;
    int64_t load[MOST_EXPERTS];
    int32_t replicas[MOST_EXPERTS];
    int32_t slot[GOLDEN_RANKS * MOST_SLOTS];
    double rank_load[GOLDEN_RANKS];
};
static const struct golden_case GOLDEN[] = {
    {"heap, slots for every node",
     4,
     3,
     false,
     {40, 6, 30, 2},
     {4, 2, 4, 2},
     {0, 2, 1, 0, 2, 3, 0, 2, 1, 0, 2, 3},
     {20.5, 18.5, 20.5, 18.5}},
    {"even, an expert twice on a rank",
     4,
     3,
     true,
     {40, 6, 30, 2},
     {3, 3, 3, 3},
     {0, 2, 3, 0, 1, 1, 0, 1, 3, 2, 2, 3},
     {24, 52.0 / 3, 16, 62.0 / 3}},
    {"heap, fewer slots than that",
     6,
     2,
     false,
     {40, 6, 30, 2, 10, 8},
     {2, 1, 2, 1, 1, 1},
     {0, 1, 2, 4, 0, 3, 2, 5},
     {26, 25, 22, 23}},
};

static int compare_ids(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void assert_golden(const struct golden_case *row, struct mp_slots *slots,
                          const double rank_load[]) {
    for (int rank = 0; rank < GOLDEN_RANKS; rank++) {
        int32_t *slot = slots->expert + rank * row->per_rank;
        qsort(slot, (size_t)row->per_rank, sizeof *slot, compare_ids);
        int32_t expected[MOST_SLOTS];
        memcpy(expected, row->slot + rank * row->per_rank,
               (size_t)row->per_rank * sizeof *expected);
        qsort(expected, (size_t)row->per_rank, sizeof *expected, compare_ids);
        assert_memory_equal(slot, expected, (size_t)row->per_rank * sizeof *slot);
        assert_close(rank_load[rank], row->rank_load[rank], 1e-12);
    }
}

TEST_EACH(golden_layouts, GOLDEN, row) {
    int32_t replicas[MOST_EXPERTS];
    struct mp_laer_placer placer;
    struct mp_slots slots;
    mp_laer_placer_create(&memory, &TWO_NODES, row->experts, &placer);
    mp_slots_create(&memory, GOLDEN_RANKS, row->experts, row->per_rank, &slots);
    mp_laer_replicas(row->load, row->experts, GOLDEN_RANKS * row->per_rank, 2, replicas,
                     &placer.queue);
    for (int expert = 0; expert < row->experts && row->even; expert++)
        replicas[expert] = GOLDEN_RANKS * row->per_rank / row->experts;
    assert_memory_equal(replicas, row->replicas, (size_t)row->experts * sizeof *replicas);
    mp_laer_place(&placer, row->load, replicas, &slots);
    assert_golden(row, &slots, placer.rank_load);
}

/* V-LAER-2 on the first two layouts above: routes that each rank computes for each source, and the
 * cost with 1 s per route computed or sent in a node and 2 s between nodes. */
static const int64_t LAER_COUNT[16] = {20, 1, 5, 1, 10, 2, 8, 0, 6, 1, 9, 1, 4, 2, 8, 0};
static const int64_t GOLDEN_SENT[2][GOLDEN_RANKS][GOLDEN_RANKS] = {
    {{14, 13, 0, 0}, {11, 9, 0, 0}, {0, 0, 9, 8}, {0, 0, 8, 6}},
    {{16, 11, 0, 0}, {13, 7, 0, 0}, {0, 0, 8, 9}, {0, 0, 6, 8}}};
static const double GOLDEN_COST[2][2] = {{4 * 40 + 3 * 25, 4 * 39 + 3 * 29}, /* forward only: */
                                         {2 * 40 + 25, 2 * 39 + 29}};

/* Routes that `source` sends to `rank` under the plan. */
static int64_t sent(const struct mp_plan *plan, int source, int rank) {
    int64_t routes = 0;
    for (int expert = 0; expert < plan->experts; expert++)
        if (mp_plan_holder_index(plan, expert, rank) >= 0)
            routes += mp_plan_routes_to(plan, source, expert, rank);
    return routes;
}

static void dispatch(struct mp_plan *plan, const struct mp_load *load, struct mp_slots *slots) {
    struct mp_placement home = placement_of(load->ranks, load->experts);
    assert_works(mp_slots_homes(slots, &home, &error));
    plan->policy = policy_with(MP_OPTIMIZER_SLICES);
    assert_works(mp_plan_begin(plan, 0, 0, &home, &error));
    assert_works(mp_plan_dispatch_slots(plan, load, slots, MP_SPREAD_NODE, &error));
}

TEST(golden_routing_and_cost) {
    struct mp_laer_costs costs = {.in_node = 1, .between_nodes = 2, .compute = 1};
    for (int index = 0; index < 2; index++) {
        const struct golden_case *row = &GOLDEN[index];
        struct mp_laer_evaluator evaluator;
        struct mp_slots slots;
        AUTO(load) struct mp_load load;
        AUTO(plan) struct mp_plan plan;
        mp_laer_evaluator_create(&memory, &TWO_NODES, 4, 3, &evaluator);
        mp_slots_create(&memory, 4, 4, 3, &slots);
        memcpy(slots.expert, row->slot, sizeof row->slot);
        mp_slots_index(&slots, 2);
        assert_works(mp_load_create(4, 4, &load, &error));
        assert_works(mp_plan_create(&TWO_NODES, 4, 8, &plan, &error));
        for (int cell = 0; cell < 16; cell++)
            load.count[cell] = (uint32_t)LAER_COUNT[cell];
        dispatch(&plan, &load, &slots);
        for (int source = 0; source < GOLDEN_RANKS; source++)
            for (int rank = 0; rank < GOLDEN_RANKS; rank++)
                assert_int_equal(sent(&plan, source, rank), GOLDEN_SENT[index][source][rank]);
        for (int only = 0; only < 2; only++) {
            costs.forward_only = only;
            assert_close(mp_laer_cost(&evaluator, &slots, LAER_COUNT, &costs),
                         GOLDEN_COST[only][index], 1e-12);
        }
    }
}

/* Three slots on two nodes: one per node, and the third is less than a step of two. */
TEST(what_does_not_fit_stays_empty) {
    int64_t load[1] = {10};
    int32_t replicas[1];
    struct mp_queue queue;
    mp_queue_create(&memory, 1, &queue);
    mp_laer_replicas(load, 1, 3, 2, replicas, &queue);
    assert_int_equal(replicas[0], 2);
}
