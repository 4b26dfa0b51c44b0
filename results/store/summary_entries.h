/* What summary.c collects and summary_write.c turns into rows. */
#ifndef MOEPERF_RESULTS_STORE_SUMMARY_ENTRIES_H
#define MOEPERF_RESULTS_STORE_SUMMARY_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "profiler/record/record.h"

/* Phases between iterations, which no ITERATION span encloses. */
static inline bool lies_beside_iterations(int phase) {
    return phase == MP_PHASE_VALIDATE || phase == MP_PHASE_CHECKPOINT;
}

/* One rank in one iteration. */
struct rank_iteration {
    bool complete; /* its span of phase ITERATION is there */
    int64_t start_ns, end_ns;
    int64_t wait_ns;        /* as the ITERATION span says */
    int64_t phases_wait_ns; /* as the phases inside it say */
    int64_t tokens;         /* -1: not recorded */
    int64_t routes;         /* computed: forward EXPERT spans */
    bool uncounted;         /* one of them does not say how many */
};

struct iteration_entry {
    bool has_loss, has_auxiliary_loss, has_validation_loss;
    double loss, auxiliary_loss, validation_loss;
    struct rank_iteration rank[]; /* [ranks] */
};

/* One rank in one phase of one layer of one iteration. */
struct cell {
    int64_t busy_ns, wait_ns; /* stream compute */
    int64_t in_flight_ns;     /* stream comm */
    int64_t forward_tokens, backward_tokens;
    bool computed, has_forward_tokens, has_backward_tokens;
};

struct layer_entry {
    int experts;
    int64_t *routes; /* [experts], over all source ranks; owned */
    int64_t dropped;
};

/* What summary_write.c computes first: which iterations count. */
struct steady_state {
    int64_t complete, steady; /* iterations */
    double ms_per_iteration;  /* NAN: no steady iteration */
    double tokens_per_s;      /* NAN: unknown */
    double loss_final;        /* NAN: unknown */
};

#endif
