/* Inside of costs: sizes in the letters of reference/model/model.h, and what is worked out once. */
#ifndef MOEPERF_HARNESS_PREDICT_COST_INTERNAL_H
#define MOEPERF_HARNESS_PREDICT_COST_INTERNAL_H

#include "harness/predict/cost.h"
#include "profiler/record/record.h"

enum { MP_COSTS_ROWS_LIMIT = 1 << 20 }; /* larger numbers of rows are not tabulated */

struct mp_costs {
    const struct mp_cluster *cluster;  /* borrowed */
    struct mp_predict_options options; /* precision, matrices, ... */
    struct mp_sizes sizes;
    struct mp_setting setting;
    double element;                                            /* b: bytes of an element */
    double layers, width, heads, experts, expert_width, top_k; /* L D H E F / C K */
    double shards;                                             /* C */
    double shared_width;                                       /* U */
    double gate_kept; /* bytes of a token that its gate keeps for backward (mp_gate_keeps) */
    double sequence, vocabulary; /* S V */
    bool serves;
    double context;           /* cached tokens of a sequence; 0 in training */
    double answers;           /* rows of logits: N; serving: sequences of a micro-batch */
    double tokens;            /* N, of a micro-batch */
    double keys;              /* D of keys and of values */
    double cached;            /* numbers of a token and layer in the cache */
    double own[MP_PHASES][2]; /* seconds by phase and direction (mp_costs_own) */
    double behind; /* share of attention's backward that policy.weights_behind leaves for later */
    double *expert[2];              /* [known] by rows; 0: not yet */
    int64_t known;                  /* 0 or a power of two */
    const struct mp_fitted *fitted; /* borrowed; NULL: by formula */
    int iteration;                  /* of the run that it is fitted to */
};

#endif
