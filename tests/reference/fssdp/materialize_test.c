/* Algorithm 1: the golden placements, and what holds for any load. */
#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/fssdp/fssdp.h"

static struct mp_arena memory;

static uint64_t random_state;

/* 4 ranks in 2 nodes, 8 experts, owner(e) = e / 2. */
struct golden_case {
    const char *name;
    int64_t load[8];
    int overlap, memory;
    int copies;
    struct mp_copy copy[16]; /* in the order of the algorithm */
};

#define GOLDEN_LOAD                                                                                \
    { 40, 6, 30, 2, 10, 4, 20, 8 }

static const struct golden_case GOLDEN[] = {
    {"V-FSSDP-2", GOLDEN_LOAD, 2, 4, 6, {{0, 1}, {0, 2}, {0, 3}, {2, 0}, {2, 2}, {2, 3}}},
    {"V-FSSDP-3", GOLDEN_LOAD, 4, 1, 4, {{0, 2}, {0, 1}, {2, 3}, {6, 0}}},
    {"V-FSSDP-4", GOLDEN_LOAD, 6, 2, 7, {{0, 2}, {0, 1}, {0, 3}, {2, 2}, {2, 0}, {6, 0}, {4, 1}}},
    {"V-FSSDP-5 clamps",
     {90, 1, 1, 1, 1, 1, 1, 4},
     4,
     2,
     8,
     {{0, 2}, {0, 1}, {0, 3}, {7, 0}, {7, 1}, {7, 2}, {1, 3}, {2, 0}}},
    {"V-FSSDP-5 ties", {10, 10, 10, 10, 10, 10, 10, 10}, 8, 1, 3, {{0, 2}, {1, 3}, {2, 0}}},
    {"V-FSSDP-7 stale", {10, 20, 6, 4, 40, 2, 8, 30}, 4, 1, 4, {{4, 0}, {4, 3}, {7, 1}, {1, 2}}},
    {"no overlap", GOLDEN_LOAD, 0, 4, 0, {{0, 0}}},
    {"no memory", GOLDEN_LOAD, 4, 0, 0, {{0, 0}}},
    {"no routes", {0}, 8, MP_ALL, 0, {{0, 0}}},
    {"one routed expert of many hot",
     {0, 0, 0, 0, 0, 7, 0, 0},
     8,
     MP_ALL,
     3,
     {{5, 0}, {5, 1}, {5, 3}}},
};

TEST(golden_placements) {
    for (size_t index = 0; index < sizeof GOLDEN / sizeof GOLDEN[0]; index++) {
        const struct golden_case *row = &GOLDEN[index];
        struct mp_materializer materializer;
        AUTO(placement) struct mp_placement placement;
        assert_works(mp_placement_create(4, 8, &placement, &error));
        assert_works(mp_materializer_create(&memory, &GOLDEN_TOPOLOGY, 8, row->overlap,
                                            &materializer, &error));
        mp_materialize(&materializer, &placement, row->load, row->memory);
        if (materializer.copies != row->copies)
            fail_msg("%s: %d copies, expected %d", row->name, materializer.copies, row->copies);
        for (int copy = 0; copy < row->copies; copy++) {
            struct mp_copy got = materializer.copy[copy], expected = row->copy[copy];
            if (got.expert != expected.expert || got.rank != expected.rank)
                fail_msg("%s: copy %d is %d->%d, expected %d->%d", row->name, copy, got.expert,
                         got.rank, expected.expert, expected.rank);
            assert_true(mp_placement_holds(&placement, got.expert, got.rank));
        }
        mp_arena_release(&memory);
    }
}

struct random_case {
    struct mp_topology topology;
    int experts, overlap, memory;
    int64_t load[80];
    struct mp_placement placement;
    struct mp_materializer materializer;
};

static void create_random_case(struct random_case *row) {
    int32_t owner[80];
    row->topology = random_topology(&random_state, 90);
    row->experts = test_random_int(&random_state, 1, 80);
    row->overlap = test_random_int(&random_state, 0, row->experts + 3);
    row->memory =
        test_random_int(&random_state, 0, 4) ? test_random_int(&random_state, 0, 12) : MP_ALL;
    for (int expert = 0; expert < row->experts; expert++) {
        row->load[expert] = test_random_int(&random_state, 0, 3)
                                ? test_random_int(&random_state, 0, 50)
                                : test_random_int(&random_state, 0, 5000);
        owner[expert] = test_random_int(&random_state, 0, row->topology.ranks - 1);
    }
    assert_works(mp_placement_create(row->topology.ranks, row->experts, &row->placement, &error));
    mp_placement_set_owners(&row->placement, owner);
    assert_works(mp_materializer_create(&memory, &row->topology, row->experts, row->overlap,
                                        &row->materializer, &error));
}

