/* Statistics of the gate: is it steady, is it different, by how much, and how sure is that.
 *
 * Everything is deterministic: exact null distributions counted in integers up to MP_EXACT_SAMPLES
 * (no tables, no random permutations), a normal approximation only beyond.  Nothing is ever removed
 * from a sample.  Inputs are borrowed and, but for mp_outliers', not changed.  A value that is not
 * finite is the caller's to sort out: tests and shifts fail with MP_EINVAL and its place, else with
 * MP_ENOMEM. */
#pragma once

#include <stdbool.h>

#include "reference/base/error.h"

enum {
    MP_EXACT_SAMPLES = 100, /* pairs, or both groups together: C(100, 50) fits 128 bits */
    MP_MOST_SAMPLES = 4096  /* the same for anything at all: Walsh averages take their square */
};

/* ---- one job's iterations ---- */

enum { MP_STEADY_WINDOW = 20 };    /* iterations */
#define MP_STEADY_SLOPE_PERCENT .1 /* of the mean, per iteration */

/* Where a rolling window of `window` values first has |slope| below `limit` percent of its mean:
 * the number of the window's first value, or -1: never, also when there are fewer values.  A window
 * has 2 values or more. */
int mp_steady_from(const double values[], int count, int window, double limit);

/* How many values have |value - median| / MAD > 14.826, MAD being the median of |value - median|
 * and at least the machine's epsilon (Iglewicz and Hoaglin 1993, as hyperfine has it); they only
 * warrant a warning.  Uses the values up. */
int mp_outliers(double values[], int count);

/* ---- two groups ---- */

struct mp_rank_test {
    double statistic;
    double p;   /* two-sided, min(1, 2 * the smaller tail); 1 when nothing can be told apart */
    bool exact; /* else the normal approximation */
};

/* Mann-Whitney's U for independent groups, exact with ties.  statistic: pairs (base, head) where
 * head is below base, ties half.  Errors: MP_EINVAL (an empty group), MP_ELIMIT. */
int mp_mann_whitney(const double base[], int bases, const double head[], int heads,
                    struct mp_rank_test *test, struct mp_error *error);

/* Wilcoxon's signed rank of differences of pairs, exact with ties; zeros are dropped, sizes within
 * 1e-12 of each other are ties.  statistic: W+, the rank sum of the positive ones.  With no
 * difference left p is 1.  Errors: MP_EINVAL (count < 1), MP_ELIMIT. */
int mp_signed_rank(const double differences[], int count, struct mp_rank_test *test,
                   struct mp_error *error);

/* Hodges and Lehmann's estimate of the shift, with the 95 % interval that the exact rank test
 * gives: both ends are infinite where so few samples cannot bound it (5 pairs and fewer). */
struct mp_shift {
    double estimate, low, high;
};
/* Of pairs: the median of all (d_i + d_j) / 2, i <= j.  Errors: MP_EINVAL, MP_ELIMIT. */
int mp_shift_of_pairs(const double differences[], int count, struct mp_shift *shift,
                      struct mp_error *error);
/* Of independent groups: the median of all head_j - base_i.  Errors: MP_EINVAL, MP_ELIMIT. */
int mp_shift_of_groups(const double base[], int bases, const double head[], int heads,
                       struct mp_shift *shift, struct mp_error *error);

/* Student's t with that many degrees of freedom: the two-sided p of |t|, exact.  t may be infinite.
 * NAN for fewer than 1. */
double mp_student_p(double t, int freedom);

/* Holm's correction for many tests at once: adjusted[i] belongs to p[i].  A p that is NAN stands
 * for a test that was not made: it stays NAN and does not count. */
int mp_holm(const double p[], int count, double adjusted[], struct mp_error *error);
