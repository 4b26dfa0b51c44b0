/* Seconds in the place of others, worked out by hand. */
#include "harness/predict/what_if_seconds.h"

#include "tests/support.h"

static struct mp_fitted_line line(double fixed, double slope) {
    return (struct mp_fitted_line){fixed, slope, 0, slope};
}

/* One rank, layer and iteration. */
struct drill {
    struct mp_demand now, own;
    struct mp_what_if_layer measured, seconds;
    struct mp_other_rates rates;
    double attention[1][2], moved, after_step;
};

static void take(struct drill *drill, bool rates_alone) {
    const struct mp_demands now = {1, 1, 1, &drill->now, &drill->moved};
    const struct mp_demands own = {1, 1, 1, &drill->own, &drill->moved};
    const struct mp_what_if_measured measured = {&drill->measured, drill->attention, 0};
    mp_what_if_seconds(&now, &own, &measured, &drill->rates, rates_alone, &drill->seconds,
                       &drill->after_step);
}

static struct drill make_drill(void) {
    struct drill drill = {
        .now = {.routes = 30, .rows = 20},
        .own = {.routes = 10, .rows = 50},
        .measured = {.expert = {100, 200}, .dispatch = {400, 500}, .combine = {600, 700}},
        .moved = 5};
    for (int way = 0; way < 2; way++) {
        drill.rates.expert[way] = line(10, 1 + way);
        drill.rates.dispatch[way] = line(20, 3 + way);
        drill.rates.combine[way] = line(30, 5 + way);
        drill.rates.copies[way] = line(4, 0.5);
    }
    drill.rates.move = 2;
    return drill;
}

static void rates_add_to_what_the_run_took(void **state) {
    (void)state;
    struct drill drill = make_drill();
    take(&drill, false);
    assert_close(drill.seconds.expert[0], 100 + 1 * 20, 1e-12);
    assert_close(drill.seconds.expert[1], 200 + 2 * 20, 1e-12);
    assert_close(drill.seconds.dispatch[0], 400 - 3 * 30, 1e-12);
    assert_close(drill.seconds.combine[1], 700 - 6 * 30, 1e-12);
    assert_close(drill.seconds.stall[0], 0, 0);
    assert_close(drill.after_step, 10, 1e-12);
    drill.measured.dispatch[0] = 1; /* nothing takes less than no time */
    take(&drill, false);
    assert_close(drill.seconds.dispatch[0], 0, 0);
    take(&drill, true);
    assert_close(drill.seconds.expert[1], 10 + 2 * 30, 1e-12);
    assert_close(drill.seconds.dispatch[0], 20 + 3 * 20, 1e-12);
    drill.now.routes = 0; /* nor do experts without routes */
    take(&drill, false);
    assert_close(drill.seconds.expert[0], 0, 0);
}

/* Forward, rows go there in dispatch; backward, gradients do in combine. */
static void steps_have_their_own_seconds(void **state) {
    (void)state;
    struct drill drill = make_drill();
    drill.now.pipelined = true;
    drill.now.stepped[0] = (struct mp_stepped_seconds){1, 2, 3};
    drill.now.stepped[1] = (struct mp_stepped_seconds){4, 5, 6};
    take(&drill, true);
    assert_close(drill.seconds.dispatch[0], 1, 0);
    assert_close(drill.seconds.expert[0], 2, 0);
    assert_close(drill.seconds.combine[0], 3, 0);
    assert_close(drill.seconds.combine[1], 4, 0);
    assert_close(drill.seconds.expert[1], 5, 0);
    assert_close(drill.seconds.dispatch[1], 6, 0);
    take(&drill, false);
    assert_close(drill.seconds.dispatch[0], 400 + 1 - (20 + 3 * 50), 1e-12);
}

/* 16 of 40 bytes are asked for before the gate: 4 s and 8 s, of which attention hides 7. */
static void copies_hide_where_they_pass_beside_work(void **state) {
    (void)state;
    struct drill drill = make_drill();
    drill.now.bytes[0] = 40;
    drill.now.early = 16;
    drill.now.bytes[1] = 100;
    drill.attention[0][0] = 7;
    drill.attention[0][1] = 60;
    take(&drill, false);
    assert_close(drill.seconds.stall[0], 4 + 20, 1e-12);
    assert_close(drill.seconds.stall[1], 4 + 50, 1e-12);
    drill.rates.hides = true;
    take(&drill, false);
    assert_close(drill.seconds.stall[0], 12 - 7 + 12, 1e-12);
    assert_close(drill.seconds.stall[1], 0, 0);
    drill.now.pipelined = true; /* late ones have been waited for in the steps */
    take(&drill, false);
    assert_close(drill.seconds.stall[0], 12 - 7, 1e-12);
    drill.rates.copies_counted = true; /* the line is what a rank stood still already */
    drill.own.bytes[0] = 10;
    drill.measured.stall[0] = 9;
    take(&drill, false);
    assert_close(drill.seconds.stall[0], 9 + 0.5 * 30, 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_add_to_what_the_run_took),
        cmocka_unit_test(steps_have_their_own_seconds),
        cmocka_unit_test(copies_hide_where_they_pass_beside_work),
    };
    return cmocka_run_group_tests_name("harness/predict/what_if_seconds", tests, NULL, NULL);
}
