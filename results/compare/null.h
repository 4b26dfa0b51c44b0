/* Null distributions of rank sums, counted exactly.
 *
 * If nothing differs, every way of giving ranks to a group (or signs to differences) is equally
 * likely; the number of ways to reach each sum follows from adding one rank after the other.  Ranks
 * are doubled, so that those of ties are whole.  Counts have 128 bits: all of C(100, 50) and 2^100
 * fit, and no count is rounded. */
#ifndef MOEPERF_RESULTS_COMPARE_NULL_H
#define MOEPERF_RESULTS_COMPARE_NULL_H

#include "reference/base/error.h"

__extension__ typedef unsigned __int128 null_count;

struct null_distribution {
    null_count *ways; /* [sums], ways to reach each sum, owned */
    int sums;
    null_count total;
};

/* Sums of any subset of the ranks.  Errors of all: MP_ENOMEM.  count <= MP_EXACT_SAMPLES. */
int null_of_signs(const int ranks[], int count, struct null_distribution *null,
                  struct mp_error *error);
/* Sums of the subsets of `choose` ranks. */
int null_of_groups(const int ranks[], int count, int choose, struct null_distribution *null,
                   struct mp_error *error);
void null_free(struct null_distribution *null);

/* min(1, 2 * the smaller of both tails, the sum itself in each). */
double null_two_sided(const struct null_distribution *null, int sum);

/* The largest value of the test's statistic (W, or U) whose lower tail is at most 2.5 %, for ranks
 * without ties; -1: there is none. */
int null_quantile_of_signs(int count, int *quantile, struct mp_error *error);
int null_quantile_of_groups(int bases, int heads, int *quantile, struct mp_error *error);

#endif
