/* What a predicted job asks of its loads. */
#ifndef MOEPERF_HARNESS_PREDICT_LOADS_H
#define MOEPERF_HARNESS_PREDICT_LOADS_H

#include "harness/predict/job.h"
#include "harness/workload/named.h"

/* The shape that the predictor is given, tokens of a rank in a micro-batch, and iterations. */
struct mp_trace_wanted predict_loads_wanted(const struct mp_predict_job *job,
                                            const struct mp_cluster *cluster);

#endif
