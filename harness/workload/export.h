/* Traces written for others: the ways back from formats.h.  What is written can be read again. */
#pragma once

#include "harness/workload/trace.h"

/* Which blocks are written. */
struct mp_export {
    int64_t iteration;   /* only this one; -1: all */
    int layer;           /* only this one; -1: all */
    int64_t blocks_done; /* out: how many blocks were written */
};

/* CSV, long: iteration,micro_batch,layer,rank,expert,count, a row for every count, zeros too.  With
 * one layer chosen it is layer 0 of the file: layers count from 0 there.
 *
 * Writes a whole file (reference/base/whole_file.h); the stream stays the caller's.  Errors: the
 * stream's; MP_EINVAL (path is a folder; no such layer), MP_ENOTFOUND (no block of this iteration),
 * MP_EIO, MP_ENOSPACE, MP_ENOMEM. */
int mp_export_csv(struct mp_trace_stream *stream, struct mp_export *chosen, const char *path,
                  struct mp_error *error);
