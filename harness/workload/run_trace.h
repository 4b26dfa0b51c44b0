/* The loads of a recorded run as a trace. */
#pragma once

#include "harness/workload/trace.h"
#include "results/store/store.h"

/* Streams the routes that every rank's tokens chose, before any were dropped, in iterations that
 * all ranks recorded in all layers; micro_batch is 0.  The store is borrowed until the stream is
 * destroyed.
 *
 * Errors: those of mp_store_choose_run, MP_ENOTFOUND (no loads of the run), MP_EFORMAT (loads that
 * are no loads, a layer that one rank lacks), MP_EIO, MP_ENOMEM. */
int mp_trace_open_run(struct mp_store *store, int64_t run_id, struct mp_trace_stream **stream,
                      struct mp_error *error);
