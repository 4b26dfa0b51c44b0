/* Recorded runs: what every rank did in every steady iteration, read from a database.
 *
 * Measured and predicted runs alike.  Times are seconds from the earliest start of the iteration
 * over all ranks, on the run's common clock. */
#ifndef MOEPERF_HARNESS_PREDICT_RECORDED_H
#define MOEPERF_HARNESS_PREDICT_RECORDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/straggler/times.h"
#include "reference/base/arena.h"
#include "results/store/store.h"

struct mp_recorded {
    int64_t run_id;
    const char *suite, *job, *system, *executor, *workload, *gate, *model;
    const char *job_text; /* as the ranks read it; "" if not kept */
    int ranks, ranks_per_node;
    double clock_error; /* s; two ranks' clocks are at most so far apart */
    int iterations;
    int64_t *number;               /* [iterations] as the run counts them */
    double *seconds;               /* [iterations] v_iteration.ms */
    struct mp_recorded_rank *rank; /* [iterations][ranks] */
    struct mp_recorded_span *span;
    size_t spans;
    struct mp_arena memory; /* of texts and ranks */
};

/* Reads the steady iterations of a run, chosen as by mp_store_choose_run, or what it lacks
 * (MP_ENOTFOUND): steady iterations, spans, or a common clock of its ranks; MP_EIO, MP_ENOMEM. */
int mp_recorded_read(struct mp_store *store, int64_t run_id, struct mp_recorded *recorded,
                     struct mp_error *error);
void mp_recorded_destroy(struct mp_recorded *recorded); /* accepts a zeroed one */

#endif
