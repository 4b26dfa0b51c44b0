/* Weights by regret: the value of a game whose best weights are known. */
#include "harness/predict/choice.h"

#include <math.h>

#include "tests/support.h"

enum { WAYS = 3 };

/* Paper, scissors and stone with stakes a, b and c: the value is none, and the best weights are as
 * the stakes of the game that does without each. */
static const double payoff[WAYS][WAYS] = {{10, 9, 12}, {11, 10, 7}, {8, 13, 10}};
static const double best[WAYS] = {3.0 / 6, 2.0 / 6, 1.0 / 6};

static double answer(const struct mp_choice *weights, struct mp_choice *seconds) {
    double least = INFINITY;
    for (int other = 0; other < WAYS; other++) {
        double sum = 0;
        for (int way = 0; way < WAYS; way++)
            sum += weights->of[way] * payoff[way][other];
        if (sum >= least)
            continue;
        least = sum;
        for (int way = 0; way < WAYS; way++)
            seconds->of[way] = payoff[way][other];
    }
    return least;
}

TEST(weights_come_near_to_the_best) {
    double memory[4 * WAYS], *at = memory;
    struct mp_choice weights, seconds;
    mp_choice_create(&weights, WAYS, 3, &at);
    mp_choice_create(&seconds, WAYS, 1, &at);
    assert_ptr_equal(at, memory + 4 * WAYS);
    mp_choice_begin(&weights, 2);
    assert_true(weights.of[0] == 0.5 && weights.of[1] == 0.5 && weights.of[2] == 0);
    for (int round = 1; round <= 2000; round++) {
        double least = answer(&weights, &seconds);
        assert_close(least, mp_choice_weighted(&weights, &seconds), 1e-12);
        assert_true(least <= 10 + 1e-12);
        mp_choice_improve(&weights, &seconds, round, INFINITY);
    }
    mp_choice_take_mean(&weights);
    assert_true(answer(&weights, &seconds) > 9.99);
    for (int way = 0; way < WAYS; way++)
        assert_true(fabs(weights.of[way] - best[way]) < 0.01);
}

/* What is beyond `enough` is regretted no more than what takes as long as that. */
TEST(it_regrets_no_more_than_enough) {
    double memory[4 * WAYS], *at = memory;
    struct mp_choice weights, seconds;
    mp_choice_create(&weights, WAYS, 3, &at);
    mp_choice_create(&seconds, WAYS, 1, &at);
    mp_choice_begin(&weights, 1);
    for (int way = 0; way < WAYS; way++)
        seconds.of[way] = (double[]){1, 5, 500}[way];
    mp_choice_improve(&weights, &seconds, 1, 5);
    assert_true(weights.of[0] == 0 && weights.of[1] == 0.5 && weights.of[2] == 0.5);
}

TEST(kinds_stand_for_all_that_are_of_them) {
    enum { FIRST = 2, COUNT = 5 };
    double memory[3 * COUNT + COUNT + 6], *at = memory;
    struct mp_choice all, seconds, kinds;
    mp_choice_create(&all, COUNT, 3, &at);
    mp_choice_create(&seconds, COUNT, 1, &at);
    mp_choice_create(&kinds, 2, 3, &at);
    mp_choice_begin(&kinds, 2);
    for (int i = 0; i < COUNT; i++)
        seconds.of[i] = (double[]){1, 3, 4, 5, 9}[i];
    mp_choice_improve_kinds(&kinds, &seconds, FIRST, 1); /* means 2 and 6: regrets -2 and 2 */
    assert_true(kinds.of[0] == 0 && kinds.of[1] == 1);
    kinds.of[0] = 0.25;
    kinds.of[1] = 0.75;
    mp_choice_spread(&kinds, FIRST, &all);
    for (int i = 0; i < COUNT; i++)
        assert_close(all.of[i], i < FIRST ? 0.125 : 0.25, 1e-15);
    assert_close(mp_choice_weighted(&all, &seconds), 0.25 * 2 + 0.75 * 6, 1e-12);
}
