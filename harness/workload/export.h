/* Traces written for others: the ways back from formats.h.  What is written can be read again. */
#ifndef MOEPERF_HARNESS_WORKLOAD_EXPORT_H
#define MOEPERF_HARNESS_WORKLOAD_EXPORT_H

#include "harness/workload/trace.h"

/* Which blocks are written. */
struct mp_export {
    int64_t iteration;   /* only this one; -1: all */
    int layer;           /* only this one; -1: all */
    int64_t row_bytes;   /* ptini: what a route sends; at least 1 */
    int64_t blocks_done; /* out: how many blocks were written */
};

/* Both write a whole file (reference/base/whole_file.h); the stream stays the caller's.
 * Errors: the stream's; MP_EINVAL (path is a folder; no such layer), MP_ENOTFOUND (no
 * block of this iteration), MP_EIO, MP_ENOSPACE, MP_ENOMEM; see also below. */

/* CSV, long: iteration,micro_batch,layer,rank,expert,count, a row for every count, zeros too.  With
 * one layer chosen it is layer 0 of the file: layers count from 0 there. */
int mp_export_csv(struct mp_trace_stream *stream, struct mp_export *chosen, const char *path,
                  struct mp_error *error);

/* UCC's pattern file: an ALLTOALLV for every block, in the trace's order; what every rank sends to
 * every rank when a layer's tokens are dispatched.  Experts lie on the ranks in order, E / R on
 * each (MP_EINVAL if R does not divide E).  An element is INT32 if row_bytes is a multiple of its
 * size, else INT8: with 4 bytes to a row a count is a number of routes.  MP_ELIMIT for a count
 * above 2^32 - 1 or more than 8192 ranks, which readers refuse. */
int mp_export_ptini(struct mp_trace_stream *stream, struct mp_export *chosen, const char *path,
                    struct mp_error *error);

#endif
