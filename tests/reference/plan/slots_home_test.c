/* A planner's slots serve the homes that were made of them, and one slot per holder any others. */
#include "reference/plan/slots_home.h"
#include "tests/reference/plan/plan_support.h"

static void random_slots(uint64_t *random, struct mp_slots *slots) {
    int all = slots->ranks * slots->per_rank;
    for (int slot = 0; slot < all; slot++)
        slots->expert[slot] = test_random_int(random, -1, slots->experts - 1);
    for (int expert = 0; expert < slots->experts; expert++) /* nobody goes without */
        slots->expert[(int64_t)expert * all / slots->experts] = expert;
    mp_slots_index(slots, 0);
}

static void slots_and_homes_belong_together(void **state) {
    uint64_t *random = *state;
    int changed = 0;
    for (int round = 0; round < 300; round++) {
        int ranks = test_random_int(random, 1, 70), experts = test_random_int(random, 1, 20);
        struct mp_slots slots, other;
        struct mp_placement home;
        struct mp_error error = {0};
        assert_ok(mp_slots_create(ranks, experts, (experts - 1) / ranks + 2, &slots, &error),
                  &error);
        assert_ok(mp_slots_create(ranks, experts, experts, &other, &error), &error);
        assert_ok(mp_placement_create(ranks, experts, &home, &error), &error);
        random_slots(random, &slots);
        assert_ok(mp_slots_homes(&slots, &home, &error), &error);
        assert_ptr_equal(mp_slots_for_home(&slots, &other, &home, 0), &slots);
        int expert = test_random_int(random, 0, experts - 1);
        int rank = test_random_int(random, 0, ranks - 1);
        if (!mp_placement_holds(&home, expert, rank))
            mp_placement_add(&home, expert, rank);
        else if (home.owner[expert] != rank)
            mp_placement_remove(&home, expert, rank);
        else
            home.owner[expert] = -1; /* nothing that slots know about */
        if (home.owner[expert] >= 0) {
            assert_ptr_equal(mp_slots_for_home(&slots, &other, &home, 4), &other);
            for (expert = 0; expert < experts; expert++) {
                assert_int_equal(mp_slots_of(&other, expert), mp_placement_copies(&home, expert));
                for (int slot = other.begin[expert]; slot < other.begin[expert + 1]; slot++)
                    assert_true(mp_placement_holds(&home, expert, other.rank[slot]));
            }
            changed++;
        }
        mp_slots_destroy(&slots);
        mp_slots_destroy(&other);
        mp_placement_destroy(&home);
    }
    assert_true(changed > 0);
}

int main(void) {
    uint64_t random = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(slots_and_homes_belong_together, &random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
