/* Clocks of processes that were recorded apart, put beside one another by their collectives.
 *
 * Nobody leaves an all-reduce, all-gather, all-to-all, reduce-scatter or barrier before all have
 * come, and all leave it nearly together: the difference of the ends of one collective on two
 * clocks is their offset and little else, the less the shorter it took the last one who came.  A
 * line through the offsets takes up different speeds; beside it, in each of some windows of time,
 * the median over the shortest quarter is taken, or, where that would let one leave before the
 * other had come, the middle of what is left. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/record/spool_writer.h"
#include "results/store/clock_fit.h"

/* One collective on one process's clock. */
struct meeting {
    uint64_t communicator, sequence;
    uint32_t function; /* any number that is the same on all processes */
    int64_t start_ns, end_ns;
};

/* Processes of one host are taken to have one clock if it shows their meetings' ends less than this
 * apart: hosts may have one name and be several. */
enum { CLOCK_WINDOWS = 8, CLOCK_SAME_NS = 1000000 };

struct meeting_clock {
    const struct meeting *meeting; /* [meetings] in meetings_order */
    size_t meetings;
    bool on_first_host; /* its host has the name of the first process's */
    /* What is found. */
    bool aligned;
    bool mismatched; /* what has equal numbers were other meetings: more than a tenth of them were
                        left before the other one had come, on any clocks */
    int64_t matched; /* meetings that were compared; 0 for the first process */
    struct clock_sample sample[CLOCK_WINDOWS]; /* offsets from the first process's clock */
    int samples;
};

/* Whether nobody leaves a collective of this name before all have come; case, '_' and the like
 * don't count. */
bool meeting_synchronises(const char *function);

/* Orders two (struct meeting) by what makes them one: 0: they are. */
int meeting_compare(const void *left, const void *right);
/* Sorts as meeting_clocks_align wants it. */
void meetings_order(struct meeting meeting[], size_t meetings);

/* Compares every clock with the first one's, directly or through others that are compared already.
 * A sample's error_ns is twice the median deviation of its differences, or the range in which they
 * can be at all if that is less.  Where every offset of a
 * clock is within twice its error, the two are one clock: offsets are 0 then, and errors the larger
 * of both; on one host there are no samples then.  The error of at most twelve meetings is at least
 * what the shortest of them took.  false: no memory. */
bool meeting_clocks_align(struct meeting_clock clock[], int clocks);

/* Writes them as records of a spool.  Errors: those of spool_writer_add. */
int clock_samples_write(const struct clock_sample sample[], int samples,
                        struct spool_writer *writer, struct mp_error *error);

/* What was found of some clocks. */
struct meeting_summary {
    int on_first_host; /* that are the first one's, that one included */
    int aligned;       /* others that were compared with it, and have samples */
    int64_t matched;   /* meetings that were compared, least of all pairs of clocks */
    int64_t offset_ns; /* the largest offset found, without sign; 0: one clock */
    int64_t error_ns;  /* the largest that is left */
};
struct meeting_summary meeting_clocks_summarise(const struct meeting_clock clock[], int clocks);
