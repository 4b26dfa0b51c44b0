/* How uneven the routes of one layer were (profiling.md, 5.7). */
#ifndef MOEPERF_RESULTS_STORE_IMBALANCE_H
#define MOEPERF_RESULTS_STORE_IMBALANCE_H

#include <stdint.h>

/* All NAN when there is no route: undefined, not zero. */
struct imbalance {
    double max_over_mean;
    double effective;     /* exp(-sum p ln p), p the shares, 0 ln 0 = 0 */
    double dead_fraction; /* of the counts that are 0 */
};

struct imbalance imbalance_of(const int64_t counts[], int count);

#endif
