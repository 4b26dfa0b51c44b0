/* Sharding: the golden owners, and what holds for any load. */
#include "tests/errors.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/fssdp/fssdp.h"

static struct mp_arena memory;

static uint64_t random_state;

/* V-FSSDP-8: 2 layers of 8 experts on 4 ranks in 2 nodes, t 2. */
TEST(golden_owners) {
    static const int64_t load[16] = {40, 6,  30, 2,  10, 4,  20, 8, /* J: 0 2 */
                                     5,  25, 9,  13, 3,  21, 17, 7 /* J: 1 5 */};
    static const int32_t even[16] = {0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3};
    static const int32_t expected[16] = {0, 3, 1, 2, 2, 1, 0, 3, 1, 0, 1, 0, 3, 2, 2, 3};
    int32_t owner[16], again[16];
    struct mp_sharder sharder;
    int moved = 0;

    mp_shard_evenly(2, 8, 4, owner);
    assert_memory_equal(owner, even, sizeof owner);
    assert_works(mp_sharder_create(&memory, &GOLDEN_TOPOLOGY, 2, 8, 2, &sharder, &error));
    mp_shard(&sharder, load, even, owner);
    assert_memory_equal(owner, expected, sizeof owner);
    for (int index = 0; index < 16; index++)
        moved += owner[index] != even[index];
    assert_int_equal(moved, 8);
    mp_shard(&sharder, load, owner, again);
    assert_memory_equal(again, owner, sizeof owner);
    mp_arena_release(&memory);
}

static void count_owned(const int32_t owner[], int all, int ranks, int owned[]) {
    memset(owned, 0, (size_t)ranks * sizeof *owned);
    for (int index = 0; index < all; index++) {
        assert_in_range(owner[index], 0, ranks - 1);
        owned[owner[index]]++;
    }
}

TEST(even_sharding_fills_all_slots) {
    for (int round = 0; round < 300; round++) {
        int layers = test_random_int(&random_state, 1, 9);
        int experts = test_random_int(&random_state, 1, 70);
        int ranks = test_random_int(&random_state, 1, 40);
        int32_t owner[9 * 70];
        int owned[40], slots = 0;
        mp_shard_evenly(layers, experts, ranks, owner);
        count_owned(owner, layers * experts, ranks, owned);
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(owned[rank], mp_shard_slots(layers, experts, ranks, rank));
            slots += owned[rank];
        }
        assert_int_equal(slots, layers * experts);
        for (int layer = 0; layer < layers; layer++) {
            count_owned(owner + layer * experts, experts, ranks, owned);
            for (int rank = 0; rank < ranks; rank++)
                assert_in_range(owned[rank], experts / ranks, (experts + ranks - 1) / ranks);
            for (int expert = 1; expert < experts; expert++)
                assert_true(owner[layer * experts + expert] >= owner[layer * experts + expert - 1]);
        }
    }
}

/* Any load: every rank keeps its number of experts, and a second run changes nothing. */
TEST(resharding_keeps_counts_and_settles) {
    for (int round = 0; round < 300; round++) {
        struct mp_topology topology = random_topology(&random_state, 40);
        int layers = test_random_int(&random_state, 1, 6);
        int experts = test_random_int(&random_state, 1, 64), all = layers * experts;
        int overlap = test_random_int(&random_state, 0, experts);
        int64_t load[6 * 64];
        int32_t present[6 * 64], owner[6 * 64], again[6 * 64];
        int owned[40];
        struct mp_sharder sharder;
        for (int index = 0; index < all; index++)
            load[index] = test_random_int(&random_state, 0, 3)
                              ? test_random_int(&random_state, 0, 9)
                              : test_random_int(&random_state, 0, 900);
        mp_shard_evenly(layers, experts, topology.ranks, present);
        assert_works(
            mp_sharder_create(&memory, &topology, layers, experts, overlap, &sharder, &error));
        mp_shard(&sharder, load, present, owner);
        count_owned(owner, all, topology.ranks, owned);
        for (int rank = 0; rank < topology.ranks; rank++)
            assert_int_equal(owned[rank], mp_shard_slots(layers, experts, topology.ranks, rank));
        mp_shard(&sharder, load, owner, again);
        assert_memory_equal(again, owner, (size_t)all * sizeof *owner);
        if (overlap == experts) /* all hot: nobody has a reason to move */
            assert_memory_equal(owner, present, (size_t)all * sizeof *owner);
        mp_arena_release(&memory);
    }
}

/* One layer has no say in the others' slots: its cold load ends as even as the largest item allows.
 */
TEST(cold_load_of_one_layer_is_spread) {
    for (int round = 0; round < 200; round++) {
        struct mp_topology topology = {8, 8};
        int64_t load[8 * 16], cold[8] = {0}, largest = 0, least = INT64_MAX, most = 0;
        int32_t present[8 * 16], owner[8 * 16];
        struct mp_sharder sharder;
        /* The first layer is sharded first, with 16 free slots everywhere. */
        for (int index = 0; index < 8 * 16; index++)
            load[index] = test_random_int(&random_state, 0, index < 16 ? 5000 : 1);
        load[0] = 10000;
        mp_shard_evenly(8, 16, 8, present);
        assert_works(mp_sharder_create(&memory, &topology, 8, 16, 1, &sharder, &error));
        mp_shard(&sharder, load, present, owner);
        for (int expert = 1; expert < 16; expert++) {
            cold[owner[expert]] += load[expert];
            largest = load[expert] > largest ? load[expert] : largest;
        }
        for (int rank = 0; rank < 8; rank++) {
            least = cold[rank] < least ? cold[rank] : least;
            most = cold[rank] > most ? cold[rank] : most;
        }
        assert_true(most - least <= largest);
        mp_arena_release(&memory);
    }
}

TEST_SEED(random_state);
