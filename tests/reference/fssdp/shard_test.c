/* Sharding: the golden owners. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/fssdp/fssdp.h"

/* V-FSSDP-8: 2 layers of 8 experts on 4 ranks in 2 nodes, t 2. */
TEST(golden_owners) {
    static const int64_t load[16] = {40, 6,  30, 2,  10, 4,  20, 8, /* J: 0 2 */
                                     5,  25, 9,  13, 3,  21, 17, 7 /* J: 1 5 */};
    static const int32_t even[16] = {0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3};
    static const int32_t expected[16] = {0, 3, 1, 2, 2, 1, 0, 3, 1, 0, 1, 0, 3, 2, 2, 3};
    int32_t owner[16], again[16];
    struct mp_sharder sharder;
    int moved = 0;

    mp_even_owners(2, 8, 4, owner);
    assert_memory_equal(owner, even, sizeof owner);
    mp_sharder_create(&memory, &GOLDEN_TOPOLOGY, 2, 8, 2, &sharder);
    mp_shard(&sharder, load, even, owner);
    assert_memory_equal(owner, expected, sizeof owner);
    for (int index = 0; index < 16; index++)
        moved += owner[index] != even[index];
    assert_int_equal(moved, 8);
    mp_shard(&sharder, load, owner, again);
    assert_memory_equal(again, owner, sizeof owner);
}
