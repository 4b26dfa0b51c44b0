/* Where one run's time went. */
#ifndef MOEPERF_RESULTS_REPORT_PHASES_H
#define MOEPERF_RESULTS_REPORT_PHASES_H

#include "results/report/report.h"

/* A table of phases in ms per iteration and rank, and the finding in words. */
int phases_print(struct mp_store *store, int64_t run_id, const char *label, FILE *out,
                 struct mp_error *error);

#endif
