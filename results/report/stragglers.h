/* Who made the others wait in one run. */
#ifndef MOEPERF_RESULTS_REPORT_STRAGGLERS_H
#define MOEPERF_RESULTS_REPORT_STRAGGLERS_H

#include <stdbool.h>

#include "results/report/report.h"

/* Over the steady iterations, or all if none is; means are per iteration.  NAN: unknown. */
struct straggler {
    int64_t iterations;
    int slowest_rank;        /* most often the slowest of whole iterations */
    double slowest_share;    /* of the iterations */
    double wait_ms;          /* sum over the ranks, all phases */
    bool has_worst;          /* false: no phase lost time, or one rank */
    int layer;               /* -1: none */
    char phase[48];          /* the phase of most lost time */
    int phase_rank;          /* most often the slowest there */
    double phase_rank_share; /* of the iterations */
    double longer_ms;        /* slowest minus mean busy time */
    double lost_ms;          /* sum over the ranks of slowest minus own */
    double tokens_ratio;     /* tokens of the slowest / mean tokens */
    double layer_wait_ms;    /* sum over the ranks, all phases of the layer */
};

int straggler_find(struct mp_store *store, int64_t run_id, struct straggler *found,
                   struct mp_error *error);

/* The finding in words. */
void straggler_print(const struct straggler *found, const char *label, int ranks, FILE *out);

#endif
