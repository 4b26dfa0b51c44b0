/* Reading what the straggler analysis needs of one run. */
#ifndef MOEPERF_RESULTS_REPORT_WAITING_READ_H
#define MOEPERF_RESULTS_REPORT_WAITING_READ_H

#include "profiler/straggler/straggler.h"
#include "reference/base/arena.h"
#include "results/report/report.h"

struct waiting_recording {
    struct mp_straggler_input input; /* borrows what follows */
    int iterations;                  /* steady ones; input may have every second, third, ... */
    int ranks_share_cores;           /* 1: yes */
    int64_t *number;
    struct mp_recorded_span *span;
    double *collected;
    struct mp_arena memory; /* of what follows */
    struct mp_recorded_rank *rank;
    struct mp_recorded_between *between;
    uint32_t *routes, *dropped;
};

/* Steady iterations of a run; of a long run evenly chosen ones, so that at most about 200,000 spans
 * are looked at.  To be freed, also after an error. */
int waiting_read(struct mp_store *store, int64_t run_id, struct waiting_recording *recording,
                 struct mp_error *error);
void waiting_free(struct waiting_recording *recording);

#endif
