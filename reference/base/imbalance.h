/* How uneven counts are: routes over experts, in the order of the experts.  The
 * results store, the straggler analysis and what is said of a trace all take these from here: the
 * same counts in the same order give the same bits everywhere. */
#pragma once

#include <stdint.h>

/* All NAN when every count is 0: undefined, not zero. */
struct mp_imbalance {
    double max_over_mean;
    double effective;     /* exp(-sum p ln p), p the shares, 0 ln 0 = 0 */
    double dead_fraction; /* of the counts that are 0 */
};

struct mp_imbalance mp_imbalance_of(const int64_t counts[], int count);
