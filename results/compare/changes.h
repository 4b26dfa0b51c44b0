/* Changes of level in a series: where, by how much, and how sure that is.
 *
 * E-divisive (Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of
 * Multivariate Data", JASA 2014; energy distance with exponent 1), as regression benchmarks use it
 * (Daly et al., ICPE 2020): of all splits of a segment with two values or more on each side the one
 * whose sides are farthest apart counts, if few shuffles of the segment have one that far; then
 * each side is looked at in the same way.  Shuffles are drawn from the values' places alone, so
 * that the same series has the same answer every day.
 *
 * A change in the last value alone can't be told from an outlier: it shows with the next one. */
#ifndef MOEPERF_RESULTS_COMPARE_CHANGES_H
#define MOEPERF_RESULTS_COMPARE_CHANGES_H

#include "reference/base/error.h"

enum { MP_CHANGES_SHUFFLES = 999, MP_CHANGES_LEAST = 2, MP_CHANGES_VALUES = 2000 };
#define MP_CHANGES_SIGNIFICANCE .03

struct mp_change {
    int index; /* of the first value with the new level */
    double before,
        after; /* medians from the change before to this one, from this one to the next */
    double p;  /* shuffles with a split as far, of all and the series itself */
};

/* *change [*changes] in ascending order; free it.  Errors: MP_EINVAL (a value that is not finite),
 * MP_ELIMIT (more than MP_CHANGES_VALUES), MP_ENOMEM. */
int mp_changes_find(const double value[], int count, struct mp_change **change, int *changes,
                    struct mp_error *error);

#endif
