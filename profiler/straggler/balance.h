/* How uneven counts are: routes over experts, or over ranks. */
#ifndef MOEPERF_PROFILER_STRAGGLER_BALANCE_H
#define MOEPERF_PROFILER_STRAGGLER_BALANCE_H

#include <stdint.h>

#include "reference/base/imbalance.h"

/* n_e routes of expert e of E, m their mean, p_e their share.  All NAN without a route: undefined,
 * not zero. */
struct mp_balance {
    struct mp_imbalance imbalance;
    double variation;         /* sqrt(mean (n - m)^2) / m */
    double chance_variation;  /* 1 / sqrt(m): what uniform routing gives by chance */
    double overload_fraction; /* sum max(0, n - 1.25 m) / sum n */
    double gini;              /* 2 sum i n_(i) / (E sum n) - (E + 1) / E, n_(i) ascending */
};

/* `sorted` [experts] is working memory, ascending afterwards.  experts >= 1. */
struct mp_balance mp_balance_of(const uint32_t routes[], int experts, int64_t sorted[]);

/* Of many values: nearest-rank percentiles; NAN values are left out, and all are NAN if none is
 * left.  `value` is sorted. */
struct mp_percentiles {
    double p50, p90, p99, largest;
};
struct mp_percentiles mp_percentiles_of(double value[], int count);

#endif
