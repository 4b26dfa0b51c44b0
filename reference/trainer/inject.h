/* Injected delays, for testing profilers: a rank of a real run does something longer than it needs,
 * and who looks at the recording has to find out which and what.
 *
 *   inject: rank=1 phase=expert seconds=0.01 every=1 layer=0
 *
 * At the end of every span of that phase the rank goes on for so many seconds, and the span with
 * it.  In phases of communication (fetch, dispatch, combine, reduce, allreduce, move, wait) that is
 * a transfer that arrives late, and counts as waiting; in all others a busy loop.  Predictions have
 * the same delays in model time. */
#pragma once

#include <stdbool.h>

#include "reference/base/error.h"

struct mp_inject {
    int rank;
    int phase;      /* enum mp_phase */
    double seconds; /* of every span; 0: nothing is injected */
    int every;      /* iterations: of those that it divides */
    int layer;      /* MP_ALL: in every layer */
};

/* Text as above: rank, phase and seconds must be given.  "" injects nothing.  MP_EINVAL. */
int mp_inject_parse(const char *text, struct mp_inject *inject, struct mp_error *error);

/* Whether the phase is one of communication. */
bool mp_inject_delays_transfers(int phase);
