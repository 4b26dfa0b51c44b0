/* Fits that are known beforehand. */
#include "harness/predict/least_squares.h"

#include "tests/errors.h"

enum { POINTS = 40 };

static void fit(int columns, double x[], double y[], double weight[]) {
    const struct mp_fit_points points = {columns, POINTS, x, y};
    assert_works(mp_fit(&points, weight, &error));
}

/* A rank that lost its processor once does not bend the line. */
TEST(what_is_far_is_left_out) {
    double x[POINTS][2], y[POINTS], weight[2] = {0};
    for (int i = 0; i < POINTS; i++) {
        x[i][0] = i;
        x[i][1] = 1;
        y[i] = 3 * i + 50 + (i % 2 ? 0.5 : -0.5);
    }
    y[7] = 1e6;
    y[30] = 1e5;
    fit(2, &x[0][0], y, weight);
    assert_close(weight[0], 3, 0.01);
    assert_close(weight[1], 50, 0.02);
    const struct mp_fit_points points = {2, POINTS, &x[0][0], y};
    assert_close(mp_fit_at(&points, 7, weight), 3 * 7 + 50, 0.01);
}

TEST(nothing_costs_less_than_nothing) {
    double x[POINTS][2], y[POINTS], weight[2] = {0};
    for (int i = 0; i < POINTS; i++) {
        x[i][0] = i;
        x[i][1] = 1;
        y[i] = 100 - i;
    }
    fit(2, &x[0][0], y, weight);
    assert_close(weight[0], 0, 0);
    assert_close(weight[1], 100 - 0.5 * (POINTS - 1), 1e-9);
}

/* The second column is twice the first one: what it begins with stays, the first gets the rest. */
TEST(what_is_alike_goes_to_the_first) {
    double x[POINTS][2], y[POINTS], weight[2] = {0, 1};
    for (int i = 0; i < POINTS; i++) {
        x[i][0] = 5;
        x[i][1] = 10;
        y[i] = 40;
    }
    fit(2, &x[0][0], y, weight);
    assert_all_close(1e-9, weight[0], 6, weight[1], 1);
}

/* Large values are not far from anything before a first line through all of them is there. */
TEST(what_is_large_is_not_far) {
    double x[POINTS][2], y[POINTS], weight[2] = {0};
    for (int i = 0; i < POINTS; i++) {
        x[i][0] = i % 4 ? 1 : 100;
        x[i][1] = 1;
        y[i] = x[i][0] + 9;
    }
    fit(2, &x[0][0], y, weight);
    assert_all_close(1e-9, weight[0], 1, weight[1], 9);
}

/* Every column there is room for gets its own weight. */
TEST(as_many_columns_as_there_may_be) {
    double x[POINTS][MP_FIT_COLUMNS], y[POINTS] = {0}, weight[MP_FIT_COLUMNS] = {0};
    for (int i = 0; i < POINTS; i++)
        for (int c = 0; c < MP_FIT_COLUMNS; c++) {
            x[i][c] = c == i % MP_FIT_COLUMNS ? 20 : 1;
            y[i] += x[i][c] * (c + 1);
        }
    fit(MP_FIT_COLUMNS, &x[0][0], y, weight);
    for (int c = 0; c < MP_FIT_COLUMNS; c++)
        assert_close(weight[c], c + 1, 1e-9);
}
