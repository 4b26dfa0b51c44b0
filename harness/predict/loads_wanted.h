/* What a predicted job asks of its loads. */
#pragma once

#include "harness/predict/job.h"
#include "harness/workload/named.h"

/* The shape that the predictor is given, tokens of a rank in a micro-batch, and iterations. */
struct mp_trace_wanted predict_loads_wanted(const struct mp_predict_job *job,
                                            const struct mp_cluster *cluster);

/* MP_EINVAL unless routes are those of the job's tokens, or near: sources may be rounded, or differ
 * (w4), and a gate may leave choices (`fewer`: mp_job_takes_fewer), though not a token's first. */
int predict_loads_check(const struct mp_trace_wanted *job, bool fewer,
                        const struct mp_trace_block *block, struct mp_error *error);

/* The sentence on a known model whose sizes the job has, as one adopts them whose loads leave them
 * open; NULL: it has none's.  Returns `text`. */
const char *predict_loads_model(const struct mp_job *job, char *text, size_t size);
