/* Fits: seconds as a sum of things that each cost something, none less than nothing. */
#pragma once

#include <stddef.h>

#include "reference/base/error.h"

enum { MP_FIT_COLUMNS = 16 };

/* All borrowed. */
struct mp_fit_points {
    int columns;  /* at most MP_FIT_COLUMNS */
    size_t count; /* of points */
    double *x;    /* [count][columns] how much there is of each */
    double *y;    /* [count] what it took */
};

/* Weights that are not negative, with which the sum of (y - x * weight)^2 over the points is least.
 * What points don't tell apart (columns in proportion) goes to the first of these columns, and
 * stays with the others as `weight` (in, out) has it.
 *
 * Points far from the fit (beyond 4 median distances and the median y) are left out in two more
 * rounds: ranks of a busy machine lose their processor now and then.  MP_ENOMEM. */
int mp_fit(const struct mp_fit_points *points, double weight[], struct mp_error *error);

/* Seconds of one point. */
double mp_fit_at(const struct mp_fit_points *points, size_t point, const double weight[]);
