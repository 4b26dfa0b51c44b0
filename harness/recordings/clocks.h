/* Clocks of processes that were recorded apart, put beside one another by their collectives.
 *
 * Nobody leaves an all-reduce, all-gather, all-to-all, reduce-scatter or barrier before all have
 * come, and all leave it nearly together: the difference of the ends of one collective on two
 * clocks is their offset and little else.  The median over many is taken, in windows of time, so
 * that clocks may run at different speeds. */
#ifndef MOEPERF_HARNESS_RECORDINGS_CLOCKS_H
#define MOEPERF_HARNESS_RECORDINGS_CLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "results/store/clock_fit.h"

/* The end of one collective on one process's clock. */
struct meeting {
    uint64_t communicator, sequence;
    uint32_t function; /* any number that is the same on all processes */
    int64_t end_ns;
};

enum { CLOCK_WINDOWS = 8 };

struct meeting_clock {
    const struct meeting *meeting; /* [meetings] in meetings_order */
    size_t meetings;
    /* What is found. */
    bool aligned;
    int64_t matched; /* meetings that were compared; 0 for the first process */
    struct clock_sample sample[CLOCK_WINDOWS]; /* offsets from the first process's clock */
    int samples;
};

/* Whether nobody leaves a collective of this name before all have come; case, '_' and the like
 * don't count. */
bool meeting_synchronises(const char *function);

/* Sorts as meeting_clocks_align wants it. */
void meetings_order(struct meeting meeting[], size_t meetings);

/* Compares every clock with the first one's, directly or through others that are compared already.
 * A sample's error_ns is the median deviation of its differences.  Where every offset of a clock is
 * within its error, the two are one clock: offsets are 0 then, and errors what was seen.  false: no
 * memory. */
bool meeting_clocks_align(struct meeting_clock clock[], int clocks);

#endif
