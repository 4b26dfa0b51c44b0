/* Fans: how rows of tokens, of which one may serve several routes, become more on their way to the
 * experts, and are summed up again on their way back (an exchange that deduplicates).
 *
 *   first, at the token's rank      a token's row for each outermost group that needs it
 *   next, at a rank of a group      one of those for each group of the next level, or at last rank,
 *                                   that needs it: as many fans as levels of groups
 *   last, at the expert's rank      one of those for each expert, in expert order
 *
 * The first is of all tokens; of the others every chunk has its own, one for each round, whose rows
 * are counted from the chunk's first one.  With the device's gather_rows a fan is made, with its
 * combine_forward undone.
 */
#pragma once

#include <stdint.h>

#include "reference/model/rows.h"
#include "reference/schedule/exchange/exchange.h"

enum { MP_FANS = 1 + MP_EXCHANGE_ROUNDS * MP_MOST_DEGREE };

struct mp_fan {
    int in, out;     /* rows before it and behind */
    int ways;        /* most rows that one becomes */
    int32_t *gather; /* [out] row before it */
    int32_t *sum;    /* [in][ways] rows behind it, -1: no more */
    /* [in][K] where in a chunk's rows of K figures, one for each of a token's routes, behind the
     * fan a route's own one is; -1: nowhere.  The last fan has the routes' weights instead. */
    int32_t *pick;
    float *weight;
};

/* Of a layer, from its forward to its backward. */
struct mp_distinct {
    int fans;                   /* 1 + rounds * chunks */
    struct mp_fan fan[MP_FANS]; /* the first, then the others of every chunk */
    struct mp_rows rows; /* numbers of all arrays above, as many as have been needed so far */
};

/* Numbers, four bytes each, that the arrays of a fan with this `in`, `out` and `ways` have, one
 * after the other from `gather` on; and those of all fans. */
int64_t mp_fan_numbers(const struct mp_fan *fan, int top_k);
int64_t mp_distinct_numbers(const struct mp_fan fan[], int fans, int top_k);
/* Puts the arrays into `memory`. */
void mp_distinct_place(struct mp_fan fan[], int fans, int top_k, void *memory);
