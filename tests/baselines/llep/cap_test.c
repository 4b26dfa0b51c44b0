/* LLEP where the cap is no whole number: it is rounded up, so that all routes find room. */
#include "tests/reference/plan/plan_support.h"

#include "baselines/llep/llep.h"

static struct mp_arena memory;

/* Ten routes of one expert, alpha = 1: four ranks take 2.5 each, so at most 3. */
TEST(the_cap_is_rounded_up) {
    const struct mp_llep_options options = {
        .trigger = MP_LLEP_PER_RANK, .threshold = 1.3, .alpha = 1, .smallest_gemm = 1};
    static const int32_t owner[] = {0, 1, 2, 3};
    static const int64_t expected[] = {3, 3, 3, 1};
    struct mp_llep llep;
    mp_llep_create(&memory, 4, 4, &llep);
    for (int expert = 0; expert < 4; expert++)
        llep.total[expert] = expert == 0 ? 10 : 0;
    assert_works(mp_llep_decide(&llep, &options, owner, 4, &error));
    assert_true(llep.active);
    assert_int_equal(llep.cap, 3);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(llep.load[rank], expected[rank]);
    mp_arena_release(&memory);
}
