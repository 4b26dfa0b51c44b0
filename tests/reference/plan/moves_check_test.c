/* Owner changes: legal ones pass, every broken one is refused with its reason. */
#include "tests/reference/plan/plan_support.h"

#include <string.h>

enum { LAYERS = 3, EXPERTS = 5, RANKS = 4, SLOTS = 4, ALL = LAYERS * EXPERTS };

/* Rank 0 owns 4 of the 15 experts, ranks 1 to 3 own 4, 4 and 3. */
static const int32_t OWNER[ALL] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2};

struct moves_case {
    const char *expected; /* part of the sentence, NULL: legal */
    int count;
    struct mp_transfer move[3];
};

#define MOVE(layer, expert, from, to)                                                              \
    { layer, expert, from, to, 96, MP_STAGE_AFTER_STEP }

static const struct moves_case CASES[] = {
    {NULL, 0, {{0}}},
    {NULL, 1, {MOVE(0, 1, 1, 3)}},
    {NULL, 2, {MOVE(0, 0, 0, 1), MOVE(0, 1, 1, 0)}},
    {"moves twice", 2, {MOVE(0, 1, 1, 3), MOVE(0, 1, 1, 3)}},
    {"is owned by rank 1", 1, {MOVE(0, 1, 2, 3)}},
    {"not to another of 4 ranks", 1, {MOVE(0, 1, 1, 1)}},
    {"not to another of 4 ranks", 1, {MOVE(0, 1, 1, 4)}},
    {"not to another of 4 ranks", 1, {MOVE(0, 1, 1, -1)}},
    {"there are 3 layers of 5", 1, {MOVE(3, 1, 1, 3)}},
    {"there are 3 layers of 5", 1, {MOVE(0, 5, 1, 3)}},
    {"there are 3 layers of 5", 1, {MOVE(-1, 0, 1, 3)}},
    {"owns 5 experts and has 4 slots", 1, {MOVE(0, 0, 0, 1)}},
    {"stage after-gate", 1, {{0, 1, 1, 3, 96, MP_STAGE_AFTER_GATE}}},
    {"0 bytes", 1, {{0, 1, 1, 3, 0, MP_STAGE_AFTER_STEP}}},
};

static void moves_obey_the_law_or_are_named(void **state) {
    (void)state;
    for (size_t index = 0; index < sizeof CASES / sizeof CASES[0]; index++) {
        const struct moves_case *row = &CASES[index];
        struct mp_transfer copy[3];
        struct mp_transfers moves = {copy, row->count, 3};
        struct mp_error error = {0};
        memcpy(copy, row->move, sizeof copy);
        int code = mp_moves_check(&moves, OWNER, LAYERS, EXPERTS, RANKS, SLOTS, &error);
        assert_int_equal(code, row->expected ? MP_EPLAN : MP_OK);
        if (row->expected && !strstr(error.text, row->expected))
            fail_msg("row %zu: \"%s\" lacks \"%s\"", index, error.text, row->expected);
    }
}

static void owners_must_be_ranks(void **state) {
    (void)state;
    struct mp_transfers none = {0};
    struct mp_error error = {0};
    assert_int_equal(mp_moves_check(&none, OWNER, LAYERS, EXPERTS, 3, ALL, &error), MP_EPLAN);
    assert_string_equal(error.text, "layer 0, expert 3 is owned by rank 3 of 3");
    assert_int_equal(mp_moves_check(&none, OWNER, 0, EXPERTS, 3, ALL, NULL), MP_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_obey_the_law_or_are_named),
        cmocka_unit_test(owners_must_be_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
