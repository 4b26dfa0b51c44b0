/* Steps of a pipelined exchange, worked out by hand: rows from a plan, and seconds from lines. */
#include "harness/predict/what_if_steps.h"

#include "tests/reference/plan/plan_support.h"

enum { RANKS = 4, EXPERTS = 4 };

/* Routes of every source (row) to every expert; expert e is rank e's. */
static const uint32_t routes[RANKS][EXPERTS] = {
    {10, 20, 30, 40}, {1, 2, 3, 4}, {5, 6, 7, 8}, {100, 0, 0, 50}};

/* Lines without an end. */
static struct mp_fitted_line line(double fixed, double slope) {
    return (struct mp_fitted_line){fixed, slope, 0, slope};
}

/* A plan in steps of groups; expert 3 may have a copy on rank 0, fetched after the gate, to which
 * that rank's routes go. */
static void make_plan(int group_size, bool copy, struct mp_plan *plan) {
    struct mp_topology topology = {RANKS, RANKS};
    struct mp_placement home;
    struct mp_error error = {0};
    assert_ok(mp_plan_create(&topology, EXPERTS, 8, plan, &error), &error);
    assert_ok(mp_placement_create(RANKS, EXPERTS, &home, &error), &error);
    assert_ok(mp_plan_begin(plan, 0, 0, &home, MP_OPTIMIZER_OWNER, &error), &error);
    mp_placement_destroy(&home);
    plan->exchange = MP_EXCHANGE_PIPELINED;
    plan->group_size = group_size;
    if (copy)
        assert_ok(mp_plan_add_copy(plan, 3, 0, MP_STAGE_AFTER_GATE, &error), &error);
    assert_ok(mp_plan_dispatch_begin(plan, &error), &error);
    for (int s = 0; s < RANKS; s++)
        for (int e = 0; e < EXPERTS; e++) {
            int rank = copy && e == 3 && s == 0 ? 0 : e;
            assert_ok(mp_plan_dispatch_part(plan, rank, routes[s][e], &error), &error);
            mp_plan_dispatch_end_pair(plan);
        }
}

static void split(int group_size, bool copy, struct mp_what_if_steps *steps) {
    struct mp_plan plan;
    struct mp_error error = {0};
    make_plan(group_size, copy, &plan);
    assert_ok(mp_what_if_steps_create(RANKS, EXPERTS, steps, &error), &error);
    mp_what_if_steps_split(&plan, steps);
    mp_plan_destroy(&plan);
}

static void assert_step(const struct mp_what_if_steps *steps, int rank, int step, double sent,
                        double received, double computed) {
    const struct mp_what_if_step *at = &steps->step[rank * steps->steps + step];
    assert_close(at->sent, sent, 0);
    assert_close(at->received, received, 0);
    assert_close(at->routes, computed, 0);
    assert_false(at->waits);
}

static void assert_counts(const struct mp_what_if_steps *steps, int rank, int calls,
                          int exchanges) {
    int counted, with_rows;
    mp_what_if_steps_count(steps, rank, &counted, &with_rows);
    assert_int_equal(counted, calls);
    assert_int_equal(with_rows, exchanges);
}

static void rows_go_to_the_group_of_their_step(void **state) {
    (void)state;
    struct mp_what_if_steps steps;
    split(1, false, &steps);
    assert_int_equal(steps.steps, 4);
    /* Rank 0 keeps 10, sends 20, 30 and 40, and gets rank 3's 100, rank 2's 5 and rank 1's 1. */
    assert_step(&steps, 0, 0, 0, 0, 10);
    assert_step(&steps, 0, 1, 20, 100, 100);
    assert_step(&steps, 0, 2, 30, 5, 5);
    assert_step(&steps, 0, 3, 40, 1, 1);
    assert_counts(&steps, 0, 4, 3);
    assert_counts(&steps, 1, 3, 3); /* rank 3 has nothing for it, and gets something */
    mp_what_if_steps_destroy(&steps);
    split(2, false, &steps); /* {0, 1}, {2, 3} */
    assert_int_equal(steps.steps, 2);
    assert_step(&steps, 0, 0, 20, 1, 11);
    assert_step(&steps, 0, 1, 70, 105, 105);
    assert_step(&steps, 3, 0, 0, 8, 58);
    mp_what_if_steps_destroy(&steps);
}

