/* Even splits, over and over by the same numbers.  For planners of this project.
 *
 * A division of its own for each of 262,144 pairs of source and expert takes as long as all the
 * rest of a dispatch: numbers that many are divided by are turned into reciprocals. */
#pragma once

#include "reference/plan/plan.h"

/* ceil(2^63 / divisor), for divisor < 2^31; below 1 as for 1. */
static inline uint64_t mp_reciprocal(int32_t divisor) {
    uint64_t one = UINT64_C(1) << 63, by = divisor > 1 ? (uint64_t)divisor : 1;
    return one / by + (one % by != 0);
}

/* number / divisor, exactly: the reciprocal is too large by less than 1, which makes the product
 * with a 32-bit number too large by less than 2^63 / divisor. */
static inline uint32_t mp_divide(uint32_t number, uint64_t reciprocal) {
    return (uint32_t)((__extension__(unsigned __int128) number * reciprocal) >> 63);
}

/* Most parts of one split: a run with a route more between two without, or the other way round. */
enum { MP_PARTS_OF_SPLIT = 3 };

/* Writes `routes` over the holders first .. first + candidates - 1: an equal share each, and one
 * more for as many as remain from number `start` (< candidates) on, cyclically.  There must be room
 * for MP_PARTS_OF_SPLIT parts, whatever is used; returns the end of those that are.
 *
 * Without branches: which of the runs are empty can't be predicted. */
static inline struct mp_dispatch_part *mp_split(struct mp_dispatch_part *part, int32_t first,
                                                int32_t candidates, uint64_t reciprocal,
                                                int32_t start, uint32_t routes) {
    uint32_t each = mp_divide(routes, reciprocal);
    int32_t end = start + (int32_t)(routes - each * (uint32_t)candidates);
    bool wraps = end > candidates;
    int32_t begin_middle = wraps ? end - candidates : start;
    int32_t end_middle = wraps ? start : end;
    uint32_t outside = each + wraps, middle = each + !wraps;

    *part = (struct mp_dispatch_part){first, begin_middle, outside};
    part += (outside != 0) & (begin_middle != 0);
    *part = (struct mp_dispatch_part){first + begin_middle, end_middle - begin_middle, middle};
    part += (middle != 0) & (end_middle != begin_middle);
    *part = (struct mp_dispatch_part){first + end_middle, candidates - end_middle, outside};
    return part + ((outside != 0) & (candidates != end_middle));
}

/* Room for this many parts in all; for so many holders and a word's behind them.  MP_ENOMEM. */
int mp_plan_reserve_parts(struct mp_plan *plan, int64_t needed, struct mp_error *error);
int mp_plan_reserve_holders(struct mp_plan *plan, int64_t count, struct mp_error *error);
