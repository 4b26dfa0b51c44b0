/* Coordinate descent on the normal equations: few columns, so that many sweeps cost nothing. */
#include "harness/predict/least_squares.h"
#include "reference/base/median.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEPS = 4000, ROUNDS = 2 };
static const double FAR = 4; /* median distances */

struct equations {
    double a[MP_FIT_COLUMNS][MP_FIT_COLUMNS], b[MP_FIT_COLUMNS];
};

double mp_fit_at(const struct mp_fit_points *points, size_t point, const double weight[]) {
    const double *x = points->x + point * (size_t)points->columns;
    double seconds = 0;
    for (int c = 0; c < points->columns; c++)
        seconds += weight[c] * x[c];
    return seconds;
}

static double distance_of(const struct mp_fit_points *points, size_t point, const double weight[]) {
    return fabs(points->y[point] - mp_fit_at(points, point, weight));
}

static void add_point(const struct mp_fit_points *points, size_t point,
                      struct equations *equations) {
    const double *x = points->x + point * (size_t)points->columns;
    for (int c = 0; c < points->columns; c++) {
        equations->b[c] += x[c] * points->y[point];
        for (int d = 0; d < points->columns; d++)
            equations->a[c][d] += x[c] * x[d];
    }
}

static void descend(const struct equations *equations, int columns, double weight[]) {
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int c = 0; c < columns; c++) {
            double rest = equations->b[c];
            for (int d = 0; d < columns; d++)
                rest -= d == c ? 0 : equations->a[c][d] * weight[d];
            if (equations->a[c][c] > 0)
                weight[c] = rest > 0 ? rest / equations->a[c][c] : 0;
        }
}

/* With the points within `limit` of what the weights say; below 0: with all. */
static void fit_near(const struct mp_fit_points *points, double limit, double weight[]) {
    struct equations equations = {{{0}}, {0}};
    for (size_t i = 0; i < points->count; i++)
        if (limit < 0 || distance_of(points, i, weight) <= limit)
            add_point(points, i, &equations);
    descend(&equations, points->columns, weight);
}

int mp_fit(const struct mp_fit_points *points, double weight[], struct mp_error *error) {
    MP_AUTO(memory) double *value = NULL;
    MP_TRY(MP_NEW(value, points->count + 1, error));
    memcpy(value, points->y, points->count * sizeof *value);
    double usual = mp_median_of(value, (int64_t)points->count);
    fit_near(points, -1, weight);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < points->count; i++)
            value[i] = distance_of(points, i, weight);
        double limit = FAR * mp_median_of(value, (int64_t)points->count);
        fit_near(points, limit > usual ? limit : usual, weight);
    }
    return MP_OK;
}
