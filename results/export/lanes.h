/* Lanes: which of a stream's threads a span is drawn on, so that what is on one thread nests. */
#ifndef MOEPERF_RESULTS_EXPORT_LANES_H
#define MOEPERF_RESULTS_EXPORT_LANES_H

#include <stdint.h>

enum { LANES = 32, LANE_DEPTH = 32 };

struct lanes {
    int used; /* of them */
    struct {
        int depth;
        int64_t end_ns[LANE_DEPTH]; /* of the spans that are open, the outermost first */
    } lane[LANES];
};

/* The first lane on which the span lies in all that is open, or LANES if there is none.  Spans
 * come by ascending start, of equal ones the longest first; start_ns <= end_ns. */
int lanes_take(struct lanes *lanes, int64_t start_ns, int64_t end_ns);

#endif
