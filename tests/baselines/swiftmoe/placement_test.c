/* Slots per expert from popularity: the golden placements, and what is refused. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "baselines/swiftmoe/swiftmoe.h"

struct golden {
    const char *name;
    int per_rank, experts;
    int64_t popularity[5];
    int32_t count[5];
    int32_t slot[12];
};
static const struct golden GOLDEN[] = {
    {"V-SYMI-1", 2, 4, {50, 30, 15, 5}, {4, 2, 1, 1}, {0, 0, 0, 0, 1, 1, 2, 3}},
    {"V-SYMI-2", 2, 4, {40, 35, 15, 10}, {3, 3, 1, 1}, {0, 0, 0, 1, 1, 1, 2, 3}},
    {"V-SYMI-3", 2, 4, {97, 1, 1, 1}, {5, 1, 1, 1}, {0, 0, 0, 0, 0, 1, 2, 3}},
    {"V-SYMI-4", 3, 5, {7, 0, 23, 11, 19}, {1, 1, 4, 2, 4}, {0, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4}},
    {"V-SYMI-5", 2, 3, {34, 33, 33}, {3, 3, 2}, {0, 0, 0, 1, 1, 1, 2, 2}},
    {"V-SYMI-5, equal", 2, 4, {25, 25, 25, 25}, {2, 2, 2, 2}, {0, 0, 1, 1, 2, 2, 3, 3}},
    {"no routes", 2, 3, {0, 0, 0}, {3, 3, 2}, {0, 0, 0, 1, 1, 1, 2, 2}},
    {"as many slots as experts", 1, 4, {9, 0, 0, 0}, {1, 1, 1, 1}, {0, 1, 2, 3}},
};

TEST_ROWS(golden_placements_come_out, GOLDEN, row) {
    struct mp_slots slots;
    int64_t difference[5];
    int32_t count[5];
    print_message("%s\n", row->name);
    assert_works(mp_swiftmoe_counts(row->popularity, row->experts, 4 * row->per_rank, difference,
                                    count, &error));
    assert_memory_equal(count, row->count, (size_t)row->experts * sizeof *count);
    mp_slots_create(&memory, 4, row->experts, row->per_rank, &slots);
    mp_swiftmoe_place(count, &slots);
    for (int slot = 0; slot < 4 * row->per_rank; slot++)
        assert_int_equal(slots.expert[slot], row->slot[slot]);
    for (int expert = 0; expert < row->experts; expert++)
        assert_int_equal(mp_slots_of(&slots, expert), row->count[expert]);
}

TEST(what_does_not_fit_is_refused) {
    int64_t popularity[5] = {1, 2, 3, 4, 5}, difference[5];
    int32_t count[5];
    popularity[0] = INT64_MAX / 4;
    assert_fails(mp_swiftmoe_counts(popularity, 5, 8, difference, count, &error), MP_ELIMIT,
                 "routes are too many to be shared by 8 slots");
}
