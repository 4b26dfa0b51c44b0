/* Bytes along hops, worked out by hand: two nodes of three ranks. */
#include "harness/predict/what_if_bytes.h"

#include "tests/reference/plan/plan_support.h"

enum { RANKS = 6, EXPERTS = 6, BYTES = 10, GRADIENT = 30 };

/* Expert 1, rank 1's, is copied to all ranks before the gate, expert 4 to rank 5 after it. */
static void make_plan(struct mp_plan *plan) {
    struct mp_topology topology = {RANKS, 3};
    struct mp_placement home;
    struct mp_error error = {0};
    assert_ok(mp_plan_create(&topology, EXPERTS, BYTES, plan, &error), &error);
    plan->gradient_bytes = GRADIENT;
    assert_ok(mp_placement_create(RANKS, EXPERTS, &home, &error), &error);
    assert_ok(mp_plan_begin(plan, 0, 0, &home, MP_OPTIMIZER_OWNER, &error), &error);
    mp_placement_destroy(&home);
    for (int rank = RANKS - 1; rank >= 0; rank--)
        if (rank != 1)
            assert_ok(mp_plan_add_copy(plan, 1, rank, MP_STAGE_BEFORE_GATE, &error), &error);
    assert_ok(mp_plan_add_copy(plan, 4, 5, MP_STAGE_AFTER_GATE, &error), &error);
}

static void assert_bytes(const struct mp_what_if_bytes *bytes, const double out[RANKS],
                         const double in[RANKS]) {
    for (int rank = 0; rank < RANKS; rank++) {
        assert_close(bytes->out[rank], out[rank], 0);
        assert_close(bytes->in[rank], in[rank], 0);
        assert_close(mp_what_if_bytes_of(bytes, rank), fmax(out[rank], in[rank]), 0);
    }
}

/* Expert 1 goes 1 -> 2 -> 0 (its receivers here are 0 and 2, and 1 mod 2 is where it comes in) and
 * 1 -> 4 -> 5 -> 3. */
static void copies_go_down_the_hops_and_sums_up(void **state) {
    (void)state;
    struct mp_plan plan;
    struct mp_what_if_bytes bytes;
    struct mp_error error = {0};
    make_plan(&plan);
    assert_ok(mp_what_if_bytes_create(RANKS, EXPERTS, &bytes, &error), &error);
    mp_what_if_bytes_add(&bytes, &plan, &plan.fetch, MP_STAGE_BEFORE_GATE, false);
    assert_bytes(&bytes, (double[]){0, 20, 10, 0, 10, 10}, (double[]){10, 0, 10, 10, 10, 10});
    mp_what_if_bytes_add(&bytes, &plan, &plan.fetch, MP_STAGE_AFTER_GATE, false);
    assert_bytes(&bytes, (double[]){0, 20, 10, 0, 20, 10}, (double[]){10, 0, 10, 10, 10, 20});
    mp_what_if_bytes_clear(&bytes);
    mp_what_if_bytes_add(&bytes, &plan, &plan.reduce, MP_STAGE_BACKWARD_REDUCE, true);
    assert_bytes(&bytes, (double[]){30, 0, 30, 30, 30, 60}, (double[]){0, 60, 30, 0, 60, 30});
    struct mp_transfer one = {0, 1, 1, 2, GRADIENT, MP_STAGE_BACKWARD_REDUCE};
    const struct mp_transfers share = {&one, 1, 1};
    mp_what_if_bytes_clear(&bytes); /* nothing is left of other lists */
    mp_what_if_bytes_add(&bytes, &plan, &share, MP_STAGE_BACKWARD_REDUCE, false);
    assert_bytes(&bytes, (double[]){0, 30, 0, 0, 0, 0}, (double[]){0, 0, 30, 0, 0, 0});
    mp_what_if_bytes_destroy(&bytes);
    mp_plan_destroy(&plan);
}

static void moves_are_one_hop_each(void **state) {
    (void)state;
    struct mp_transfer item[] = {{0, 1, 1, 5, 7, MP_STAGE_AFTER_STEP},
                                 {1, 1, 1, 3, 7, MP_STAGE_AFTER_STEP}};
    const struct mp_transfers moves = {item, 2, 2};
    struct mp_what_if_bytes bytes;
    struct mp_error error = {0};
    assert_ok(mp_what_if_bytes_create(RANKS, EXPERTS, &bytes, &error), &error);
    mp_what_if_bytes_add_moves(&bytes, &moves);
    assert_bytes(&bytes, (double[]){0, 14, 0, 0, 0, 0}, (double[]){0, 0, 0, 7, 0, 7});
    mp_what_if_bytes_destroy(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_go_down_the_hops_and_sums_up),
        cmocka_unit_test(moves_are_one_hop_each),
    };
    return cmocka_run_group_tests_name("harness/predict/what_if_bytes", tests, NULL, NULL);
}
