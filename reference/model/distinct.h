/* Fans: how rows of tokens, of which one may serve several routes, become more on their way to the
 * experts, and are summed up again on their way back (an exchange that deduplicates).
 *
 *   fan 0, at the token's rank     a token's row for each group of ranks that needs it
 *   fan 1, at a rank of the group  one of those for each rank that needs it
 *   fan 2, at the expert's rank    one of those for each expert, in expert order
 *
 * With the device's gather_rows a fan is made, with its combine_forward undone. */
#ifndef MOEPERF_REFERENCE_MODEL_DISTINCT_H
#define MOEPERF_REFERENCE_MODEL_DISTINCT_H

#include <stdint.h>

#include "reference/model/rows.h"

enum { MP_FANS = 3 };

struct mp_fan {
    int in, out;     /* rows before it and behind */
    int ways;        /* most rows that one becomes */
    int32_t *gather; /* [out] row before it */
    int32_t *sum;    /* [in][ways] rows behind it, -1: no more */
    /* [in][K] where in rows of K figures, one for each of a token's routes, behind the fan a
     * route's own one is; -1: nowhere.  The last fan has the routes' weights instead. */
    int32_t *pick;
    float *weight;
};

/* Of a layer, from its forward to its backward. */
struct mp_distinct {
    struct mp_fan fan[MP_FANS];
    struct mp_rows rows; /* numbers of all arrays above, as many as have been needed so far */
};

/* Numbers, four bytes each, that the arrays of fans with these `in`, `out` and `ways` have. */
int64_t mp_distinct_numbers(const struct mp_fan fan[MP_FANS], int top_k);
/* Puts the arrays into `memory`. */
void mp_distinct_place(struct mp_fan fan[MP_FANS], int top_k, void *memory);

#endif
