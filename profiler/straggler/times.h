/* What every rank did in every iteration, as plain arrays: what the analysis of stragglers starts
 * from.  Who reads them, and from where, is not its business.
 *
 * Times are seconds from the earliest start of the iteration over all ranks, on one common clock
 * where there is one. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profiler/record/record.h"

/* A span of the stream "compute": what the rank's own thread spent. */
struct mp_recorded_span {
    double start, end;
    double wait;              /* of it blocked on other ranks */
    int64_t tokens;           /* -1: not known */
    int layer;                /* -1: none; of a send or recv the other rank */
    uint8_t phase, direction; /* enum mp_phase, mp_direction */
};

/* One rank in one iteration. */
struct mp_recorded_rank {
    double start, end; /* of its iteration */
    size_t first;      /* in span: its own in the order of their starts */
    int count;
    double cpu; /* of it that its thread had a core, s; 0: not known */
};

/* What a rank did between two iterations. */
struct mp_recorded_between {
    double seconds;
    uint8_t phase;
};

struct mp_recorded_times {
    int ranks, iterations;
    const struct mp_recorded_rank *rank; /* [iterations][ranks] */
    const struct mp_recorded_span *span; /* [spans] */
    size_t spans;
};

static inline int mp_recorded_layer(const struct mp_recorded_span *span) {
    return span->phase == MP_PHASE_SEND || span->phase == MP_PHASE_RECV ? -1 : span->layer;
}

static inline const struct mp_recorded_rank *mp_recorded_rank_at(
    const struct mp_recorded_times *times, int iteration, int rank) {
    return &times->rank[(size_t)iteration * (size_t)times->ranks + (size_t)rank];
}

/* Lets every iteration begin at 0: of rank and span, which need not be those of `times` yet, in
 * units of so many seconds (clocks.c). */
void mp_recorded_shift(struct mp_recorded_rank rank[], struct mp_recorded_span span[],
                       const struct mp_recorded_times *times, double unit);
