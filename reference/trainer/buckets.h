/* Buckets: gradients of non-expert parameters, summed over all ranks a layer at a time, and those
 * of no layer behind them. */
#ifndef MOEPERF_REFERENCE_TRAINER_BUCKETS_H
#define MOEPERF_REFERENCE_TRAINER_BUCKETS_H

#include "reference/model/block.h"
#include "reference/trainer/spans.h"

struct mp_buckets {
    struct mp_comm *comm; /* borrowed, as are model and spans */
    struct mp_model *model;
    struct mp_spans *spans;
    struct mp_request **request; /* [L + 1] the caller's */
    struct mp_flight *flight;    /* [L + 1] */
};

int mp_buckets_start(struct mp_buckets *buckets, int bucket, struct mp_error *error);
int mp_buckets_wait(struct mp_buckets *buckets, int bucket, struct mp_error *error);

#endif
