/* Standard runs with a target, for the tests of what is said about convergence. */
#ifndef MOEPERF_TESTS_RESULTS_TARGETS_H
#define MOEPERF_TESTS_RESULTS_TARGETS_H

#include "tests/results/runs.h"

/* Like runs_add; the run's target was 2.5 over 2 iterations, reached after `reached` of them or,
 * with 0, not at all. */
static inline int64_t targets_add(struct runs_folder *folder,
                                  const struct mp_store_run *description,
                                  const struct runs_standard *run, int reached) {
    struct runs_standard with_target = *run;
    with_target.has_target = true;
    with_target.reached = reached;
    return runs_add(folder, description, &with_target);
}

#endif
