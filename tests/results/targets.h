/* Standard runs with a target, for the tests of what is said about convergence. */
#ifndef MOEPERF_TESTS_RESULTS_TARGETS_H
#define MOEPERF_TESTS_RESULTS_TARGETS_H

#include "tests/results/runs.h"

/* Like runs_add; the run's target was 2.5 over 2 iterations, reached after `reached` of them or,
 * with 0, not at all. */
static inline int64_t targets_add(struct runs_folder *folder,
                                  const struct mp_store_run *description,
                                  const struct runs_standard *run, int reached) {
    struct mp_error error = {0};
    struct runs_rank ranks[2];
    int64_t run_id = 0;
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        runs_standard_rank(&ranks[r], run);
        if (r == 0) {
            mp_record_number(ranks[r].compute, -1, -1, "target-loss", 2.5);
            mp_record_number(ranks[r].compute, -1, -1, "target-window", 2);
        }
        if (r == 0 && reached)
            mp_record_number(ranks[r].compute, -1, -1, "iterations-to-target", reached);
        runs_rank_close(&ranks[r], MP_OK, "");
    }
    const char *paths[] = {ranks[0].path, ranks[1].path};
    runs_ok(mp_store_ingest(folder->store, description, paths, 2, &run_id, &error), &error);
    return run_id;
}

#endif
