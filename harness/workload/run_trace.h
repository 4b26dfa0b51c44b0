/* The loads of a recorded run as a trace. */
#ifndef MOEPERF_HARNESS_WORKLOAD_RUN_TRACE_H
#define MOEPERF_HARNESS_WORKLOAD_RUN_TRACE_H

#include "harness/workload/trace.h"
#include "results/store/store.h"

/* Streams the routes that every rank's tokens chose, before any were dropped, in iterations that
 * all ranks recorded in all layers; micro_batch is 0.  `database` is named in messages and in the
 * info's source.  The store is borrowed until the stream is destroyed.
 *
 * run_id 0: the only run of the database.  Errors: MP_EINVAL (run_id 0 and not exactly one run),
 * MP_ENOTFOUND (no such run, no loads of it), MP_EFORMAT (loads that are no loads, a layer that one
 * rank lacks), MP_EIO, MP_ENOMEM. */
int mp_trace_open_run(struct mp_store *store, const char *database, int64_t run_id,
                      struct mp_trace_stream **stream, struct mp_error *error);

#endif
