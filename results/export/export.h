/* Export: what a results database has, in formats that other programs read.
 *
 * All three functions stream: memory does not grow with the number of spans (SQLite sorts beside
 * the database, in files of its own, where it must).  They read one state of the database, whoever
 * writes meanwhile, and write the file whole or not at all (reference/base/whole_file.h).  Texts
 * may hold any bytes: JSON gets U+FFFD for bytes that are no UTF-8, CSV gets the bytes.  Numbers
 * that JSON can't say are null.
 *
 * Errors of all: MP_EINVAL (the path is a folder, and see below), MP_ENOTFOUND (no such
 * run), MP_EIO, MP_ENOSPACE, MP_ENOMEM, MP_EFORMAT (a damaged database). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "results/store/store.h"

struct mp_results_selection {
    int64_t run_id;       /* 0: the only run of the database (MP_EINVAL if there are more); for
                           * CSV all runs */
    bool some_iterations; /* only these, both included: */
    int64_t first, last;  /* MP_EINVAL if last < first */
};

struct mp_results_exported {
    int64_t rows;           /* spans of a timeline, lines of CSV without the head, rows of JSON */
    int64_t flows;          /* arrows of a timeline */
    int64_t flows_left_out; /* exchanges that a rank left before the last one came, which clocks
                             * that differ make of them, or whose rank's clock is not known */
    /* What a timeline has beside spans: */
    int64_t ranges;       /* annotated ranges and marks */
    int64_t calls;        /* of CUDA, on the host */
    int64_t gpu;          /* kernels, copies, fills */
    int64_t collectives;  /* NCCL's operations, one per rank */
    int64_t launches;     /* arrows from the host to those */
    int64_t gpu_left_out; /* GPU work and collectives whose times, or their clock, are not known */
};

/* One run as a timeline: Chrome's trace event format in JSON, as Perfetto reads it.
 *
 *   processes  pid is the rank; named after rank and host
 *   threads    tid is 1 + 32 * group + lane.  The groups: stream "compute" is 0, "comm" 1, others
 *              follow; then the host's threads, each GPU's streams and NCCL's communicators, as far
 *              as the run has any.  Slices of one tid nest: one that overlaps another without lying
 *              in it goes to the group's next lane ("comm (2)"), and where 32 are not enough
 *              becomes a pair of b and e
 *   spans      ph X, name: phase, cat: stream, args: what was recorded of it.  One that ends before
 *              it starts has no duration
 *   ranges     cat "nvtx", as v_nvtx has them, on "thread TID NAME" of the thread that pushed or
 *              started them ("…, started ranges"): kind, domain, category, value, payload.  A mark
 *              is an instant, ph i; a range that was open when its process ended begins, ph B, with
 *              open: true, and does not end
 *   calls      cat "cuda", of CUDA's runtime and driver, on the same threads
 *   GPU work   cat "kernel", "memcpy", "memset", on "GPU N stream S"; args: sizes, the iteration,
 *              layer and phase of the span that launched it
 *   collectives cat "nccl", as v_collective has them, on "NCCL communicator, rank of size", with a
 *              slice "wait" and a slice "transfer" inside where they are known
 *   counters   ph C "layer L", series "tokens": what a rank's experts worked on, at each forward
 *              span of phase expert
 *   flows      ph s and f, cat "exchange": for every dispatch and combine of a layer from the rank
 *              that came last to each other rank, which could not leave before
 *              cat "launch": from the call that launched it (or for want of that the span) to GPU
 *              work; cat "collective": from the span to the collective that was queued in it; none
 *              that would go back in time
 *   otherData  the run and its ranks as v_run and v_rank have them
 *
 * With iterations chosen, what belongs to none of them comes along where it overlaps its rank's
 * spans of them.  Times are microseconds since the run's first span, as decimals with three digits:
 * no nanosecond is rounded. */
int mp_results_perfetto(struct mp_store *store, const struct mp_results_selection *selection,
                        const char *path, struct mp_results_exported *exported,
                        struct mp_error *error);

/* A view as CSV (RFC 4180, lines end in LF): a head with the columns' names, then a line per row.
 * NULL is nothing, an empty text is "", a real number has as many digits as it takes to read the
 * same number back.  A text that begins with = + - @, a tab or a carriage return gets an apostrophe
 * in front: spreadsheets would take it for a formula and carry it out.  `view`: its name, with or
 * without "v_" in front, also of a user's own view.  Errors: MP_EINVAL (no such view: those that
 * exist are named; a selection of runs or iterations where the view has none). */
int mp_results_csv(struct mp_store *store, const struct mp_results_selection *selection,
                   const char *view, const char *path, struct mp_results_exported *exported,
                   struct mp_error *error);

/* All about a run as one JSON object: {"format": "moeperf run", "version": 1, "run": {...}} and an
 * array of objects for each of ranks, facts, clocks, numbers, iterations, stragglers, imbalance,
 * phases, loads, spans, ranges (v_nvtx), gpu and collectives, with the columns of the views of
 * schema.sql (a load's counts as arrays, a range's payload as what it is).  With iterations chosen,
 * what belongs to no iteration is still there. */
int mp_results_json(struct mp_store *store, const struct mp_results_selection *selection,
                    const char *path, struct mp_results_exported *exported, struct mp_error *error);
