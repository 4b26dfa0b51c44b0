/* Ranges of annotated programs on their way into NVTX_EVENTS. */
#ifndef MOEPERF_RESULTS_STORE_RANGES_H
#define MOEPERF_RESULTS_STORE_RANGES_H

#include "results/store/recording.h"

/* Stores the ranges of one rank's spool with the names that they refer to; does nothing if it has
 * none.  Times count from origin_ns on rank 0's clock. */
int ranges_ingest(struct recordings *recordings, int rank, int64_t origin_ns,
                  struct mp_error *error);

#endif