static void rows_of_late_copies_are_a_ranks_own(void **state) {
    (void)state;
    struct mp_what_if_steps steps;
    split(1, true, &steps);
    assert_close(steps.own[0], 40, 0);
    assert_step(&steps, 0, 3, 0, 1, 1);
    assert_counts(&steps, 0, 5, 3);
    /* Others' rows to expert 3 travel to its owner, whose own go with its first step. */
    assert_close(steps.own[3], 0, 0);
    assert_step(&steps, 3, 0, 0, 0, 50);
    mp_what_if_steps_destroy(&steps);
}

static void assert_seconds(const struct mp_what_if_steps *steps, int direction,
                           const struct mp_other_rates *rates, double copies, double there,
                           double expert, double back) {
    struct mp_stepped_seconds seconds;
    mp_what_if_steps_time(steps, 0, direction, rates, copies, &seconds);
    assert_close(seconds.there, there, 1e-12);
    assert_close(seconds.expert, expert, 1e-12);
    assert_close(seconds.back, back, 1e-12);
}

/* Rank 0's steps have 0, 100, 30 and 40 rows and 10, 100, 5 and 1 routes.  A row takes 1 s, and 2 s
 * back; an exchange 3 s more; a route 2 s and a call 5 s. */
static void exchanges_hide_behind_the_experts_of_other_steps(void **state) {
    (void)state;
    struct mp_what_if_steps steps;
    struct mp_other_rates rates = {.hides = true};
    rates.dispatch[0] = rates.combine[1] = line(3, 1);
    rates.combine[0] = rates.dispatch[1] = line(3, 2);
    rates.expert[0] = line(5, 2);
    rates.expert[1] = line(5, 4);
    split(1, false, &steps);
    /* Rows are there after 0, 103, 136 and 179 s.  Experts: 0 .. 25, 103 .. 308, 308 .. 323, 323 ..
     * 330.  Returns behind all that goes there: 0 s at 179, 308 + 203 = 511, + 63, + 83 = 657. */
    assert_seconds(&steps, MP_FORWARD, &rates, 0, 0, 330, 657 - 330);
    /* Backward: 0 .. 45, 103 .. 508, 508 .. 533, 533 .. 542; 508 + 203 = 711, + 63, + 83. */
    assert_seconds(&steps, MP_BACKWARD, &rates, 0, 0, 542, 857 - 542);
    /* Calls of 1 s: experts wait for rows and end at 180, and all returns pass behind the rows. */
    rates.expert[0] = line(1, 0);
    assert_seconds(&steps, MP_FORWARD, &rates, 0, 0, 180, 179 + 203 + 63 + 83 - 180);
    rates.expert[0] = line(5, 2);
    rates.hides = false; /* what computes also sends: one after the other */
    assert_seconds(&steps, MP_FORWARD, &rates, 0, 179, 252, 349);
    mp_what_if_steps_destroy(&steps);
}

/* Rank 0's own 40 routes wait for the copy, behind all steps; in backward they come first. */
static void own_rows_wait_for_their_copies(void **state) {
    (void)state;
    struct mp_what_if_steps steps;
    struct mp_other_rates rates = {.hides = true};
    rates.dispatch[0] = rates.combine[1] = line(3, 1);
    rates.combine[0] = rates.dispatch[1] = line(3, 2);
    rates.expert[0] = rates.expert[1] = line(5, 2);
    split(1, true, &steps);
    /* Its last step has 1 row now: all are there after 140 s; experts end at 330, own ones at 415;
     * returns at 308 + 203, + 63, + 5 = 579. */
    assert_seconds(&steps, MP_FORWARD, &rates, 0, 0, 415, 579 - 415);
    assert_seconds(&steps, MP_FORWARD, &rates, 400, 0, 485, 579 - 485);
    assert_seconds(&steps, MP_FORWARD, &rates, 600, 0, 685, 0);
    /* Own ones until 85, the first step until 110, then as before from there. */
    assert_seconds(&steps, MP_BACKWARD, &rates, 0, 0, 337, 586 - 337);
    mp_what_if_steps_destroy(&steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_to_the_group_of_their_step),
        cmocka_unit_test(rows_of_late_copies_are_a_ranks_own),
        cmocka_unit_test(exchanges_hide_behind_the_experts_of_other_steps),
        cmocka_unit_test(own_rows_wait_for_their_copies),
    };
    return cmocka_run_group_tests_name("harness/predict/what_if_steps", tests, NULL, NULL);
}