static void destroy_random_case(struct random_case *row) {
    mp_placement_destroy(&row->placement);
    mp_arena_release(&memory);
}

TEST_END(destroy_random_case, struct random_case, destroy_random_case(it))

/* Extra copies per rank within memory; copies only of the `overlap` hottest, none without routes.
 */
static void check_limits(const struct random_case *row) {
    int extra[90] = {0};
    int32_t hot[80];
    bool is_hot[80] = {false};
    int count = row->overlap < row->experts ? row->overlap : row->experts;
    mp_load_hottest(row->load, row->experts, count, hot);
    for (int index = 0; index < count; index++)
        is_hot[hot[index]] = row->load[hot[index]] > 0;
    for (int expert = 0; expert < row->experts; expert++) {
        assert_true(mp_placement_holds(&row->placement, expert, row->placement.owner[expert]));
        if (!is_hot[expert])
            assert_int_equal(mp_placement_copies(&row->placement, expert), 1);
        for (int rank = 0; rank < row->topology.ranks; rank++)
            extra[rank] += rank != row->placement.owner[expert] &&
                           mp_placement_holds(&row->placement, expert, rank);
    }
    for (int rank = 0; rank < row->topology.ranks; rank++)
        assert_true(extra[rank] <= row->memory);
}

TEST(slots_are_never_exceeded) {
    for (int round = 0; round < 400; round++) {
        AUTO(destroy_random_case) struct random_case row;
        create_random_case(&row);
        mp_materialize(&row.materializer, &row.placement, row.load, row.memory);
        check_limits(&row);
        int total = -row.experts;
        for (int expert = 0; expert < row.experts; expert++)
            total += mp_placement_copies(&row.placement, expert);
        assert_int_equal(total, row.materializer.copies);
    }
}

TEST(enough_memory_copies_everything_hot) {
    for (int round = 0; round < 200; round++) {
        AUTO(destroy_random_case) struct random_case row;
        int32_t hot[80];
        create_random_case(&row);
        int count = row.overlap < row.experts ? row.overlap : row.experts;
        mp_materialize(&row.materializer, &row.placement, row.load, count);
        mp_load_hottest(row.load, row.experts, count, hot);
        for (int index = 0; index < count; index++)
            assert_int_equal(mp_placement_copies(&row.placement, hot[index]),
                             row.load[hot[index]] ? row.topology.ranks : 1);
    }
}

/* A second call with more memory only adds, and keeps the limit over both. */
TEST(a_second_call_goes_on_from_the_first) {
    for (int round = 0; round < 200; round++) {
        AUTO(destroy_random_case) struct random_case row;
        AUTO(placement) struct mp_placement first;
        create_random_case(&row);
        assert_works(mp_placement_create(row.topology.ranks, row.experts, &first, &error));
        mp_materialize(&row.materializer, &row.placement, row.load, row.memory / 2);
        mp_placement_copy(&first, &row.placement);
        mp_materialize(&row.materializer, &row.placement, row.load, row.memory);
        check_limits(&row);
        for (int expert = 0; expert < row.experts; expert++)
            for (int rank = mp_placement_next(&first, expert, 0); rank >= 0;
                 rank = mp_placement_next(&first, expert, rank + 1))
                assert_true(mp_placement_holds(&row.placement, expert, rank));
    }
}

/* While copies of an expert go to ranks that all have room, no node gets a second one before every
 * node has a first. */
TEST(copies_reach_nodes_without_the_expert_first) {
    for (int round = 0; round < 200; round++) {
        AUTO(destroy_random_case) struct random_case row;
        int in_node[90] = {0}, least = INT32_MAX;
        create_random_case(&row);
        mp_materialize(&row.materializer, &row.placement, row.load, 1);
        if (row.materializer.copies > 0) {
            int32_t expert = row.materializer.copy[0].expert; /* placed while all slots are free */
            for (int rank = mp_placement_next(&row.placement, expert, 0); rank >= 0;
                 rank = mp_placement_next(&row.placement, expert, rank + 1))
                in_node[mp_topology_node(&row.topology, rank)]++;
            for (int node = 0; node < mp_topology_nodes(&row.topology); node++) {
                int size = mp_topology_node_end(&row.topology, node) -
                           mp_topology_node_begin(&row.topology, node);
                if (in_node[node] < size && in_node[node] < least)
                    least = in_node[node];
            }
            for (int node = 0; node < mp_topology_nodes(&row.topology); node++)
                assert_true(in_node[node] - 1 <= least);
        }
    }
}

TEST_SEED(random_state);
