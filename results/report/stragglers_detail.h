/* The straggler analysis in full: efficiencies, ranks, phases of layers, balance of routes. */
#ifndef MOEPERF_RESULTS_REPORT_STRAGGLERS_DETAIL_H
#define MOEPERF_RESULTS_REPORT_STRAGGLERS_DETAIL_H

#include <jansson.h>

#include "results/report/stragglers.h"

int stragglers_detail_print(const struct straggler *straggler, FILE *out, struct mp_error *error);

/* Findings, slowdowns, ranks and balance; `in_full` with phases of layers and balance of each
 * layer.  Times in ms. */
json_t *stragglers_detail_json(const struct straggler *straggler, bool in_full);

#endif
